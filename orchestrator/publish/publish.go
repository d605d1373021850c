// Package publish owns what leaves the hub as policy: bodies, shared by every
// scope that resolves to the same bytes; sequence numbers that never go back;
// heads, signed when somebody fetches one; and the rule of when a new order is
// worth a new body. It decides nothing about the order itself. It is not safe
// for concurrent use: the hub's loop owns it.
package publish

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// Sequence is where the highest number that may have been used outlives the process.
// All chains of a mesh share one series: a number for each slot of a large mesh
// would have to be kept for as long as the mesh lives, also of slots that are long gone.
type Sequence interface {
	Highest() uint64
	Raise(to uint64) error // returns when it is durable
}

// Lifetimes of heads, and the rule's constants.
const (
	RefreshAfter = time.Hour
	Lifetime     = 7 * 24 * time.Hour

	estimateInterval = time.Minute // changes caused by estimates, per chain
	worthwhile       = 0.003       // share of the expected cost that a new order must save
	steps            = 2           // of 10 % that an estimate must move
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

// issue is what slots have in common that were published together. A million slots
// may share one: it is replaced and never changed, but for Issued, which only grows.
type issue struct {
	Seq       uint64
	Body      chain.CID
	Previous  chain.CID
	Input     string
	At        chain.Instant
	Reason    Reason
	Issued    chain.Instant
	estimated chain.Instant
}

// issueKey is what slots must have in common to share an issue.
type issueKey struct {
	body, previous chain.CID
	input          string
	reason         Reason
	estimated      chain.Instant
}

// together is for how long slots that are published alike share a number.
const together = 10 * time.Second

// maxRecent bounds what is looked through for an issue to share.
const maxRecent = 1 << 14

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

// Outcome says what came of an offer.
type Outcome struct {
	Published bool
	Reason    Reason
	Again     time.Time // not published now, but worth offering again then; zero: not
}

// Offer considers a resolution and publishes it where the rules say so. input
// is a fingerprint of all that policy depends on but estimates: where it
// changed, any difference is published at once. When Offer returns, the
// sequence number of what it published is durable.
func (p *Press) Offer(r resolve.Resolution, rules chain.Rules, input string, now time.Time) (Outcome, error) {
	o, err := Prepare(r, rules, input)
	if err != nil {
		return Outcome{}, err
	}
	return p.OfferPrepared(r.Slot, o, now)
}

// Prepared is an offer with its bytes, for one slot or for many that are alike.
type Prepared struct {
	resolution resolve.Resolution
	bytes      []byte
	cid        chain.CID
	input      string

	keptFor chain.CID // the body whose order kept has
	kept    *shared
}

// Prepare makes the bytes of an offer; the arguments are those of Offer.
func Prepare(r resolve.Resolution, rules chain.Rules, input string) (*Prepared, error) {
	bytes, err := encode(chain.Body{Primitive: r.Slot.Primitive, Options: r.Options, Rules: rules})
	if err != nil {
		return nil, fmt.Errorf("publish %s: %w", r.Slot, err)
	}
	return &Prepared{resolution: r, bytes: bytes, cid: chain.CIDOf(bytes), input: input}, nil
}

// OfferPrepared is Offer for a slot of the same primitive as was prepared for.
func (p *Press) OfferPrepared(slot chain.Slot, o *Prepared, now time.Time) (Outcome, error) {
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
	reason, ok := p.worth(e, &o.resolution)
	if !ok {
		return Outcome{}, nil
	}
	if due := p.Due(slot, now); now.Before(due) {
		return Outcome{Again: due}, nil
	}
	if reason == Estimate { // the new figures, in the order that stands
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

// noted gives an issue under another input that led to the same body.
func (p *Press) noted(e *issue, input string) *issue {
	key := issueKey{e.Body, e.Previous, input, e.Reason, e.estimated}
	if have := p.recent[key]; have != nil && have.Seq == e.Seq {
		return have
	}
	c := *e
	c.Input = input
	p.remember(key, &c)
	return &c
}

func (p *Press) remember(key issueKey, e *issue) {
	if len(p.recent) >= maxRecent {
		clear(p.recent)
	}
	p.recent[key] = e
}

// Due is when estimates may change a slot's chain again; before that, offers that
// only differ by estimates are in vain.
func (p *Press) Due(slot chain.Slot, now time.Time) time.Time {
	e := p.issues[slot]
	if e != nil && e.estimated > 0 && e.estimated <= chain.InstantOf(now.Add(chain.Leeway)) { // else our clock was ahead then
		return e.estimated.Time().Add(estimateInterval)
	}
	return time.Time{}
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

// worth applies the rules for changes that come from estimates alone.
func (p *Press) worth(e *issue, r *resolve.Resolution) (Reason, bool) {
	published := p.bodies[e.Body].body.Options
	order := make([]chain.OptionID, len(published))
	for i := range published {
		order[i] = published[i].ID
	}
	cost, err := r.ExpectedCost(order)
	if err != nil {
		return Input, true // another set of options: estimates alone do not do that
	}
	if cost-r.Expected > worthwhile*math.Abs(cost) {
		return Order, true
	}
	for i := range r.Options {
		at := slices.IndexFunc(published, func(o chain.Option) bool { return o.ID == r.Options[i].ID })
		if at < 0 {
			return Input, true
		}
		if moved(published[at].Cost, r.Options[i].Cost) {
			return Estimate, true
		}
	}
	return "", false
}

// moved reports whether an estimate lies two steps from what was published.
func moved(was, is chain.Cost) bool {
	return apart(float64(was.Latency), float64(is.Latency)) ||
		apart(float64(was.FailureLatency), float64(is.FailureLatency)) ||
		apart(odds(was.Reliability), odds(is.Reliability))
}

func apart(a, b float64) bool {
	if a <= 0 || b <= 0 {
		return (a > 0) != (b > 0)
	}
	return math.Abs(math.Log(a/b))/math.Log(1.1) > steps-0.5
}

func odds(p chain.PPM) float64 {
	share := min(max(p.Share(), 0.001), 0.999)
	return (1 - share) / share
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
	if reason == Order || reason == Estimate {
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

// follows reports whether a slot may share an issue: its number must be higher than
// any that the slot had.
func (p *Press) follows(e, old *issue, at chain.Instant) bool {
	if at < e.At || at-e.At > chain.Instant(together/time.Millisecond) || e.Issued > at+chain.Instant(chain.Leeway/2/time.Millisecond) {
		return false
	}
	return old == nil && e.Seq > p.ended || old != nil && e.Seq > old.Seq
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

// Slots gives the slots for which something is published, in no order.
func (p *Press) Slots() []chain.Slot {
	list := make([]chain.Slot, 0, len(p.issues))
	for slot := range p.issues {
		list = append(list, slot)
	}
	return list
}
