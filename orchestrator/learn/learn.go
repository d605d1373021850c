// Package learn owns what the fleet's reports say about options: for each option
// of a primitive what every device measured, kept apart by device, and what that
// comes to over all of them. A device is a witness, and may err or lie; so times
// are a weighted median over devices and counts are bounded per device before they are
// pooled. It is pure: time comes in, and keeping records on disk is the hub's
// business. It knows neither reports nor the catalogue: counts and times come
// in, estimates beside a prior go out. The arithmetic and its reasons stand in
// docs/learning.md.
package learn

import (
	"math"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// Key names what is learned about. The same model may answer a chat and an
// embedding at quite different speeds.
type Key struct {
	Primitive chain.Primitive
	Option    chain.OptionID
}

// String gives "primitive option", the key's form on disk.
func (k Key) String() string { return string(k.Primitive) + " " + string(k.Option) }

// Segment is a part of the fleet that may see an option differently. "" means
// any, or not known.
type Segment struct {
	Geo   string // where the device is: "IN", "IN-KA"
	Class string // of its network: "residential", "mobile"
}

// Reporter is a device whose measurements come in.
type Reporter struct {
	Peer    chain.PeerID
	Network string        // the /24 or /48 that it speaks from, in any spelling; "" not known
	Since   chain.Instant // of its membership: the older, the more it counts
	Segment Segment
}

// Bounds.
const (
	maxRecords  = 1 << 16
	maxDevices  = 256     // for one key
	maxCells    = 1 << 18 // for all keys: about 40 MiB
	maxSegments = 1 << 12
	staleAfter  = 30 * 24 * time.Hour // a device that said nothing of an option for so long gives up its place
)

// Book is all records. It is not safe for concurrent use.
type Book struct {
	records  map[Key]*Record
	dirty    map[Key]bool
	segments []Segment // by the number that cells have; 0 is the one without a name
	numbers  map[Segment]uint16
	cells    int
	Ignored  uint64 // observations without room for their option or device
}

// NewBook gives an empty book.
func NewBook() *Book {
	return &Book{records: map[Key]*Record{}, dirty: map[Key]bool{}, segments: []Segment{{}}, numbers: map[Segment]uint16{{}: 0}}
}

// Record is what is known of one key: a cell for each device that tried it.
type Record struct {
	Key       Key
	Successes uint64 // ever, of devices that are still members or not
	Failures  uint64 // ever

	cells   []cell // by device number
	summary map[Segment]*summary
	suspect *verdict
}

// Batch takes in what one device reported at one time.
type Batch struct {
	book *Book
	by   Reporter
	id   uint64
	now  time.Time
}

// Batch begins to take in what a device reported, arriving at now.
func (b *Book) Batch(by Reporter, now time.Time) Batch {
	return Batch{book: b, by: by, id: number(string(by.Peer)), now: now}
}

// cell finds the device's own values of k, or makes room for them. It is nil
// where there is none, and for a moment in the future. What is returned is valid
// until the next call.
func (t Batch) cell(k Key, at time.Time) (*Record, *cell) {
	if at.After(t.now.Add(chain.Leeway)) {
		t.book.Ignored++
		return nil, nil
	}
	b := t.book
	r := b.records[k]
	if r == nil {
		if len(b.records) >= maxRecords || b.cells >= maxCells {
			b.giveUp(k)
		}
		r = &Record{Key: k}
		b.records[k] = r
	} else if b.cells >= maxCells {
		b.giveUp(k)
	}
	had := len(r.cells)
	c := b.room(r, t.id, t.by.Since, t.now)
	if c == nil {
		b.Ignored++
		return nil, nil
	}
	from, since := network(t.by.Network), seconds(t.by.Since)
	if len(r.cells) != had || from != c.network || since != c.since {
		r.suspect = nil // counts and times have no say in it, and come far more often
	}
	c.network, c.since, c.segment = from, since, b.segment(t.by.Segment)
	c.rebase(t.now)
	b.dirty[k] = true
	r.summary = nil
	return r, c
}

// changed forgets what was made of the cells.
func (r *Record) changed() { r.summary, r.suspect = nil, nil }

// segment gives the number of a segment.
func (b *Book) segment(s Segment) uint16 {
	n, ok := b.numbers[s]
	if !ok && len(b.segments) < maxSegments {
		n = uint16(len(b.segments))
		b.segments, b.numbers[s] = append(b.segments, s), n
	}
	return n
}

// Count takes in exact counts: how often the option answered, and how often it
// failed, up to a moment. What is said of an option while it is suspect changes the
// totals alone: the mark speaks for an outage, and must leave no bad name behind that
// outlasts it by days where nobody uses the option.
func (t Batch) Count(k Key, successes, failures uint64, at time.Time) {
	if successes == 0 && failures == 0 {
		return
	}
	r, c := t.cell(k, at)
	if r == nil {
		return
	}
	r.Successes = add(r.Successes, successes)
	r.Failures = add(r.Failures, failures)
	if _, _, suspect := t.book.Suspect(k, t.now); !suspect {
		c.count(float64(successes), float64(failures), chain.InstantOf(at))
	}
}

// add stops at the largest number.
func add(a, b uint64) uint64 { return a + min(b, math.MaxUint64-a) }

// Time takes in how long one attempt took, to its answer or to its failure.
// The two never mix. What cannot be is passed over.
func (t Batch) Time(k Key, took time.Duration, answered bool, at time.Time) {
	if took < 0 {
		return
	}
	if r, c := t.cell(k, at); r != nil {
		seconds := math.Max(took.Seconds(), 0.001)
		to := &c.failure
		if answered {
			to = &c.latency
			if chain.InstantOf(at) >= to.newest {
				c.took, c.heard = float32(estimate.LatencyAxis().Space(seconds)), true
			}
		}
		to.observe(seconds, at)
	}
}

// Value takes in one observation of something positive that is no time: of a key
// that stands for nothing else.
func (t Batch) Value(k Key, x float64, at time.Time) {
	if r, c := t.cell(k, at); r != nil {
		c.latency.observe(x, at)
	}
}

func (c *compact) observe(x float64, at time.Time) {
	axis, was := estimate.LatencyAxis(), c.wide()
	next, err := axis.Observe(was, x, 1, at)
	if err != nil {
		return
	}
	if was.Samples > 0 && was.Weight*axis.Fade(was.Newest, chain.InstantOf(at)) < forgotten {
		// How far a time is from one of days ago says nothing of how far times lie apart: what
		// is looked at once a day would seem to be spread as widely as it ever changed.
		next.Deviation, next.DeviationWeight = usualDeviation, estimate.PriorWeight
	}
	*c = narrow(next)
}

// A device's own deviation starts anew, as the first one does, where its weight has
// fallen below that of one value three half-lives ago.
const (
	forgotten      = 0.1
	usualDeviation = 0.4 // in log units
)

// Last takes in how the device's newest attempt ended.
func (t Batch) Last(k Key, ok bool, at time.Time) {
	r, c := t.cell(k, at)
	if r != nil && chain.InstantOf(at) >= c.last { // else it arrived late
		c.last, c.lastOK, r.suspect = chain.InstantOf(at), ok, nil
	}
}

// Estimates gives what is known of k beside a prior, with every field of prior
// set: for a segment where enough of its devices have tried k, else for its
// geo or its class alone, else for the whole fleet.
func (b *Book) Estimates(k Key, in Segment, prior resolve.Prior, now time.Time) resolve.Estimates {
	r := b.records[k]
	if r == nil {
		return resolve.Estimates{}
	}
	s := b.best(r, in)
	e := resolve.Estimates{
		Latency:        s.latency.beside(prior.Latency, now),
		FailureLatency: s.failure.beside(prior.FailureLatency, now),
		Reliability:    s.reliability.beside(prior.Reliability, now),
		LowN:           max(s.latency.devices, s.reliability.devices) < enough,
	}
	if p, _, suspect := b.Suspect(k, now); suspect {
		e.Usual = prior.Reliability
		if e.Reliability.Weight > 0 {
			e.Usual = e.Reliability.Value
		}
		e.Reliability = resolve.Estimate{Value: p, Weight: suspectWeight}
	}
	return e
}

// Typical gives what devices observed under a key of [Batch.Value], to be expected on
// average: their weighted median, pulled towards a prior by its weight alone. Few
// devices are believed: it is their own that they speak of.
func (b *Book) Typical(k Key, prior float64, now time.Time) resolve.Estimate {
	r := b.records[k]
	if r == nil {
		return resolve.Estimate{}
	}
	return b.summarise(r, Segment{}).latency.alone(prior, now)
}

// Forget takes out what a device said: its membership was revoked.
func (b *Book) Forget(peer chain.PeerID) {
	id := number(string(peer))
	for k, r := range b.records {
		if i, ok := r.find(id); ok {
			b.drop(r, i)
			b.dirty[k] = true
		}
	}
}

// Len gives the number of records, and of devices' own values in them.
func (b *Book) Len() (records, cells int) { return len(b.records), b.cells }

// Totals gives the exact counts ever taken in for k.
func (b *Book) Totals(k Key) (successes, failures uint64) {
	if r := b.records[k]; r != nil {
		return r.Successes, r.Failures
	}
	return 0, 0
}
