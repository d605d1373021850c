package did

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/gowebpki/jcs"
	"github.com/multiformats/go-multibase"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/nesting"
)

// object is a JSON object whose values are in their RFC 8785 form.
type object map[string]json.RawMessage

// parseObject reads one object, with no name twice at any depth.
func parseObject(b []byte) (object, error) {
	if nesting.Depth(b) > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	canonical, err := jcs.Transform(b)
	if err != nil {
		return nil, errors.New("no strict JSON")
	}
	return member(canonical)
}

// member reads an object that is in its RFC 8785 form already: a value of another one.
func member(b json.RawMessage) (object, error) {
	var o object
	if err := json.Unmarshal(b, &o); err != nil || o == nil {
		return nil, errors.New("no JSON object")
	}
	return o, nil
}

// canonical gives the RFC 8785 form of an object: what its values are in, between names in
// their order. A log of megabytes is put in that form once, and not for each hash.
func (o object) canonical() []byte {
	size := 2
	for name, value := range o {
		size += len(name) + len(value) + 4
	}
	b := append(make([]byte, 0, size), '{')
	for _, name := range slices.SortedFunc(maps.Keys(o), byUTF16) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, text(name)...), ':'), o[name]...)
	}
	return append(b, '}')
}

// byUTF16 is RFC 8785's order of names.
func byUTF16(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// text gives a string as JSON in its RFC 8785 form.
func text(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err == nil {
		b, err = jcs.Transform(b)
	}
	if err != nil {
		panic("BUG: a string that is no JSON: " + err.Error())
	}
	return b
}

// with gives the object with other values of some members; nil removes one.
func (o object) with(changes object) object {
	out := maps.Clone(o)
	for name, v := range changes {
		if out[name] = v; v == nil {
			delete(out, name)
		}
	}
	return out
}

func (o object) string(name string) (string, error) {
	var s *string
	if err := json.Unmarshal(o[name], &s); o[name] == nil || err != nil || s == nil {
		return "", fmt.Errorf("%s: want a string", name)
	}
	return *s, nil
}

// only fails for a member that is not among names.
func (o object) only(names ...string) error {
	for name := range o {
		if !slices.Contains(names, name) {
			return fmt.Errorf("unknown member %q", chain.Clip(name))
		}
	}
	return nil
}

// digest is the hash of a document's RFC 8785 form.
type digest [sha256.Size]byte

func (o object) digest() digest { return sha256.Sum256(o.canonical()) }

// proofBytes gives what a Data Integrity proof over a document is a signature of.
func proofBytes(proof object, document digest) []byte {
	options := proof.with(object{"proofValue": nil}).digest()
	return append(options[:], document[:]...)
}

// checkProof gives the key, z6Mk…, that made a proof over a document.
func checkProof(raw json.RawMessage, document digest) (string, error) {
	proof, err := parseObject(raw)
	if err != nil {
		return "", fmt.Errorf("proof: %w", err)
	}
	for name, want := range map[string]string{"type": "DataIntegrityProof", "cryptosuite": "eddsa-jcs-2022", "proofPurpose": "assertionMethod"} {
		if got, err := proof.string(name); err != nil || got != want {
			return "", fmt.Errorf("proof: %s: want %s", name, want)
		}
	}
	method, err := proof.string("verificationMethod")
	if err != nil {
		return "", fmt.Errorf("proof: %w", err)
	}
	did, fragment, _ := strings.Cut(method, "#")
	key, err := chain.ParseDIDKey(did)
	if err != nil || fragment != strings.TrimPrefix(did, "did:key:") {
		return "", errors.New("proof: verificationMethod: want did:key:z6Mk…#z6Mk…")
	}
	value, err := proof.string("proofValue")
	if err != nil || len(value) > 128 || !strings.HasPrefix(value, "z") {
		return "", errors.New("proof: proofValue: want base58btc")
	}
	_, signature, err := multibase.Decode(value)
	if err != nil || len(signature) != ed25519.SignatureSize || !ed25519.Verify(key, proofBytes(proof, document), signature) {
		return "", errors.New("proof: the signature does not hold")
	}
	return fragment, nil
}

// sign gives document's proof by a key.
func sign(key ed25519.PrivateKey, document object, now time.Time) json.RawMessage {
	name := multikey(key)
	proof := object{
		"type": text("DataIntegrityProof"), "cryptosuite": text("eddsa-jcs-2022"), "proofPurpose": text("assertionMethod"),
		"verificationMethod": text("did:key:" + name + "#" + name), "created": text(stamp(now)),
	}
	proof["proofValue"] = text("z" + base58(ed25519.Sign(key, proofBytes(proof, document.digest()))))
	return proof.canonical()
}

// multikey gives the public half of a key as did:webvh writes it.
func multikey(key ed25519.PrivateKey) string {
	return strings.TrimPrefix(chain.DIDKey(key.Public().(ed25519.PublicKey)), "did:key:")
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// parseTime reads a time of the specification: ISO 8601 in UTC.
func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if _, offset := t.Zone(); err != nil || offset != 0 {
		return time.Time{}, errors.New("versionTime: want a time in UTC, such as 2026-05-01T10:00:00Z")
	}
	return t.UTC(), nil
}

// entryHash gives the hash of an entry behind the entry called previous; of the first one
// the SCID stands for that.
func entryHash(entry object, previous string) string {
	return hash(entry.with(object{"proof": nil, "versionId": text(previous)}).canonical())
}

// scidOf gives the SCID that a first entry makes.
func scidOf(entry object, claimed string) (string, error) {
	b := entry.with(object{"proof": nil, "versionId": text(placeholder)}).canonical()
	// Names may hold the SCID too, and change their order with it.
	b, err := jcs.Transform(bytes.ReplaceAll(b, []byte(claimed), []byte(placeholder)))
	if err != nil {
		return "", errors.New("scid: the first entry is no JSON without it")
	}
	return hash(b), nil
}
