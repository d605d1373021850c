// Package report owns what a device tells the hub of its attempts: exact
// counters, a sample of the details, in batches that the hub counts once however
// often they are sent. It knows neither hub nor transport: the daemon takes a
// batch, sends it, and says when it arrived. Memory is bounded: what does not fit
// is dropped, and how much that was is reported. docs/daemon.md says why.
package report

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Bounds of what waits for the hub. A device whose hub is away for days keeps
// its counters, which grow with options and not with requests, and the newest
// of its samples.
const (
	maxCounters     = 1024
	maxMeasurements = 512
	maxProtests     = 16
)

// Collector gathers measurements and packs them into batches. It is safe for
// concurrent use.
type Collector struct {
	bootID string

	mu       sync.Mutex
	random   *rand.Rand
	seq      uint64
	from     time.Time
	counters map[counted]*wire.Counter
	sample   []wire.Measurement
	protests []wire.Protest
	dropped  uint64 // since the last batch
	lost     uint64 // since the start
	news     bool
	inFlight *wire.Report
}

type counted struct {
	slot   chain.Slot
	option chain.OptionID
	peer   chain.PeerID
}

// New makes a collector. bootID names this run of the daemon: with the
// sequence number it names a batch. random picks the sample and belongs to the
// collector from now on.
func New(bootID string, random *rand.Rand, now time.Time) *Collector {
	return &Collector{bootID: bootID, random: random, from: now, counters: map[counted]*wire.Counter{}}
}

// Observe counts one attempt for slot. Failures are always kept in detail, a
// success with probability sampling. What is neutral (the caller left, the
// peer was busy, the device was offline) says nothing about the option and is
// not counted at all.
func (c *Collector) Observe(slot chain.Slot, m walk.Measurement, sampling chain.PPM) {
	if m.Neutral {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.count(slot, m) {
		c.drop()
		return
	}
	if m.Class != chain.OK {
		c.news = true
	} else if c.random.Float64() >= sampling.Share() {
		return
	}
	if len(c.sample) == maxMeasurements {
		c.sample = slices.Delete(c.sample, 0, 1)
		c.drop()
	}
	c.sample = append(c.sample, wire.Measurement{
		Slot: slot, Option: m.Option, Peer: m.Peer, Class: m.Class, At: chain.InstantOf(m.At),
		FirstOutput: chain.MillisOf(m.FirstOutput), Total: chain.MillisOf(m.Total), Bytes: m.Bytes, Input: m.Input, Output: m.Output,
	})
}

func (c *Collector) drop() { c.dropped, c.lost = c.dropped+1, c.lost+1 }

// Dropped gives how many attempts since the start found no room, whole or in
// detail.
func (c *Collector) Dropped() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// count adds m to its counter and reports whether there was room for it.
func (c *Collector) count(slot chain.Slot, m walk.Measurement) bool {
	key := counted{slot, m.Option, m.Peer}
	counter := c.counters[key]
	if counter == nil {
		if len(c.counters) == maxCounters {
			return false
		}
		counter = &wire.Counter{Slot: slot, Option: m.Option, Peer: m.Peer, Outcomes: map[chain.Class]uint64{}}
		c.counters[key] = counter
	}
	counter.Attempts++
	counter.Outcomes[m.Class]++
	counter.LastOK = m.Class == chain.OK
	return true
}

// Queue keeps a protest that nobody waits for, for the next batch: a key that
// was refused. One of the same option and class that waits already says enough.
func (c *Collector) Queue(p wire.Protest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, waits := range c.protests {
		if waits.Slot == p.Slot && slices.Equal(waits.Failed, p.Failed) {
			return
		}
	}
	if len(c.protests) < maxProtests {
		c.protests = append(c.protests, p)
		c.news = true
	}
}

// News reports whether something happened that the hub should hear soon: a
// failure or a protest since the last batch.
func (c *Collector) News() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.news
}

// Waiting reports whether anything waits to be sent.
func (c *Collector) Waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFlight != nil || c.some()
}

// some reports whether there is anything for a new batch.
func (c *Collector) some() bool { return len(c.counters) > 0 || len(c.protests) > 0 || c.dropped > 0 }

// Next gives the batch to send, or false if there is nothing to say. A batch
// that was not acknowledged is given again, unchanged, before a new one is made.
// The counters and measurements of a report belong to the caller.
func (c *Collector) Next(now time.Time) (wire.Report, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight != nil {
		return *c.inFlight, true
	}
	if !c.some() {
		return wire.Report{}, false
	}
	c.seq++
	r := wire.Report{BootID: c.bootID, Seq: c.seq, From: chain.InstantOf(c.from), To: chain.InstantOf(now), Measurements: c.sample, Protests: c.protests, Dropped: c.dropped}
	for _, counter := range c.counters {
		r.Counters = append(r.Counters, *counter)
	}
	slices.SortFunc(r.Counters, func(a, b wire.Counter) int {
		return compare(counted{a.Slot, a.Option, a.Peer}, counted{b.Slot, b.Option, b.Peer})
	})
	c.inFlight = &r
	c.counters, c.sample, c.protests, c.dropped, c.from, c.news = map[counted]*wire.Counter{}, nil, nil, 0, now, false
	return r, true
}

// Acknowledge says that the hub has the batch with this sequence number, or
// refused it for good: either way it is not sent again.
func (c *Collector) Acknowledge(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight != nil && c.inFlight.Seq == seq {
		c.inFlight = nil
	}
}

func compare(a, b counted) int {
	return cmp.Or(cmp.Compare(a.slot.Scope, b.slot.Scope), cmp.Compare(a.slot.Primitive, b.slot.Primitive),
		cmp.Compare(a.option, b.option), cmp.Compare(a.peer, b.peer))
}
