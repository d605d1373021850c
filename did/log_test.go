package did

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func set(name, value string) func(object) {
	return func(o object) { o[name] = json.RawMessage(value) }
}

func inState(name, value string) func(object) {
	return func(o object) {
		s, err := parseObject(o["state"])
		if err != nil {
			panic(err)
		}
		o["state"] = s.with(object{name: json.RawMessage(value)}).canonical()
	}
}

// Each point of the specification's checklist for reading, with a log that misses
// it, and some that come close and are right (want is empty).
func TestChecklist(t *testing.T) {
	moved := func(o object) {
		o["state"] = bytes.ReplaceAll(o["state"], []byte("example.com"), []byte("example.org"))
	}
	for _, v := range []struct {
		name string
		log  func(w *writer)
		want string // part of the refusal
	}{
		{"a log of three entries", func(w *writer) { w.add(1, first("", 1)).add(1, `{}`).add(1, `{"ttl":60}`) }, ""},

		// The entry.
		{"no JSON", func(w *writer) { w.add(1, first("", 1), wrong{line: func(b []byte) []byte { return b[1:] }}) }, "entry 1: no strict JSON"},
		{"cut short", func(w *writer) {
			w.add(1, first("", 1)).add(1, `{}`, wrong{line: func(b []byte) []byte { return b[:len(b)/2] }})
		}, "entry 2: no strict JSON"},
		{"a name twice", func(w *writer) {
			w.add(1, first("", 1), wrong{line: func(b []byte) []byte { return append([]byte(`{"state":{},`), b[1:]...) }})
		}, "entry 1: no strict JSON"},
		{"an array", func(w *writer) { w.add(1, first("", 1), wrong{line: func([]byte) []byte { return []byte(`[1]`) }}) }, "entry 1: no JSON object"},
		{"an empty line", func(w *writer) { w.add(1, first("", 1)).add(1, `{}`, wrong{line: func([]byte) []byte { return nil }}) }, "entry 2: no strict JSON"},
		{"an unknown member", func(w *writer) { w.add(1, first("", 1), wrong{before: set("more", `1`)}) }, `unknown member "more"`},
		{"nested too deep", func(w *writer) {
			w.add(1, first("", 1), wrong{line: func([]byte) []byte {
				return []byte(`{"state":` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + `}`)
			}})
		}, "nested deeper"},

		// versionId.
		{"begins with 2", func(w *writer) { w.add(1, first("", 1), wrong{number: 2}) }, "versionId: want number 1"},
		{"skips a number", func(w *writer) { w.add(1, first("", 1)).add(1, `{}`, wrong{number: 3}) }, "versionId: want number 2"},
		{"no dash", func(w *writer) {
			w.add(1, first("", 1), wrong{hashed: func(o object) { o["versionId"] = bytes.Replace(o["versionId"], []byte("-"), nil, 1) }})
		}, "versionId: want number 1"},
		{"no versionId", func(w *writer) { w.add(1, first("", 1), wrong{after: func(o object) { delete(o, "versionId") }}) }, "versionId: want a string"},
		{"another hash", func(w *writer) {
			w.add(1, first("", 1)).add(1, `{}`, wrong{hashed: set("versionId", `"2-`+hash(nil)+`"`)})
		}, "versionId: the hash is not"},
		{"behind another entry", func(w *writer) { w.add(1, first("", 1)).add(1, `{}`, wrong{previous: "1-" + hash(nil)}) }, "versionId: the hash is not"},
		{"an entry in the middle is gone", func(w *writer) {
			w.add(1, first("", 1)).add(1, `{}`).add(1, `{}`)
			w.lines = append(w.lines[:1], w.lines[2])
		}, "entry 2: versionId"},
		{"two entries changed places", func(w *writer) {
			w.add(1, first("", 1)).add(1, `{}`).add(1, `{}`)
			w.lines[1], w.lines[2] = w.lines[2], w.lines[1]
		}, "entry 2: versionId"},

		// versionTime.
		{"no time", func(w *writer) { w.add(1, first("", 1), wrong{before: set("versionTime", `5`)}) }, "versionTime: want a string"},
		{"not in UTC", func(w *writer) {
			w.add(1, first("", 1), wrong{before: set("versionTime", `"2026-05-01T10:00:00+02:00"`)})
		}, "versionTime: want a time in UTC"},
		{"a date", func(w *writer) { w.add(1, first("", 1), wrong{before: set("versionTime", `"2026-05-01"`)}) }, "versionTime: want a time in UTC"},
		{"goes back", func(w *writer) {
			w.add(1, first("", 1)).add(1, `{}`, wrong{before: set("versionTime", `"2025-01-01T00:00:00Z"`)})
		}, "versionTime: not after"},
		{"stands still", func(w *writer) {
			w.add(1, first("", 1)).add(1, `{}`, wrong{before: set("versionTime", `"`+stamp(at(1))+`"`)})
		}, "versionTime: not after"},
		{"in the future", func(w *writer) {
			w.add(1, first("", 1)).add(1, `{}`, wrong{before: set("versionTime", `"2027-01-01T00:00:00Z"`)})
		}, "versionTime: in the future"},
		{"in UTC, without a Z", func(w *writer) {
			w.add(1, first("", 1), wrong{before: set("versionTime", `"2026-05-01T10:00:00+00:00"`)})
		}, ""},
		{"with fractions", func(w *writer) {
			w.add(1, first("", 1), wrong{before: set("versionTime", `"2026-05-01T10:00:00.123Z"`)})
		}, ""},

		// SCID.
		{"no scid", func(w *writer) { w.add(1, strings.Replace(first("", 1), `"scid":"{SCID}",`, "", 1)) }, "scid: it belongs into the first"},
		{"a second scid", func(w *writer) { w.add(1, first("", 1)).add(1, `{"scid":"`+w.scid+`"}`) }, "scid: it belongs into the first"},
		{"the scid of another entry", func(w *writer) {
			w.scid, w.last = hash([]byte("x")), hash([]byte("x"))
			w.add(1, strings.ReplaceAll(first("", 1), placeholder, w.scid), wrong{noSCID: true, before: func(o object) {
				o["state"] = bytes.ReplaceAll(o["state"], []byte(placeholder), []byte(w.scid))
			}})
		}, "scid: it is not that of this entry"},
		{"no multihash", func(w *writer) { w.add(1, strings.Replace(first("", 1), placeholder, "abc", 1)) }, "scid: want a SHA-256"},

		// Parameters.
		{"no method", func(w *writer) { w.add(1, strings.Replace(first("", 1), `"method":"did:webvh:1.0",`, "", 1)) }, "method: want"},
		{"an unknown method version", func(w *writer) { w.add(1, strings.Replace(first("", 1), "1.0", "2.0", 1)) }, "method: want did:webvh:1.0"},
		{"an older method version later", func(w *writer) { w.add(1, first("", 1)).add(1, `{"method":"did:webvh:0.5"}`) }, "method: want did:webvh:1.0"},
		{"the same method again", func(w *writer) { w.add(1, first("", 1)).add(1, `{"method":"did:webvh:1.0"}`) }, ""},
		{"an unknown parameter", func(w *writer) { w.add(1, first(`,"prerotation":true`, 1)) }, `unknown member "prerotation"`},
		{"no parameters", func(w *writer) {
			w.add(1, first("", 1)).add(1, `{}`, wrong{before: func(o object) { delete(o, "parameters") }})
		}, "parameters: no"},
		{"no update keys", func(w *writer) { w.add(1, `{"method":"did:webvh:1.0","scid":"{SCID}"}`) }, "updateKeys: missing"},
		{"empty update keys", func(w *writer) { w.add(1, first("")) }, "updateKeys: empty"},
		{"update keys of another kind", func(w *writer) { w.add(1, strings.Replace(first("", 1), "z6Mk", "zQ3s", 1)) }, "updateKeys: want Ed25519"},
		{"a ttl below zero", func(w *writer) { w.add(1, first(`,"ttl":-1`, 1)) }, "ttl: want seconds"},
		{"a ttl beyond all", func(w *writer) { w.add(1, first(`,"ttl":4294967296`, 1)) }, "ttl: want seconds"},
		{"a ttl of text", func(w *writer) { w.add(1, first(`,"ttl":"60"`, 1)) }, "ttl: want seconds"},
		{"null for what it stood for", func(w *writer) {
			w.add(1, first(`,"ttl":null,"watchers":null,"witness":null,"nextKeyHashes":null`, 1)).add(1, `{}`)
		}, ""},
		{"null for portable", func(w *writer) { w.add(1, first(`,"portable":null`, 1)) }, "portable: want true or false"},
		{"watchers that are no list", func(w *writer) { w.add(1, first(`,"watchers":"x"`, 1)) }, "watchers: want an array"},
		{"a list with null", func(w *writer) { w.add(1, first(`,"watchers":[null]`, 1)) }, "watchers: want an array"},
		{"a list without end", func(w *writer) { w.add(1, first(`,"watchers":[`+strings.Repeat(`"a",`, 100)+`"a"]`, 1)) }, "watchers: want an array"},

		// Proofs.
		{"no proof", func(w *writer) { w.add(1, first("", 1), wrong{after: func(o object) { delete(o, "proof") }}) }, "proof: want an array"},
		{"no proof in the list", func(w *writer) { w.add(1, first("", 1), wrong{after: set("proof", `[]`)}) }, "proof: want an array"},
		{"by a key that is not authorised", func(w *writer) { w.add(1, first("", 1), wrong{by: 2}) }, "not among the updateKeys"},
		{"the document was changed", func(w *writer) { w.add(1, first("", 1), wrong{hashed: set("parameters", first(`,"ttl":1`, 1))}) }, "entry 1: "},
		{"the proof was changed", func(w *writer) {
			w.add(1, first("", 1), wrong{after: func(o object) { o["proof"] = bytes.Replace(o["proof"], []byte("2026-"), []byte("2025-"), 1) }})
		}, "the signature does not hold"},
		{"for another purpose", func(w *writer) { w.add(1, first("", 1), wrong{proof: set("proofPurpose", `"authentication"`)}) }, "proofPurpose: want assertionMethod"},
		{"of another suite", func(w *writer) { w.add(1, first("", 1), wrong{proof: set("cryptosuite", `"ecdsa-jcs-2019"`)}) }, "cryptosuite: want"},
		{"of another type", func(w *writer) { w.add(1, first("", 1), wrong{proof: set("type", `"JsonWebSignature2020"`)}) }, "type: want"},
		{"with another fragment", func(w *writer) {
			w.add(1, first("", 1), wrong{proof: set("verificationMethod", `"did:key:`+multikey(keyOf(1))+`#other"`)})
		}, "verificationMethod: want"},
		{"one of two does not hold", func(w *writer) {
			w.add(1, first("", 1), wrong{after: func(o object) {
				o["proof"] = append(append(o["proof"][:len(o["proof"])-1:len(o["proof"])-1], []byte(",{}")...), ']')
			}})
		}, "proof: "},
		{"any of several keys", func(w *writer) { w.add(2, first("", 1, 2)).add(1, `{}`).add(2, `{}`) }, ""},

		// Rotation.
		{"rotated: signed by the old key", func(w *writer) { w.add(1, first("", 1)).add(1, `{"updateKeys":`+keyList(2)+`}`).add(2, `{}`) }, ""},
		{"rotated: signed by the new key at once", func(w *writer) { w.add(1, first("", 1)).add(2, `{"updateKeys":`+keyList(2)+`}`) }, "not among the updateKeys"},
		{"rotated: signed by the old key afterwards", func(w *writer) { w.add(1, first("", 1)).add(1, `{"updateKeys":`+keyList(2)+`}`).add(1, `{}`) }, "entry 3: proof"},

		// Pre-rotation.
		{"pre-rotation", func(w *writer) {
			w.add(1, first(`,"nextKeyHashes":`+hashList(2, 3), 1)).add(2, `{"updateKeys":`+keyList(2)+`,"nextKeyHashes":`+hashList(4)+`}`).
				add(4, `{"updateKeys":`+keyList(4)+`,"nextKeyHashes":[]}`).add(4, `{"updateKeys":`+keyList(5)+`}`).add(5, `{}`)
		}, ""},
		{"pre-rotation: another key", func(w *writer) {
			w.add(1, first(`,"nextKeyHashes":`+hashList(2), 1)).add(3, `{"updateKeys":`+keyList(3)+`,"nextKeyHashes":`+hashList(4)+`}`)
		}, "did not commit to"},
		{"pre-rotation: one key too many", func(w *writer) {
			w.add(1, first(`,"nextKeyHashes":`+hashList(2), 1)).add(2, `{"updateKeys":`+keyList(2, 3)+`,"nextKeyHashes":`+hashList(4)+`}`)
		}, "did not commit to"},
		{"pre-rotation: the old key signs", func(w *writer) {
			w.add(1, first(`,"nextKeyHashes":`+hashList(2), 1)).add(1, `{"updateKeys":`+keyList(2)+`,"nextKeyHashes":`+hashList(4)+`}`)
		}, "not among the updateKeys"},
		{"pre-rotation: no keys", func(w *writer) {
			w.add(1, first(`,"nextKeyHashes":`+hashList(2), 1)).add(1, `{"nextKeyHashes":`+hashList(4)+`}`)
		}, "pre-rotation wants"},
		{"pre-rotation: no new hashes", func(w *writer) {
			w.add(1, first(`,"nextKeyHashes":`+hashList(2), 1)).add(2, `{"updateKeys":`+keyList(2)+`}`)
		}, "pre-rotation wants"},
		{"pre-rotation: empty keys", func(w *writer) {
			w.add(1, first(`,"nextKeyHashes":`+hashList(2), 1)).add(2, `{"updateKeys":[],"nextKeyHashes":[]}`)
		}, "updateKeys: empty"},

		// The document.
		{"no document", func(w *writer) { w.add(1, first("", 1), wrong{before: set("state", `"x"`)}) }, "state: no"},
		{"no id", func(w *writer) { w.add(1, first("", 1), wrong{before: set("state", `{}`)}) }, "state: id: want a string"},
		{"the id of another method", func(w *writer) { w.add(1, first("", 1), wrong{before: inState("id", `"did:web:example.com"`)}) }, "no did:webvh"},
		{"the SCID of another DID", func(w *writer) {
			w.add(1, first("", 1)).add(1, `{}`, wrong{before: inState("id", `"did:webvh:`+hash(nil)+`:example.com"`)})
		}, "id: its SCID is another one"},
		{"moved, not portable", func(w *writer) { w.add(1, first("", 1)).add(1, `{}`, wrong{before: moved}) }, "is not portable"},
		{"moved, without its old name", func(w *writer) { w.add(1, first(`,"portable":true`, 1)).add(1, `{}`, wrong{before: moved}) }, "alsoKnownAs"},
		{"moved", func(w *writer) {
			w.add(1, first(`,"portable":true`, 1))
			w.add(1, `{}`, wrong{before: func(o object) { moved(o); inState("alsoKnownAs", `["`+w.did()+`"]`)(o) }})
		}, ""},
		{"portable later", func(w *writer) { w.add(1, first("", 1)).add(1, `{"portable":true}`) }, "portable: it can be set"},
		{"portable again", func(w *writer) {
			w.add(1, first(`,"portable":true`, 1)).add(1, `{"portable":false}`).add(1, `{"portable":true}`)
		}, "entry 3: parameters: portable"},
		{"of another host", func(w *writer) {
			w.add(1, first("", 1), wrong{before: moved})
		}, "the log is not that of"},

		// The end.
		{"deactivated", func(w *writer) { w.add(1, first("", 1)).add(1, `{"deactivated":true,"updateKeys":[]}`) }, ""},
		{"after its end", func(w *writer) { w.add(1, first("", 1)).add(1, `{"deactivated":true}`).add(1, `{}`) }, "entry 3: the DID was deactivated"},
		{"without keys", func(w *writer) { w.add(1, first("", 1)).add(1, `{"updateKeys":[]}`).add(1, `{}`) }, "entry 3: proof"},
	} {
		t.Run(v.name, func(t *testing.T) {
			w := &writer{t: t}
			v.log(w)
			_, err := Verify(w.log(), nil, w.did(), Want{}, at(100))
			if v.want == "" {
				must(t, err)
			} else if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), v.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want …%s…", err, v.want)
			}
		})
	}
}

