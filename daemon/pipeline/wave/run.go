package wave

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// run is one task on its way, in one or more legs. Whatever decides it is decided
// under its lock, so that of two successes at the same moment one is first.
type run struct {
	w      *Waves
	ctx    context.Context
	cancel context.CancelFunc
	task   *Task
	began  time.Time
	news   chan struct{} // holds one: follow must look at its clock anew
	first  chan struct{} // closed when the first leg's job has its ID, or never will
	over   chan struct{} // closed when the task is decided and its winner settled
	offers []Offer       // of its tier, and of a hedge's; each entry stays where it is

	mu      sync.Mutex
	legs    []*leg
	owner   *leg // whose stream the caller gets
	named   bool // first is closed
	hedged  bool
	retry   time.Time // a hedge was refused: not before then
	decided bool
	outcome Outcome
}

// begin gives a task away and starts its first copies.
func (w *Waves) begin(ctx context.Context, task *Task) *run {
	r := &run{w: w, task: task, began: time.Now(), news: make(chan struct{}, 1), over: make(chan struct{}), first: make(chan struct{})}
	if task.Tier > 0 {
		r.offers = w.runner.Offers(task.Primitive)
	}
	// The runner holds the budget; this is for one that does not.
	if r.cancel = func() {}; task.Budget > 0 {
		ctx, r.cancel = context.WithTimeout(ctx, task.Budget+patience)
	}
	r.ctx = ctx
	first := w.assign(task, r.offers)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, offer := range first {
		var avoid []chain.OptionID
		for j, other := range first {
			if j != i && other != nil && other.Option != offer.Option {
				avoid = append(avoid, other.Option)
			}
		}
		r.start(Copy{Task: task, Offer: offer, Avoid: avoid, Racing: len(first) > 1})
	}
	if len(r.legs) == 0 {
		r.decide(Outcome{Class: chain.Canceled})
		close(r.over)
	}
	return r
}

// start starts one more copy, with a task of its own. The lock is held.
func (r *run) start(c Copy) {
	l := &leg{run: r, n: len(r.legs), at: c.Offer}
	task := *c.Task
	if task.Deliver != nil {
		task.Deliver = l.deliver(task.Deliver)
	}
	if task.Budget > 0 {
		task.Budget = max(time.Millisecond, task.Budget-time.Since(r.began))
	}
	c.Task = &task
	l.copy = c
	if !r.w.pool.enter(l, c.Offer, r.w.settings.Window) {
		return
	}
	r.legs = append(r.legs, l)
	r.w.open.Add(1)
	ctx, cancel := context.WithCancelCause(r.ctx)
	l.cancel = cancel
	go l.went(ctx)
}

// goes reports whether a copy is still wanted when its turn comes, and completes it. Where
// the others of a race lost before they began, they are no jobs, and the first ran alone.
func (r *run) goes(l *leg, c *Copy) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.over || l.giveUp != nil {
		return false
	}
	l.going = true
	if l.n > 0 {
		c.First = r.legs[0].id
	}
	return true
}

// follow waits until the task is decided, and hedges it on the way.
func (r *run) follow() Outcome {
	defer r.cancel()
	clock := time.NewTimer(r.due())
	defer clock.Stop()
	done := r.ctx.Done()
	for {
		select {
		case <-r.over:
			return r.outcome // nobody writes it any more
		case <-r.news:
		case <-clock.C:
			r.hedge()
		case <-done:
			done = nil
			r.abort()
		}
		clock.Reset(r.due())
	}
}

func (r *run) wake() {
	select {
	case r.news <- struct{}{}:
	default: // follow has not looked since the last news
	}
}

// find gives the offer of who accepted a copy, one of few words where nobody offered.
func (r *run) find(option chain.OptionID, peer chain.PeerID) *Offer {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.offers {
		if r.offers[i].place() == (place{option, peer}) {
			return &r.offers[i]
		}
	}
	return &Offer{Option: option, Peer: peer, Device: string(peer)}
}

