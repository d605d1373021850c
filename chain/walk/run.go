package walk

import (
	"context"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Run walks p until an option answered, the budget is spent or the caller is
// gone, which is when ctx ends or deliver fails. It runs each attempt in a
// goroutine of its own, goes on at once when one is given up, and returns when
// all of them have ended.
func Run(ctx context.Context, p Plan, s *Standing, r Runner, deliver Deliver) Result {
	w := walker{m: New(p, s, time.Now()), runner: r, deliver: deliver}
	defer w.stop()
	for {
		if ctx.Err() != nil {
			w.m.Leave(time.Now())
		}
		step := w.m.Next(time.Now())
		switch {
		case step.Attempt != nil:
			w.attempt(ctx, step.Attempt)
		case step.Protest:
			bounded, cancel := context.WithTimeout(ctx, step.Budget)
			options, err := p.Hooks.Protest(bounded, step.Failed, step.Budget)
			cancel()
			w.m.Protested(options, err == nil, time.Now())
		default:
			return w.m.Result()
		}
	}
}

// How far an attempt may be ahead of the caller: chunks, of which at most one is
// larger than largeChunk bytes.
const (
	maxBatch   = 16
	largeChunk = 64 << 10
)

// walker drives a machine.
type walker struct {
	m       *Machine
	runner  Runner
	deliver Deliver
	timer   *time.Timer
	armed   time.Time // when the timer fires
	running sync.WaitGroup
	out     [][]byte // of the last batch; used again
}

// flight is one attempt on its way.
type flight struct {
	ctx    context.Context
	chunks chan piece   // what comes while a write to the caller is under way goes out with the next one
	ended  chan Outcome // with room for one: nobody may be listening any more
}

// piece is a chunk on its way. taken is nil but for a large one, whose emit waits
// until it is closed.
type piece struct {
	Chunk
	taken chan struct{}
}

func (f *flight) emit(c Chunk) error {
	if f.ctx.Err() != nil { // a select would choose by chance
		return context.Cause(f.ctx)
	}
	p := piece{Chunk: c}
	if len(c.Data) > largeChunk {
		p.taken = make(chan struct{})
	}
	select {
	case f.chunks <- p:
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	}
	if p.taken == nil {
		return nil
	}
	select {
	case <-p.taken:
		return nil
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	}
}

// attempt drives one attempt to its end, or to where it is given up.
func (w *walker) attempt(ctx context.Context, a *Attempt) {
	actx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &flight{ctx: actx, chunks: make(chan piece, maxBatch), ended: make(chan Outcome, 1)}
	attempt := *a
	w.running.Go(func() {
		f.ended <- w.runner.Run(actx, attempt, f.emit)
	})
	for {
		w.arm()
		select {
		case p := <-f.chunks:
			if !w.hand(attempt, w.batch(f, p)) {
				return
			}
		case o := <-f.ended:
			if len(f.chunks) > 0 && !w.hand(attempt, w.batch(f, <-f.chunks)) { // an outcome never overtakes output
				return
			}
			w.end(ctx, attempt, o)
			return
		case <-w.timer.C:
			w.armed = time.Time{}
			if w.m.Expire(time.Now()) {
				return
			}
		case <-ctx.Done():
			w.m.Leave(time.Now())
			return
		}
	}
}

// batch feeds p and whatever else has come. One write for several events costs
// the processor a fraction of one for each, and delays none.
func (w *walker) batch(f *flight, p piece) [][]byte {
	now := time.Now()
	w.out = w.out[:0]
	for n := 1; ; n++ {
		w.out = append(w.out, w.m.Feed(p.Chunk, now)...)
		if p.taken != nil {
			close(p.taken)
		}
		if n > maxBatch { // all that an ended attempt can have left behind
			return w.out
		}
		select {
		case p = <-f.chunks:
		default:
			return w.out
		}
	}
}

// end takes the outcome of an attempt. One that came because the caller left
// is not the option's.
func (w *walker) end(ctx context.Context, a Attempt, o Outcome) {
	if ctx.Err() != nil && o.Class != chain.OK {
		w.m.Leave(time.Now())
		return
	}
	w.hand(a, w.m.End(o, time.Now()))
}

// hand gives data to the caller and reports whether the caller is still there.
func (w *walker) hand(a Attempt, data [][]byte) bool {
	if len(data) == 0 {
		return true
	}
	if err := w.deliver(a, data); err != nil {
		w.m.Leave(time.Now())
		return false
	}
	w.m.Delivered(time.Now())
	return true
}

// arm sets the timer if the deadline is nearer than what it is set to. A
// deadline that moved away is noticed when the timer fires: that is cheaper than
// setting it with every chunk.
func (w *walker) arm() {
	by := w.m.Deadline()
	if !w.armed.IsZero() && !by.Before(w.armed) {
		return
	}
	w.armed = by
	if w.timer == nil {
		w.timer = time.NewTimer(time.Until(by))
		return
	}
	w.timer.Reset(time.Until(by))
}

func (w *walker) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.running.Wait()
}