// Every changed byte of a log is noticed, and every cut that leaves part of an
// entry.
func TestEveryByteOfALog(t *testing.T) {
	w := (&writer{t: t}).add(1, first("", 1)).add(1, `{}`)
	log := w.log()
	for i := range log {
		changed := bytes.Clone(log)
		changed[i] ^= 1
		if _, err := Verify(changed, nil, w.did(), Want{}, at(100)); err == nil && !bytes.Equal(canonicalLines(changed), canonicalLines(log)) {
			t.Errorf("byte %d changed: accepted", i)
		}
	}
}

// canonicalLines is what is signed of a log: some bytes can be written in two ways.
func canonicalLines(log []byte) []byte {
	var out []byte
	for _, line := range bytes.Split(log, []byte{'\n'}) {
		if o, err := parseObject(line); err == nil {
			out = append(out, o.canonical()...)
		}
	}
	return out
}

// Enough of the witnesses in force have to have approved each entry, or a later
// one that is in the log.
func TestWitnesses(t *testing.T) {
	one := func(w *writer) {
		w.add(1, first(`,"witness":`+witnessList(2, 11, 12, 13), 1)).add(1, `{}`).add(1, `{}`)
	}
	changed := func(w *writer) {
		w.add(1, first(`,"witness":`+witnessList(1, 11), 1)).add(1, `{"witness":`+witnessList(1, 12)+`}`).add(1, `{}`)
	}
	ended := func(w *writer) {
		w.add(1, first(`,"witness":`+witnessList(1, 11), 1)).add(1, `{"witness":{}}`).add(1, `{}`)
	}
	begun := func(w *writer) { w.add(1, first("", 1)).add(1, `{"witness":`+witnessList(1, 11)+`}`) }
	for _, v := range []struct {
		name      string
		log       func(*writer)
		approvals map[int][]byte
		want      string
	}{
		{"all approved", one, map[int][]byte{3: {11, 12, 13}}, ""},
		{"enough approved", one, map[int][]byte{3: {11, 13}}, ""},
		{"each approved by others", one, map[int][]byte{1: {11, 12}, 3: {12, 13}}, ""},
		{"too few", one, map[int][]byte{3: {11}}, "entry 1: witness: 1 of 2"},
		{"the last one by too few", one, map[int][]byte{2: {11, 12}, 3: {13}}, "entry 3: witness: 1 of 2"},
		{"one of them twice", one, map[int][]byte{3: {11, 11}}, "1 of 2"},
		{"by strangers", one, map[int][]byte{3: {21, 22}}, "0 of 2"},
		{"of an entry that is not there", one, map[int][]byte{9: {11, 12}}, "0 of 2"},
		{"none", one, nil, "0 of 2"},
		{"the new list counts afterwards", changed, map[int][]byte{2: {11}, 3: {12}}, ""},
		{"the new list does not count at once", changed, map[int][]byte{1: {11}, 3: {12}}, "entry 2: witness"},
		{"the end is approved", ended, map[int][]byte{2: {11}}, ""},
		{"the end is not approved", ended, map[int][]byte{1: {11}}, "entry 2: witness"},
		{"the first list counts at once", begun, map[int][]byte{}, "entry 2: witness"},
		{"the first list approved", begun, map[int][]byte{2: {11}}, ""},
	} {
		t.Run(v.name, func(t *testing.T) {
			w := &writer{t: t}
			v.log(w)
			_, err := Verify(w.log(), w.approve(v.approvals), w.did(), Want{}, at(100))
			if v.want == "" {
				must(t, err)
			} else if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), v.want) {
				t.Errorf("%v, want …%s…", err, v.want)
			}
		})
	}
	w := &writer{t: t}
	one(w)
	if _, err := Verify(w.log(), []byte(`{"x":1}`), w.did(), Want{}, at(100)); !errors.Is(err, ErrInvalid) {
		t.Errorf("no list: %v", err)
	}
	for _, list := range []string{
		witnessList(0, 11), witnessList(3, 11, 12), witnessList(1), witnessList(1, 11, 11), `{"threshold":1,"witnesses":[{"id":"did:web:x"}]}`, `{"threshold":1.5,"witnesses":[]}`,
		`{"threshold":1}`, `[]`, `{"threshold":1,"witnesses":[],"more":1}`,
	} {
		w := (&writer{t: t}).add(1, first(`,"witness":`+list, 1))
		if _, err := Verify(w.log(), nil, w.did(), Want{}, at(100)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "witness: ") {
			t.Errorf("%s: %v", list, err)
		}
	}
}

