package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

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
	async, stream, reasoning                  bool
}

// equalOf gives what w is equal by; false where it is run by itself, since the caller did
// not allow more.
func equalOf(w *edge.Work) (equal, bool) {
	if !w.Share {
		return equal{}, false
	}
	hash, err := receipt.RequestHash(w.Body)
	return equal{app: w.App, primitive: w.Primitive, body: hash, model: w.Model, session: w.Session, stage: w.Stage, consumer: w.Consumer, instance: w.Instance,
		budget: w.Budget, async: w.Async, stream: w.Stream, reasoning: w.Stream && w.Reasoning}, err == nil
}

// flights are the requests in work that equal ones may join.
type flights struct {
	mu   sync.Mutex
	open map[equal]*flight
}

// errDefect ends the requests of a flight that a defect of this device ended. The log
// has what is known of it.
var errDefect = errors.New("a defect")

// once runs w, or joins the run of an equal request that is in work.
func (d *Daemon) once(ctx context.Context, w *edge.Work, a *account, deliver walk.Deliver) (walk.Result, error) {
	deliver = a.watch(deliver)
	key, ok := equalOf(w)
	if !ok {
		return d.answer(ctx, w, a, deliver)
	}
	f, c := d.joinFlight(ctx, key, w, a)
	return f.follow(ctx, c, deliver)
}

// joinFlight gives the run that w joins, which begins if there is none.
func (d *Daemon) joinFlight(ctx context.Context, key equal, w *edge.Work, a *account) (*flight, *caller) {
	c := &caller{work: w, account: a, came: time.Now()}
	d.flights.mu.Lock()
	defer d.flights.mu.Unlock()
	if f := d.flights.open[key]; f != nil && f.join(c) {
		return f, c
	}
	if d.flights.open == nil {
		d.flights.open = make(map[equal]*flight)
	}
	f := newFlight(w, a)
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.first = true
	f.join(c)
	d.flights.open[key] = f
	go d.fly(ctx, key, f) // the last caller waits for it
	return f, c
}

// fly makes the run of f.
func (d *Daemon) fly(ctx context.Context, key equal, f *flight) {
	defer f.cancel()
	var result walk.Result
	var err error
	defer func() {
		d.flights.mu.Lock()
		if d.flights.open[key] == f {
			delete(d.flights.open, key)
		}
		d.flights.mu.Unlock()
		f.end(result, err)
	}()
	defer func() {
		if v := recover(); v != nil {
			d.panicked(v, "request_id", f.work.ID)
			err = errDefect
		}
	}()
	for again := true; again; again = f.goesOn(&result, err) {
		result, err = d.answer(ctx, &f.work, f.account, f.account.watch(f.put))
	}
}
