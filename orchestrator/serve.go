package orchestrator

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator/escalate"
	"github.com/chordwheel/chordwheel/orchestrator/fleet"
	"github.com/chordwheel/chordwheel/orchestrator/learn"
	"github.com/chordwheel/chordwheel/orchestrator/publish"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// member gives the device that a request comes from, if it may ask for anything.
func (h *Hub) member(from chain.PeerID, now time.Time) (*fleet.Device, error) {
	d := h.fleet.Device(from)
	switch {
	case d == nil:
		return nil, spoke.Refuse(spoke.CodeNotMember, "not a member of this mesh: join first")
	case d.Revoked != 0:
		return nil, spoke.Refuse(spoke.CodeRevoked, "the membership was revoked: ask the owner")
	case !d.Active(chain.InstantOf(now)):
		return nil, spoke.Refuse(spoke.CodeNotMember, "the membership has expired: say hello to renew it")
	}
	return d, nil
}

// memberOf is member for one scope.
func (h *Hub) memberOf(from chain.PeerID, scope chain.ScopeID, now time.Time) (*fleet.Device, error) {
	d, err := h.member(from, now)
	if err == nil && !slices.Contains(d.Scopes, scope.Base()) {
		return nil, spoke.Refuse(spoke.CodeScope, "not a member of %s", scope)
	}
	return d, err
}

// Report takes in what a device measured. A batch with an impossible value is
// refused whole; one that was seen before is acknowledged and counts once.
func (h *Hub) Report(ctx context.Context, from chain.PeerID, r wire.Report) (wire.ReportReply, error) {
	return ask(ctx, h, func() (wire.ReportReply, error) {
		op := Operation{Kind: "report", Peer: from, Request: strconv.FormatUint(r.Seq, 10), Bytes: size(&r)}
		reply, repeated, err := h.report(from, &r)
		switch {
		case err == nil && !reply.Accepted:
			op.Outcome, op.Detail = spoke.CodeInvalid, reply.Reason
			h.refused[spoke.CodeInvalid]++
		case repeated:
			op.Detail = "repeated: counted before"
		}
		h.note(op, err)
		return reply, err
	})
}

func (h *Hub) report(from chain.PeerID, r *wire.Report) (reply wire.ReportReply, repeated bool, err error) {
	now := time.Now()
	have, err := h.member(from, now)
	if err != nil {
		return reply, false, err
	}
	if err := h.pace(from, true, now); err != nil {
		return reply, false, err
	}
	if err := errors.Join(r.Validate(), fleet.CheckReport(r, now)); err != nil {
		return wire.ReportReply{Reason: firstLine(err.Error())}, false, nil
	}
	d := *have
	fresh := d.Take(r.BootID, r.Seq)
	if !fresh {
		return wire.ReportReply{Accepted: true}, true, nil
	}
	changed := h.redescribe(&d, r)
	h.locate(&d)
	d.Seen = chain.InstantOf(now)
	// Durable before it counts: a batch that is sent again after a crash must not count twice.
	if err := h.keepDevice(&d); err != nil {
		return reply, false, err
	}
	if len(r.Quota) > 0 {
		change := h.changeQuota()
		change.settle(from, h.ceilings(), r.Quota, now)
		if err := change.keep(); err != nil { // the running totals come again
			h.log.Error("keeping what a report says of blocks failed", "error", err)
		} else {
			h.afterQuota(change, now)
		}
	}
	if r.Chords != nil {
		h.fleet.Adjacent(&d, "", r.Chords, now)
	}
	news, turned := h.observe(&d, r, now)
	for i := range r.Protests {
		slot := r.Protests[i].Slot
		if h.catalogue.Prepares(slot) && slices.Contains(d.Scopes, slot.Scope.Base()) {
			h.count(slot).Queued++
		}
	}
	switch {
	case changed:
		err = errors.Join(h.resolveScopes(d.Scopes), h.learned(news, now))
	default:
		err = h.learned(news, now)
	}
	if len(turned) > 0 { // suspect, or no longer: news for everybody, at once
		h.changed()
		err = errors.Join(err, h.resolveSlots(h.concerned(turned)))
	}
	if err != nil {
		h.log.Error("publishing after a report failed", "device", d.Name, "error", err)
	}
	return wire.ReportReply{Accepted: true}, false, nil
}

// redescribe takes over what a report says that d can do, and whether that is another
// thing than before. What is absent stays as the hello said.
func (h *Hub) redescribe(d *fleet.Device, r *wire.Report) (changed bool) {
	if len(r.Capabilities) == 0 && len(r.Locals) == 0 {
		return false
	}
	capabilities, locals := d.Declared, d.Locals
	if len(r.Capabilities) > 0 {
		capabilities = r.Capabilities
	}
	if len(r.Locals) > 0 {
		locals = r.Locals
	}
	return h.describe(d, capabilities, locals)
}

