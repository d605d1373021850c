// Package learn owns what the fleet's reports say about options: one estimate
// per axis for each option of a primitive, over all devices together. It is
// pure: time comes in, and keeping records on disk is the hub's business. It
// knows neither devices' reports nor the catalogue: counts and times come in,
// estimates beside a prior go out.
package learn

import (
	"encoding/json"
	"fmt"
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

// Record is what is known of one key.
type Record struct {
	Key         Key                            `json:"key"`
	Latency     estimate.Estimate              `json:"latency"`     // seconds, given success
	Failure     estimate.Estimate              `json:"failure"`     // seconds, given failure
	Reliability estimate.Estimate              `json:"reliability"` // share of successes
	Successes   uint64                         `json:"successes"`   // ever
	Failures    uint64                         `json:"failures"`    // ever
	Devices     map[chain.PeerID]chain.Instant `json:"devices"`     // the latest to report, at most maxDevices

	last map[chain.PeerID]attempt // each device's newest attempt; not kept, for it is of no use after 15 min
}

// attempt is how a device's newest one ended.
type attempt struct {
	at chain.Instant
	ok bool
}

// Bounds.
const (
	maxRecords = 1 << 16
	maxDevices = 16
	enough     = 5 // devices; fewer are marked low-n
	maxLast    = 256
	maxBatch   = 20 // attempts that one batch of one device counts for at most: it shall not drown the others
)

// Book is all records. It is not safe for concurrent use.
type Book struct {
	records map[Key]*Record
	dirty   map[Key]bool
	Ignored uint64 // observations without room for their option
}

// NewBook gives an empty book.
func NewBook() *Book { return &Book{records: map[Key]*Record{}, dirty: map[Key]bool{}} }

func (b *Book) record(k Key, by chain.PeerID, at time.Time) *Record {
	r := b.records[k]
	if r == nil {
		if len(b.records) >= maxRecords {
			b.Ignored++
			return nil
		}
		r = &Record{Key: k, Devices: map[chain.PeerID]chain.Instant{}}
		b.records[k] = r
	}
	r.saw(by, chain.InstantOf(at))
	b.dirty[k] = true
	return r
}

// saw keeps the latest devices.
func (r *Record) saw(by chain.PeerID, at chain.Instant) {
	if at > r.Devices[by] {
		r.Devices[by] = at
	}
	if len(r.Devices) <= maxDevices {
		return
	}
	oldest := by
	for p, t := range r.Devices {
		if t < r.Devices[oldest] || t == r.Devices[oldest] && p < oldest {
			oldest = p
		}
	}
	delete(r.Devices, oldest)
}

// Count takes in exact counts of one batch of one device: how often the option
// answered, and how often it failed.
func (b *Book) Count(k Key, by chain.PeerID, successes, failures uint64, at time.Time) {
	n := successes + failures
	if n == 0 {
		return
	}
	r := b.record(k, by, at)
	if r == nil {
		return
	}
	r.Successes += successes
	r.Failures += failures
	share := float64(successes) / float64(n)
	r.Reliability = observe(estimate.ReliabilityAxis(), r.Reliability, share, math.Min(float64(n), maxBatch), at)
}

// When an option is suspect: slow estimates alone lose most in and after outages,
// for what nobody uses keeps its good or bad name for days.
const (
	suspectWindow  = 15 * time.Minute
	suspectDevices = 3
	suspectWeight  = estimate.MaxWeight
)

// Last takes in how the newest attempt of a device ended.
func (b *Book) Last(k Key, by chain.PeerID, ok bool, at time.Time) {
	r := b.record(k, by, at)
	if r == nil {
		return
	}
	if r.last == nil {
		r.last = map[chain.PeerID]attempt{}
	}
	if have, known := r.last[by]; known && have.at > chain.InstantOf(at) {
		return // it arrived late
	}
	r.last[by] = attempt{chain.InstantOf(at), ok}
	if len(r.last) > maxLast {
		oldest := by
		for p, a := range r.last {
			if o := r.last[oldest]; a.at < o.at || a.at == o.at && p < oldest {
				oldest = p
			}
		}
		delete(r.last, oldest)
	}
}

// Suspect reports whether at least 3 devices tried k in the last 15 min and more
// than half of these failed in their last attempt. Then p is what to expect of it
// meanwhile, and until is when the mark may end by itself.
func (b *Book) Suspect(k Key, now time.Time) (p float64, until time.Time, suspect bool) {
	r := b.records[k]
	if r == nil {
		return 0, until, false
	}
	devices, failed, oldest := 0, 0, chain.Instant(math.MaxInt64)
	for by, a := range r.last {
		if now.Sub(a.at.Time()) >= suspectWindow {
			delete(r.last, by)
			continue
		}
		devices++
		oldest = min(oldest, a.at)
		if !a.ok {
			failed++
		}
	}
	if devices < suspectDevices || 2*failed <= devices {
		return 0, until, false
	}
	return (float64(devices-failed) + 0.5) / float64(devices+1), oldest.Time().Add(suspectWindow), true
}

// Time takes in how long one attempt took, to its answer or to its failure.
// The two never mix.
func (b *Book) Time(k Key, by chain.PeerID, took time.Duration, answered bool, at time.Time) {
	r := b.record(k, by, at)
	if r == nil {
		return
	}
	to := &r.Failure
	if answered {
		to = &r.Latency
	}
	*to = observe(estimate.LatencyAxis(), *to, math.Max(took.Seconds(), 0.001), 1, at)
}

// observe leaves the estimate as it was if the observation cannot be; callers checked it before.
func observe(a estimate.Axis, e estimate.Estimate, x, weight float64, at time.Time) estimate.Estimate {
	next, err := a.Observe(e, x, weight, at)
	if err != nil {
		return e
	}
	return next
}

// Estimates gives what is known of k beside a prior, with every field of prior set.
func (b *Book) Estimates(k Key, prior resolve.Prior, now time.Time) resolve.Estimates {
	r := b.records[k]
	if r == nil {
		return resolve.Estimates{}
	}
	var e resolve.Estimates
	latency, reliability := estimate.LatencyAxis(), estimate.ReliabilityAxis()
	if r.Latency.Samples > 0 {
		e.Latency = resolve.Estimate{Value: latency.Expected(r.Latency, prior.Latency, now), Weight: latency.Weight(r.Latency, now)}
	}
	if r.Failure.Samples > 0 {
		e.FailureLatency = resolve.Estimate{Value: latency.Expected(r.Failure, prior.FailureLatency, now), Weight: latency.Weight(r.Failure, now)}
	}
	if r.Reliability.Samples > 0 {
		e.Reliability = resolve.Estimate{Value: reliability.Value(r.Reliability, prior.Reliability, now), Weight: reliability.Weight(r.Reliability, now)}
	}
	if p, _, suspect := b.Suspect(k, now); suspect {
		e.Usual = prior.Reliability
		if e.Reliability.Weight > 0 {
			e.Usual = e.Reliability.Value
		}
		e.Reliability = resolve.Estimate{Value: p, Weight: suspectWeight}
	}
	e.LowN = len(r.Devices) < enough
	return e
}

// Dirty gives the records that changed since the last call.
func (b *Book) Dirty() []*Record {
	list := make([]*Record, 0, len(b.dirty))
	for k := range b.dirty {
		list = append(list, b.records[k])
	}
	clear(b.dirty)
	return list
}

// Len gives the number of records.
func (b *Book) Len() int { return len(b.records) }

// Encode gives the bytes of r for the store.
func (r *Record) Encode() ([]byte, error) {
	bytes, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the record of %s: %w", r.Key, err)
	}
	return bytes, nil
}

// Restore puts back what Encode wrote.
func (b *Book) Restore(bytes []byte) error {
	var r Record
	if err := json.Unmarshal(bytes, &r); err != nil || r.Key.Option == "" {
		return fmt.Errorf("a learned record cannot be read: %v", err)
	}
	if r.Devices == nil {
		r.Devices = map[chain.PeerID]chain.Instant{}
	}
	if len(b.records) < maxRecords {
		b.records[r.Key] = &r
	}
	return nil
}
