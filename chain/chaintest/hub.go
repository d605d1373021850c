// Package chaintest makes policy for tests: signed chains and extensions from a
// few lines of text, fixed keys, and a brute-force judge of orders. It is
// imported by tests only. Whatever goes wrong in it fails the test.
package chaintest

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// T is what failing a test takes: a *testing.T, B or F, or a *rapid.T.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Slot is what chains are for unless a test says otherwise.
var Slot = chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}

// Start is a moment for tests to begin at.
var Start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Key gives the n-th fixed key: the same in every run and on every machine.
func Key(n int) chain.Key {
	seed := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("chordwheel chaintest key "), uint64(n)))
	key, err := chain.NewKey(fixed(seed[:]))
	if err != nil {
		panic("BUG: a fixed key: " + err.Error())
	}
	return key
}

// PeerID gives the identity of the n-th fixed key.
func PeerID(n int) chain.PeerID { return Key(n).PeerID() }

// fixed reads the same bytes for ever.
type fixed []byte

func (f fixed) Read(b []byte) (int, error) {
	if len(f) == 0 {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = f[i%len(f)]
	}
	return len(b), nil
}

// Hub signs policy. Its key is Key(0), so two hubs of NewHub are the same one.
type Hub struct {
	Key   chain.Key
	Trust chain.Trust // what its devices pinned
	Slot  chain.Slot  // what Chain, Head and Extension are for
}

// NewHub gives the hub of mesh "test".
func NewHub() Hub { return newHub(Key(0), "test") }

// Stranger gives a hub of the same mesh and slot whose key nobody pinned.
func Stranger() Hub { return newHub(Key(666), "test") }

func newHub(key chain.Key, mesh chain.MeshID) Hub {
	return Hub{Key: key, Trust: chain.Trust{Mesh: mesh, Orchestrator: key.PeerID()}, Slot: Slot}
}

// For gives the same hub, signing for another slot.
func (h Hub) For(scope chain.ScopeID, primitive chain.Primitive) Hub {
	h.Slot = chain.Slot{Scope: scope, Primitive: primitive}
	return h
}

// Body gives the bytes of a body for h's slot; see [Options] for the text.
func (h Hub) Body(t T, text string) []byte {
	t.Helper()
	return h.BodyWith(t, text, chain.Rules{})
}

// BodyWith is Body with rules.
func (h Hub) BodyWith(t T, text string, rules chain.Rules) []byte {
	t.Helper()
	body := chain.Body{Primitive: h.Slot.Primitive, Options: Options(t, text), Rules: rules}
	if err := body.Validate(); err != nil {
		t.Fatalf("chaintest: body %q: %v", text, err)
	}
	return Encode(t, body)
}

// HeadOf gives an unsigned head of the right form: issued now, to be refreshed
// after an hour, expiring after 7 days. The sequence number is now's Unix
// milliseconds, as a hub chooses it.
func (h Hub) HeadOf(body []byte, now time.Time) chain.Head {
	return chain.Head{
		Mesh: h.Trust.Mesh, Scope: h.Slot.Scope, Primitive: h.Slot.Primitive, Seq: uint64(now.UnixMilli()), Body: chain.CIDOf(body),
		Issued: chain.InstantOf(now), RefreshAfter: chain.InstantOf(now.Add(time.Hour)), Expires: chain.InstantOf(now.Add(7 * 24 * time.Hour)),
	}
}

// Head signs HeadOf.
func (h Hub) Head(t T, body []byte, now time.Time) []byte {
	t.Helper()
	return h.Sign(t, chain.DomainChain, h.HeadOf(body, now))
}

// Sign seals any object in any domain: a changed head, say.
func (h Hub) Sign(t T, domain chain.Domain, object any) []byte {
	t.Helper()
	envelope, err := h.Key.Seal(domain, Encode(t, object))
	if err != nil {
		t.Fatalf("chaintest: %v", err)
	}
	return envelope
}

// Chain gives a verified chain of the options in text.
func (h Hub) Chain(t T, text string, now time.Time) *chain.Chain {
	t.Helper()
	return h.ChainWith(t, text, chain.Rules{}, now)
}

// ChainWith is Chain with rules.
func (h Hub) ChainWith(t T, text string, rules chain.Rules, now time.Time) *chain.Chain {
	t.Helper()
	body := h.BodyWith(t, text, rules)
	c, err := h.Trust.Verify(h.Slot, h.Head(t, body, now), body, chain.Mark{}, now)
	if err != nil {
		t.Fatalf("chaintest: %v", err)
	}
	return c
}

// ExtensionOf gives an unsigned extension of a chain that holds for 5 minutes.
func (h Hub) ExtensionOf(t T, of *chain.Chain, nonce string, device chain.PeerID, text string, now time.Time) chain.Extension {
	t.Helper()
	return chain.Extension{
		Mesh: h.Trust.Mesh, Scope: of.Head().Scope, Primitive: of.Head().Primitive, Body: of.Head().Body, Nonce: nonce, Device: device,
		Options: Options(t, text), Issued: chain.InstantOf(now), Expires: chain.InstantOf(now.Add(5 * time.Minute)),
	}
}

// Extension signs ExtensionOf.
func (h Hub) Extension(t T, of *chain.Chain, nonce string, device chain.PeerID, text string, now time.Time) []byte {
	t.Helper()
	return h.Sign(t, chain.DomainExtension, h.ExtensionOf(t, of, nonce, device, text, now))
}

// Encode gives the deterministic bytes of an object.
func Encode(t T, object any) []byte {
	t.Helper()
	b, err := chain.Marshal(object)
	if err != nil {
		t.Fatalf("chaintest: %v", err)
	}
	return b
}
