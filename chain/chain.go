package chain

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Body is the unsigned, content-addressed half of a chain.
type Body struct {
	Primitive Primitive `cbor:"primitive" json:"primitive"`
	Options   []Option  `cbor:"options" json:"options"`
	Rules     Rules     `cbor:"rules,omitempty" json:"rules"`
}

// Head binds a body to a scope. It is signed by the orchestrator.
type Head struct {
	Mesh         MeshID    `cbor:"mesh" json:"mesh"`
	Scope        ScopeID   `cbor:"scope" json:"scope"`
	Primitive    Primitive `cbor:"primitive" json:"primitive"`
	Seq          uint64    `cbor:"seq" json:"seq"`
	Body         CID       `cbor:"body" json:"body"`
	Issued       Instant   `cbor:"issued" json:"issued"`
	RefreshAfter Instant   `cbor:"refresh_after" json:"refresh_after"`
	Expires      Instant   `cbor:"expires" json:"expires"`
}

// Extension reveals further options to one device, for one protest.
type Extension struct {
	Mesh      MeshID    `cbor:"mesh" json:"mesh"`
	Scope     ScopeID   `cbor:"scope" json:"scope"`
	Primitive Primitive `cbor:"primitive" json:"primitive"`
	Body      CID       `cbor:"body" json:"body"`     // the chain it extends
	Nonce     string    `cbor:"nonce" json:"nonce"`   // the protest it answers
	Device    PeerID    `cbor:"device" json:"device"` // who may use it
	Options   []Option  `cbor:"options" json:"options"`
	Issued    Instant   `cbor:"issued" json:"issued"`
	Expires   Instant   `cbor:"expires" json:"expires"`
}

// Slot is what a device holds one chain for.
type Slot struct {
	Scope     ScopeID   `cbor:"scope" json:"scope"`
	Primitive Primitive `cbor:"primitive" json:"primitive"`
}

// String gives "scope/primitive".
func (s Slot) String() string { return string(s.Scope) + "/" + string(s.Primitive) }

// Mark is the high-water mark of a slot: what was accepted last. It survives
// the loss of the chain itself.
type Mark struct {
	Seq    uint64  `cbor:"seq" json:"seq"`
	Body   CID     `cbor:"body" json:"body"`
	Issued Instant `cbor:"issued" json:"issued"`
}

// Refusals of [Trust.Verify] and [Trust.VerifyExtension], beside those of
// [Open] and ErrEncoding. Each is a class of its own: a caller counts it, says
// it in one line, and keeps what it had.
var (
	ErrMesh         = errors.New("it is of another mesh")
	ErrSlot         = errors.New("it is for another scope or primitive")
	ErrBody         = errors.New("the body does not have the address that the head names")
	ErrContent      = errors.New("the content breaks a rule")
	ErrExpired      = errors.New("it has expired")
	ErrFuture       = errors.New("it was issued in the future")
	ErrRollback     = errors.New("a newer one was accepted before")
	ErrEquivocation = errors.New("another body under a sequence number that was accepted before")
	ErrProtest      = errors.New("it answers another protest")
	ErrDevice       = errors.New("it is made out to another device")
	ErrExtends      = errors.New("it extends another chain")
)

// Leeway is how far in the future a signed time of issue may lie. Expiry has none.
const Leeway = time.Minute

// Trust is whom a device obeys: it was pinned at joining.
type Trust struct {
	Mesh         MeshID `cbor:"mesh"`
	Orchestrator PeerID `cbor:"orchestrator"`
}

// Chain is a verified chain. Only [Trust.Verify] makes one; its parts must not
// be changed by those who read them.
type Chain struct {
	head     Head
	body     Body
	envelope []byte
	bytes    []byte
}

// Head gives the verified head.
func (c *Chain) Head() Head { return c.head }

// Body gives the verified body; its slices are shared.
func (c *Chain) Body() Body { return c.body }

// Options gives the options in the hub's order. The slice is shared.
func (c *Chain) Options() []Option { return c.body.Options }

// Rules gives the rules with every default filled in.
func (c *Chain) Rules() Rules { return c.body.Rules.WithDefaults() }

