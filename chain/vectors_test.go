package chain_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/record"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
)

var update = flag.Bool("update", false, "write the vectors under testdata again")

// refusals names every way in which a chain or an extension can be refused.
var refusals = map[string]error{
	"encoding": chain.ErrEncoding, "signer": chain.ErrSigner, "domain": chain.ErrDomain, "signature": chain.ErrSignature,
	"mesh": chain.ErrMesh, "slot": chain.ErrSlot, "content": chain.ErrContent, "future": chain.ErrFuture, "expired": chain.ErrExpired,
	"rollback": chain.ErrRollback, "equivocation": chain.ErrEquivocation, "body": chain.ErrBody,
	"device": chain.ErrDevice, "extends": chain.ErrExtends, "protest": chain.ErrProtest,
}

// vector is one entry of testdata/vectors.json. Its file is a CBOR map of byte
// strings: head and body, and extension where there is one.
type vector struct {
	Name      string          `json:"name"` // file: name + ".cbor"
	What      string          `json:"what"`
	Mesh      chain.MeshID    `json:"mesh"`
	Pinned    chain.PeerID    `json:"pinned"`
	Scope     chain.ScopeID   `json:"scope"`
	Primitive chain.Primitive `json:"primitive"`
	Mark      chain.Mark      `json:"mark"`
	Now       chain.Instant   `json:"now"`
	Nonce     string          `json:"nonce,omitempty"`  // of the protest that the extension should answer
	Device    chain.PeerID    `json:"device,omitempty"` // that protested
	Refusal   string          `json:"refusal"`          // "" is accepted

	bytes parts
}

type parts struct {
	Head      []byte `cbor:"head"`
	Body      []byte `cbor:"body"`
	Extension []byte `cbor:"extension,omitempty"`
}

// offer is a head, a body and perhaps an extension on their way to a device that
// knows the hub, with everything a test may spoil.
type offer struct {
	hub    chaintest.Hub // that signs
	domain chain.Domain
	head   chain.Head
	body   []byte
	slot   chain.Slot // that the device asked for
	mark   chain.Mark
	now    time.Time

	payload  []byte              // in place of the encoded head
	envelope func([]byte) []byte // what happens to the signed head

	extension *chain.Extension
	extDomain chain.Domain
	extHub    chaintest.Hub
	extSealed func([]byte) []byte // what happens to the signed extension
	nonce     string
	device    chain.PeerID
}

const anOrder = "groq/llama p=.99 s=1.2 in=.59 out=.79 keys=groq | peer/llm.chat tries=2 | local"

func newOffer(t testing.TB) *offer {
	hub, now := chaintest.NewHub(), chaintest.Start
	body := hub.Body(t, anOrder)
	return &offer{hub: hub, domain: chain.DomainChain, head: hub.HeadOf(body, now), body: body, slot: chaintest.Slot, now: now,
		extDomain: chain.DomainExtension, extHub: hub, nonce: "nonce-1", device: chaintest.PeerID(1)}
}

// setBody replaces the body, and signs for it.
func (o *offer) setBody(b []byte) { o.body, o.head.Body = b, chain.CIDOf(b) }

// seal gives the bytes that the device gets.
func (o *offer) seal(t testing.TB) parts {
	payload := o.payload
	if payload == nil {
		payload = chaintest.Encode(t, o.head)
	}
	envelope, err := o.hub.Key.Seal(o.domain, payload)
	if err != nil {
		t.Fatal(err)
	}
	if o.envelope != nil {
		envelope = o.envelope(envelope)
	}
	p := parts{Head: envelope, Body: o.body}
	if o.extension != nil {
		p.Extension = o.extHub.Sign(t, o.extDomain, *o.extension)
		if o.extSealed != nil {
			p.Extension = o.extSealed(p.Extension)
		}
	}
	return p
}

// rule is one line of the specification.
type rule struct {
	name  string // good_… is accepted, fail_REFUSAL_… refused
	what  string
	spoil func(t testing.TB, o *offer)
}

func (r rule) refusal() string {
	if strings.HasPrefix(r.name, "good_") {
		return ""
	}
	return strings.SplitN(r.name, "_", 3)[1]
}

func (r rule) vector(t testing.TB) vector {
	o := newOffer(t)
	r.spoil(t, o)
	pinned := chaintest.NewHub().Trust
	v := vector{Name: r.name, What: r.what, Mesh: pinned.Mesh, Pinned: pinned.Orchestrator, Scope: o.slot.Scope, Primitive: o.slot.Primitive,
		Mark: o.mark, Now: chain.InstantOf(o.now), Refusal: r.refusal(), bytes: o.seal(t)}
	if o.extension != nil {
		v.Nonce, v.Device = o.nonce, o.device
	}
	return v
}

// run gives the refusal of a vector, or nil.
func (v *vector) run() error {
	trust := chain.Trust{Mesh: v.Mesh, Orchestrator: v.Pinned}
	c, err := trust.Verify(chain.Slot{Scope: v.Scope, Primitive: v.Primitive}, v.bytes.Head, v.bytes.Body, v.Mark, v.Now.Time())
	if err != nil || v.bytes.Extension == nil {
		return err
	}
	_, err = trust.VerifyExtension(c, v.Nonce, v.Device, v.bytes.Extension, v.Now.Time())
	return err
}

