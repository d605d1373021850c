// Package delta owns what one device knows better than its hub: how its own
// attempts went, and what follows for the order in which it tries the options of
// a signed chain. It may reorder; it never adds, drops or renames: an order is a
// permutation of the chain's places. It is pure: time is an argument, and writing
// its records down is the device's business. It must not know requests, callers or
// the hub's inside. The rules and their reasons stand in docs/deltas.md.
package delta

import (
	"math"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
)

// Constants of the rules.
const (
	Enough = 5                // own samples from which an own value stands
	Held   = 3                // evaluations in a row that a gain must have held for
	Fresh  = 15 * time.Minute // age below which an own success outweighs a suspect mark

	reach    = 32 // options in front that are compared; a walk tries 8
	maxSlots = 256
	maxKnown = 4096
)

// distanceAxis is for how much longer an option takes here than elsewhere. Providers
// are slow and fast by the hour; how far a device is from them hardly changes.
var distanceAxis = estimate.Axis{HalfLife: 7 * 24 * time.Hour, Clip: true}

// Key names what is measured: the same model may answer a chat and an embedding
// at quite different speeds.
type Key struct {
	Primitive chain.Primitive
	Option    chain.OptionID
}

// Sample is one finished attempt of this device that says something about the
// option: a request of its own, or a probe.
type Sample struct {
	OK      bool
	Took    time.Duration // to the end of the answer, or to the failure
	At      time.Time
	Suspect bool // the option was marked so: how it went says nothing of its usual reliability

	// Hub is what the chain said of the time to an answer; 0: nothing.
	Hub time.Duration
}

// Record is what this device knows of one key: counts and values only.
type Record struct {
	Latency     estimate.Estimate // seconds, given success
	Failure     estimate.Estimate // seconds, given failure
	Reliability estimate.Estimate // share of successes
	Distance    estimate.Estimate // own time over the hub's at that moment, as a logarithm
	Last        chain.Instant     // of the newest attempt; 0: none
	LastOK      bool              // how it ended
	Probed      chain.Instant     // of the newest probe; 0: none
}

// View is a chain as this device looks at it.
type View struct {
	Slot    chain.Slot
	Body    chain.CID
	Options []chain.Option // in the hub's order
	Rules   chain.Rules    // defaults filled in
	// Usable reports whether this device can run an option. What it cannot run
	// keeps its place and is not compared. If nil, it can run all.
	Usable func(*chain.Option) bool
}

func (v *View) usable(o *chain.Option) bool {
	return o.Known() && (v.Usable == nil || v.Usable(o))
}

// Book is what one device knows. It is not safe for concurrent use. Make it with
// [New].
type Book struct {
	records map[Key]*Record
	states  map[chain.Slot]*state
	warm    warmth
	changed bool
	probed  chain.Instant // the newest probe of any option
}

// New gives an empty book.
func New() *Book {
	return &Book{records: map[Key]*Record{}, states: map[chain.Slot]*state{}, warm: newWarmth()}
}

// Observe takes in an attempt.
func (b *Book) Observe(k Key, s Sample) {
	r := b.record(k)
	if r == nil {
		return
	}
	share, to := 0.0, &r.Failure
	if s.OK {
		share, to = 1, &r.Latency
	}
	if e, err := estimate.ReliabilityAxis().Observe(r.Reliability, share, 1, s.At); err == nil && !s.Suspect {
		r.Reliability = e
	}
	if e, err := estimate.LatencyAxis().Observe(*to, math.Max(s.Took.Seconds(), 0.001), 1, s.At); err == nil {
		*to = e
	}
	if s.OK && s.Hub > 0 {
		ratio := math.Max(s.Took.Seconds(), 0.001) / (s.Hub.Seconds() / estimate.Correction(deviation(&r.Latency)))
		if e, err := distanceAxis.Observe(r.Distance, math.Log(ratio), 1, s.At); err == nil {
			r.Distance = e
		}
	}
	if at := chain.InstantOf(s.At); at >= r.Last {
		r.Last, r.LastOK = at, s.OK
	}
	b.changed = true
}

// rebase brings back what a clock that was ahead put into the future, and reports
// whether there was any: else nothing measured since would count, until that day.
func (r *Record) rebase(now time.Time) bool {
	latest, moment := chain.InstantOf(now.Add(chain.Leeway)), chain.InstantOf(now)
	if max(r.Last, r.Probed, r.Latency.Newest, r.Failure.Newest, r.Reliability.Newest) <= latest {
		return false
	}
	r.Latency, r.Failure, r.Reliability = r.Latency.Rebase(now), r.Failure.Rebase(now), r.Reliability.Rebase(now)
	for _, at := range []*chain.Instant{&r.Last, &r.Probed} {
		if *at > latest {
			*at = moment
		}
	}
	return true
}

// record gives the record of k for writing, nil if there is no room for it.
func (b *Book) record(k Key) *Record {
	r := b.records[k]
	if r == nil && len(b.records) < maxKnown {
		r = &Record{}
		b.records[k] = r
	}
	return r
}

// known gives the record of an option of v, which may be empty.
func (b *Book) known(v *View, id chain.OptionID) *Record {
	if r := b.records[Key{v.Slot.Primitive, id}]; r != nil {
		return r
	}
	return &none
}

var none Record // never written to
