package wire

import "github.com/chordwheel/chordwheel/chain"

// MaxAsk bounds one frame that a device sends to another on an exchange stream
// to ask for something: the largest carries a revocation list. Answers are
// control frames.
const MaxAsk = 80 << 10

// MaxChords bounds the payload of a message on a chords topic.
const MaxChords = 48 << 10

// MaxOffers is how many chains of one scope a device offers to another.
const MaxOffers = 256

// MaxAddresses is how many addresses one peer is believed to have.
const MaxAddresses = maxAddresses

const (
	maxChords = 256 // of one device: more contacts than any keeps
	maxRTT    = 60_000_000
	maxLoad   = 1 << 20
	maxOffers = MaxOffers
)

// Greeting opens every exchange stream, once each way, before anything else.
type Greeting struct {
	Membership   []byte             `cbor:"membership"` // signed envelope; its peer is the stream's
	Capabilities []chain.Capability `cbor:"capabilities,omitempty"`
	BootID       string             `cbor:"boot_id"`
	Load         Load               `cbor:"load"`
	Addresses    []string           `cbor:"addresses,omitempty"` // where the sender can be dialled, as far as it knows
	Brief        bool               `cbor:"brief,omitempty"`     // the sender closes idle links: a closed one is no bad sign
	Revocations  uint64             `cbor:"revocations,omitempty"`
	Checkpoint   []byte             `cbor:"checkpoint,omitempty"` // the newest signed one of the hub's ledger that the sender saw
}

// maxSeen bounds a checkpoint of the ledger: three lines and a signature.
const maxSeen = 1 << 10

// Load is how busy a device is with others' work.
type Load struct {
	Running int64 `cbor:"running" json:"running"`
	Queued  int64 `cbor:"queued" json:"queued"`
	Slots   int64 `cbor:"slots" json:"slots"` // how much can run at once; 0: unknown
}

// Chord is one adjacency as one of its ends claims it.
type Chord struct {
	Peer chain.PeerID `cbor:"peer" json:"peer"`
	RTT  int64        `cbor:"rtt" json:"rtt_us"` // microseconds; 0: not measured yet
}

// Chords is what a device tells the members of a scope about its contacts.
type Chords struct {
	Membership []byte  `cbor:"membership"`
	BootID     string  `cbor:"boot_id"`
	Seq        uint64  `cbor:"seq"` // rises with each message of a boot, announcements included
	Chords     []Chord `cbor:"chords,omitempty"`
}

// Ask is one frame from the device that opened an exchange stream: exactly one
// field is set, and in the first frame it is Greeting.
type Ask struct {
	Greeting    *Greeting    `cbor:"greeting,omitempty"`
	Echo        *Echo        `cbor:"echo,omitempty"`
	Heads       *Heads       `cbor:"heads,omitempty"`
	Fetch       *Fetch       `cbor:"fetch,omitempty"`
	Body        *Body        `cbor:"body,omitempty"`
	Revocations *Revocations `cbor:"revocations,omitempty"`
}

// Answer answers the Ask before it: the field of the same kind, or a refusal.
type Answer struct {
	Greeting    *Greeting    `cbor:"greeting,omitempty"`
	Echo        *Echo        `cbor:"echo,omitempty"`
	Heads       *Offers      `cbor:"heads,omitempty"`
	Fetch       *FetchReply  `cbor:"fetch,omitempty"`
	Body        *BodyBytes   `cbor:"body,omitempty"`
	Revocations *Revocations `cbor:"revocations,omitempty"`
	Refusal     *Refusal     `cbor:"refusal,omitempty"`
}

// Echo comes back as it was sent: two of them measure the way, from both ends.
type Echo struct {
	N uint64 `cbor:"n"`
}

// Heads asks for the chains of one scope that a member caches.
type Heads struct {
	Scope chain.ScopeID `cbor:"scope"`
}

// Offers says which chains a member caches. Held.Head is not set.
type Offers struct {
	Held []Held `cbor:"held,omitempty"`
}

