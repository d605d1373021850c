package wave

import (
	"context"
	"errors"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// errSuperseded ends a copy that delivers when another one owns the stream, and is
// the cause why a loser's context ended.
var errSuperseded = errors.New("another copy was faster")

// result is how a copy came out against others.
type result uint8

const (
	alone result = iota // no others, or it failed by itself
	won
	lost
)

func (r result) hedge() job.Hedge {
	return [...]job.Hedge{alone: "", won: job.Winner, lost: job.Loser}[r]
}

// leg is one copy on its way. Its fields belong to its run's lock, but for copy and n,
// which never change, and held and since, which belong to the pool's.
type leg struct {
	run    *run
	copy   Copy
	n      int // in its run, from 0
	cancel context.CancelCauseFunc

	held  *Offer    // whose queue it counts in
	since time.Time // when somebody accepted it last

	id         string
	at         *Offer    // who accepted it last, or is asked first
	been       []*Offer  // who accepted it
	accepted   time.Time // when
	going      bool      // it is, or will be, a job
	superseded bool
	over       bool        // ended or given up: nothing that it says changes the task
	settled    bool        // its job is
	giveUp     *time.Timer // runs since it was cancelled
}

// askedAt names the provider that a leg ran at last, "" if nobody knows.
func (l *leg) askedAt() string {
	if l.at == nil {
		return ""
	}
	return asked(l.at)
}

// went runs the copy to its end.
func (l *leg) went(ctx context.Context) {
	r := l.run
	defer r.w.pool.leave()
	stop := context.AfterFunc(r.w.pool.stopping, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		l.drop(context.Canceled)
	})
	defer stop()
	defer l.cancel(nil)
	c := l.copy
	if l.n > 0 {
		select {
		case <-r.first:
		case <-ctx.Done(): // the first never says what its job is called, or too late
		}
	}
	if !r.goes(l, &c) {
		r.ended(l, Outcome{Class: chain.Canceled})
		return
	}
	r.ended(l, r.w.runner.Run(ctx, c, l.begun, l.taken))
}

func (l *leg) begun(id string) {
	l.run.mu.Lock()
	l.id = id
	l.run.mu.Unlock()
	l.run.name(l)
}

// fill adds to an outcome where the copy ran, as far as its runner did not say. The
// run's lock is held.
func (l *leg) fill(out *Outcome) {
	if at := l.at; out.Option == "" && at != nil {
		out.Option, out.Peer, out.Provider, out.Model = at.Option, at.Peer, at.Provider, at.Model
	}
}

// taken notes who accepted the copy. The clock of the hedge begins anew: a walk that
// went on to another option is a runner that just began.
func (l *leg) taken(option chain.OptionID, peer chain.PeerID) {
	r, now := l.run, time.Now()
	offer := r.find(option, peer)
	r.mu.Lock()
	if !l.over {
		l.at, l.accepted = offer, now
		l.been = append(l.been, offer)
	}
	r.mu.Unlock()
	r.w.pool.accepted(l, offer, now)
	r.wake()
}

// deliver passes a piece on if the copy owns the stream, or nobody does yet.
func (l *leg) deliver(to func(string) error) func(string) error {
	return func(text string) error {
		if !l.run.own(l) {
			return errSuperseded
		}
		return to(text)
	}
}

// drop cancels a copy that nobody waits for any more, and gives it up if it does not
// end. The run's lock is held.
func (l *leg) drop(cause error) {
	if l.over || l.giveUp != nil {
		return
	}
	l.giveUp = time.AfterFunc(patience, func() { l.run.gaveUp(l) })
	l.cancel(cause)
}
