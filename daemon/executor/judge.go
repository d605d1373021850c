package executor

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// judge finds out whether from may ask for what open says: the request, the
// membership, the chain, the slot, and what this device has to run it with.
func (e *Executor) judge(from chain.PeerID, open *wire.ExecOpen, now time.Time) (*Job, *wire.ExecRefusal) {
	own, ok := e.device.Member()
	r, refusal := e.request(from, open.Request, now)
	switch {
	case refusal != nil:
		return nil, refusal
	case !ok:
		return nil, wire.RefuseExec(wire.ExecNotMember, "this device is a member of no mesh")
	}
	j := &Job{Request: r, From: from, Seeker: from.DID(), Agent: e.did, executor: e}
	m, refusal := e.membership(own, from, &r, open, now)
	if refusal != nil {
		return nil, refusal
	}
	j.Name = m.Name
	authority, refusal := e.authority(own, &r, open, now)
	if refusal != nil {
		return nil, refusal
	}
	if j.Slot, refusal = e.slot(own, from, &r, authority, open, now); refusal != nil {
		return nil, refusal
	}
	j.Kinds = mayWalk(&j.Slot, authority.chain.Rules())
	return j, e.means(j, now)
}

// request checks what the submitter signed.
func (e *Executor) request(from chain.PeerID, envelope []byte, now time.Time) (wire.ExecRequest, *wire.ExecRefusal) {
	signer, r, err := wire.OpenExecRequest(envelope)
	no := func(code wire.ExecCode, why string) (wire.ExecRequest, *wire.ExecRefusal) {
		return r, wire.RefuseExec(code, "%s", why)
	}
	switch {
	case errors.Is(err, chain.ErrSignature), errors.Is(err, chain.ErrSigner), errors.Is(err, chain.ErrDomain):
		return no(wire.ExecBadSignature, "the request is not signed as one")
	case err != nil:
		return no(wire.ExecProtocol, "the request: "+chain.ClipTo(err.Error(), 200))
	case signer != from:
		return no(wire.ExecWrongPeer, "the request was signed by another peer than the one that sent it")
	case r.Executor != e.self:
		return no(wire.ExecWrongExecutor, "the request is for another executor")
	case chain.InstantOf(now) >= r.Expires:
		return no(wire.ExecExpired, "the request has expired")
	case r.Expires > chain.InstantOf(now.Add(Ahead)):
		return no(wire.ExecExpired, "the request expires over "+Ahead.String()+" ahead; are the clocks set?")
	case r.Hop != 1:
		return no(wire.ExecProtocol, "work is handed on once")
	case r.Seeker != "" && r.Seeker != from.DID():
		return no(wire.ExecWrongPeer, "the request names another seeker than the peer that sent it")
	case r.Agent != "" && r.Agent != e.did:
		return no(wire.ExecWrongExecutor, "the request names another agent than this device")
	case receipt.ParseHash(r.RequestHash) != nil:
		return no(wire.ExecProtocol, "the request's hash is none")
	}
	if boot := e.boot(now); !r.OfBoot(boot) {
		return r, stale(boot)
	}
	return r, nil
}

// membership checks who the submitter is in the mesh.
func (e *Executor) membership(own Member, from chain.PeerID, r *wire.ExecRequest, open *wire.ExecOpen, now time.Time) (*member.Membership, *wire.ExecRefusal) {
	m, refusal := e.shown(own, r, open, now)
	if refusal != nil {
		return nil, refusal
	}
	switch err := m.Current(now); {
	case errors.Is(err, chain.ErrExpired):
		return nil, wire.RefuseExec(wire.ExecMembershipOver, "the membership expired at %s", m.Expires.Time().Format(time.RFC3339))
	case err != nil:
		return nil, wire.RefuseExec(wire.ExecNoMembership, "the membership: %v; are the clocks set?", err)
	}
	scope := r.Scope.Base()
	err := m.Check(from, scope, own.Revocations)
	switch {
	case errors.Is(err, member.ErrPeer):
		return nil, wire.RefuseExec(wire.ExecWrongPeer, "the membership is another peer's")
	case own.Revocations.Ends(m): // before the scope: who was thrown out is told so
		return nil, wire.RefuseExec(wire.ExecRevoked, "the membership was revoked")
	case !m.Allows(chain.Submit):
		return nil, wire.RefuseExec(wire.ExecMayNotSubmit, "the membership does not grant submit")
	case err != nil:
		return nil, wire.RefuseExec(wire.ExecNotMember, "the membership does not cover %s", scope)
	case !slices.Contains(own.Scopes, scope):
		return nil, wire.RefuseExec(wire.ExecNotMember, "this device is no member of %s", scope)
	}
	return m, nil
}

