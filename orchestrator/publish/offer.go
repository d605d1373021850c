package publish

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// Outcome says what came of an offer.
type Outcome struct {
	Published bool
	Reason    Reason
	Again     time.Time // not published now, but worth offering again then; zero: not
}

// Prepared is an offer with its bytes, for one slot or for many that are alike.
type Prepared struct {
	resolution resolve.Resolution
	bytes      []byte
	cid        chain.CID
	input      string
	sought     []chain.Sought

	keptFor chain.CID // the body whose order kept has
	kept    *shared
}

// Prepare makes the bytes of an offer. input is a fingerprint of all that policy
// depends on but estimates.
func Prepare(r resolve.Resolution, rules chain.Rules, input string) (*Prepared, error) {
	rules.Sought = r.Sought // no input of policy: what is sought follows from estimates
	bytes, err := encode(chain.Body{Primitive: r.Slot.Primitive, Options: r.Options, Rules: rules})
	if err != nil {
		return nil, fmt.Errorf("publish %s: %w", r.Slot, err)
	}
	return &Prepared{resolution: r, sought: rules.Sought, bytes: bytes, cid: chain.CIDOf(bytes), input: input}, nil
}

// Offer considers an offer for a slot of the primitive that it was prepared for, and
// publishes it where the rules say so: where the input changed, any difference is
// published at once. When Offer returns, the sequence number of what it published is
// durable.
func (p *Press) Offer(slot chain.Slot, o *Prepared, now time.Time) (Outcome, error) {
	bytes, cid, input := o.bytes, o.cid, o.input
	e := p.issues[slot]
	switch {
	case e == nil:
		return p.publish(slot, bytes, cid, input, First, now)
	case e.Body == cid:
		if e.Input != input {
			p.issues[slot] = p.noted(e, input)
		}
		return Outcome{}, nil
	case e.Input != input:
		return p.publish(slot, bytes, cid, input, Input, now)
	}
	reason, ok := p.worth(e, o, now)
	if !ok {
		return Outcome{}, nil
	}
	if due := p.Due(slot, now); now.Before(due) {
		return Outcome{Again: due}, nil
	}
	if reason == Estimate || reason == Trend { // the new figures, in the order that stands
		var err error
		if bytes, cid, err = o.inOrderOf(p.bodies[e.Body]); err != nil {
			return Outcome{}, fmt.Errorf("publish %s: %w", slot, err)
		}
	}
	return p.publish(slot, bytes, cid, input, reason, now)
}

// inOrderOf gives the bytes of an offer with its options in the order of a body that is
// published: another order that saves next to nothing is not worth what it stirs up on
// the devices. Slots that are alike share the result.
func (o *Prepared) inOrderOf(was *shared) ([]byte, chain.CID, error) {
	if o.kept != nil && o.keptFor == was.cid {
		return o.kept.bytes, o.kept.cid, nil
	}
	body, err := chain.DecodeBody(o.bytes)
	if err != nil {
		return nil, "", err
	}
	place := make(map[chain.OptionID]int, len(was.body.Options))
	for i := range was.body.Options {
		place[was.body.Options[i].ID] = i
	}
	slices.SortStableFunc(body.Options, func(a, b chain.Option) int { return cmp.Compare(place[a.ID], place[b.ID]) })
	bytes, err := encode(body)
	if err != nil {
		return nil, "", err
	}
	o.keptFor, o.kept = was.cid, &shared{cid: chain.CIDOf(bytes), bytes: bytes}
	return o.kept.bytes, o.kept.cid, nil
}

func encode(body chain.Body) ([]byte, error) {
	bytes, err := chain.Marshal(body)
	if err != nil {
		return nil, err
	}
	if _, err := chain.DecodeBody(bytes); err != nil {
		return nil, err // no device would take it
	}
	return bytes, nil
}