func TestLogsThatAreTooLarge(t *testing.T) {
	if _, err := Verify(make([]byte, MaxLog+1), nil, "did:webvh:"+hash(nil)+":example.com", Want{}, at(1)); !errors.Is(err, ErrInvalid) {
		t.Errorf("too many bytes: %v", err)
	}
	if _, err := Verify(bytes.Repeat([]byte("\n"), maxEntries+2), nil, "did:webvh:"+hash(nil)+":example.com", Want{}, at(1)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "entries") {
		t.Errorf("too many entries: %v", err)
	}
}

// Nothing panics, and what is refused is refused as what it is.
func FuzzLog(f *testing.F) {
	w := (&writer{t: f}).add(1, first(`,"portable":true`, 1)).add(1, `{"updateKeys":`+keyList(2)+`}`)
	f.Add(w.log(), []byte("[]"))
	w = (&writer{t: f}).add(1, first(`,"witness":`+witnessList(1, 11), 1))
	f.Add(w.log(), w.approve(map[int][]byte{1: {11}}))
	f.Fuzz(func(t *testing.T, log, approvals []byte) {
		all, err := readLog(log, at(100))
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		r, err := Verify(log, approvals, all[0].did, Want{}, at(100))
		if err == nil && (r.VersionID == "" || len(r.Keys(Assertion)) > len(r.Document)) {
			t.Errorf("resolved as %+v", r)
		}
	})
}

// A DID is taken apart into one address, and never into one inside.
func FuzzDID(f *testing.F) {
	for _, did := range []string{"did:webvh:" + hash(nil) + ":example.com", "did:webvh:" + hash(nil) + ":example.com%3A8443:a:b", "did:key:" + multikey(keyOf(1))} {
		f.Add(did)
	}
	f.Fuzz(func(t *testing.T, did string) {
		w, err := parseWebVH(did)
		if err != nil {
			return
		}
		if u := w.url("did.jsonl"); strings.ContainsAny(strings.TrimPrefix(u, "https://"), "@?#\\% ") || strings.Contains(u, "..") && strings.Contains(u, "/../") {
			t.Errorf("%q leads to %q", did, u)
		}
	})
}