// shown gives the membership that the request names.
func (e *Executor) shown(own Member, r *wire.ExecRequest, open *wire.ExecOpen, now time.Time) (*member.Membership, *wire.ExecRefusal) {
	if m := e.seen.get(own.Trust, r.Membership).membership; m != nil {
		return m, nil
	}
	switch {
	case bytes.Equal(r.Membership, wire.EnvelopeHash(nil)):
		return nil, wire.RefuseExec(wire.ExecNoMembership, "the request names no membership")
	case len(open.Membership) == 0:
		return nil, wire.RefuseExec(wire.ExecNeed, "the membership is not known here")
	case !bytes.Equal(wire.EnvelopeHash(open.Membership), r.Membership):
		return nil, wire.RefuseExec(wire.ExecNoMembership, "the membership is not the one that the request names")
	}
	m, err := member.Verify(own.Trust, open.Membership, now)
	switch {
	case errors.Is(err, chain.ErrExpired):
		return nil, wire.RefuseExec(wire.ExecMembershipOver, "the membership has expired")
	case err != nil:
		return nil, wire.RefuseExec(wire.ExecNoMembership, "%s", chain.ClipTo(err.Error(), 200))
	}
	e.seen.put(own.Trust, r.Membership, entry{membership: &m, size: len(open.Membership)})
	return &m, nil
}

// authority is the chain that a request stands on. older: a newer one was accepted
// here, which is in force and must allow the same.
type authority struct {
	chain *chain.Chain
	older *chain.Chain // what the submitter has, where chain is not that
}

// authority finds the chain by which the request may be.
func (e *Executor) authority(own Member, r *wire.ExecRequest, open *wire.ExecOpen, now time.Time) (authority, *wire.ExecRefusal) {
	slot := chain.Slot{Scope: r.Scope, Primitive: r.Primitive}
	held := e.device.Chain(slot)
	c, refusal := e.named(own, slot, held, r, open, now)
	if refusal != nil {
		return authority{}, refusal
	}
	h, mark := c.Head(), e.device.Mark(slot)
	switch {
	case c.Slot() != slot:
		return authority{}, wire.RefuseExec(wire.ExecForeignChain, "the chain is of %s", c.Slot())
	case c.Expired(now):
		return authority{}, wire.RefuseExec(wire.ExecChainOver, "the chain expired at %s", h.Expires.Time().Format(time.RFC3339))
	case h.Body != r.Body:
		return authority{}, wire.RefuseExec(wire.ExecNoChain, "the head names another body than the request")
	case h.Seq == mark.Seq && h.Body != mark.Body:
		return authority{}, wire.RefuseExec(wire.ExecNoChain, "%v", chain.ErrEquivocation)
	case h.Seq >= mark.Seq:
		return authority{chain: c}, nil
	case held == nil || held.Expired(now):
		return authority{}, wire.RefuseExec(wire.ExecNoChain, "a newer chain than sequence %d was accepted here, and is not in force", h.Seq)
	}
	return authority{chain: held, older: c}, nil
}

// named gives the verified chain whose head the request names.
func (e *Executor) named(own Member, slot chain.Slot, held *chain.Chain, r *wire.ExecRequest, open *wire.ExecOpen, now time.Time) (*chain.Chain, *wire.ExecRefusal) {
	var body []byte
	if held != nil {
		head, bytesOf := held.Bytes()
		if bytes.Equal(wire.EnvelopeHash(head), r.Head) {
			return held, nil
		}
		if held.Head().Body == r.Body {
			body = bytesOf
		}
	}
	if c := e.seen.get(own.Trust, r.Head).chain; c != nil {
		return c, nil
	}
	if body == nil {
		body = open.Body
	}
	if len(body) == 0 { // renewed or for another scope: the body may have come with another head
		body = e.seen.get(own.Trust, bodyKey(r.Body)).body
	}
	switch {
	case len(open.Head) == 0:
		return nil, wire.RefuseExec(wire.ExecNeed, "the head is not known here")
	case !bytes.Equal(wire.EnvelopeHash(open.Head), r.Head):
		return nil, wire.RefuseExec(wire.ExecNoChain, "the head is not the one that the request names")
	case len(body) == 0:
		return nil, wire.RefuseExec(wire.ExecNeed, "the body is not known here")
	}
	c, err := own.Trust.Verify(slot, open.Head, body, chain.Mark{}, now)
	if err != nil {
		return nil, refuseChain(err)
	}
	_, kept := c.Bytes()
	e.seen.put(own.Trust, r.Head, entry{chain: c, size: len(open.Head)})
	e.seen.put(own.Trust, bodyKey(r.Body), entry{body: kept, size: 2 * len(kept)}) // as bytes and as options
	return c, nil
}

func refuseChain(err error) *wire.ExecRefusal {
	code := wire.ExecNoChain
	switch {
	case errors.Is(err, chain.ErrExpired):
		code = wire.ExecChainOver
	case errors.Is(err, chain.ErrSlot):
		code = wire.ExecForeignChain
	}
	return wire.RefuseExec(code, "%s", chain.ClipTo(err.Error(), 200))
}