// own gives the stream to the first copy that has something to deliver, and reports
// whether l is that one. The others cannot win any more.
func (r *run) own(l *leg) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owner == nil && !r.decided && !l.superseded && !l.over {
		r.owner = l
		r.supersede(l)
	}
	return r.owner == l && !r.decided && !l.over
}

// supersede drops all but winner. The lock is held.
func (r *run) supersede(winner *leg) {
	for _, l := range r.legs {
		if l != winner && !l.over && !l.superseded {
			l.superseded = true
			l.drop(errSuperseded)
		}
	}
}

// decide ends the task and reports whether it had not ended before. The lock is held;
// who gets true closes over once what it knows is noted.
func (r *run) decide(out Outcome) bool {
	if r.decided {
		return false
	}
	r.decided, r.outcome = true, out
	return true
}

// abort cancels every copy that is still wanted.
func (r *run) abort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.legs {
		l.drop(context.Cause(r.ctx))
	}
}

// left reports whether a copy may still win. The lock is held.
func (r *run) left() bool {
	return slices.ContainsFunc(r.legs, func(l *leg) bool { return !l.over && !l.superseded })
}

// ended takes what the run of a copy came to: the first success wins, and a failure is
// the task's if no other copy is on its way.
func (r *run) ended(l *leg, out Outcome) {
	r.mu.Lock()
	late := l.over
	l.over = true
	if l.giveUp != nil {
		l.giveUp.Stop()
	}
	l.fill(&out)
	state, hedge := r.verdict(l, &out, late)
	decided := false
	if !late && !l.superseded {
		if state == job.Done {
			r.supersede(l)
		}
		if state == job.Done || r.owner == l || !r.left() {
			decided = r.decide(out)
		}
	}
	r.mu.Unlock()

	r.w.pool.learn(l, &out, hedge, r.w.settings.Window)
	r.w.anchor(r.task.Kind, l, hedge, state == job.Done)
	r.conclude(l, state, hedge, late, decided)
}

// conclude frees what a copy held and settles its job, unless that was done when it was
// given up.
func (r *run) conclude(l *leg, state job.State, hedge result, late, decided bool) {
	r.name(l)
	r.w.pool.free(l)
	r.mu.Lock()
	settle := !l.settled && l.id != ""
	l.settled = l.settled || settle
	r.mu.Unlock()
	if settle {
		r.w.runner.Settle(l.id, state, hedge.hedge())
	}
	if decided {
		close(r.over)
	}
	if !late {
		r.w.open.Done()
	}
}

// name lets the other copies of a race begin: they name the first one's job.
func (r *run) name(l *leg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.n == 0 && !r.named {
		r.named = true
		close(r.first)
	}
}

// verdict says what becomes of a copy that ended with out. The lock is held.
func (r *run) verdict(l *leg, out *Outcome, late bool) (job.State, result) {
	switch {
	case l.superseded:
		return job.Superseded, lost
	case late || r.decided:
		return job.Cancelled, alone
	case out.Class == chain.OK && slices.ContainsFunc(r.legs, func(o *leg) bool { return o != l && o.going }):
		return job.Done, won
	case out.Class == chain.OK:
		return job.Done, alone
	case out.Class == chain.Canceled:
		if context.Cause(r.ctx) == context.DeadlineExceeded {
			out.Class = chain.Timeout // what the task failed by; its job was cancelled
		}
		return job.Cancelled, alone
	}
	return job.Failed, alone
}

// gaveUp ends a copy that ignored that it was cancelled, for all but its goroutine.
func (r *run) gaveUp(l *leg) {
	r.mu.Lock()
	if l.over {
		r.mu.Unlock()
		return
	}
	l.over = true
	out := Outcome{Class: chain.Canceled, AtLeast: true}
	l.fill(&out)
	state, hedge := r.verdict(l, &out, false)
	decided := !l.superseded && (r.owner == l || !r.left()) && r.decide(out)
	r.mu.Unlock()
	r.w.pool.stuck()
	r.conclude(l, state, hedge, false, decided)
}
