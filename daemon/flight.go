package daemon

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/edge"
)

// Bounds of an answer that several take.
const (
	maxKept  = 4 << 20  // bytes of it that are kept: for who joins, and for who reads slower than others
	keepCost = 64       // bytes that an event takes beside its own
	maxPart  = 64 << 10 // bytes of a stream that are handed out at once; more only where one event has them
)

// flight is one run for all who asked the same at the same time. It is done in the name
// of the first, and ends early only when all have left.
//
// It goes on at the pace of its fastest caller, so that nothing of an answer is ahead of all
// of them. What it said is kept for the others, each of whom reads on in a goroutine of their
// own. An answer that has outgrown maxKept takes in nobody more, and who is so far behind the
// fastest is cut, as is who does not read at all.
type flight struct {
	work    edge.Work // a copy: the first may leave
	account *account  // likewise; the callers have accounts of their own
	cancel  context.CancelFunc
	began   time.Time // this run, which may be the second

	mu      sync.Mutex
	news    sync.Cond // for the callers, and for the last one: the end
	read    sync.Cond // for the run: a caller has more, or is gone
	callers map[*caller]struct{}
	shut    bool // nobody joins any more
	found   found
	by      walk.Attempt  // of the last event
	events  []event       // that are kept
	dropped int           // that were before them
	size    int           // of those that are kept
	whole   time.Duration // the budget of each caller, once one run has spent its own
	over    bool          // what is below stands
	last    walk.Result   // before: of the run before this one
	err     error
}

// found is what a run found of its request, for the headers and the log of its callers.
type found struct{ method, complexity, job, capability string }

// event is a piece of an answer as it was delivered, or a comment.
type event struct {
	data    []byte
	comment bool
}

// caller is one of those whom a flight answers.
type caller struct {
	work    *edge.Work
	account *account
	came    time.Time
	first   bool // the run is done in its name
	at      int  // events that it has; under the lock of the flight
	taken   int  // events that it is about to have: those of part, or comment
	part    [][]byte
	comment string
	timer   *time.Timer // for the end of its budget, where a run goes on beyond it; nil: none
	last    walk.Result
	err     error
}

func newFlight(w *edge.Work, a *account) *flight {
	f := &flight{work: *w, began: time.Now(), callers: map[*caller]struct{}{},
		account: &account{of: a.of, receipt: a.receipt, body: a.body, answer: receipt.NewResponse(w.Primitive, w.Stream)}}
	f.news.L, f.read.L = &f.mu, &f.mu
	if w.Comment != nil {
		f.work.Comment = f.say
	}
	return f
}

// join takes c in, if the whole answer can still be had.
func (f *flight) join(c *caller) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shut {
		return false
	}
	f.callers[c] = struct{}{}
	return true
}

// leave says that c is gone. The last one ends the run, and waits for that.
func (f *flight) leave(c *caller) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.callers, c)
	if c.timer != nil {
		c.timer.Stop()
	}
	f.read.Signal()
	if len(f.callers) > 0 {
		return
	}
	f.shut = true
	f.cancel()
	for !f.over {
		f.news.Wait()
	}
}

// wake has the callers look what there is.
func (f *flight) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.news.Broadcast()
}

// put is the [walk.Deliver] of the run. It returns when one of the callers has it all.
func (f *flight) put(by walk.Attempt, data [][]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.by = by
	for _, b := range data {
		f.keep(event{data: b})
	}
	for len(f.callers) > 0 {
		if f.fastest() == f.said() {
			return nil
		}
		f.read.Wait()
	}
	return context.Canceled
}

// say is put for a comment, for which nobody waits.
func (f *flight) say(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep(event{data: []byte(line), comment: true})
}

// end says how the run ended.
func (f *flight) end(last walk.Result, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.learn()
	f.last, f.err, f.shut, f.over = last, err, true, true
	f.news.Broadcast()
}

// keep adds an event, and lets go of the first ones where there are too many.
func (f *flight) keep(e event) {
	f.learn()
	f.events = append(f.events, e)
	f.size += len(e.data) + keepCost
	if f.size > maxKept {
		f.shut = true
		most := f.fastest() - f.dropped
		n := 0
		for ; n < most && f.size > maxKept; n++ {
			f.size -= len(f.events[n].data) + keepCost
		}
		clear(f.events[:n])
		f.events, f.dropped = f.events[n:], f.dropped+n
	}
	f.news.Broadcast()
}

