package daemon

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/apps"
	"github.com/chordwheel/chordwheel/daemon/edge"
)

// equal is what two requests must have in common to be run once: all that their answer
// may depend on, and who pays.
type equal struct {
	app                                       *apps.App
	primitive                                 chain.Primitive
	body                                      string // its hash
	model, session, stage, consumer, instance string
	budget                                    edge.Budget
	async                                     bool
}

// equalOf gives what w is equal by; false where it is run by itself: the caller did not
// allow more, or its answer is a stream.
func equalOf(w *edge.Work) (equal, bool) {
	if !w.Share || w.Stream {
		return equal{}, false
	}
	hash, err := receipt.RequestHash(w.Body)
	return equal{app: w.App, primitive: w.Primitive, body: hash, model: w.Model, session: w.Session, stage: w.Stage, consumer: w.Consumer, instance: w.Instance,
		budget: w.Budget, async: w.Async}, err == nil
}

// flights are the requests in work that equal ones may join.
type flights struct {
	mu   sync.Mutex
	open map[equal]*flight
}

// flight is one run for all who asked the same at the same time. It is done in the name
// of the first, and ends early only when all have left.
type flight struct {
	work    edge.Work // a copy: the first may leave
	account *account  // likewise; the callers have accounts of their own
	cancel  context.CancelFunc
	callers int // under the lock of flights

	done chan struct{} // closed when what is below stands
	by   walk.Attempt
	data []byte // the answer; nil without one
	last walk.Result
	err  error
}

// errDefect ends the requests of a flight that a defect of this device ended. The log
// has what is known of it.
var errDefect = errors.New("a defect")

// once runs w, or waits for the run of an equal request that is in work.
func (d *Daemon) once(ctx context.Context, w *edge.Work, a *account, deliver walk.Deliver) (walk.Result, error) {
	deliver = a.watch(deliver)
	key, ok := equalOf(w)
	if !ok {
		return d.answer(ctx, w, a, deliver)
	}
	f, first := d.joinFlight(ctx, key, w, a)
	select {
	case <-f.done:
	case <-ctx.Done():
		if d.flights.leave(key, f) { // nobody is left to wait for it
			f.cancel()
			<-f.done
		}
		return walk.Result{End: walk.Left}, nil
	}
	w.Method, w.Complexity, w.Job = f.work.Method, f.work.Complexity, f.work.Job
	agent, word, token := f.account.last()
	a.tried(agent, &clearance{word: word, id: token})
	a.receipt.Capability = f.account.receipt.Capability
	if first { // the statement of a peer names its transaction
		a.executor = f.account.executor
	}
	result := f.last
	if f.data != nil {
		if err := deliver(f.by, [][]byte{f.data}); err != nil {
			result.End = walk.Left
		}
	}
	return result, f.err
}

// joinFlight gives the run that w joins, which begins if there is none.
func (d *Daemon) joinFlight(ctx context.Context, key equal, w *edge.Work, a *account) (f *flight, first bool) {
	d.flights.mu.Lock()
	defer d.flights.mu.Unlock()
	if f := d.flights.open[key]; f != nil {
		f.callers++
		return f, false
	}
	if d.flights.open == nil {
		d.flights.open = make(map[equal]*flight)
	}
	f = &flight{work: *w, callers: 1, done: make(chan struct{}),
		account: &account{of: a.of, receipt: a.receipt, body: a.body, answer: receipt.NewResponse(w.Primitive, false)}}
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.flights.open[key] = f
	go d.fly(ctx, key, f) // the last caller waits for it
	return f, true
}

// leave says that a caller is gone, and whether it was the last.
func (s *flights) leave(key equal, f *flight) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.callers--; f.callers > 0 {
		return false
	}
	if s.open[key] == f {
		delete(s.open, key)
	}
	return true
}

// fly makes the run of f.
func (d *Daemon) fly(ctx context.Context, key equal, f *flight) {
	defer f.cancel()
	defer close(f.done)
	defer func() {
		d.flights.mu.Lock()
		defer d.flights.mu.Unlock()
		if d.flights.open[key] == f {
			delete(d.flights.open, key)
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			d.panicked(v, "request_id", f.work.ID)
			f.err, f.data = errDefect, nil
		}
	}()
	f.last, f.err = d.answer(ctx, &f.work, f.account, f.account.watch(func(by walk.Attempt, data [][]byte) error {
		f.by, f.data = by, append(f.data, bytes.Join(data, nil)...)
		return nil
	}))
}
