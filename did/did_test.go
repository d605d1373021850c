package did_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/did"
)

var start = time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)

func keyOf(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func public(n byte) ed25519.PublicKey { return keyOf(n).Public().(ed25519.PublicKey) }

// site is a Fetcher that has some files, and notes what it was asked for.
type site struct {
	files map[string][]byte
	asked []string
	err   error
}

func (s *site) Fetch(_ context.Context, url string, limit int64) ([]byte, error) {
	s.asked = append(s.asked, url)
	if s.err != nil {
		return nil, s.err
	}
	b, ok := s.files[url]
	if !ok {
		return nil, fmt.Errorf("fetch: %w", did.ErrNotFound)
	}
	if limit != did.MaxLog {
		return nil, errors.New("another limit")
	}
	return b, nil
}

// keeper is a site that is told what may be remembered.
type keeper struct {
	site
	told []string
}

func (k *keeper) Keep(atMost time.Duration, urls ...string) {
	k.told = append(k.told, fmt.Sprint(atMost, " ", strings.Join(urls, " ")))
}

// What a log says of how long it holds is passed on, and one that does not hold is asked
// for again soon.
func TestHowLongALogIsRemembered(t *testing.T) {
	const log, approvals = "https://example.com/.well-known/did.jsonl", "https://example.com/.well-known/did-witness.json"
	const both = " " + log + " " + approvals
	id, made, err := did.Create(did.New{Place: "example.com", Update: keyOf(1), Sign: public(9)}, start)
	must(t, err)
	witnessed, err := os.ReadFile("testdata/webvh/witness-update-python/did.jsonl")
	must(t, err)
	proofs, err := os.ReadFile("testdata/webvh/witness-update-python/did-witness.json")
	must(t, err)
	const other = "did:webvh:QmVPXTZAumzuRFXb7Squ63ah8h7Tdi9SuP58wQ65Y5Baje:example.com"
	for name, c := range map[string]struct {
		did  string
		site site
		want string
	}{
		"one that holds":       {id, site{files: map[string][]byte{log: made}}, "1h0m0s" + both},
		"one with witnesses":   {other, site{files: map[string][]byte{log: witnessed, approvals: proofs}}, "1h0m0s" + both},
		"one without theirs":   {other, site{files: map[string][]byte{log: witnessed, approvals: []byte("[]")}}, "10s" + both},
		"one that is cut":      {id, site{files: map[string][]byte{log: made[:100]}}, "10s" + both},
		"one of somebody else": {id, site{files: map[string][]byte{log: witnessed, approvals: proofs}}, "10s" + both},
		"none":                 {id, site{}, ""},
		"one that is away":     {id, site{err: errors.New("connection refused")}, ""},
	} {
		k := &keeper{site: c.site}
		_, _ = did.Resolve(t.Context(), k, c.did, did.Want{}, start.Add(time.Hour))
		if got := strings.Join(k.told, "; "); got != c.want {
			t.Errorf("%s: told %q, want %q", name, got, c.want)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func resolve(t *testing.T, log []byte, id string, now time.Time) did.Resolution {
	t.Helper()
	r, err := did.Resolve(t.Context(), &site{files: map[string][]byte{"https://example.com/.well-known/did.jsonl": log}}, id, did.Want{}, now)
	must(t, err)
	return r
}

// A DID is created, changes its keys, and ends; its key for receipts can be told
// at each point.
func TestLife(t *testing.T) {
	id, log, err := did.Create(did.New{Place: "example.com", Update: keyOf(1), Sign: public(9)}, start)
	must(t, err)
	if !strings.HasPrefix(id, "did:webvh:Qm") || !strings.HasSuffix(id, ":example.com") || bytes.Count(log, []byte{'\n'}) != 1 {
		t.Fatalf("%s: %s", id, log)
	}
	r := resolve(t, log, id, start)
	if r.DID != id || !slices.EqualFunc(r.Keys(did.Assertion), []ed25519.PublicKey{public(9)}, bytesEqual) || len(r.Keys(did.Authentication)) != 1 || r.TTL != time.Hour || r.Deactivated {
		t.Errorf("%+v", r)
	}
	_, err = did.Update(log, did.Change{Sign: public(8)}, keyOf(1), start)
	if !errors.Is(err, did.ErrInvalid) {
		t.Errorf("within the same second: %v", err)
	}
	log, err = did.Update(log, did.Change{Sign: public(8), Update: keyOf(2)}, keyOf(1), start.Add(time.Hour))
	must(t, err)
	if r = resolve(t, log, id, start.Add(time.Hour)); !bytesEqual(r.Keys(did.Assertion)[0], public(8)) || !r.Created.Equal(start) || !r.Updated.Equal(start.Add(time.Hour)) {
		t.Errorf("rotated: %+v", r)
	}
	if _, err := did.Update(log, did.Change{}, keyOf(1), start.Add(2*time.Hour)); !errors.Is(err, did.ErrInvalid) {
		t.Errorf("by the old key: %v", err)
	}
	log, err = did.Update(log, did.Change{Deactivate: true}, keyOf(2), start.Add(2*time.Hour))
	must(t, err)
	if r = resolve(t, log, id, start.Add(3*time.Hour)); !r.Deactivated || r.Keys(did.Assertion) != nil {
		t.Errorf("deactivated: %+v", r)
	}
	if _, err := did.Update(log, did.Change{}, keyOf(2), start.Add(4*time.Hour)); !errors.Is(err, did.ErrInvalid) {
		t.Errorf("after its end: %v", err)
	}
}

func bytesEqual(a, b ed25519.PublicKey) bool { return bytes.Equal(a, b) }

// With committed keys, the thief of a key can do nothing.
func TestPreRotation(t *testing.T) {
	id, log, err := did.Create(did.New{Place: "example.com", Update: keyOf(1), Next: []ed25519.PublicKey{public(2), public(3)}, Sign: public(9)}, start)
	must(t, err)
	now := start.Add(time.Hour)
	for name, c := range map[string]did.Change{"the stolen key": {}, "a key of the thief": {Update: keyOf(7)}} {
		by := keyOf(1)
		if c.Update != nil {
			by = c.Update
		}
		if _, err := did.Update(log, c, by, now); !errors.Is(err, did.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	log, err = did.Update(log, did.Change{Update: keyOf(3), Next: []ed25519.PublicKey{public(4)}}, keyOf(3), now)
	must(t, err)
	// It ends with an entry without new hashes; the last key is then one like any.
	log, err = did.Update(log, did.Change{Update: keyOf(4)}, keyOf(4), now.Add(time.Hour))
	must(t, err)
	log, err = did.Update(log, did.Change{Deactivate: true}, keyOf(4), now.Add(2*time.Hour))
	must(t, err)
	if r := resolve(t, log, id, now.Add(3*time.Hour)); !r.Deactivated {
		t.Errorf("%+v", r)
	}
}

func TestMove(t *testing.T) {
	id, log, err := did.Create(did.New{Place: "example.com", Update: keyOf(1), Sign: public(9), Portable: true}, start)
	must(t, err)
	log, err = did.Update(log, did.Change{Place: "other.example%3A8443:hub"}, keyOf(1), start.Add(time.Hour))
	must(t, err)
	moved := strings.Replace(id, "example.com", "other.example%3A8443:hub", 1)
	s := &site{files: map[string][]byte{"https://other.example:8443/hub/did.jsonl": log, "https://example.com/.well-known/did.jsonl": log}}
	for _, name := range []string{id, moved} {
		r, err := did.Resolve(t.Context(), s, name, did.Want{}, start.Add(2*time.Hour))
		must(t, err)
		if r.DID != moved || len(r.Keys(did.Assertion)) != 1 || !bytes.Contains(r.Document, []byte(id)) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if names, err := did.Names(log, start.Add(2*time.Hour)); err != nil || !slices.Equal(names, []string{id, moved}) {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := did.Names(log[:50], start); !errors.Is(err, did.ErrInvalid) {
		t.Error(err)
	}
	_, log, err = did.Create(did.New{Place: "example.com", Update: keyOf(1), Sign: public(9)}, start)
	must(t, err)
	if _, err := did.Update(log, did.Change{Place: "other.example"}, keyOf(1), start.Add(time.Hour)); !errors.Is(err, did.ErrInvalid) {
		t.Errorf("not portable: %v", err)
	}
}

func TestVersions(t *testing.T) {
	id, log, err := did.Create(did.New{Place: "example.com", Update: keyOf(1), Sign: public(9)}, start)
	must(t, err)
	log, err = did.Update(log, did.Change{Sign: public(8)}, keyOf(1), start.Add(time.Hour))
	must(t, err)
	now := start.Add(2 * time.Hour)
	newest, err := did.Verify(log, nil, id, did.Want{}, now)
	must(t, err)
	old, err := did.Verify(log, nil, id, did.Want{At: start.Add(time.Minute)}, now)
	must(t, err)
	if !bytesEqual(old.Keys(did.Assertion)[0], public(9)) || !strings.HasPrefix(old.VersionID, "1-") || !strings.HasPrefix(newest.VersionID, "2-") {
		t.Errorf("%+v, %+v", old, newest)
	}
	if r, err := did.Verify(log, nil, id, did.Want{VersionID: old.VersionID}, now); err != nil || !r.VersionTime.Equal(start) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := did.Verify(log, nil, id, did.Want{Number: 1}, now); err != nil || r.VersionID != old.VersionID {
		t.Errorf("%+v, %v", r, err)
	}
	for _, w := range []did.Want{{VersionID: "1-other"}, {Number: 3}, {Number: -1}, {At: start.Add(-time.Minute)}} {
		if _, err := did.Verify(log, nil, id, w, now); !errors.Is(err, did.ErrNotFound) {
			t.Errorf("%+v: %v", w, err)
		}
	}
}

func TestDIDKey(t *testing.T) {
	id := chain.DIDKey(public(5))
	r, err := did.Resolve(t.Context(), nil, id, did.Want{}, start)
	must(t, err)
	if r.DID != id || !bytesEqual(r.Keys(did.Assertion)[0], public(5)) || !bytesEqual(r.Keys(did.Authentication)[0], public(5)) {
		t.Errorf("%+v", r)
	}
	if _, err := did.Resolve(t.Context(), nil, id+"x", did.Want{}, start); !errors.Is(err, did.ErrInvalid) {
		t.Error(err)
	}
}

// The address of the log follows from the DID, or the DID is refused before
// anything is fetched.
func TestAddresses(t *testing.T) {
	scid := strings.Split(first(t), ":")[2]
	for rest, want := range map[string]string{
		"example.com":                    "https://example.com/.well-known/did.jsonl",
		"issuer.example.com":             "https://issuer.example.com/.well-known/did.jsonl",
		"example.com:dids:issuer":        "https://example.com/dids/issuer/did.jsonl",
		"example.com%3A3000:dids:issuer": "https://example.com:3000/dids/issuer/did.jsonl",
		"example.com%3A3000":             "https://example.com:3000/.well-known/did.jsonl",
		"xn--jp-cd2fp15c.xn--fsq.jp":     "https://xn--jp-cd2fp15c.xn--fsq.jp/.well-known/did.jsonl",
		"example.com:.hidden":            "https://example.com/.hidden/did.jsonl",
		"localhost":                      "",
		"127.0.0.1":                      "",
		"1.2.3.4%3A443":                  "",
		"0x7f.1":                         "",
		"127.1":                          "",
		"[%3A%3A1]":                      "",
		"example.com%3A0":                "",
		"example.com%3A065":              "",
		"example.com%3A99999":            "",
		"example.com%3a443":              "",
		"example.com:..:a":               "",
		"example.com:a::b":               "",
		"example.com:a%2Fb":              "",
		"example.com:a/b":                "",
		"example.com:a?b":                "",
		"example.com:":                   "",
		"user@example.com":               "",
		// From the method's test suite.
		"127%2E0%2E0%2E1":                        "",
		"127.0.0.1%3a8080":                       "",
		"example.com:%2e%2e:%2e%2e:etc":          "",
		"example.com#@evil.example:path":         "",
		"example.com#key-1":                      "",
		"example..com":                           "",
		"-a.com":                                 "",
		"例.jp":                                   "",
		"example.com" + strings.Repeat(":a", 20): "",
		strings.Repeat("a", 64) + ".com":         "",
		strings.Repeat("a.", 300) + "com":        "",
		"":                                       "",
	} {
		s := &site{}
		_, err := did.Resolve(t.Context(), s, "did:webvh:"+scid+":"+rest, did.Want{}, start)
		if want == "" && (!errors.Is(err, did.ErrInvalid) || len(s.asked) > 0) || want != "" && (!errors.Is(err, did.ErrNotFound) || !slices.Equal(s.asked, []string{want})) {
			t.Errorf("%q: asked %q, want %q; %v", rest, s.asked, want, err)
		}
	}
	for _, name := range []string{"", "did:web:example.com", "did:webvh:example.com", "did:webvh:{SCID}:example.com", "did:webvh:Qm:example.com", "did:webvh:" + strings.Repeat("Q", 46) + ":example.com", "did:key:zQ"} {
		s := &site{}
		if _, err := did.Resolve(t.Context(), s, name, did.Want{}, start); !errors.Is(err, did.ErrInvalid) || len(s.asked) > 0 {
			t.Errorf("%q: asked %q, %v", name, s.asked, err)
		}
	}
	if _, err := did.Resolve(t.Context(), nil, first(t), did.Want{}, start); err == nil {
		t.Error("resolved without a fetcher")
	}
	down := errors.New("no route")
	if _, err := did.Resolve(t.Context(), &site{err: down}, first(t), did.Want{}, start); !errors.Is(err, down) || errors.Is(err, did.ErrInvalid) {
		t.Errorf("a site that is down: %v", err)
	}
}

func first(t *testing.T) string {
	t.Helper()
	id, _, err := did.Create(did.New{Place: "example.com", Update: keyOf(1), Sign: public(9)}, start)
	must(t, err)
	return id
}

// Keys are those that the document lists for the purpose, and nothing that only looks
// like one.
func TestKeys(t *testing.T) {
	mk := strings.TrimPrefix(chain.DIDKey(public(1)), "did:key:")
	other := strings.TrimPrefix(chain.DIDKey(public(2)), "did:key:")
	method := func(id, kind, key string) string {
		return fmt.Sprintf(`{"id":%q,"type":%q,"controller":"did:x","publicKeyMultibase":%q}`, id, kind, key)
	}
	for name, v := range map[string]struct {
		document string
		want     int
	}{
		"by name":            {`{"verificationMethod":[` + method("did:x#a", "Multikey", mk) + `],"assertionMethod":["did:x#a"]}`, 1},
		"by relative names":  {`{"verificationMethod":[` + method("#a", "Multikey", mk) + `],"assertionMethod":["#a"]}`, 1},
		"embedded":           {`{"assertionMethod":[` + method("did:x#a", "Multikey", mk) + `]}`, 1},
		"two":                {`{"verificationMethod":[` + method("#a", "Multikey", mk) + `,` + method("#b", "Multikey", other) + `],"assertionMethod":["#a","#b"]}`, 2},
		"for another use":    {`{"verificationMethod":[` + method("#a", "Multikey", mk) + `],"authentication":["#a"]}`, 0},
		"for no use":         {`{"verificationMethod":[` + method("#a", "Multikey", mk) + `]}`, 0},
		"of another kind":    {`{"verificationMethod":[` + method("#a", "JsonWebKey", mk) + `],"assertionMethod":["#a"]}`, 0},
		"of another curve":   {`{"verificationMethod":[` + method("#a", "Multikey", "zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme") + `],"assertionMethod":["#a"]}`, 0},
		"of another DID":     {`{"verificationMethod":[` + method("did:y#a", "Multikey", mk) + `],"assertionMethod":["did:y#a"]}`, 0},
		"that is not there":  {`{"verificationMethod":[],"assertionMethod":["#a"]}`, 0},
		"of the wrong shape": {`{"verificationMethod":7,"assertionMethod":["#a"]}`, 0},
	} {
		r := did.Resolution{DID: "did:x", Document: json.RawMessage(v.document)}
		if got := r.Keys(did.Assertion); len(got) != v.want {
			t.Errorf("%s: %d keys, want %d", name, len(got), v.want)
		}
	}
}

// Check takes what Resolve does not refuse for its form.
func TestCheck(t *testing.T) {
	id, _, err := did.Create(did.New{Place: "example.com", Update: keyOf(1), Sign: public(9)}, start)
	must(t, err)
	for _, s := range []string{id, chain.DIDKey(public(1))} {
		if err := did.Check(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", "did:web:example.com", "did:key:z6Mk", "did:webvh:x:example.com", "did:webvh:{SCID}:example.com", id + ":", id + "#a", id + "?versionNumber=1", strings.Replace(id, "example.com", "localhost", 1)} {
		_, err := did.Resolve(t.Context(), nil, s, did.Want{}, start)
		if !errors.Is(did.Check(s), did.ErrInvalid) || !errors.Is(err, did.ErrInvalid) {
			t.Errorf("%q: %v; resolved: %v", s, did.Check(s), err)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	for _, place := range []string{"", "localhost", "10.0.0.1", "example.com:..", "https://example.com"} {
		if _, _, err := did.Create(did.New{Place: place, Update: keyOf(1), Sign: public(9)}, start); !errors.Is(err, did.ErrInvalid) {
			t.Errorf("%q: %v", place, err)
		}
	}
}

func ExampleCreate() {
	update, sign := keyOf(1), public(2)
	id, log, err := did.Create(did.New{Place: "example.com", Update: update, Sign: sign}, start)
	fmt.Println(id, len(bytes.Split(bytes.TrimSpace(log), []byte("\n"))), err)
	// Output: did:webvh:QmeY4sQG9Wpvzm6s4KZDr5YJP8Ym4csCfoB1gn4NsAL2wb:example.com 1 <nil>
}

func TestPlace(t *testing.T) {
	for address, want := range map[string]string{
		"example.com": "example.com", "example.com/": "example.com", "https://example.com": "example.com", "example.com:8443": "example.com%3A8443",
		"example.com:8443/dids/hub": "example.com%3A8443:dids:hub", "example.com/hub/": "example.com:hub",
		"": "", "localhost": "", "192.0.2.1": "", "example.com:0": "", "example.com//x": "", "example.com/..": "", "http://example.com": "", "example.com:1:2": "", "a b.com": "",
	} {
		got, err := did.Place(address)
		if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, did.ErrInvalid) {
			t.Errorf("%q: %q, %v", address, got, err)
		}
		if want != "" {
			if url, err := did.Address("did:webvh:QmdmPkUdYzbr9txmx8gM2rsHPgr5L6m3gHjJGAf4vUFoGE:" + got); err != nil || !strings.HasSuffix(url, "/did.jsonl") {
				t.Errorf("%q: %s, %v", address, url, err)
			}
		}
	}
}