// bodyKey is under which a body is kept, apart from every hash of an envelope.
func bodyKey(body chain.CID) []byte { return wire.EnvelopeHash([]byte("body " + string(body))) }

// slot finds the peer slot that the request came through, in the chain or in an
// extension of it, and whether this device may fill it. That its data may leave the
// submitter is sure: no body that says otherwise of a slot is valid.
func (e *Executor) slot(own Member, from chain.PeerID, r *wire.ExecRequest, a authority, open *wire.ExecOpen, now time.Time) (chain.Option, *wire.ExecRefusal) {
	options := a.chain.Options()
	if len(r.Extension) > 0 {
		var refusal *wire.ExecRefusal
		if options, refusal = e.extension(own, from, r, a, open, now); refusal != nil {
			return chain.Option{}, refusal
		}
	}
	i := slices.IndexFunc(options, func(o chain.Option) bool { return o.ID == r.Option })
	switch {
	case i < 0 && a.older != nil:
		return chain.Option{}, wire.RefuseExec(wire.ExecNoSlot, "the chain in force here, sequence %d, has no option %q", a.chain.Head().Seq, chain.Clip(r.Option))
	case i < 0:
		return chain.Option{}, wire.RefuseExec(wire.ExecNoSlot, "the chain has no option %q", chain.Clip(r.Option))
	case options[i].Kind != chain.Peer:
		return chain.Option{}, wire.RefuseExec(wire.ExecNoSlot, "option %q is no peer slot", chain.Clip(r.Option))
	case a.chain.Rules().NoPeers:
		return chain.Option{}, wire.RefuseExec(wire.ExecNoSlot, "the chain's rules forbid peers")
	}
	has := e.device.Has()
	for _, c := range append([]chain.Capability{chain.ExecuteCapability(r.Primitive)}, options[i].Requires...) {
		if !slices.Contains(has, c) {
			return chain.Option{}, wire.RefuseExec(wire.ExecLacksCapability, "this device does not have %q", chain.Clip(c))
		}
	}
	return options[i], nil
}

// extension gives the options of the extension that the request names. It holds
// for minutes, so that it is not kept: it comes with each request.
func (e *Executor) extension(own Member, from chain.PeerID, r *wire.ExecRequest, a authority, open *wire.ExecOpen, now time.Time) ([]chain.Option, *wire.ExecRefusal) {
	switch {
	case a.older != nil:
		return nil, wire.RefuseExec(wire.ExecBadExtension, "it extends a chain that is no longer in force here")
	case len(open.Extension) == 0:
		return nil, wire.RefuseExec(wire.ExecNeed, "the extension is not known here")
	case !bytes.Equal(wire.EnvelopeHash(open.Extension), r.Extension):
		return nil, wire.RefuseExec(wire.ExecBadExtension, "the extension is not the one that the request names")
	}
	extension, err := own.Trust.OpenExtension(a.chain, from, open.Extension, now)
	if err != nil {
		return nil, wire.RefuseExec(wire.ExecBadExtension, "%s", chain.ClipTo(err.Error(), 200))
	}
	return extension.Options, nil
}

// means finds this device's own chain for the work, and at least one option in it
// that may be used for others.
func (e *Executor) means(j *Job, now time.Time) *wire.ExecRefusal {
	r := &j.Request
	own := e.own(r, now)
	switch {
	case own == nil:
		return wire.RefuseExec(wire.ExecNothingToRun, "this device holds no chain for %s", r.Primitive)
	case own.Expired(now):
		return wire.RefuseExec(wire.ExecNothingToRun, "this device's own chain for %s has expired", r.Primitive)
	}
	j.Chain = own
	for _, o := range own.Options() {
		if slices.Contains(j.Kinds, o.Kind) && o.Data != chain.LocalOnly && e.device.Runs(&o) {
			j.Options = append(j.Options, o)
		}
	}
	if len(j.Options) == 0 {
		return wire.RefuseExec(wire.ExecNothingToRun, "this device has no option that work through slot %q may use", chain.Clip(r.Option))
	}
	return nil
}

// own gives this device's chain for r. Where it has none for the qualifier of the
// scope it takes a wider one, as it does for its own requests.
func (e *Executor) own(r *wire.ExecRequest, now time.Time) *chain.Chain {
	base := r.Scope.Base()
	if qualifier, ok := r.Scope.Qualifier(); ok && base != r.Scope {
		for _, q := range qualifier.Wider() {
			if c := e.device.Chain(chain.Slot{Scope: base.With(q), Primitive: r.Primitive}); c != nil && !c.Expired(now) {
				return c
			}
		}
	}
	return e.device.Chain(chain.Slot{Scope: base, Primitive: r.Primitive})
}
