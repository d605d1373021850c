package daemon

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/bind"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// requestLife is how long a signed request may be begun: the difference of two
// clocks, and the way.
const requestLife = 2 * time.Minute

// handover is what all attempts of one request at peers have in common. It is
// made when the first peer is found.
type handover struct {
	made        bool
	requestHash string // "" if the request cannot be handed on
	payloadHash [sha256.Size]byte
	transaction string

	mu         sync.Mutex // an attempt that was given up may end beside the next one
	statements map[chain.PeerID]*statement
}

// said keeps what a peer signed of its answer, until it is known whose answer the
// caller has.
func (h *handover) said(p chain.PeerID, s *statement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.statements == nil {
		h.statements = map[chain.PeerID]*statement{}
	}
	h.statements[p] = s
}

// answer gives the statement about the answer of result; nil if no peer gave it.
func (h *handover) answer(result *walk.Result) *statement {
	if len(result.Peers) == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.statements[result.Peers[len(result.Peers)-1]]
	if s == nil || s.option != result.Option {
		return nil
	}
	return s
}

// statement is what an executor said of its answer, and what reached us.
type statement struct {
	peer      chain.PeerID
	option    chain.OptionID    // the slot
	says      receipt.Statement // without the hash of the answer
	claimed   string            // the hash that the executor names
	signature string
}

// bind fills the slot o. A request that has no canonical hash, or is larger than
// any peer takes, stays here; so does all work of a device without `submit`.
func (r *run) bind(o *chain.Option, except func(chain.PeerID) bool) (chain.PeerID, bool) {
	d := r.daemon
	if m, _, ok := d.own(); !ok || !m.Allows(chain.Submit) || len(r.work.Body) > wire.MaxExecPayload {
		return "", false
	}
	p, ok := d.peers.Bind(bind.Ask{Scope: r.chain.Slot().Scope, Primitive: r.chain.Slot().Primitive, Slot: o}, except, time.Now())
	if ok && r.prepare() {
		return p, true
	}
	return r.bindProviders(o, except)
}

// prepare makes what all attempts at peers share, and reports whether the
// request can be handed on.
func (r *run) prepare() bool {
	h := &r.handover
	if !h.made {
		h.made, h.transaction = true, r.account.receipt.TransactionID
		h.payloadHash = sha256.Sum256(r.work.Body)
		var err error
		if h.requestHash, err = r.account.requestHash(); err != nil {
			r.daemon.cfg.Log.Info("a request without a canonical form is not handed on to peers", "request_id", r.work.ID, "error", err)
		}
	}
	return h.requestHash != ""
}

// open makes the signed request of one attempt, with every envelope that proves
// it. What the peer has already is left out below.
func (r *run) open(a *walk.Attempt, cleared *clearance, now time.Time) (wire.ExecOpen, wire.ExecRequest, error) {
	d := r.daemon
	_, envelope, ok := d.own()
	if !ok {
		return wire.ExecOpen{}, wire.ExecRequest{}, errors.New("this device's membership is not in force")
	}
	c, extension := r.source(a.Option.ID)
	open := wire.ExecOpen{Membership: envelope, Extension: extension}
	open.Head, open.Body = c.Bytes()
	request := wire.ExecRequest{
		Executor: a.Peer, Membership: wire.EnvelopeHash(open.Membership), Head: wire.EnvelopeHash(open.Head), Body: c.Head().Body,
		Option: a.Option.ID, Scope: c.Slot().Scope, Primitive: c.Slot().Primitive,
		PayloadBytes: int64(len(r.work.Body)), PayloadHash: r.handover.payloadHash[:],
		TransactionID: r.handover.transaction, Nonce: wire.ExecNonce(d.peers.Boot(a.Peer), rand.Text()), RequestHash: r.handover.requestHash,
		Seeker: d.cfg.Key.DID(), Agent: a.Peer.DID(), TokenID: cleared.id,
		RequestID: r.work.ID, Model: r.work.Model, Stream: r.work.Stream, Usage: r.work.Usage,
		Attempts: a.Lent, Budget: max(1, chain.MillisOf(lentTime(a, r.work.Stream))), Hop: 1, Expires: chain.InstantOf(now.Add(requestLife)),
	}
	if cleared.token != "" {
		request.Token = []byte(cleared.token.Reveal())
	}
	if extension != nil {
		request.Extension = wire.EnvelopeHash(extension)
	}
	var err error
	if open.Request, err = wire.SealExecRequest(d.cfg.Key, request); err != nil {
		return open, request, fmt.Errorf("sign the request to a peer: %w", err)
	}
	return open, request, nil
}

// source gives the chain that has the slot id now, or the one that this request
// began with and the extension that appended it.
func (r *run) source(id chain.OptionID) (c *chain.Chain, extension []byte) {
	has := func(c *chain.Chain) bool {
		return slices.ContainsFunc(c.Options(), func(o chain.Option) bool { return o.ID == id })
	}
	if c := r.daemon.cfg.Chains.Get(r.chain.Slot()); c != nil && has(c) {
		return c, nil
	}
	if has(r.chain) {
		return r.chain, nil
	}
	return r.chain, r.extensions[id]
}

// lentTime is how long the peer may take to find an answer: what the walk gives
// the attempt, less a little, so that its account comes before the walk gives up.
func lentTime(a *walk.Attempt, stream bool) time.Duration {
	most := min(a.Budget, a.Limits.Total.Duration())
	if stream {
		most = min(most, a.Limits.FirstOutput.Duration())
	}
	return most - min(most/20, time.Second/2)
}

