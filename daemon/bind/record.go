package bind

import (
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
)

// What is expected where nothing was measured, by anybody.
const (
	defaultLatency     = 2 * time.Second
	defaultReliability = 0.95
	leastLatency       = time.Millisecond
)

// staleLoad is the half-life of what a peer said of its load: a figure that is
// not renewed says less and less.
const staleLoad = 30 * time.Second

// record is what came of one kind of work at one peer.
type record struct {
	took    estimate.Estimate // seconds to the end of an answer, without the way there and back
	success estimate.Estimate // share
	tried   time.Time         // the newest

	declines time.Time // until when the peer takes none of it
}

var (
	latencyAxis     = estimate.LatencyAxis()
	reliabilityAxis = estimate.ReliabilityAxis()
)

// Begin says that an attempt goes to p now. end is called once, when it is over.
func (t *Table) Begin(p chain.PeerID) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.peers[p]
	if k == nil {
		return func() {}
	}
	k.running++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		k.running--
	}
}

// Observe learns from one attempt at p that ended in class after took. What says
// nothing about the peer (busy, the caller's own error, a caller who left) teaches
// nothing, and the time that a failure took never enters a latency.
func (t *Table) Observe(p chain.PeerID, w Work, class chain.Class, took time.Duration, now time.Time) {
	if class != chain.OK && !class.Blames() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.peers[p]
	if k == nil {
		return
	}
	share := 0.0
	if class == chain.OK {
		share = 1
	}
	for _, r := range []*record{k.record(w), t.pool(w)} {
		r.tried = now
		r.success, _ = reliabilityAxis.Observe(r.success, share, 1, now) // 0, 1 and what is positive cannot be refused
		if class == chain.OK {
			seconds := max(took-k.rtt, leastLatency).Seconds()
			r.took, _ = latencyAxis.Observe(r.took, seconds, 1, now)
		}
	}
}

func (k *known) record(w Work) *record { return recordOf(k.works, w, maxWorks) }

func (t *Table) pool(w Work) *record { return recordOf(t.pools, w, maxPools) }

// recordOf gives the record of w for writing. The one that was not used for longest
// makes room for a new one.
func recordOf(m map[Work]*record, w Work, most int) *record {
	r := m[w]
	if r != nil {
		return r
	}
	if len(m) >= most {
		var first Work
		var least *record
		for w, r := range m {
			if least == nil || r.tried.Before(least.tried) || r.tried.Equal(least.tried) && less(w, first) {
				first, least = w, r
			}
		}
		delete(m, first)
	}
	r = &record{}
	m[w] = r
	return r
}

func less(a, b Work) bool {
	return a.Primitive < b.Primitive || a.Primitive == b.Primitive && a.Option < b.Option
}

// service is how long k is expected to work on w once it begins, and with which
// probability it answers. declared is the chain's own estimate, 0 unknown.
func (t *Table) service(k *known, w Work, declared time.Duration, now time.Time) (took time.Duration, p float64) {
	prior := max(declared, leastLatency).Seconds()
	if declared <= 0 {
		prior = defaultLatency.Seconds()
	}
	odds := defaultReliability
	if pool := t.pools[w]; pool != nil {
		if pool.took.Samples > 0 {
			// As it stands: pulled to the chain's figure again, it would keep whoever
			// was tried first ahead of those never tried.
			prior = latencyAxis.Natural(pool.took.Mean)
		}
		odds = reliabilityAxis.Value(pool.success, odds, now)
	}
	var own record
	if r := k.works[w]; r != nil {
		own = *r
	}
	seconds := latencyAxis.Expected(own.took, prior, now)
	p = min(max(reliabilityAxis.Value(own.success, odds, now), 0.01), 1)
	return time.Duration(seconds * float64(time.Second)), p
}

// ahead is how much work k has per place: what this device gave it, and what it
// said that it had from others, the less the longer ago.
func (k *known) ahead(now time.Time) float64 {
	others := float64(max(0, k.load.Jobs-k.loadOwn))
	if age := now.Sub(k.loadAt); age > 0 {
		others *= fade(age, staleLoad)
	}
	return (float64(k.running) + others) / float64(max(1, k.load.Parallel))
}

// completion is when an answer of k to w is expected: the way there and back, the
// work that is ahead, its own work, and a share of that again for each time
// that it is likely to be in vain.
func (t *Table) completion(k *known, w Work, declared time.Duration, now time.Time) time.Duration {
	took, p := t.service(k, w, declared, now)
	once := k.rtt + took + time.Duration(float64(took)*k.ahead(now))
	return time.Duration(float64(once) / p)
}
