package wire

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/chordwheel/chordwheel/chain"
)

// check collects the first rule that a message breaks.
type check struct{ err error }

func (c *check) that(ok bool, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{ErrMessage}, args...)...)
	}
}

func (c *check) is(err error) {
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("%w: %w", ErrMessage, err)
	}
}

// line accepts text of at most most bytes that a terminal can show.
func (c *check) line(what, s string, most int) {
	if len(s) > most {
		c.that(false, "%s has %d bytes, at most %d", what, len(s), most)
		return
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			c.that(false, "%s holds a character that cannot be printed", what)
			return
		}
	}
}

// word is a line that is not empty.
func (c *check) word(what, s string, most int) {
	c.that(s != "", "%s is missing", what)
	c.line(what, s, most)
}

// id takes what a receipt takes for an ID: printable ASCII without blanks.
func (c *check) id(what, s string, least, most int) {
	c.size(what, len(s), least, most)
	c.that(isID(s), "%s: want printable ASCII without blanks", what)
}

func isID(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

func (c *check) size(what string, n, least, most int) {
	c.that(n >= least && n <= most, "%s: %d, want %d to %d", what, n, least, most)
}

func (c *check) count(what string, n int64) {
	c.that(n >= 0 && n <= maxCount, "%s is out of range", what)
}

func (c *check) sequence(what string, n uint64) { c.that(n <= maxSequence, "%s is out of range", what) }

func (c *check) instant(what string, t chain.Instant) {
	c.that(t >= 0 && t <= maxInstant, "%s is out of range", what)
}

func (c *check) duration(what string, d chain.Millis) {
	c.that(d >= 0 && d <= maxDuration, "%s is out of range", what)
}

func (c *check) peer(p chain.PeerID) {
	c.that(len(p) <= maxText, "a peer ID has %d bytes", len(p))
	if c.err == nil {
		got, err := chain.ParsePeerID(string(p))
		c.is(err)
		c.that(err != nil || got == p, "a peer ID is not in its usual form")
	}
}

// did takes none, or a DID.
func (c *check) did(what, s string) {
	c.that(s == "" || chain.IsDID(s), "%s: %q is no DID", what, chain.Clip(s))
}

func (c *check) scope(s chain.ScopeID) { _, err := chain.ParseScope(string(s)); c.is(err) }

func (c *check) primitive(p chain.Primitive) { _, err := chain.ParsePrimitive(string(p)); c.is(err) }

func (c *check) slot(s chain.Slot) { c.scope(s.Scope); c.primitive(s.Primitive) }

func (c *check) option(id chain.OptionID) { c.word("an option id", string(id), chain.MaxNameBytes) }

func (c *check) class(k chain.Class) { c.that(k.Known(), "unknown class %q", chain.Clip(k)) }

func (c *check) capabilities(list []chain.Capability) {
	c.size("capabilities", len(list), 0, maxCapabilities)
	for i := 0; i < len(list) && c.err == nil; i++ {
		c.word("a capability", string(list[i]), maxCapability)
	}
}

// Declarable reports whether a message may carry the capability. What stands in
// one may be a name that others chose, such as a model's; one that cannot be said
// is left out, so that the rest can.
func Declarable(capability chain.Capability) bool {
	var c check
	c.word("a capability", string(capability), maxCapability)
	return c.err == nil
}

func (c *check) locals(list []LocalOption) {
	c.size("local options", len(list), 0, maxLocals)
	for i := 0; i < len(list) && c.err == nil; i++ {
		l := &list[i]
		c.size("primitives of a local option", len(l.Primitives), 1, maxPrimitives)
		for _, p := range l.Primitives {
			c.primitive(p)
		}
		c.is(l.Option.Validate())
		c.that(l.Option.Kind == chain.Local, "local option %s is of kind %q", chain.Clip(l.Option.ID), chain.Clip(l.Option.Kind))
	}
}

// Validate implements [Message].
func (h *Hello) Validate() error {
	var c check
	c.line("version", h.Version, maxText)
	c.word("device ID", string(h.DeviceID), 64)
	c.line("name", h.Name, maxText)
	c.word("boot ID", h.BootID, 64)
	c.size("membership", len(h.Membership), 0, maxMembership)
	c.that((h.Membership == nil) != (h.Invitation == nil), "want a membership or an invitation")
	if i := h.Invitation; i != nil {
		c.size("secret", len(i.Secret), 16, maxSecret)
		c.scope(i.Scope)
	}
	c.capabilities(h.Capabilities)
	c.locals(h.Locals)
	c.size("held slots", len(h.Holds), 0, maxSlots)
	for i := 0; i < len(h.Holds) && c.err == nil; i++ {
		held := &h.Holds[i]
		c.slot(held.Slot)
		c.sequence("a held sequence", held.Mark.Seq)
		c.instant("a held time of issue", held.Mark.Issued)
		c.size("head", len(held.Head), 0, maxHead)
	}
	c.addresses(h.Addresses)
	c.did("DID", h.DID)
	return c.err
}

// Validate implements [Message].
func (w *Welcome) Validate() error {
	var c check
	c.size("membership", len(w.Membership), 0, maxMembership)
	c.size("revocations", len(w.Revocations), 0, chain.MaxEnvelopeBytes)
	c.size("topics", len(w.Topics), 0, 2*maxScopes) // old and new keys are valid together for a day
	for i := 0; i < len(w.Topics) && c.err == nil; i++ {
		c.is(w.Topics[i].Validate())
	}
	c.size("chains", len(w.Chains), 0, maxSlots)
	for i := 0; i < len(w.Chains) && c.err == nil; i++ {
		c.slot(w.Chains[i].Slot)
		c.sequence("a sequence", w.Chains[i].Seq)
	}
	c.size("behind", len(w.Behind), 0, maxSlots)
	for i := 0; i < len(w.Behind) && c.err == nil; i++ {
		c.slot(w.Behind[i])
	}
	c.instant("now", w.Now)
	c.duration("come_back", w.ComeBack)
	c.line("authority", w.Authority, maxText)
	c.size("certificate", len(w.Certificate), 0, maxCertificate)
	c.size("peers", len(w.Peers), 0, maxPeers)
	for i := 0; i < len(w.Peers) && c.err == nil; i++ {
		c.peer(w.Peers[i].Peer)
		c.addresses(w.Peers[i].Addresses)
	}
	c.line("mesh name", w.MeshName, maxText)
	c.size("scopes", len(w.Scopes), 0, maxScopes)
	for i := 0; i < len(w.Scopes) && c.err == nil; i++ {
		c.scope(w.Scopes[i])
	}
	return c.err
}

// Validate implements [Message].
func (t *TopicKey) Validate() error {
	var c check
	c.scope(t.Scope)
	c.size("topic key", len(t.Key), 16, maxTopicKey)
	c.instant("until", t.Until)
	return c.err
}

// Validate implements [Message].
func (r *Report) Validate() error {
	var c check
	c.word("boot ID", r.BootID, 64)
	c.sequence("sequence", r.Seq)
	c.instant("from", r.From)
	c.instant("to", r.To)
	c.that(r.From <= r.To, "the report ends before it begins")
	c.size("counters", len(r.Counters), 0, maxCounters)
	for i := 0; i < len(r.Counters) && c.err == nil; i++ {
		c.counter(&r.Counters[i])
	}
	c.size("measurements", len(r.Measurements), 0, maxMeasurements)
	for i := 0; i < len(r.Measurements) && c.err == nil; i++ {
		c.measurement(&r.Measurements[i])
	}
	c.capabilities(r.Capabilities)
	c.locals(r.Locals)
	c.that(r.Dropped <= maxCount, "dropped is out of range")
	c.size("protests", len(r.Protests), 0, maxProtests)
	for i := 0; i < len(r.Protests) && c.err == nil; i++ {
		c.is(r.Protests[i].Validate())
	}
	c.chords(r.Chords)
	c.usage(r.Quota)
	return c.err
}

func (c *check) counter(n *Counter) {
	c.slot(n.Slot)
	c.option(n.Option)
	if n.Peer != "" {
		c.peer(n.Peer)
	}
	c.that(n.Attempts <= maxCount, "attempts is out of range")
	var ran uint64
	for class, k := range n.Outcomes {
		c.class(class)
		c.that(k <= maxCount, "an outcome's count is out of range")
		if c.err == nil && class.Ran() {
			ran += k
		}
	}
	c.that(ran <= n.Attempts, "option %s: more outcomes than attempts", chain.Clip(n.Option))
}

func (c *check) measurement(m *Measurement) {
	c.slot(m.Slot)
	c.option(m.Option)
	if m.Peer != "" {
		c.peer(m.Peer)
	}
	c.class(m.Class)
	c.instant("a measurement's time", m.At)
	c.duration("first output", m.FirstOutput)
	c.duration("total", m.Total)
	c.that(m.FirstOutput <= m.Total, "first output after the end")
	c.count("bytes", m.Bytes)
	c.count("input", m.Input)
	c.count("output", m.Output)
	c.count("cost", int64(m.Cost))
}

// Validate implements [Message].
func (r *ReportReply) Validate() error {
	var c check
	c.line("reason", r.Reason, maxMessage)
	c.duration("come_back", r.ComeBack)
	return c.err
}

// Validate implements [Message].
func (f *Fetch) Validate() error {
	var c check
	c.slot(f.Slot)
	c.sequence("sequence", f.Seq)
	return c.err
}

// Validate implements [Message].
func (f *FetchReply) Validate() error {
	var c check
	c.size("head", len(f.Head), 1, maxHead)
	c.size("body", len(f.Body), 0, chain.MaxBodyBytes)
	return c.err
}

// Validate implements [Message].
func (p *Protest) Validate() error {
	var c check
	c.slot(p.Slot)
	c.word("nonce", p.Nonce, 64)
	c.size("failed options", len(p.Failed), 0, maxFailures)
	for i := 0; i < len(p.Failed) && c.err == nil; i++ {
		c.option(p.Failed[i].Option)
		c.class(p.Failed[i].Class)
	}
	c.duration("budget", p.Budget)
	return c.err
}

// Validate implements [Message].
func (p *ProtestReply) Validate() error {
	var c check
	c.size("extension", len(p.Extension), 0, chain.MaxEnvelopeBytes)
	c.line("reason", p.Reason, maxMessage)
	return c.err
}

// Validate implements [Message].
func (i *Invalidation) Validate() error {
	var c check
	c.size("scope hash", len(i.Scope), 16, maxScopeHash)
	c.primitive(i.Primitive)
	c.sequence("sequence", i.Seq)
	c.size("prefix", len(i.Prefix), 0, maxPrefix)
	return c.err
}

// Validate implements [Message].
func (a *Announce) Validate() error {
	var c check
	c.size("membership", len(a.Membership), 1, maxMembership)
	c.capabilities(a.Capabilities)
	c.sequence("sequence", a.Seq)
	c.word("boot ID", a.BootID, 64)
	c.addresses(a.Addresses)
	return c.err
}

// Validate implements [Message].
func (r *Refusal) Validate() error {
	var c check
	c.word("code", r.Code, 64)
	c.line("message", r.Message, maxMessage)
	c.duration("come_back", r.ComeBack)
	return c.err
}

// ErrUnknown is wrapped by the error for a request or reply of a kind that this
// version does not know: well-formed, but nothing in it is for us.
var ErrUnknown = errors.New("of a kind that this version does not know")

// Validate implements [Message].
func (r *Request) Validate() error {
	return one(r.Hello != nil, r.Hello, r.Report != nil, r.Report, r.Fetch != nil, r.Fetch, r.Protest != nil, r.Protest, r.Lease != nil, r.Lease, r.Provider != nil, r.Provider)
}

// Validate implements [Message].
func (r *Reply) Validate() error {
	return one(r.Welcome != nil, r.Welcome, r.Report != nil, r.Report, r.Fetch != nil, r.Fetch, r.Protest != nil, r.Protest, r.Lease != nil, r.Lease, r.Provider != nil, r.Provider, r.Refusal != nil, r.Refusal)
}

// one takes pairs of (is set, message) and validates the only one that is set.
func one(pairs ...any) error {
	var found Message
	for i := 0; i < len(pairs); i += 2 {
		if !pairs[i].(bool) {
			continue
		}
		if found != nil {
			return fmt.Errorf("%w: two kinds in one frame", ErrMessage)
		}
		found = pairs[i+1].(Message)
	}
	if found == nil {
		return fmt.Errorf("%w: %w", ErrMessage, ErrUnknown)
	}
	return found.Validate()
}