// observe learns from a report. Reliability comes from the exact counters,
// times from the sample. What concerns a scope that the device is not in, or an
// option that neither the catalogue nor its chain knows, is passed over. It
// returns the options of which something was learned, and those that turned
// suspect by it, or back.
func (h *Hub) observe(d *fleet.Device, r *wire.Report, now time.Time) (news, turned map[learn.Key]bool) {
	news, turned = map[learn.Key]bool{}, map[learn.Key]bool{}
	if h.fleet.Twins(d.Peer, now) {
		return news, turned
	}
	ours := func(s chain.Slot, id chain.OptionID) bool {
		if _, known := h.catalogue.Primitive(s.Primitive); !known || !slices.Contains(d.Scopes, s.Scope.Base()) {
			return false
		}
		_, _, declared := h.catalogue.Option(id)
		return declared || h.press.Offers(s, id)
	}
	at, batch := r.To.Time(), h.book.Batch(reporter(d), now)
	for i := range r.Counters {
		c := &r.Counters[i]
		if !ours(c.Slot, c.Option) {
			continue
		}
		var failures uint64
		for class, n := range c.Outcomes {
			if class.Blames() {
				failures += n
			}
		}
		key := learn.Key{Primitive: c.Slot.Primitive, Option: c.Option}
		batch.Count(key, c.Outcomes[chain.OK], failures, at)
		news[key] = true
		h.answered(c.Slot, c.Outcomes[chain.OK], now)
		if c.Outcomes[chain.OK]+failures > 0 {
			_, _, before := h.book.Suspect(key, now)
			batch.Last(key, c.LastOK, at)
			_, _, after := h.book.Suspect(key, now)
			if before != after {
				turned[key] = true
			}
		}
	}
	for i := range r.Measurements {
		m := &r.Measurements[i]
		if ours(m.Slot, m.Option) && (m.Class == chain.OK || m.Class.Blames()) {
			key := learn.Key{Primitive: m.Slot.Primitive, Option: m.Option}
			batch.Time(key, m.Total.Duration(), m.Class == chain.OK, m.At.Time())
			news[key] = true
		}
	}
	h.size(reporter(d), r.Measurements, ours, now)
	return news, turned
}

// reporter is a device as the book weighs its word.
func reporter(d *fleet.Device) learn.Reporter {
	return learn.Reporter{Peer: d.Peer, Network: d.Network, Since: d.Enrolled, Segment: learn.Segment{Geo: d.Tag("geo:"), Class: d.Tag("net:")}}
}

// Fetch signs the head of a chain for a member of its scope; the body comes
// along unless the device has it.
func (h *Hub) Fetch(ctx context.Context, from chain.PeerID, f wire.Fetch) (wire.FetchReply, error) {
	return ask(ctx, h, func() (wire.FetchReply, error) {
		reply, err := h.fetch(from, &f)
		h.note(Operation{Kind: "fetch", Peer: from, Slot: f.Slot.String(), Bytes: len(reply.Head) + len(reply.Body)}, err)
		return reply, err
	})
}

func (h *Hub) fetch(from chain.PeerID, f *wire.Fetch) (wire.FetchReply, error) {
	now := time.Now()
	if err := f.Validate(); err != nil {
		return wire.FetchReply{}, spoke.Refuse(spoke.CodeProtocol, "%v", err)
	}
	if _, err := h.memberOf(from, f.Slot.Scope, now); err != nil {
		return wire.FetchReply{}, err
	}
	if !h.catalogue.Prepares(f.Slot) { // the names of stages are the devices' to choose
		return wire.FetchReply{}, spoke.Refuse(spoke.CodeNoChain, "%s", h.unprepared(f.Slot))
	}
	if len(h.sweep) > 0 { // its turn may not have come yet
		if err := h.resolveSlot(f.Slot); err != nil {
			return wire.FetchReply{}, err
		}
	}
	h.keepEditions()
	head, body, err := h.press.Head(f.Slot, now)
	if errors.Is(err, publish.ErrNoChain) {
		return wire.FetchReply{}, spoke.Refuse(spoke.CodeNoChain, "%s", h.whyNone(f.Slot))
	}
	if err != nil {
		return wire.FetchReply{}, err
	}
	if e, _ := h.press.Edition(f.Slot); e.Body == f.Body {
		body = nil
	}
	return wire.FetchReply{Head: head, Body: body}, nil
}

// unprepared says why the catalogue means no chain for a slot.
func (h *Hub) unprepared(slot chain.Slot) string {
	if _, known := h.catalogue.Primitive(slot.Primitive); !known {
		return "the catalogue has no primitive " + string(slot.Primitive)
	}
	return "the catalogue has nothing of its own for " + slot.String() + ": a chain of fewer words holds, at last that of " + string(slot.Scope.Base())
}

