// Package publish owns what leaves the hub as policy: bodies, shared by every
// scope that resolves to the same bytes; sequence numbers that never go back;
// heads, signed when somebody fetches one; and the rule of when a new order is
// worth a new body. It decides nothing about the order itself. It is not safe
// for concurrent use: the hub's loop owns it.
package publish

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Sequence is where the highest number that may have been used outlives the process.
// All chains of a mesh share one series: a number for each slot of a large mesh
// would have to be kept for as long as the mesh lives, also of slots that are long gone.
type Sequence interface {
	Highest() uint64
	Raise(to uint64) error // returns when it is durable
}

// Lifetimes of heads.
const (
	RefreshAfter = time.Hour
	Lifetime     = 7 * 24 * time.Hour
)

// ErrNoChain is returned for a slot for which nothing is published.
var ErrNoChain = errors.New("nothing is published for it")

// Reason says why a body was published.
type Reason string

// Reasons.
const (
	First    Reason = "first"    // the slot had none
	Input    Reason = "input"    // the catalogue, or what devices can do, changed
	Order    Reason = "order"    // estimates gave a cheaper order
	Estimate Reason = "estimate" // an estimate moved two steps
	Trend    Reason = "trend"    // the newest witnesses of an option disagree with its estimate, or no longer: more samples are sought, or fewer
	Evidence Reason = "evidence" // a device showed a head above our own
	Clock    Reason = "clock"    // our clock was ahead: heads of the old number would lie in the future, or go back
)

// Edition is what is published for a slot.
type Edition struct {
	Slot     chain.Slot
	Seq      uint64
	Body     chain.CID
	Previous chain.CID     // the body before, which a device may still walk
	Input    string        // fingerprint of what policy depended on, estimates aside
	At       chain.Instant // when it was published
	Reason   Reason
	Issued   chain.Instant // of the newest head

	estimated chain.Instant // last change caused by estimates
}

// Press publishes the chains of one mesh.
type Press struct {
	key      chain.Key
	mesh     chain.MeshID
	sequence Sequence
	last     uint64 // the highest number that was used
	durable  uint64 // numbers up to this one may be used
	issues   map[chain.Slot]*issue
	bodies   map[chain.CID]*shared
	recent   map[issueKey]*issue
	ended    uint64 // last, when a slot was withdrawn
}

// ahead is how many numbers are made durable at once: a minute's worth, for a number
// is at least the time in milliseconds.
const ahead = 60_000

// shared is a body and how many editions speak of it.
type shared struct {
	cid   chain.CID
	bytes []byte
	body  chain.Body
	uses  int
}

// New makes a press that has published nothing yet.
func New(key chain.Key, mesh chain.MeshID, sequence Sequence) *Press {
	highest := sequence.Highest()
	return &Press{key: key, mesh: mesh, sequence: sequence, last: highest, durable: highest, ended: highest,
		issues: map[chain.Slot]*issue{}, bodies: map[chain.CID]*shared{}, recent: map[issueKey]*issue{}}
}

func (p *Press) publish(slot chain.Slot, bytes []byte, cid chain.CID, input string, reason Reason, now time.Time) (Outcome, error) {
	old := p.issues[slot]
	e := issue{Body: cid, Input: input, At: chain.InstantOf(now), Reason: reason, Issued: chain.InstantOf(now)}
	if old != nil {
		e.Previous, e.estimated = old.Body, old.estimated
		if old.Body == cid {
			e.Previous = old.Previous
		}
	}
	if reason == Order || reason == Estimate || reason == Trend {
		e.estimated = e.At
	}
	key := issueKey{cid, e.Previous, input, reason, e.estimated}
	have := p.recent[key]
	if have == nil || !p.follows(have, old, e.At) {
		seq, err := p.next(now)
		if err != nil {
			return Outcome{}, fmt.Errorf("publish %s: %w", slot, err)
		}
		e.Seq, have = seq, &e
		p.remember(key, have)
	}
	if err := p.hold(cid, bytes); err != nil {
		return Outcome{}, err
	}
	if old != nil {
		if old.Body == cid {
			p.release(cid) // it was counted twice
		} else {
			p.release(old.Previous)
		}
	}
	p.issues[slot] = have
	return Outcome{Published: true, Reason: reason}, nil
}

// next gives an unused number, durable before it is used.
func (p *Press) next(now time.Time) (uint64, error) {
	seq := max(p.last+1, uint64(max(now.UnixMilli(), 1)))
	if seq > p.durable {
		if err := p.sequence.Raise(seq + ahead); err != nil {
			return 0, err
		}
		p.durable = seq + ahead
	}
	p.last = seq
	return seq, nil
}

func (p *Press) hold(cid chain.CID, bytes []byte) error {
	s := p.bodies[cid]
	if s == nil {
		body, err := chain.DecodeBody(bytes)
		if err != nil {
			return err
		}
		s = &shared{cid: cid, bytes: bytes, body: body}
		p.bodies[cid] = s
	}
	s.uses++
	return nil
}

func (p *Press) release(cid chain.CID) {
	if s := p.bodies[cid]; s != nil {
		if s.uses--; s.uses <= 0 {
			delete(p.bodies, cid)
		}
	}
}