// learn takes over what the run found, which writes it without the lock.
func (f *flight) learn() {
	w := &f.work
	f.found = found{w.Method, w.Complexity, w.Job, f.account.receipt.Capability}
}

// said is how many events there were.
func (f *flight) said() int { return f.dropped + len(f.events) }

// fastest is how many of them the fastest caller has.
func (f *flight) fastest() (at int) {
	at = f.dropped
	for c := range f.callers {
		at = max(at, c.at)
	}
	return at
}

// follow hands c what the run says, from its beginning on, and gives how it ended for them.
func (f *flight) follow(ctx context.Context, c *caller, deliver walk.Deliver) (walk.Result, error) {
	defer f.leave(c)
	defer context.AfterFunc(ctx, f.wake)()
	gone := walk.Result{End: walk.Left}
	for {
		by, there := f.next(ctx, c)
		agent, word, token := f.account.last()
		c.account.tried(agent, &clearance{word: word, id: token})
		switch {
		case !there:
			return gone, nil
		case c.comment != "":
			if c.work.Comment != nil {
				c.work.Comment(c.comment)
			}
			continue
		case len(c.part) == 0:
			return c.last, c.err
		}
		gone.Option, gone.Attempts, gone.Delivered = by.Option.ID, by.Number, true
		if deliver(by, c.part) != nil {
			return gone, nil
		}
	}
}

// next waits for what follows what c has, which is in c.part or c.comment then. If nothing
// does, c.last and c.err say how it ended. It is false where c is gone, or too far behind.
func (f *flight) next(ctx context.Context, c *caller) (by walk.Attempt, there bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.tell(c)
	c.at += c.taken
	c.part, c.comment, c.taken = c.part[:0], "", 0
	f.read.Signal()
	for {
		at := c.at - f.dropped
		switch {
		case at == len(f.events) && f.over:
			c.last, c.err = f.last, f.err
			if c.first { // the statement of a peer names its transaction
				c.account.executor = f.account.executor
			}
			return f.by, true
		case at < 0, ctx.Err() != nil:
			return f.by, false
		case at < len(f.events):
			c.take(f.events[at:], f.work.Stream)
			by = f.by
			by.Ended = by.Ended && c.at+c.taken == f.said()
			return by, true
		case f.whole > 0 && !c.waits(f):
			c.last = f.last
			return f.by, true
		}
		f.news.Wait()
	}
}

// waits reports whether c has a part of its budget left, and has f wake it when it has not.
func (c *caller) waits(f *flight) bool {
	left := time.Until(c.came.Add(f.whole))
	if left > 0 && c.timer == nil {
		c.timer = time.AfterFunc(left, f.wake)
	}
	return left > 0 || f.said() > 0
}

// tell lets c know what the run found.
func (f *flight) tell(c *caller) {
	c.work.Method, c.work.Complexity, c.work.Job = f.found.method, f.found.complexity, f.found.job
	if f.found.capability != "" {
		c.account.receipt.Capability = f.found.capability
	}
}

// take takes the next comment, or the events before it: all of a plain answer, and as
// many of a stream as make a part.
func (c *caller) take(events []event, stream bool) {
	size := 0
	for _, e := range events {
		switch {
		case c.taken == 0 && e.comment:
			c.comment, c.taken = string(e.data), 1
			return
		case e.comment, c.taken > 0 && stream && size+len(e.data) > maxPart:
			return
		}
		c.part, size = append(c.part, e.data), size+len(e.data)
		c.taken++
	}
}

// goesOn reports whether a run that spent its budget before it had a word to say is made
// once more, because somebody came so late that theirs lasts longer: as long as the longest
// does. The others are held to their own.
func (f *flight) goesOn(timedOut *walk.Result, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, had := time.Now(), f.account.budget
	if err != nil || timedOut.End != walk.AllTimedOut || f.said() > 0 || now.Sub(f.began) < had-had/10 { // the options' own limits ended it
		return false
	}
	whole := cmp.Or(f.whole, had)
	until := f.began.Add(had + whole/10) // what is hardly more is no other budget
	longest := until
	for c := range f.callers {
		if by := c.came.Add(whole); by.After(longest) {
			longest = by
		}
	}
	if longest == until {
		return false
	}
	f.began, f.whole, f.last = now, whole, *timedOut
	f.work.Budget.Duration = longest.Sub(now)
	f.news.Broadcast()
	return true
}