// Slot says what the chain is for.
func (c *Chain) Slot() Slot { return Slot{c.head.Scope, c.head.Primitive} }

// Mark is the high-water mark after accepting c.
func (c *Chain) Mark() Mark { return Mark{c.head.Seq, c.head.Body, c.head.Issued} }

// Signed is a chain as it travels: nothing in it is verified. Its JSON form is
// what `chain show --out` writes and `chain verify` reads.
type Signed struct {
	Head []byte `json:"head"` // envelope
	Body []byte `json:"body"`
}

// Bytes gives the signed head and the body as they were verified, for storage
// and for handing on. The slices are shared.
func (c *Chain) Bytes() (head, body []byte) { return c.envelope, c.bytes }

// Expired reports whether c may no longer be used at all.
func (c *Chain) Expired(now time.Time) bool { return InstantOf(now) >= c.head.Expires }

// Stale reports whether c should be refreshed, though it may still be used.
func (c *Chain) Stale(now time.Time) bool { return InstantOf(now) >= c.head.RefreshAfter }

// Verify checks a signed head and its body against the trust, the slot they
// were asked for, the time and the slot's mark, in that order, and the body last:
// not a byte of it is read before its address is known to be the signed one. The
// chain keeps copies of head and body. The error wraps exactly one refusal.
func (t Trust) Verify(slot Slot, head, body []byte, mark Mark, now time.Time) (*Chain, error) {
	c, err := t.verify(slot, head, body, mark, now)
	if err != nil {
		return nil, fmt.Errorf("chain of %s refused: %w", slot, err)
	}
	return c, nil
}

func (t Trust) verify(slot Slot, envelope, body []byte, mark Mark, now time.Time) (*Chain, error) {
	payload, err := t.Open(DomainChain, envelope)
	if err != nil {
		return nil, err
	}
	var h Head
	if err := Unmarshal(payload, &h); err != nil {
		return nil, err
	}
	switch {
	case h.Mesh != t.Mesh:
		return nil, ErrMesh
	case h.Scope != slot.Scope || h.Primitive != slot.Primitive:
		return nil, fmt.Errorf("%w: it says %q", ErrSlot, Clip(Slot{h.Scope, h.Primitive}.String()))
	case h.Seq == 0 || h.Seq > 1<<62 || h.Issued <= 0 || h.RefreshAfter < h.Issued || h.Expires <= h.Issued || h.Expires < h.RefreshAfter:
		return nil, fmt.Errorf("%w: sequence or times out of order", ErrContent)
	case h.Issued > InstantOf(now.Add(Leeway)):
		return nil, ErrFuture
	case InstantOf(now) >= h.Expires:
		return nil, ErrExpired
	}
	if err := mark.admit(h); err != nil {
		return nil, err
	}
	if len(body) > MaxBodyBytes {
		return nil, fmt.Errorf("%w: body of %d bytes, at most %d", ErrContent, len(body), MaxBodyBytes)
	}
	if CIDOf(body) != h.Body {
		return nil, ErrBody
	}
	b, err := DecodeBody(body)
	if err != nil {
		return nil, err
	}
	if b.Primitive != slot.Primitive {
		return nil, fmt.Errorf("%w: the body is for %q", ErrSlot, Clip(b.Primitive))
	}
	return &Chain{head: h, body: b, envelope: bytes.Clone(envelope), bytes: bytes.Clone(body)}, nil
}

// Open opens an envelope that only the orchestrator may have signed, and gives its
// payload. Errors are those of the function [Open].
func (t Trust) Open(d Domain, envelope []byte) ([]byte, error) {
	signer, payload, err := Open(d, envelope)
	if err != nil {
		return nil, err
	}
	if signer != t.Orchestrator {
		return nil, ErrSigner
	}
	return payload, nil
}

