// Package throttle owns how much a device does at a time by the nature of what it
// uses: attempts of an option that run side by side, and calls of a primitive in a
// minute. Both are this device's alone and live in memory: what the fleet may
// spend together is a ceiling (package purse). It knows neither walks nor chains:
// names and limits come in. It is pure but for its lock: time is an argument.
package throttle

import (
	"math"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Bounds of what is remembered.
const (
	maxCalls      = 1024 // moments of one primitive; of a rate beyond, as many in a shorter window
	maxPrimitives = 1024
)

// Throttle holds the limits of one device. It is safe for concurrent use.
type Throttle struct {
	mu      sync.Mutex
	running map[chain.OptionID]int
	calls   map[chain.Primitive]*window
}

// New gives a throttle under which nothing runs.
func New() *Throttle {
	return &Throttle{running: map[chain.OptionID]int{}, calls: map[chain.Primitive]*window{}}
}

// Enter takes one of the most places of an option; a most of 0 is no limit. leave
// gives the place back; calling it again does nothing.
func (t *Throttle) Enter(id chain.OptionID, most int) (leave func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if most > 0 && t.running[id] >= most {
		return nil, false
	}
	t.running[id]++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.running[id]--; t.running[id] <= 0 {
			delete(t.running, id)
		}
	}), true
}

// Full reports whether all places of an option are taken.
func (t *Throttle) Full(id chain.OptionID, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return most > 0 && t.running[id] >= most
}

// Call takes one of perMinute calls of a primitive; 0 is no limit. Within any minute
// no more than so many are taken, rounded up, however they are spread; of a rate above
// 1024 that holds over the time of 1024 calls. If it is not ok, free is when the next
// one may be. A limit that changes counts the calls of the last minute along.
func (t *Throttle) Call(p chain.Primitive, perMinute float64, now time.Time) (free time.Time, ok bool) {
	if !(perMinute > 0) {
		return time.Time{}, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.calls[p]
	if w == nil {
		if len(t.calls) >= maxPrimitives {
			clear(t.calls) // more primitives than any catalogue has: names that came and went
		}
		w = &window{}
		t.calls[p] = w
	}
	w.set(perMinute)
	return w.take(now)
}

// window remembers when the last calls were.
type window struct {
	perMinute float64
	span      time.Duration // within which no more calls may be than moments are remembered
	at        []time.Time   // a ring; the zero time: no call
	next      int           // the oldest
}

// set makes room for a rate. A rate below one call a minute is one in a longer span.
func (w *window) set(perMinute float64) {
	if w.perMinute == perMinute {
		return
	}
	n := int(math.Ceil(min(max(perMinute, 1), maxCalls)))
	at := make([]time.Time, n)
	for i := range min(n, len(w.at)) { // the newest, at the end
		at[n-1-i] = w.at[(w.next+len(w.at)-1-i)%len(w.at)]
	}
	minutes := min(float64(n)/perMinute, float64(math.MaxInt64/2)/float64(time.Minute))
	*w = window{perMinute: perMinute, span: time.Duration(minutes * float64(time.Minute)), at: at}
}

func (w *window) take(now time.Time) (free time.Time, ok bool) {
	oldest := w.at[w.next]
	if free := oldest.Add(w.span); !oldest.IsZero() && now.Before(free) && !now.Before(oldest.Add(-w.span)) { // else the clock was set back
		return free, false
	}
	w.at[w.next] = now
	w.next = (w.next + 1) % len(w.at)
	return time.Time{}, true
}
