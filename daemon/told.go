package daemon

import (
	"errors"
	"fmt"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/bind"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// How long a peer is left alone that has nothing for us and named no time.
const (
	declinePause = 30 * time.Second
	busyPause    = 100 * time.Millisecond // or every request would knock at a full door
	gatePause    = 5 * time.Second        // its gate may know more then
	longestPause = 5 * time.Minute
)

// lateNo is how long a peer may take to say that it runs nothing: an honest one
// knows at once. One that sits on requests first delays everybody who asks it, and
// fails like one that says nothing.
const lateNo = 5 * time.Second

// late is the outcome of a no that came after lateNo.
func late(why string) walk.Outcome { return walk.Outcome{Class: chain.Timeout, Used: 1, Why: why} }

// told turns a trailer into an outcome of this device's walk. What was the
// matter inside the executor is the peer's failure here: its upstreams out of its
// reach say nothing about this device's network.
func (r *run) told(a *walk.Attempt, t *wire.ExecTrailer, after time.Duration) walk.Outcome {
	o := walk.Outcome{Class: t.Class, Status: t.Status, RetryAfter: t.RetryAfter.Duration(), HasRetryAfter: t.HasRetryAfter, Used: t.Used, Input: t.Input, Output: t.Output}
	if t.Answer != nil {
		o.Answer = &walk.Answer{Status: t.Answer.Status, ContentType: t.Answer.ContentType, Body: t.Answer.Body}
	}
	if t.Class != chain.OK {
		o.Why = r.says(a, trailerWords[t.Class])
	}
	switch {
	case t.Class == chain.Unreachable, t.Class == chain.Offline, t.Class == chain.Internal, t.Class == chain.Canceled:
		o.Class = chain.Status
	case !t.Class.Ran() && after > lateNo:
		return late(o.Why)
	case !t.Class.Ran(): // it had nothing that it could try
		pause := declinePause
		if t.HasRetryAfter {
			pause = t.RetryAfter.Duration()
		}
		r.declined(a, r.workOf(a), pause)
		o.Class = chain.Declined
	}
	return o
}

// trailerWords say what was the matter inside an executor. Where its class says
// it already, its name is enough.
var trailerWords = map[chain.Class]string{
	chain.Unreachable: "its own options are out of its reach",
	chain.Offline:     "it has no network itself",
	chain.Internal:    "a defect there",
	chain.Canceled:    "it gave the work up",
	chain.KeyMissing:  "it has no key for what could run it",
	chain.Cooling:     "what could run it there cools down",
	chain.Ceiling:     "a ceiling forbids what could run it there",
	chain.Absent:      "nothing there runs it",
	chain.NoPeer:      "nothing there runs it",
	chain.Withdrawn:   "nothing there runs it any more",
}

// refusalWords say why an executor refused. They are ours: what a peer writes is
// for the log.
var refusalWords = map[wire.ExecCode]string{
	wire.ExecBusy:            "it has no room",
	wire.ExecSharingOff:      "its owner shares nothing now",
	wire.ExecShutdown:        "it is stopping",
	wire.ExecTooLarge:        "the request is too large for it",
	wire.ExecNothingToRun:    "nothing there runs it for others",
	wire.ExecLacksCapability: "it lacks what the slot requires",
	wire.ExecInternal:        "a defect there",
	wire.ExecRevoked:         "it holds that this device's membership was revoked",
	wire.ExecMembershipOver:  "it holds that this device's membership is over",
	wire.ExecNoMembership:    "it does not accept this device's membership",
	wire.ExecMayNotSubmit:    "this device was not granted submit",
	wire.ExecTokenMissing:    "it wants a token",
	wire.ExecAgentSuspended:  "it holds that it is suspended",
	wire.ExecNoAgent:         "the registry, as it knows it, does not list it",
	wire.ExecNoSnapshot:      "it does not know how it stands",
	wire.ExecSnapshotStale:   "it does not know how it stands",
	wire.ExecNoKeys:          "it does not know the trust server's keys",
}

// says names the peer of an attempt and what it said.
func (r *run) says(a *walk.Attempt, what string) string {
	name := chain.ClipTo(r.daemon.peers.Name(a.Peer), 48)
	switch {
	case name == "":
		return what
	case what == "":
		return name
	}
	return name + ": " + what
}

// refused turns a refusal into an outcome. Nothing ran.
func (r *run) refused(a *walk.Attempt, no *wire.ExecRefusal, after time.Duration) walk.Outcome {
	d := r.daemon
	d.cfg.Log.Info("a peer refused work", "request_id", r.work.ID, "peer", a.Peer, "code", chain.Clip(no.Code), "message", chain.Clip(no.Message))
	words := refusalWords[no.Code]
	if words == "" {
		words = fmt.Sprintf("it refused this device's request (%s)", chain.Clip(no.Code))
	}
	why := r.says(a, words)
	if after > lateNo {
		return late(why)
	}
	if no.Code.Gate() { // at that peer's gate; another may know more
		r.declined(a, r.workOf(a), gatePause)
		r.denied.CompareAndSwap(nil, edge.Refuse(edge.Code(no.Code), "%s", why))
		return walk.Outcome{Class: chain.Denied, Why: why}
	}
	declined := walk.Outcome{Class: chain.Declined, Why: why}
	switch no.Code {
	case wire.ExecBusy:
		r.declined(a, bind.Work{}, max(no.ComeBack.Duration(), busyPause))
		return walk.Outcome{Class: chain.Busy, Why: why}
	case wire.ExecSharingOff, wire.ExecShutdown:
		r.declined(a, bind.Work{}, max(no.ComeBack.Duration(), declinePause))
		return declined
	case wire.ExecTooLarge: // for this peer; a smaller one may go well
		return declined
	case wire.ExecLacksCapability, wire.ExecNothingToRun: // it is as good as ever at other work
		r.declined(a, r.workOf(a), max(no.ComeBack.Duration(), declinePause))
		return declined
	case wire.ExecInternal:
		return walk.Outcome{Class: chain.Status, Used: 1, Why: why}
	case wire.ExecMembershipOver, wire.ExecRevoked, wire.ExecNoMembership:
		d.visitSoon() // the hub knows more
	}
	// Our papers, or how they are read: no failure of the peer, and no reason to
	// ask it again at once.
	r.declined(a, r.workOf(a), declinePause)
	return walk.Outcome{Class: chain.Internal, Used: 1, Why: why}
}

// lost turns an attempt that came to nothing into an outcome: the peer was not
// reached, which costs one attempt, or it vanished with all that it was lent.
func (r *run) lost(a *walk.Attempt, err error) walk.Outcome {
	r.daemon.doubt(a.Peer)
	r.daemon.cfg.Log.Info("an attempt at a peer came to nothing", "request_id", r.work.ID, "peer", a.Peer, "error", err)
	o := walk.Outcome{Class: chain.Unreachable, Why: r.says(a, "it vanished")}
	if errors.Is(err, mesh.ErrNotConnected) {
		o.Used, o.Why = 1, r.says(a, "")
	}
	return o
}

func (r *run) workOf(a *walk.Attempt) bind.Work {
	return bind.Work{Primitive: r.chain.Slot().Primitive, Option: a.Option.ID}
}

func (r *run) declined(a *walk.Attempt, w bind.Work, pause time.Duration) {
	r.daemon.peers.Declined(a.Peer, w, time.Now().Add(min(max(pause, 0), longestPause)))
}

// whyNoPeer says of each slot that found nobody why not, peer by peer.
func (d *Daemon) whyNoPeer(c *chain.Chain, failures []chain.Failure) {
	for i, f := range failures {
		if f.Class != chain.NoPeer {
			continue
		}
		for _, o := range c.Options() {
			if o.ID != f.Option || o.Kind != chain.Peer {
				continue
			}
			failures[i].Why = "no other device is known"
			for n, p := range d.candidates(c.Slot(), &o, time.Now()) {
				if n == 0 {
					failures[i].Why = ""
				}
				if n == maxReasons {
					failures[i].Why += ", …"
					break
				}
				if n > 0 {
					failures[i].Why += ", "
				}
				failures[i].Why += fmt.Sprintf("%s: %s", chain.ClipTo(p.Name, 48), p.Why)
			}
		}
	}
}

// maxReasons bounds of how many peers an error tells.
const maxReasons = 4