// whyNone says why nothing is published for a slot.
func (h *Hub) whyNone(slot chain.Slot) string {
	in, _, ok := h.input(slot, time.Now())
	if !ok {
		return h.unprepared(slot)
	}
	var why []string
	for _, v := range resolve.Explain(in).Why {
		if v.Status == resolve.Out && v.Declared {
			why = append(why, string(v.Option)+" ("+strings.Join(v.Reasons, ", ")+")")
		}
	}
	if len(why) > maxReasons {
		why = append(why[:maxReasons], "…")
	}
	if len(why) == 0 {
		why = []string{"no option is declared for it"}
	}
	return "nothing can run " + slot.String() + ": " + strings.Join(why, "; ")
}

// maxReasons bounds how many options a refusal names.
const maxReasons = 4

// protestCount is what one slot's protests came to since the start, beside the rate,
// which survives one. Counts are
// kept for what the catalogue prepares only: names are the devices' to choose.
type protestCount struct {
	Answered, Refused, Coalesced, Queued uint64
	rate                                 escalate.Rate
}

func (h *Hub) count(slot chain.Slot) *protestCount {
	c := h.protests[slot]
	if c == nil {
		c = &protestCount{}
		h.protests[slot] = c
	}
	return c
}

// replyFrame is what the answer to a protest takes beside its content, about.
const replyFrame = 16

// Protest answers a device whose chain is exhausted: a withheld option, signed
// for this protest alone, or a final no with its reason.
func (h *Hub) Protest(ctx context.Context, from chain.PeerID, p wire.Protest) (wire.ProtestReply, error) {
	return ask(ctx, h, func() (wire.ProtestReply, error) {
		reply, err := h.protest(from, &p)
		op := Operation{Kind: "protest", Peer: from, Slot: p.Slot.String(), Bytes: len(reply.Extension) + len(reply.Reason) + replyFrame, Request: p.Nonce}
		if err == nil && reply.Extension == nil {
			op.Outcome, op.Detail = "final_no", reply.Reason
		}
		h.note(op, err)
		return reply, err
	})
}

// Bounds of an extension's life. A device that protested asynchronously uses it
// for its next request.
const (
	extensionLeast = time.Minute
	extensionMost  = 10 * time.Minute
)

func (h *Hub) protest(from chain.PeerID, p *wire.Protest) (wire.ProtestReply, error) {
	now := time.Now()
	if err := p.Validate(); err != nil {
		return wire.ProtestReply{}, spoke.Refuse(spoke.CodeProtocol, "%v", err)
	}
	d, err := h.memberOf(from, p.Slot.Scope, now)
	if err != nil {
		return wire.ProtestReply{}, err
	}
	if !h.catalogue.Prepares(p.Slot) {
		return wire.ProtestReply{Reason: h.unprepared(p.Slot)}, nil
	}
	if extension, reason, ok := h.desk.Repeat(from, p.Slot, p.Nonce, now); ok {
		h.count(p.Slot).Coalesced++
		return wire.ProtestReply{Extension: extension, Reason: reason}, nil
	}
	if ok, wait := h.desk.Admit(from, p.Slot, now); !ok {
		return wire.ProtestReply{}, &spoke.Refusal{Code: spoke.CodeTooMany, Message: "too many protests for " + p.Slot.String(), ComeBack: wait}
	}
	if !h.press.Knows(p.Slot, p.Body) {
		h.count(p.Slot).Refused++
		return wire.ProtestReply{Reason: "that chain is not in force any more: fetch the new one"}, nil
	}
	body, _ := h.press.Content(p.Body)
	answer := h.plan(p.Slot).Next(p.Failed, body.Options)
	count := h.count(p.Slot)
	h.escalated(p.Slot, &answer, now)
	if answer.Coalesced {
		count.Coalesced++
	}
	if answer.Option == nil {
		count.Refused++
		h.desk.Remember(from, p.Slot, p.Nonce, nil, answer.Reason, now.Add(extensionLeast), now)
		return wire.ProtestReply{Reason: answer.Reason}, nil
	}
	count.Answered++
	expires := now.Add(min(max(p.Budget.Duration(), extensionLeast), extensionMost))
	extension, err := h.extension(d.Peer, p, *answer.Option, now, expires)
	if err != nil {
		return wire.ProtestReply{}, err
	}
	h.desk.Remember(from, p.Slot, p.Nonce, extension, "", expires, now)
	return wire.ProtestReply{Extension: extension}, nil
}

func (h *Hub) extension(device chain.PeerID, p *wire.Protest, o chain.Option, now, expires time.Time) ([]byte, error) {
	payload, err := chain.Marshal(chain.Extension{
		Mesh: h.cfg.Mesh, Scope: p.Slot.Scope, Primitive: p.Slot.Primitive, Body: p.Body, Nonce: p.Nonce, Device: device,
		Options: []chain.Option{o}, Issued: chain.InstantOf(now), Expires: chain.InstantOf(expires),
	})
	if err != nil {
		return nil, err
	}
	return h.cfg.Key.Seal(chain.DomainExtension, payload)
}

// firstLine keeps a reason on one line and short enough for its reader.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return chain.ClipTo(line, 400)
}
