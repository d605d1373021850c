package publish

import (
	"errors"
	"fmt"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// ErrEvidence is returned for a head that proves nothing: not signed by our own
// key, of another mesh, or for another slot or sequence than it was shown for.
var ErrEvidence = errors.New("the head proves nothing")

// Behind reports whether a device's mark lies above ours, or beside it with
// another body.
func (p *Press) Behind(slot chain.Slot, theirs chain.Mark) bool {
	e := p.issues[slot]
	if e == nil {
		return theirs.Seq > p.last
	}
	return theirs.Seq > e.Seq || theirs.Seq == e.Seq && theirs.Body != e.Body
}

// Learn takes in the proof of a sequence number above ours: the hub was put back
// to an older copy of its data. It continues above what it signed before. An
// edition that a device would refuse now is issued again; changed says so.
func (p *Press) Learn(slot chain.Slot, claim chain.Mark, envelope []byte, now time.Time) (changed bool, err error) {
	h, err := p.evidence(slot, claim, envelope)
	if err != nil {
		return false, fmt.Errorf("chain of %s: %w", slot, err)
	}
	if !p.Behind(slot, chain.Mark{Seq: h.Seq, Body: h.Body}) {
		return false, nil
	}
	if h.Seq > p.durable {
		if err := p.sequence.Raise(h.Seq + ahead); err != nil {
			return false, fmt.Errorf("chain of %s: %w", slot, err)
		}
		p.durable = h.Seq + ahead
	}
	p.last = max(p.last, h.Seq)
	p.ended = p.last // of what else was lost nothing is known
	e := p.issues[slot]
	if e == nil {
		return false, nil
	}
	if e.Body == h.Body && h.Seq >= e.Seq {
		c := *e
		c.Seq, c.Issued = h.Seq, max(e.Issued, h.Issued)
		p.issues[slot] = &c
		return true, nil
	}
	out, err := p.publish(slot, p.bodies[e.Body].bytes, e.Body, e.Input, Evidence, now)
	return out.Published, err
}

func (p *Press) evidence(slot chain.Slot, claim chain.Mark, envelope []byte) (chain.Head, error) {
	signer, payload, err := chain.Open(chain.DomainChain, envelope)
	if err != nil {
		return chain.Head{}, fmt.Errorf("%w: %w", ErrEvidence, err)
	}
	var h chain.Head
	if signer != p.key.PeerID() {
		return h, fmt.Errorf("%w: %w", ErrEvidence, chain.ErrSigner)
	}
	if err := chain.Unmarshal(payload, &h); err != nil {
		return h, fmt.Errorf("%w: %w", ErrEvidence, err)
	}
	if h.Mesh != p.mesh || h.Scope != slot.Scope || h.Primitive != slot.Primitive || h.Seq != claim.Seq || h.Body == "" || h.Seq >= 1<<62 {
		return h, ErrEvidence
	}
	return h, nil
}
