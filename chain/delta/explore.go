package delta

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Constants of exploration.
const (
	optimism  = 2.0            // standard errors by which an option is given the benefit of the doubt
	stale     = 24 * time.Hour // without a sample, after which an option gets one whatever its price
	conserved = 0.8            // share of a quota, from which an option under it is never explored
	unknown   = 16             // observations of the fleet below which the prior still has too much of a say
)

// Reason says why an option is probed.
type Reason string

// Reasons, in the order they count.
const (
	IsSuspect  Reason = "suspect"    // is it back?
	IsSought   Reason = "sought"     // the fleet's newest word on it is not what was believed
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
	// Fleet is how many devices share the chains, as far as is known, and Lot is this
	// one's place among them, 0 to 1: they take turns with what nothing but curiosity
	// asks for. A fleet of 0 counts as 1.
	Fleet int
	Lot   float64
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
	front, least := true, 0.0
	for _, at := range s.order {
		o, x := &v.Options[at], &s.priced[at]
		if !x.usable || o.Kind == chain.Peer {
			continue
		}
		r, first := b.known(v, o.ID), front
		if first {
			front, least = false, x.index
		}
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
			case first:
				continue
			case d.sought(v, o.ID, age, now):
				c.Reason, c.rank, c.value = IsSought, 1, float64(tried)
			case o.Cost.Weight < unknown && age >= stale && d.turn(o.ID, wanted(o, x, least), now):
				c.Reason, c.rank, c.value = IsStale, 2, float64(tried)
			default: // what could not be better if all went well teaches nothing
				if c.Reason, c.rank, c.value = Optimistic, 3, x.index-optimism*x.doubt; c.value >= least {
					continue
				}
			}
			list = append(list, c)
		}
	}
	return list
}

// Samples of the whole fleet a day of what it knows too little of.
const (
	ofHopeful  = 48 // keeps a weight of about unknown
	ofHopeless = 1
)

// wanted is how many samples of an option the fleet should take a day. One whose price
// and quality alone cost more than least, the index in front, could not stand there
// however fast and reliable it is.
func wanted(o *chain.Option, x *priced, least float64) int {
	if float64(o.Cost.Beside)-x.credit < least {
		return ofHopeful
	}
	return ofHopeless
}

// LotOf gives a device's place among others, 0 to 1.
func LotOf(p chain.PeerID) float64 { return share(string(p)) }

// share spreads names evenly between 0 and 1.
func share(name string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	x := h.Sum64() // its upper bits hardly hang on the last characters
	x = (x ^ x>>32) * 0x9e3779b97f4a7c15
	return float64(x>>11) / (1 << 53)
}

// sought reports whether it is this device's turn to sample an option that the hub seeks.
// A fleet that is smaller than the number of samples takes several turns a day.
func (d *Idle) sought(v *View, id chain.OptionID, age time.Duration, now time.Time) bool {
	i := slices.IndexFunc(v.Rules.Sought, func(s chain.Sought) bool { return s.Option == id })
	if i < 0 {
		return false
	}
	daily := max(v.Rules.Sought[i].Daily, 1)
	pause := min(stale, stale*time.Duration(max(d.Fleet, 1))/time.Duration(daily))
	return age >= pause && d.turn(id, daily, now)
}

// turn reports whether this device is among the few of the fleet that sample an option
// within a day before now. The lots that are drawn move on by as many a day, all the time,
// so that all take turns and samples are spread over the day.
func (d *Idle) turn(id chain.OptionID, few int, now time.Time) bool {
	part := float64(few) / float64(max(d.Fleet, 1))
	if part >= 1 {
		return true
	}
	days := float64(now.UnixMilli()) / float64(stale.Milliseconds())
	_, drawn := math.Modf(share(string(id)) + float64(part*days))
	_, off := math.Modf(1 + drawn - d.Lot)
	return off < part
}