// hand sends what was signed for an attempt, and passes on what comes back.
func (r *run) hand(ctx context.Context, a *walk.Attempt, open wire.ExecOpen, emit func(walk.Chunk) error) (wire.ExecTrailer, error) {
	d := r.daemon
	return d.nodeNow().Exec(ctx, a.Peer, open, r.work.Body, func(data []byte, meaningful, more bool) error {
		d.peers.Heard(a.Peer, 0, time.Now())
		return emit(walk.Chunk{Data: data, Meaningful: meaningful, More: more})
	})
}

// runAtPeer makes one attempt at the peer that the slot is bound to.
func (r *run) runAtPeer(ctx context.Context, a walk.Attempt, cleared *clearance, emit func(walk.Chunk) error) walk.Outcome {
	d := r.daemon
	open, request, err := r.open(&a, cleared, time.Now())
	if err != nil {
		d.cfg.Log.Warn("a request was not handed on", "request_id", r.work.ID, "peer", a.Peer, "error", err)
		return walk.Outcome{Class: chain.Internal, Used: 1}
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer d.peers.Begin(a.Peer)()
	watched, began := make(chan struct{}), time.Now()
	go func() {
		defer close(watched)
		d.watch(ctx, a.Peer, giveUp)
	}()
	trailer, err := r.hand(ctx, &a, open, emit)
	var no *wire.ExecRefusal
	if errors.As(err, &no) && no.Code == wire.ExecStaleNonce && no.Boot != "" { // nothing ran: this is no second attempt
		d.peers.Booted(a.Peer, no.Boot)
		if anew, signed, failed := r.open(&a, cleared, time.Now()); failed == nil {
			request = signed
			trailer, err = r.hand(ctx, &a, anew, emit)
		}
	}
	silent := errors.Is(context.Cause(ctx), errSilent)
	over := ctx.Err() != nil
	giveUp(nil)
	<-watched
	if err == nil {
		d.peers.Heard(a.Peer, 0, time.Now())
		if trailer.Class == chain.OK {
			r.handover.said(a.Peer, &statement{peer: a.Peer, option: a.Option.ID, claimed: trailer.ResponseHash, signature: string(trailer.Signature), says: receipt.Statement{
				TransactionID: request.TransactionID, Nonce: request.Nonce, SeekerDID: request.Seeker, AgentDID: request.Agent,
				RequestHash: request.RequestHash, TokenID: request.TokenID}})
		}
		return r.told(&a, &trailer, time.Since(began))
	}
	switch {
	case silent:
		d.doubt(a.Peer)
		return walk.Outcome{Class: chain.Unreachable} // it has spent what it was lent
	case over:
		if !r.left() { // the walk gave it up
			d.doubt(a.Peer)
		}
		return walk.Outcome{Class: chain.Canceled}
	case errors.As(err, &no):
		d.peers.Heard(a.Peer, 0, time.Now())
		return r.refused(&a, no, time.Since(began))
	}
	return r.lost(&a, err)
}

// errSilent ends an attempt whose peer answers nothing any more.
var errSilent = errors.New("the peer is silent, and answers no ping")

// silence is how long nothing comes from a peer before it is pinged. An executor
// that thinks for long answers; one that is dead is noticed long before the
// limits of the option.
const silence = 5 * time.Second

// watch pings the peer of an attempt while nothing comes from it, and gives the
// attempt up when it does not answer. Whatever else the peer says counts as well,
// so that many attempts at one peer do not each ping it.
func (d *Daemon) watch(ctx context.Context, p chain.PeerID, giveUp context.CancelCauseFunc) {
	for wait(ctx, silence) {
		if time.Since(d.peers.LastHeard(p)) < silence {
			continue
		}
		if !d.answers(ctx, p) {
			giveUp(errSilent) // nothing, if ctx ended first
			return
		}
	}
}

// answers reports whether p gives a sign of life within lastPing. From pingTimeout
// on nobody else binds to it. A slow answer is one: a machine that is busy with the
// very work answers pings slowly.
func (d *Daemon) answers(ctx context.Context, p chain.PeerID) bool {
	began := time.Now()
	patient, cancel := context.WithTimeout(ctx, lastPing)
	defer cancel()
	late := time.AfterFunc(pingTimeout, func() { d.doubt(p) })
	defer late.Stop()
	err := d.ping(patient, p)
	if err != nil && ctx.Err() == nil { // it may have been the stream alone
		d.doubt(p)
		err = d.ping(patient, p)
	}
	return err == nil || d.peers.LastHeard(p).After(began)
}

// verify checks what the executor of the answer signed, once the answer is out,
// and gives its part of the receipt. The caller has the answer either way: what
// does not hold is an alarm, and counts against the peer.
func (r *run) verify(result *walk.Result) *receipt.Executor {
	s := r.handover.answer(result)
	if s == nil {
		return nil
	}
	s.says.ResponseHash = r.account.answer.Hash() // of what reached the caller
	err := s.says.Verify(s.peer, s.signature)
	if err == nil && s.claimed != s.says.ResponseHash {
		err = errors.New("it names another answer than the one that came")
	}
	if err == nil {
		return &receipt.Executor{Nonce: s.says.Nonce, Signature: s.signature}
	}
	d := r.daemon
	d.counts.unproven.Add(1)
	d.cfg.Log.Error("alarm: a peer's statement about its answer does not hold", "request_id", r.work.ID, "peer", s.peer, "name", d.peers.Name(s.peer), "error", err)
	d.peers.Observe(s.peer, bind.Work{Primitive: r.chain.Slot().Primitive, Option: s.option}, chain.BadAnswer, 0, time.Now())
	return nil
}
