package daemon

import (
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/control"
)

// maxTraces is how many finished requests a device remembers, in memory only;
// maxTraced how many attempts of each. The rules of a chain allow fewer.
const (
	maxTraces = 256
	maxTraced = 64
)

// traces are the last finished requests, the newest over the oldest.
type traces struct {
	mu   sync.Mutex
	ring []control.Trace
	next int
}

func (t *traces) keep(x control.Trace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ring) < maxTraces {
		t.ring = append(t.ring, x)
		return
	}
	t.ring[t.next] = x
	t.next = (t.next + 1) % maxTraces
}

// trace gathers the attempts of one request. One that was given up may end beside
// the next.
type trace struct {
	mu       sync.Mutex
	attempts []control.TraceAttempt
}

// of adds the trace to what is done with each finished attempt.
func (t *trace) of(measure func(walk.Measurement)) func(walk.Measurement) {
	return func(m walk.Measurement) {
		measure(m)
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(t.attempts) < maxTraced {
			t.attempts = append(t.attempts, control.TraceAttempt{Option: m.Option, Peer: m.Peer, Class: m.Class, Ended: m.At.UTC(),
				FirstOutput: inMillis(m.FirstOutput), Took: inMillis(m.Total)})
		}
	}
}

// close keeps the trace of a request that is over. In x the caller says what it is of: its
// IDs, and whose work it was.
func (t *trace) close(d *Daemon, x control.Trace, slot chain.Slot, began time.Time, r *walk.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x.Began, x.Took, x.Scope, x.Primitive = began.UTC(), inMillis(time.Since(began)), slot.Scope, slot.Primitive
	x.End, x.Option, x.Attempts = string(r.End), r.Option, t.attempts
	x.Why = r.Why
	for _, f := range r.Failures {
		if !f.Class.Ran() && len(x.PassedOver) < maxTraced {
			x.PassedOver = append(x.PassedOver, f)
		}
	}
	d.traces.keep(x)
}

func inMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Traces gives what became of the request of that ID, on this device, or of the
// last ones if id is empty, the newest first. Several may have one ID: callers
// choose theirs.
func (d *Daemon) Traces(id string) []control.Trace {
	d.traces.mu.Lock()
	var found []control.Trace
	n := len(d.traces.ring)
	for i := range n {
		if x := d.traces.ring[(d.traces.next+n-1-i)%n]; id == "" || x.RequestID == id {
			found = append(found, x)
		}
	}
	d.traces.mu.Unlock()
	for i := range found {
		attempts := append([]control.TraceAttempt{}, found[i].Attempts...)
		for k := range attempts {
			if attempts[k].Peer != "" {
				attempts[k].Name = d.peers.Name(attempts[k].Peer)
			}
		}
		found[i].Attempts = attempts
	}
	return found
}
