package delta

import (
	"cmp"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Constants of exploration.
const (
	optimism  = 2.0            // standard errors by which an option is given the benefit of the doubt
	stale     = 24 * time.Hour // without a sample, after which an option gets one whatever its price
	conserved = 0.8            // share of a quota, from which an option under it is never explored
	unknown   = 4              // observations of the fleet below which an option counts as unused
)

// Reason says why an option is probed.
type Reason string

// Reasons, in the order they count.
const (
	IsSuspect  Reason = "suspect"    // is it back?
	IsStale    Reason = "stale"      // nobody has tried it for a day
	Optimistic Reason = "optimistic" // it might be the best there is
)

// Choice is an option to probe.
type Choice struct {
	Slot   chain.Slot
	Option chain.OptionID
	Reason Reason
}

// Idle is the state of the device that exploration depends on.
type Idle struct {
	Busy bool          // a request is under way
	For  time.Duration // since the end of the last request
	// Used gives the share of the tightest quota of an option that is spent, 0
	// to 1. If nil, no option has one.
	Used func(*chain.Option) float64
	// Can reports whether this device has a probe for the option. If nil, it has.
	Can func(chain.Slot, *chain.Option) bool
}

// Explore picks what to probe now, if the rules of a slot allow it: the device has
// been idle for long enough, and its last probe lies an hour over the allowance
// back. Several slots share the one time of the last probe, so that no number of
// chains adds up to more than the largest allowance.
func (b *Book) Explore(views []View, d Idle, now time.Time) (Choice, bool) {
	var best candidate
	found := false
	for i := range views {
		v := &views[i]
		if !b.allowed(&v.Rules, d, now) {
			continue
		}
		for _, c := range b.candidates(v, d, now) {
			if !found || c.before(&best) {
				best, found = c, true
			}
		}
	}
	return best.Choice, found
}

// Probed notes that a probe is sent. It comes before the probe, and is written
// down before it, so that no restart adds to an allowance.
func (b *Book) Probed(c Choice, now time.Time) {
	b.probed = chain.InstantOf(now)
	if r := b.record(Key{c.Slot.Primitive, c.Option}); r != nil {
		r.Probed = b.probed
	}
	b.changed = true
}

// Begin notes that this device starts now. One that never probed waits for a whole
// pause: neither a new device nor one that lost its records has an allowance to
// catch up on.
func (b *Book) Begin(now time.Time) {
	if b.probed == 0 {
		b.probed = chain.InstantOf(now)
	}
}

// Pause is the time between two probes under rules, and false if there are none.
func Pause(r *chain.Rules) (time.Duration, bool) {
	if r.NoExploration || r.Exploration <= 0 {
		return 0, false
	}
	return time.Duration(float64(time.Hour) / r.Exploration.Share()), true
}

func (b *Book) allowed(r *chain.Rules, d Idle, now time.Time) bool {
	pause, some := Pause(r)
	if !some || d.Busy || d.For < r.Idle.Duration() {
		return false
	}
	if b.probed > chain.InstantOf(now) { // the clock was set back
		b.probed = chain.InstantOf(now)
	}
	return b.probed == 0 || now.Sub(b.probed.Time()) >= pause
}

// candidate is an option that may be probed, with what it is compared by.
type candidate struct {
	Choice
	rank  int
	value float64 // the lower, the sooner
}

func (c *candidate) before(o *candidate) bool {
	return cmp.Or(cmp.Compare(c.rank, o.rank), cmp.Compare(c.value, o.value), cmp.Compare(c.Slot.String(), o.Slot.String()),
		cmp.Compare(c.Option, o.Option)) < 0
}

// candidates gives what may be probed in one slot. The option in front is left
// out: requests measure it. A slot's peers are measured by use as well.
func (b *Book) candidates(v *View, d Idle, now time.Time) (list []candidate) {
	s := b.look(v, now)
	front := true
	for _, at := range s.order {
		o, x := &v.Options[at], &s.priced[at]
		if !x.usable || o.Kind == chain.Peer {
			continue
		}
		r, first := b.known(v, o.ID), front
		front = false
		switch {
		case !slices.ContainsFunc(v.Rules.Explore, func(p string) bool { return chain.Match(p, string(o.ID)) }):
		case d.Can != nil && !d.Can(v.Slot, o), d.Used != nil && d.Used(o) > conserved:
		default:
			c := candidate{Choice: Choice{Slot: v.Slot, Option: o.ID}}
			tried := max(r.Last, r.Probed)
			age := now.Sub(tried.Time())
			switch {
			case o.Cost.Suspect() && !x.ignored:
				c.Reason, c.value = IsSuspect, float64(tried)
			case !first && age >= stale && o.Cost.Weight < unknown:
				c.Reason, c.rank, c.value = IsStale, 1, float64(tried)
			case !first:
				c.Reason, c.rank, c.value = Optimistic, 2, x.index-optimism*x.spread
			default:
				continue
			}
			list = append(list, c)
		}
	}
	return list
}