// Restore puts back what was published before a restart: an edition as Edition gave
// it. Editions that were published together share their memory again. It is
// ignored where something is published for the slot already.
func (p *Press) Restore(was Edition, body []byte) bool {
	if p.issues[was.Slot] != nil || p.bodies[was.Body] == nil && chain.CIDOf(body) != was.Body || was.Seq == 0 || was.Seq >= 1<<62 || p.hold(was.Body, body) != nil {
		return false
	}
	key := issueKey{body: was.Body, input: was.Input, reason: First}
	e := p.recent[key]
	if e == nil || e.Seq != was.Seq {
		body := was.Body
		if s := p.bodies[body]; s != nil {
			body = s.cid // one copy of its address
		}
		e = &issue{Seq: was.Seq, Body: body, Input: was.Input, At: was.At, Reason: First, Issued: was.Issued}
		p.remember(key, e)
	}
	e.Issued = max(e.Issued, was.Issued)
	p.issues[was.Slot] = e
	p.last = max(p.last, was.Seq)
	return true
}

// Withdraw ends what was published for a slot: no option is left. Its sequence
// number stays used.
func (p *Press) Withdraw(slot chain.Slot) bool {
	e := p.issues[slot]
	if e == nil {
		return false
	}
	p.release(e.Body)
	p.release(e.Previous)
	delete(p.issues, slot)
	p.ended = p.last
	return true
}

// Edition gives what is published for a slot.
func (p *Press) Edition(slot chain.Slot) (Edition, bool) {
	e := p.issues[slot]
	if e == nil {
		return Edition{}, false
	}
	return Edition{Slot: slot, Seq: e.Seq, Body: e.Body, Previous: e.Previous, Input: e.Input, At: e.At, Reason: e.Reason, Issued: e.Issued, estimated: e.estimated}, true
}

// Body gives the bytes of a body that an edition speaks of, or nil.
func (p *Press) Body(cid chain.CID) []byte {
	if s := p.bodies[cid]; s != nil {
		return s.bytes
	}
	return nil
}

// Content gives the body under an address that an edition speaks of. Its slices
// are shared.
func (p *Press) Content(cid chain.CID) (chain.Body, bool) {
	if s := p.bodies[cid]; s != nil {
		return s.body, true
	}
	return chain.Body{}, false
}

// Knows reports whether a device may still walk this body for the slot.
func (p *Press) Knows(slot chain.Slot, cid chain.CID) bool {
	e := p.issues[slot]
	return e != nil && cid != "" && (cid == e.Body || cid == e.Previous)
}

// Offers reports whether an option stands in the chain of a slot, or stood in the
// one before.
func (p *Press) Offers(slot chain.Slot, id chain.OptionID) bool {
	e := p.issues[slot]
	if e == nil {
		return false
	}
	for _, cid := range []chain.CID{e.Body, e.Previous} {
		if s := p.bodies[cid]; s != nil && slices.ContainsFunc(s.body.Options, func(o chain.Option) bool { return o.ID == id }) {
			return true
		}
	}
	return false
}

// Names reports whether an option of an agent stands in the chain of a slot, or stood
// in the one before.
func (p *Press) Names(slot chain.Slot, agent string) bool {
	e := p.issues[slot]
	if e == nil {
		return false
	}
	for _, cid := range []chain.CID{e.Body, e.Previous} {
		if s := p.bodies[cid]; s != nil && slices.ContainsFunc(s.body.Options, func(o chain.Option) bool { return o.Agent == agent }) {
			return true
		}
	}
	return false
}

// Concerned gives the slots in whose chain one of some options stands, in no order.
func (p *Press) Concerned(among func(chain.Primitive, chain.OptionID) bool) []chain.Slot {
	hit := map[chain.CID]bool{}
	for cid, s := range p.bodies {
		if slices.ContainsFunc(s.body.Options, func(o chain.Option) bool { return among(s.body.Primitive, o.ID) }) {
			hit[cid] = true
		}
	}
	var list []chain.Slot
	for slot, e := range p.issues {
		if hit[e.Body] {
			list = append(list, slot)
		}
	}
	return list
}

// Counts gives the number of editions, and of bodies behind them.
func (p *Press) Counts() (editions, bodies int) { return len(p.issues), len(p.bodies) }

// Head signs the head of a slot as of now. A later head of the same edition is
// a renewal.
func (p *Press) Head(slot chain.Slot, now time.Time) (head []byte, body []byte, err error) {
	e := p.issues[slot]
	if e == nil {
		return nil, nil, fmt.Errorf("chain of %s: %w", slot, ErrNoChain)
	}
	if e.Issued > chain.InstantOf(now.Add(chain.Leeway/2)) {
		if _, err := p.publish(slot, p.bodies[e.Body].bytes, e.Body, e.Input, Clock, now); err != nil {
			return nil, nil, err
		}
		e = p.issues[slot]
	}
	e.Issued = max(e.Issued, chain.InstantOf(now)) // a clock that went back a little must not look like a rollback
	issued := e.Issued.Time()
	payload, err := chain.Marshal(chain.Head{
		Mesh: p.mesh, Scope: slot.Scope, Primitive: slot.Primitive, Seq: e.Seq, Body: e.Body, Issued: e.Issued,
		RefreshAfter: chain.InstantOf(issued.Add(RefreshAfter)), Expires: chain.InstantOf(issued.Add(Lifetime)),
	})
	if err != nil {
		return nil, nil, err
	}
	head, err = p.key.Seal(chain.DomainChain, payload)
	if err != nil {
		return nil, nil, fmt.Errorf("chain of %s: %w", slot, err)
	}
	return head, p.bodies[e.Body].bytes, nil
}

// Slots gives the slots for which something is published, in no order.
func (p *Press) Slots() []chain.Slot {
	list := make([]chain.Slot, 0, len(p.issues))
	for slot := range p.issues {
		list = append(list, slot)
	}
	return list
}
