package walk

import (
	"context"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Run walks p until an option answered, the budget is spent or the caller is
// gone, which is when ctx ends or deliver fails. It returns when all attempts
// have ended.
//
// An attempt runs in the caller's goroutine: handing each answer from one
// goroutine to another would cost more than all rules of the walk. What must not
// wait for an attempt is going on without it, so the timer that gives one up
// walks on in its own goroutine, while the caller's waits for the attempt to end.
func Run(ctx context.Context, p Plan, s *Standing, r Runner, deliver Deliver) Result {
	w := &walker{ctx: ctx, m: New(p, s, time.Now()), runner: r, deliver: deliver, turn: make(chan struct{}, 1)}
	w.begin()
	w.running.Wait()
	if w.broken != nil { // a defect met on the timer's goroutine is the caller's to report
		panic(w.broken)
	}
	return w.m.Result()
}

// How much is put together for one write to the caller, where the runner says
// that more is at hand.
const (
	maxBatch      = 32
	maxBatchBytes = 32 << 10
)

// walker drives a machine. Whoever has the turn may use it: the goroutine that
// walks, the attempt under way when it emits, and the timer.
type walker struct {
	ctx     context.Context
	m       *Machine
	runner  Runner
	deliver Deliver

	turn    chan struct{} // a lock on which time may pass in tests, as it does while a caller reads slowly
	now     *flight       // the attempt under way, nil for none
	timer   *time.Timer
	armed   time.Time      // when the timer fires; zero: it does not
	running sync.WaitGroup // the timer's goroutines, counted from when it is set
	broken  any            // what an attempt on the timer's goroutine panicked with
}

func (w *walker) take()    { w.turn <- struct{}{} }
func (w *walker) release() { <-w.turn }

func (w *walker) begin() {
	w.take()
	defer w.release()
	w.walk()
}

// walk goes on from wherever the walk is until it is over, or until an attempt
// was given up: whoever did that walks on. It begins and ends with the turn.
func (w *walker) walk() {
	for {
		if w.ctx.Err() != nil {
			w.m.Leave(time.Now())
		}
		step := w.m.Next(time.Now())
		switch {
		case step.Attempt != nil:
			if !w.attempt(*step.Attempt) {
				return
			}
		case step.Protest:
			w.protest(step)
		default:
			return
		}
	}
}

// protest asks for further options. No attempt is under way: the timer finds
// nothing to do.
func (w *walker) protest(step Step) {
	bounded, cancel := context.WithTimeout(w.ctx, step.Budget)
	defer cancel()
	options, err := w.m.plan.Hooks.Protest(bounded, step.Failed, step.Budget)
	w.m.Protested(options, err == nil, time.Now())
}

// attempt drives one attempt to its end. It reports false if the attempt was
// given up on the way and the walk goes on elsewhere.
func (w *walker) attempt(a Attempt) bool {
	f := &flight{w: w, attempt: a}
	f.ctx, f.cancel = context.WithCancel(w.ctx)
	defer f.cancel()
	o := w.run(f)
	if f.givenUp {
		return false
	}
	f.attempt.Ended = true
	if !f.left && f.flush() { // an outcome never overtakes output
		f.end(o)
	}
	return true
}

// run lends the turn to the attempt. It is taken back also from a runner that
// panics, so that the timer does not walk on behind the caller's back.
func (w *walker) run(f *flight) Outcome {
	w.now = f
	w.arm()
	w.release()
	defer func() {
		w.take()
		if !f.givenUp {
			w.now = nil
			w.disarm()
		}
	}()
	return w.runner.Run(f.ctx, f.attempt, f.emit)
}

// expire runs on the timer: it gives the attempt under way up if its time is
// over, and walks on.
func (w *walker) expire() {
	defer w.running.Done()
	w.take()
	defer w.release()
	defer func() {
		if defect := recover(); defect != nil {
			w.broken = defect
		}
	}()
	w.armed = time.Time{}
	f := w.now
	if f == nil || f.left || w.ctx.Err() != nil || !f.flush() {
		return // it is ending
	}
	if !w.m.Expire(time.Now()) {
		w.arm()
		return
	}
	f.givenUp = true
	f.cancel()
	w.now = nil
	w.walk()
}

// arm sets the timer if the deadline is nearer than what it is set to. A
// deadline that moved away is noticed when the timer fires: that is cheaper than
// setting it with every chunk.
func (w *walker) arm() {
	by := w.m.Deadline()
	if !w.armed.IsZero() && !by.Before(w.armed) {
		return
	}
	w.disarm()
	w.armed = by
	w.running.Add(1)
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Until(by), w.expire)
		return
	}
	w.timer.Reset(time.Until(by))
}

// disarm stops the timer. Where it has fired already, its goroutine waits for
// the turn and will find what is under way then.
func (w *walker) disarm() {
	if w.timer != nil && w.timer.Stop() {
		w.running.Done()
	}
	w.armed = time.Time{}
}

// flight is one attempt on its way. All but attempt and ctx is used with the
// walker's turn.
type flight struct {
	w       *walker
	attempt Attempt
	ctx     context.Context
	cancel  context.CancelFunc
	out     [][]byte // fed and not yet delivered
	bytes   int      // of out
	chunks  int      // fed since the last delivery
	givenUp bool     // somebody else walks on
	left    bool     // the caller is gone
}

// emit takes a chunk of the attempt and returns when it was written to the
// caller, or may wait for the next one.
func (f *flight) emit(c Chunk) error {
	f.w.take()
	defer f.w.release()
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	if len(c.Data) > 0 || c.Meaningful {
		f.out = append(f.out, f.w.m.Feed(c, time.Now())...)
		f.bytes += len(c.Data)
		f.chunks++
	}
	if c.More && f.chunks < maxBatch && f.bytes < maxBatchBytes {
		return nil
	}
	if !f.flush() {
		return context.Cause(f.ctx)
	}
	f.w.arm()
	return nil
}

// flush hands what was fed to the caller and reports whether the caller is
// still there.
func (f *flight) flush() bool {
	f.bytes, f.chunks = 0, 0
	there := f.hand(f.out)
	f.out = f.out[:0]
	return there
}

// end takes the outcome. One that came because the caller left is not the
// option's.
func (f *flight) end(o Outcome) {
	m := f.w.m
	if f.w.ctx.Err() != nil && o.Class != chain.OK {
		m.Leave(time.Now())
		return
	}
	f.hand(m.End(o, time.Now()))
}

func (f *flight) hand(data [][]byte) bool {
	if len(data) == 0 {
		return true
	}
	if err := f.w.deliver(f.attempt, data); err != nil {
		f.left = true
		f.cancel()
		f.w.m.Leave(time.Now())
		return false
	}
	f.w.m.Delivered(time.Now())
	return true
}
