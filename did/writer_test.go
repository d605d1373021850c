package did

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)

func keyOf(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func public(n byte) ed25519.PublicKey { return keyOf(n).Public().(ed25519.PublicKey) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writer writes logs, also such as nobody should: whatever it is told to put into an entry is hashed and
// signed as if it were right.
type writer struct {
	t     testing.TB
	scid  string
	last  string // versionId
	lines [][]byte
}

// wrong is how an entry differs from a right one.
type wrong struct {
	by       byte               // number of the key that signs; 0: that of the caller
	before   func(entry object) // changes the entry before it is hashed and signed
	hashed   func(entry object) // after it was hashed, before it is signed
	proof    func(proof object) // the proof, which is signed after that
	after    func(entry object) // the sealed entry
	line     func(b []byte) []byte
	previous string // stands for the versionId of the entry before in the hash
	number   int    // instead of the right one
	noSCID   bool   // the placeholder is left
}

// at is when the n-th entry is written.
func at(n int) time.Time { return start.Add(time.Duration(n) * time.Hour) }

// add writes an entry, signed by key number by.
func (w *writer) add(by byte, parameters string, w2 ...wrong) *writer {
	w.t.Helper()
	var x wrong
	if len(w2) > 0 {
		x = w2[0]
	}
	if x.by != 0 {
		by = x.by
	}
	n := len(w.lines) + 1
	scid := w.scid
	if n == 1 {
		scid = placeholder
	}
	did := "did:webvh:" + scid + ":example.com"
	entry := object{
		"versionTime": text(stamp(at(n))), "parameters": json.RawMessage(parameters),
		"state": documentOf(did, "key-1", public(by)).canonical(),
	}
	if n == 1 {
		entry["versionId"] = text(placeholder)
	}
	if x.before != nil {
		x.before(entry)
	}
	entry = w.strict(entry)
	if n == 1 && !x.noSCID {
		w.scid = hash(entry.canonical())
		w.last = w.scid
		var err error
		entry, err = parseObject(bytes.ReplaceAll(entry.canonical(), []byte(placeholder), []byte(w.scid)))
		must(w.t, err)
	}
	if x.previous != "" {
		w.last = x.previous
	}
	if x.number != 0 {
		n = x.number
	}
	entry["versionId"] = text(strconv.Itoa(n) + "-" + entryHash(entry, w.last))
	if x.hashed != nil {
		x.hashed(entry)
		entry = w.strict(entry)
	}
	name := multikey(keyOf(by))
	proof := object{
		"type": text("DataIntegrityProof"), "cryptosuite": text("eddsa-jcs-2022"), "proofPurpose": text("assertionMethod"),
		"verificationMethod": text("did:key:" + name + "#" + name), "created": text(stamp(at(n))),
	}
	if x.proof != nil {
		x.proof(proof)
	}
	proof["proofValue"] = text("z" + base58(ed25519.Sign(keyOf(by), proofBytes(proof, entry.digest()))))
	entry["proof"] = slices.Concat([]byte{'['}, proof.canonical(), []byte{']'})
	if x.after != nil {
		x.after(entry)
	}
	w.last, _ = entry.string("versionId")
	line := entry.canonical()
	if x.line != nil {
		line = x.line(line)
	}
	w.lines = append(w.lines, line)
	return w
}

// strict puts an object whose values are as they were typed into its RFC 8785 form.
func (w *writer) strict(o object) object {
	w.t.Helper()
	out, err := parseObject(o.canonical())
	must(w.t, err)
	return out
}

func (w *writer) did() string { return "did:webvh:" + w.scid + ":example.com" }

func (w *writer) log() []byte { return append(bytes.Join(w.lines, []byte{'\n'}), '\n') }

// first gives the parameters of a first entry with the update keys of these
// numbers, and more members.
func first(more string, keys ...byte) string {
	return fmt.Sprintf(`{"method":"did:webvh:1.0","scid":"{SCID}","updateKeys":%s%s}`, keyList(keys...), more)
}

func keyList(keys ...byte) string {
	names := []string{}
	for _, k := range keys {
		names = append(names, multikey(keyOf(k)))
	}
	return string(texts(names))
}

func hashList(keys ...byte) string {
	publics := []ed25519.PublicKey{}
	for _, k := range keys {
		publics = append(publics, public(k))
	}
	return string(commitments(publics))
}

// approve gives a witness file in which each witness has approved one entry.
func (w *writer) approve(byEntry map[int][]byte) []byte {
	var records []string
	for n, witnesses := range byEntry {
		id := "9-" + strings.Repeat("Q", 46)
		if n <= len(w.lines) {
			e, err := parseObject(w.lines[n-1])
			must(w.t, err)
			id, _ = e.string("versionId")
		}
		var proofs []string
		for _, k := range witnesses {
			proofs = append(proofs, string(sign(keyOf(k), object{"versionId": text(id)}, start)))
		}
		records = append(records, fmt.Sprintf(`{"versionId":%s,"proof":[%s]}`, text(id), strings.Join(proofs, ",")))
	}
	return []byte("[" + strings.Join(records, ",") + "]")
}

func witnessList(threshold int, keys ...byte) string {
	var l []string
	for _, k := range keys {
		l = append(l, fmt.Sprintf(`{"id":"did:key:%s"}`, multikey(keyOf(k))))
	}
	return fmt.Sprintf(`{"threshold":%d,"witnesses":[%s]}`, threshold, strings.Join(l, ","))
}
