package daemon

import (
	"errors"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/bind"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// How long a peer is left alone that has nothing for us and named no time.
const (
	declinePause = 30 * time.Second
	busyPause    = 100 * time.Millisecond // or every request would knock at a full door
	longestPause = 5 * time.Minute
)

// told turns a trailer into an outcome of this device's walk. What was the
// matter inside the executor is the peer's failure here: its upstreams out of its
// reach say nothing about this device's network.
func (r *run) told(a *walk.Attempt, t *wire.ExecTrailer) walk.Outcome {
	o := walk.Outcome{Class: t.Class, Status: t.Status, RetryAfter: t.RetryAfter.Duration(), HasRetryAfter: t.HasRetryAfter, Used: t.Used, Input: t.Input, Output: t.Output}
	if t.Answer != nil {
		o.Answer = &walk.Answer{Status: t.Answer.Status, ContentType: t.Answer.ContentType, Body: t.Answer.Body}
	}
	switch {
	case t.Class == chain.Unreachable, t.Class == chain.Offline, t.Class == chain.Internal, t.Class == chain.Canceled:
		o.Class = chain.Status
	case !t.Class.Ran() && t.Class != chain.Busy: // it had nothing that it could try
		pause := declinePause
		if t.HasRetryAfter {
			pause = t.RetryAfter.Duration()
		}
		r.declined(a, r.workOf(a), pause)
		o.Class = chain.Busy
	}
	return o
}

// refused turns a refusal into an outcome. Nothing ran.
func (r *run) refused(a *walk.Attempt, no *wire.ExecRefusal) walk.Outcome {
	d := r.daemon
	d.cfg.Log.Info("a peer refused work", "request_id", r.work.ID, "peer", a.Peer, "code", chain.Clip(no.Code), "message", chain.Clip(no.Message))
	busy := walk.Outcome{Class: chain.Busy}
	switch no.Code {
	case wire.ExecBusy:
		r.declined(a, bind.Work{}, max(no.ComeBack.Duration(), busyPause))
		return busy
	case wire.ExecSharingOff, wire.ExecShutdown:
		r.declined(a, bind.Work{}, max(no.ComeBack.Duration(), declinePause))
		return busy
	case wire.ExecTooLarge: // for this peer; a smaller one may go well
		return busy
	case wire.ExecLacksCapability, wire.ExecNothingToRun, wire.ExecInternal:
		return walk.Outcome{Class: chain.Status, Used: 1}
	case wire.ExecMembershipOver, wire.ExecRevoked, wire.ExecNoMembership:
		d.visitSoon() // the hub knows more
	}
	// Our papers, or how they are read: no failure of the peer, and no reason to
	// ask it again at once.
	r.declined(a, r.workOf(a), declinePause)
	return walk.Outcome{Class: chain.Internal, Used: 1}
}

// lost turns an attempt that came to nothing into an outcome: the peer was not
// reached, which costs one attempt, or it vanished with all that it was lent.
func (r *run) lost(a *walk.Attempt, err error) walk.Outcome {
	r.daemon.doubt(a.Peer)
	r.daemon.cfg.Log.Info("an attempt at a peer came to nothing", "request_id", r.work.ID, "peer", a.Peer, "error", err)
	o := walk.Outcome{Class: chain.Unreachable}
	if errors.Is(err, mesh.ErrNotConnected) {
		o.Used = 1
	}
	return o
}

func (r *run) workOf(a *walk.Attempt) bind.Work {
	return bind.Work{Primitive: r.chain.Slot().Primitive, Option: a.Option.ID}
}

func (r *run) declined(a *walk.Attempt, w bind.Work, pause time.Duration) {
	r.daemon.peers.Declined(a.Peer, w, time.Now().Add(min(max(pause, 0), longestPause)))
}