// admit applies the rules of the sequence number: lower is a rollback, equal
// with the same body is a renewal if not issued earlier, equal with another
// body is equivocation.
func (m Mark) admit(h Head) error {
	switch {
	case h.Seq < m.Seq:
		return fmt.Errorf("%w: sequence %d after %d", ErrRollback, h.Seq, m.Seq)
	case h.Seq == m.Seq && h.Body != m.Body:
		return fmt.Errorf("%w: sequence %d, %s after %s", ErrEquivocation, h.Seq, h.Body, m.Body)
	case h.Seq == m.Seq && h.Issued < m.Issued:
		return fmt.Errorf("%w: sequence %d, issued earlier", ErrRollback, h.Seq)
	}
	return nil
}

// DecodeBody reads and validates the bytes of a body.
func DecodeBody(b []byte) (Body, error) {
	if len(b) > MaxBodyBytes {
		return Body{}, fmt.Errorf("%w: body of %d bytes, at most %d", ErrContent, len(b), MaxBodyBytes)
	}
	var body Body
	if err := Unmarshal(b, &body); err != nil {
		return Body{}, err
	}
	if err := body.Validate(); err != nil {
		return Body{}, fmt.Errorf("%w: %w", ErrContent, err)
	}
	return body, nil
}

// Validate refuses what no device could walk: no options, too many, ids that
// repeat, options or rules out of range.
func (b *Body) Validate() error {
	if _, err := ParsePrimitive(string(b.Primitive)); err != nil {
		return err
	}
	if err := validOptions(b.Options); err != nil {
		return err
	}
	return b.Rules.Validate()
}

func validOptions(options []Option) error {
	if len(options) == 0 || len(options) > MaxOptions {
		return fmt.Errorf("%d options: want 1 to %d", len(options), MaxOptions)
	}
	seen := make(map[OptionID]bool, len(options))
	for i := range options {
		if err := options[i].Validate(); err != nil {
			return err
		}
		if seen[options[i].ID] {
			return fmt.Errorf("option %s stands twice", options[i].ID)
		}
		seen[options[i].ID] = true
	}
	return nil
}

// VerifyExtension checks a signed extension against the protest it should
// answer: the chain that was walked, the nonce and the device that asked.
func (t Trust) VerifyExtension(of *Chain, nonce string, device PeerID, envelope []byte, now time.Time) ([]Option, error) {
	e, err := t.OpenExtension(of, device, envelope, now)
	if err != nil {
		return nil, err
	}
	if e.Nonce != nonce || nonce == "" {
		return nil, fmt.Errorf("extension of %s refused: %w", of.Slot(), ErrProtest)
	}
	return e.Options, nil
}

// OpenExtension is VerifyExtension for those who cannot know the protest: an
// executor that is shown what another device may use.
func (t Trust) OpenExtension(of *Chain, device PeerID, envelope []byte, now time.Time) (Extension, error) {
	e, err := t.openExtension(of, device, envelope, now)
	if err != nil {
		return Extension{}, fmt.Errorf("extension of %s refused: %w", of.Slot(), err)
	}
	return *e, nil
}

func (t Trust) openExtension(of *Chain, device PeerID, envelope []byte, now time.Time) (*Extension, error) {
	payload, err := t.Open(DomainExtension, envelope)
	if err != nil {
		return nil, err
	}
	var e Extension
	if err := Unmarshal(payload, &e); err != nil {
		return nil, err
	}
	switch {
	case e.Mesh != t.Mesh:
		return nil, ErrMesh
	case (Slot{e.Scope, e.Primitive}) != of.Slot():
		return nil, ErrSlot
	case e.Device != device || device == "":
		return nil, ErrDevice
	case e.Body != of.head.Body:
		return nil, ErrExtends
	case e.Issued <= 0 || e.Expires <= e.Issued:
		return nil, fmt.Errorf("%w: times out of order", ErrContent)
	case e.Issued > InstantOf(now.Add(Leeway)):
		return nil, ErrFuture
	case InstantOf(now) >= e.Expires:
		return nil, ErrExpired
	}
	if err := validOptions(e.Options); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrContent, err)
	}
	for i := range e.Options {
		for j := range of.body.Options {
			if e.Options[i].ID == of.body.Options[j].ID {
				return nil, fmt.Errorf("%w: option %s is in the chain already", ErrContent, e.Options[i].ID)
			}
		}
	}
	return &e, nil
}