// Body asks for the body with a content address.
type Body struct {
	Scope chain.ScopeID `cbor:"scope"` // one that uses it
	Body  chain.CID     `cbor:"body"`
}

// BodyBytes are the bytes of a body. Whoever asked compares their address.
type BodyBytes struct {
	Bytes []byte `cbor:"bytes"`
}

// Revocations offers the revocation list that a device holds and asks for a
// newer one: the answer has no list where there is none.
type Revocations struct {
	List []byte `cbor:"list,omitempty"` // signed envelope
}

// addresses accepts a short list of short words.
func (c *check) addresses(list []string) {
	c.size("addresses", len(list), 0, maxAddresses)
	for i := 0; i < len(list) && c.err == nil; i++ {
		c.word("an address", list[i], maxText)
	}
}

func (c *check) chords(list []Chord) {
	c.size("chords", len(list), 0, maxChords)
	for i := 0; i < len(list) && c.err == nil; i++ {
		c.peer(list[i].Peer)
		c.that(list[i].RTT >= 0 && list[i].RTT <= maxRTT, "a round trip time is out of range")
	}
}

// Validate implements [Message].
func (g *Greeting) Validate() error {
	var c check
	c.size("membership", len(g.Membership), 1, maxMembership)
	c.capabilities(g.Capabilities)
	c.word("boot ID", g.BootID, 64)
	for _, n := range []int64{g.Load.Running, g.Load.Queued, g.Load.Slots} {
		c.that(n >= 0 && n <= maxLoad, "load is out of range")
	}
	c.addresses(g.Addresses)
	c.sequence("sequence of revocations", g.Revocations)
	c.size("checkpoint", len(g.Checkpoint), 0, maxSeen)
	return c.err
}

// Validate implements [Message].
func (k *Chords) Validate() error {
	var c check
	c.size("membership", len(k.Membership), 1, maxMembership)
	c.word("boot ID", k.BootID, 64)
	c.sequence("sequence", k.Seq)
	c.chords(k.Chords)
	return c.err
}

// Validate implements [Message].
func (e *Echo) Validate() error { return nil }

// Validate implements [Message].
func (h *Heads) Validate() error {
	var c check
	c.scope(h.Scope)
	return c.err
}

// Validate implements [Message].
func (o *Offers) Validate() error {
	var c check
	c.size("offers", len(o.Held), 0, maxOffers)
	for i := 0; i < len(o.Held) && c.err == nil; i++ {
		held := &o.Held[i]
		c.slot(held.Slot)
		c.sequence("an offered sequence", held.Mark.Seq)
		c.instant("an offered time of issue", held.Mark.Issued)
		c.size("head", len(held.Head), 0, 0)
	}
	return c.err
}

// Validate implements [Message].
func (b *Body) Validate() error {
	var c check
	c.scope(b.Scope)
	c.size("content address", len(b.Body), 1, maxText)
	return c.err
}

// Validate implements [Message].
func (b *BodyBytes) Validate() error {
	var c check
	c.size("body", len(b.Bytes), 1, chain.MaxBodyBytes)
	return c.err
}

// Validate implements [Message].
func (r *Revocations) Validate() error {
	var c check
	c.size("revocations", len(r.List), 0, chain.MaxEnvelopeBytes)
	return c.err
}

// Validate implements [Message].
func (a *Ask) Validate() error {
	return one(a.Greeting != nil, a.Greeting, a.Echo != nil, a.Echo, a.Heads != nil, a.Heads, a.Fetch != nil, a.Fetch,
		a.Body != nil, a.Body, a.Revocations != nil, a.Revocations)
}

// Validate implements [Message].
func (a *Answer) Validate() error {
	return one(a.Greeting != nil, a.Greeting, a.Echo != nil, a.Echo, a.Heads != nil, a.Heads, a.Fetch != nil, a.Fetch,
		a.Body != nil, a.Body, a.Revocations != nil, a.Revocations, a.Refusal != nil, a.Refusal)
}
