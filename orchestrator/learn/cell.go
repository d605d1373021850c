package learn

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
)

// cell is one device's own values of one key. There may be hundreds of thousands:
// it is kept small, and holds no pointer that the collector had to follow.
type cell struct {
	id      uint64 // of the device, see number
	network uint32 // 0: not known
	since   uint32 // membership, in seconds of Unix time
	latency compact
	failure compact
	good    float64 // decayed counts, as of counted
	bad     float64
	counted chain.Instant
	last    chain.Instant // of the newest attempt; 0: none known
	segment uint16
	lastOK  bool
	heard   bool    // took is known: it is not kept on disk
	took    float32 // the time of the newest answer, as a logarithm of seconds
}

// compact is an estimate.Estimate in half of its size: a rounding of one in ten million
// is far below what any measurement is worth.
type compact struct {
	newest             chain.Instant
	mean, deviation    float32
	weight, deviations float32
	high, low          uint16
	samples, doublings uint8 // samples: up to 255, of which only the first 8 make a difference
}

func (c compact) wide() estimate.Estimate {
	return estimate.Estimate{Mean: float64(c.mean), Deviation: float64(c.deviation), Weight: float64(c.weight), DeviationWeight: float64(c.deviations),
		Newest: c.newest, Samples: uint64(c.samples), High: c.high, Low: c.low, Doublings: c.doublings}
}

func narrow(e estimate.Estimate) compact {
	return compact{newest: e.Newest, mean: float32(e.Mean), deviation: float32(e.Deviation), weight: float32(e.Weight), deviations: float32(e.DeviationWeight),
		high: e.High, low: e.Low, samples: uint8(min(e.Samples, math.MaxUint8)), doublings: e.Doublings}
}

// number names a device by the hash of its peer ID: two of a million share one
// with a chance of one in thirty million, and would then count as one.
func number(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

// network names a network; 0 is kept for the one that is not known.
func network(s string) uint32 {
	if s == "" {
		return 0
	}
	n := number(s)
	return max(uint32(n>>32)^uint32(n), 1)
}

// seconds keeps a moment between 1970 and 2106.
func seconds(at chain.Instant) uint32 {
	return uint32(min(max(at/1000, 0), math.MaxUint32))
}

// count adds to the decayed counts. Late ones count less, by their age.
func (c *cell) count(good, bad float64, at chain.Instant) {
	axis := estimate.ReliabilityAxis()
	if at >= c.counted {
		fade := axis.Fade(c.counted, at)
		c.good, c.bad, c.counted = c.good*fade, c.bad*fade, at
	} else {
		fade := axis.Fade(at, c.counted)
		good, bad = good*fade, bad*fade
	}
	c.good, c.bad = min(c.good+good, maxCount), min(c.bad+bad, maxCount)
}

// maxCount keeps sums and squares of counts numbers.
const maxCount = 1e15

// rebase brings back what a clock that was ahead put into the future.
func (c *cell) rebase(now time.Time) {
	c.latency = narrow(c.latency.wide().Rebase(now))
	c.failure = narrow(c.failure.wide().Rebase(now))
	latest, moment := chain.InstantOf(now.Add(chain.Leeway)), chain.InstantOf(now)
	if c.counted > latest {
		c.counted = moment
	}
	if c.last > latest {
		c.last = moment
	}
}

// Rebase brings back what a clock that was ahead put into the future: what was kept then
// counts as said now, and fades from now on, also where its device never speaks again.
func (b *Book) Rebase(now time.Time) {
	for _, r := range b.records {
		for i := range r.cells {
			r.cells[i].rebase(now)
		}
		r.changed()
	}
}

// newest is when the device last said something of the key.
func (c *cell) newest() chain.Instant {
	return max(c.latency.newest, c.failure.newest, c.counted, c.last)
}

func (r *Record) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(r.cells, id, func(c cell, id uint64) int {
		switch {
		case c.id < id:
			return -1
		case c.id > id:
			return 1
		}
		return 0
	})
}

// room gives the cell of a device. Where all are taken the youngest member gives
// up its place, be it the one that asks: then there is none.
func (b *Book) room(r *Record, id uint64, since chain.Instant, now time.Time) *cell {
	i, ok := r.find(id)
	if ok {
		return &r.cells[i]
	}
	if len(r.cells) >= maxDevices || b.cells >= maxCells {
		if !b.makeRoom(r, id, seconds(since), chain.InstantOf(now.Add(-staleAfter))) {
			return nil
		}
		i, _ = r.find(id)
	}
	r.cells = slices.Insert(r.cells, i, cell{id: id})
	b.cells++
	return &r.cells[i]
}

// makeRoom takes out who said nothing for long, else the youngest member.
func (b *Book) makeRoom(r *Record, id uint64, since uint32, stale chain.Instant) bool {
	before := len(r.cells)
	for i := len(r.cells) - 1; i >= 0; i-- {
		if r.cells[i].newest() < stale {
			b.drop(r, i)
		}
	}
	if len(r.cells) < before {
		return true
	}
	if len(r.cells) == 0 {
		return false
	}
	youngest := 0
	for i := range r.cells {
		if r.cells[i].since > r.cells[youngest].since {
			youngest = i
		}
	}
	if y := &r.cells[youngest]; y.since < since || y.since == since && y.id <= id {
		return false
	}
	b.drop(r, youngest)
	return true
}

// giveUp makes room where all of the book is taken, for the sake of one key: an
// eighth of the records go, first those that the fewest devices speak of, then those
// of which nobody spoke for the longest time. Names of options are the devices' to
// choose; whoever makes up names without end loses those first.
func (b *Book) giveUp(except Key) {
	type standing struct {
		key    Key
		cells  int
		newest chain.Instant
	}
	list := make([]standing, 0, len(b.records))
	for k, r := range b.records {
		s := standing{key: k, cells: len(r.cells)}
		for i := range r.cells {
			s.newest = max(s.newest, r.cells[i].newest())
		}
		if k != except {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b standing) int {
		return cmp.Or(cmp.Compare(a.cells, b.cells), cmp.Compare(a.newest, b.newest), strings.Compare(a.key.String(), b.key.String()))
	})
	for _, s := range list[:(len(list)+7)/8] {
		b.cells -= s.cells
		delete(b.records, s.key)
		b.dirty[s.key] = true
	}
}

func (b *Book) drop(r *Record, i int) {
	r.cells = slices.Delete(r.cells, i, i+1)
	b.cells--
	r.changed()
}
