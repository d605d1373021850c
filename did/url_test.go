package did_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/did"
)

// The specification's queries name a version; whatever else is behind a DID is refused, so
// that nobody takes the newest version for the one that was asked for.
func TestURLs(t *testing.T) {
	const id = "did:webvh:QmdmPkUdYzbr9txmx8gM2rsHPgr5L6m3gHjJGAf4vUFoGE:example.com%3A8443:a"
	for query, want := range map[string]did.Want{
		"":                                       {},
		"?versionId=1-Qm":                        {VersionID: "1-Qm"},
		"?versionId=1%2DQm":                      {VersionID: "1-Qm"},
		"?versionNumber=12":                      {Number: 12},
		"?versionTime=2026-05-01T10:00:00Z":      {At: start},
		"?versionTime=2026-05-01T12:00:00+02:00": {At: start},
	} {
		name, got, err := did.ParseURL(id + query)
		if err != nil || name != id || got.VersionID != want.VersionID || got.Number != want.Number || !got.At.Equal(want.At) {
			t.Errorf("%q: %s, %+v, %v", query, name, got, err)
		}
	}
	for query, why := range map[string]string{
		"?": "", "?versionId=": "versionId", "?versionId=a&versionId=b": "once", "?versionId=a&versionNumber=1": "one of", "?versionNumber=0": "1 or more", "?versionNumber=x": "1 or more",
		"?versionTime=yesterday": "versionTime", "?service=files": "want versionId", "?versionID=1": "want versionId", "#key-1": "fragment", "/whois": "path", "?%zz=1": "",
	} {
		name, got, err := did.ParseURL(id + query)
		if query == "?" { // an empty query asks for nothing
			if err != nil || name != id || got != (did.Want{}) {
				t.Error(name, got, err)
			}
			continue
		}
		if !errors.Is(err, did.ErrInvalid) || !strings.Contains(err.Error(), why) || name != "" || got != (did.Want{}) {
			t.Errorf("%q: %s, %+v, %v", query, name, got, err)
		}
	}
	if _, _, err := did.ParseURL(chain.DIDKey(public(1)) + "?versionNumber=1"); !errors.Is(err, did.ErrInvalid) {
		t.Error("a version of a key:", err)
	}
}

// What is printed of a DID has the specification's metadata, numbers as texts.
func TestMetadata(t *testing.T) {
	id, log, err := did.Create(did.New{Place: "example.com", Update: keyOf(1), Sign: public(9), Portable: true}, start)
	must(t, err)
	r, err := did.Verify(log, nil, id, did.Want{}, start)
	must(t, err)
	b, err := json.Marshal(r)
	must(t, err)
	var got map[string]any
	must(t, json.Unmarshal(b, &got))
	delete(got, "document")
	again, err := json.Marshal(got)
	must(t, err)
	scid := strings.Split(id, ":")[2]
	want := `{"created":"2026-05-01T10:00:00Z","deactivated":false,"did":"` + id + `","portable":true,"scid":"` + scid + `","ttl":"3600","updated":"2026-05-01T10:00:00Z",` +
		`"versionId":"` + r.VersionID + `","versionTime":"2026-05-01T10:00:00Z","watchers":[],"witness":{}}`
	if string(again) != want {
		t.Errorf("%s\nwant %s", again, want)
	}
	r.Witnesses, r.Threshold, r.TTL = []string{"did:key:a", "did:key:b"}, 2, 0
	b, err = json.Marshal(r)
	if want := `"witness":{"threshold":"2","witnesses":[{"id":"did:key:a"},{"id":"did:key:b"}]}`; err != nil || !strings.Contains(string(b), want) || !strings.Contains(string(b), `"ttl":"0"`) {
		t.Errorf("%s, %v", b, err)
	}
	r, err = did.Resolve(t.Context(), nil, chain.DIDKey(public(1)), did.Want{}, time.Time{})
	must(t, err)
	if b, err := json.Marshal(r); err != nil || strings.Contains(string(b), "version") || strings.Contains(string(b), "ttl") {
		t.Errorf("a key has no versions: %s, %v", b, err)
	}
}

func FuzzURL(f *testing.F) {
	f.Add("did:webvh:QmdmPkUdYzbr9txmx8gM2rsHPgr5L6m3gHjJGAf4vUFoGE:example.com?versionTime=2026-05-01T12:00:00+02:00")
	f.Add("did:key:z6Mk?versionId=%41&x#/")
	f.Fuzz(func(t *testing.T, text string) {
		name, want, err := did.ParseURL(text)
		if err != nil && (!errors.Is(err, did.ErrInvalid) || strings.Contains(err.Error(), "\n")) {
			t.Fatalf("%v", err)
		}
		if err == nil && (!strings.HasPrefix(text, name) || strings.ContainsAny(name, "?#/") || want.Number < 0) {
			t.Errorf("%q: %q, %+v", text, name, want)
		}
	})
}