// check fails unless the vector ends in its refusal and in no other.
func (v *vector) check(t *testing.T) {
	t.Helper()
	err := v.run()
	if want := refusals[v.Refusal]; v.Refusal != "" && want == nil {
		t.Fatalf("no such refusal: %q", v.Refusal)
	} else if !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Errorf("%s: got %v, want %v", v.What, err, want)
	}
	for name, other := range refusals {
		if name != v.Refusal && errors.Is(err, other) {
			t.Errorf("%s: the error is also %q: %v", v.What, name, err)
		}
	}
	if err != nil && (len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\r\x00")) {
		t.Errorf("%s: not one short line: %q", v.What, err)
	}
}

// TestAcceptance is the specification: what a device accepts, and why it
// refuses the rest.
func TestAcceptance(t *testing.T) {
	for _, r := range allRules() {
		t.Run(r.name, func(t *testing.T) {
			v := r.vector(t)
			v.check(t)
		})
	}
}

func TestEveryRefusalHasARule(t *testing.T) {
	ruled := map[string]bool{}
	for _, r := range allRules() {
		ruled[r.refusal()] = true
	}
	for name := range refusals {
		if !ruled[name] {
			t.Errorf("no rule ends in %q", name)
		}
	}
}

// TestVectors runs the files that other implementations run, and holds them to
// the rules above.
func TestVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var listed []vector
	if err := json.Unmarshal(raw, &listed); err != nil {
		t.Fatal(err)
	}
	rules := allRules()
	files, err := filepath.Glob("testdata/*.cbor")
	if err != nil || len(files) != len(listed) || len(listed) != len(rules) {
		t.Fatalf("%d files, %d vectors, %d rules: run go test ./chain -run TestVectors -update", len(files), len(listed), len(rules))
	}
	for i, v := range listed {
		t.Run(v.Name, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("testdata", v.Name+".cbor"))
			if err != nil {
				t.Fatal(err)
			}
			if err := chain.Unmarshal(raw, &v.bytes); err != nil {
				t.Fatal(err)
			}
			v.check(t)
			if again := rules[i].vector(t); !reflect.DeepEqual(again, v) {
				t.Errorf("the file is not what the rule makes: run go test ./chain -run TestVectors -update, and say why the format changed")
			}
		})
	}
}

// TestVectorsInAnotherLanguage runs the same files by a program that shares no
// code with this one.
func TestVectorsInAnotherLanguage(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node here: the second implementation cannot run")
	}
	out, err := exec.CommandContext(t.Context(), node, "testdata/vectors.mjs").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func writeVectors(t *testing.T) {
	old, err := filepath.Glob("testdata/*.cbor")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	var list []vector
	for _, r := range allRules() {
		v := r.vector(t)
		list = append(list, v)
		if err := os.WriteFile(filepath.Join("testdata", v.Name+".cbor"), chaintest.Encode(t, v.bytes), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/vectors.json", append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A writer of CBOR that can also write what it should not.

func item(major byte, n uint64) []byte {
	switch {
	case n < 24:
		return []byte{major<<5 | byte(n)}
	case n < 1<<8:
		return []byte{major<<5 | 24, byte(n)}
	case n < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{major<<5 | 25}, uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32([]byte{major<<5 | 26}, uint32(n))
	default:
		return long(major, n)
	}
}

// long writes the eight-byte form, which is minimal for few numbers.
func long(major byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{major<<5 | 27}, n)
}

func text(s string) []byte { return append(item(3, uint64(len(s))), s...) }
func blob(b []byte) []byte { return append(item(2, uint64(len(b))), b...) }

// pairs writes a map of entries in the order given.
func pairs(entries ...[]byte) []byte {
	return append(item(5, uint64(len(entries))), bytes.Join(entries, nil)...)
}

func entry(key string, value []byte) []byte { return append(text(key), value...) }

// fields are the entries of a head in their deterministic order: shorter keys
// first, then by their bytes.
func fields(h chain.Head) [][]byte {
	return [][]byte{
		entry("seq", item(0, h.Seq)), entry("body", blob([]byte(h.Body))), entry("mesh", text(string(h.Mesh))),
		entry("scope", text(string(h.Scope))), entry("issued", item(0, uint64(h.Issued))), entry("expires", item(0, uint64(h.Expires))),
		entry("primitive", text(string(h.Primitive))), entry("refresh_after", item(0, uint64(h.RefreshAfter))),
	}
}

func TestTheWriterOfTheseTestsWritesHeads(t *testing.T) {
	o := newOffer(t)
	if got, want := pairs(fields(o.head)...), chaintest.Encode(t, o.head); !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

// secp256k1 signs with a key of another type, which libp2p itself would accept.
func secp256k1(t testing.TB, domain chain.Domain, payload []byte) []byte {
	key, err := crypto.UnmarshalSecp256k1PrivateKey(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return sealRaw(t, key, string(domain), "/"+string(domain), payload)
}

// sealRaw signs any combination of domain and payload type.
func sealRaw(t testing.TB, key crypto.PrivKey, domain, payloadType string, payload []byte) []byte {
	e, err := record.Seal(&rawRecord{domain, payloadType, payload}, key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type rawRecord struct {
	domain, payloadType string
	payload             []byte
}

func (r *rawRecord) Domain() string                 { return r.domain }
func (r *rawRecord) Codec() []byte                  { return []byte(r.payloadType) }
func (r *rawRecord) MarshalRecord() ([]byte, error) { return r.payload, nil }
func (r *rawRecord) UnmarshalRecord([]byte) error   { return nil }
