package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"pgregory.net/rapid"
)

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func TestRequestHash(t *testing.T) {
	for name, c := range map[string]struct{ body, form string }{
		"spaces and order do not count":          {`{ "b" : 2, "a": 1.0 }`, `{"a":1,"b":2}`},
		"its own member is left out":             {`{"a":1,"request_hash":"sha256:00","b":2}`, `{"a":1,"b":2}`},
		"also as the only one":                   {`{"request_hash":{"any":[1]}}`, `{}`},
		"also when escaped":                      {`{"request\u005fhash":1,"z":0}`, `{"z":0}`},
		"but not deeper":                         {`{"a":{"request_hash":1}}`, `{"a":{"request_hash":1}}`},
		"nor in a list":                          {`[{"request_hash":1}]`, `[{"request_hash":1}]`},
		"every other field counts, known or not": {`{"x-unknown":[1,{"y":null}],"messages":[]}`, `{"messages":[],"x-unknown":[1,{"y":null}]}`},
		"a document that is no object":           {`"text"`, `"text"`},
	} {
		if got, err := RequestHash([]byte(c.body)); err != nil || got != sha(c.form) {
			t.Errorf("%s: %s, %v, want the hash of %s", name, got, err, c.form)
		}
	}
	for _, body := range []string{"", "{", `{"request_hash":1,"request_hash":2}`, `{"request_hash":[}`, `{"a":1e999}`} {
		if got, err := RequestHash([]byte(body)); !errors.Is(err, ErrJSON) {
			t.Errorf("%q: %s, %v", body, got, err)
		}
	}
}

func TestParseHash(t *testing.T) {
	if err := ParseHash(sha("x")); err != nil {
		t.Error(err)
	}
	for _, s := range []string{"", "sha256:", strings.ToUpper(sha("x")), sha("x")[7:], sha("x") + "0", "sha512:" + sha("x")[7:], "sha256:" + strings.Repeat("g", 64)} {
		if err := ParseHash(s); !errors.Is(err, ErrHash) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

const calls = `[ {"type":"function", "id":"c1","function":{"name":"f","arguments":"{\"a\": 1}"}} ]`
const callsForm = `[{"function":{"arguments":"{\"a\": 1}","name":"f"},"id":"c1","type":"function"}]`

func TestResponseHash(t *testing.T) {
	for name, c := range map[string]struct{ text, calls, form string }{
		"text":                 {"grüße", "", "grüße"},
		"nothing":              {"", "", ""},
		"no calls":             {"hi", " [ ] ", "hi"},
		"null calls":           {"hi", "null", "hi"},
		"calls":                {"", calls, "\n" + callsForm},
		"text and calls":       {"hi", calls, "hi\n" + callsForm},
		"calls without a form": {"hi", `[{"a":1,"a":2}]`, "hi\n" + `[{"a":1,"a":2}]`},
	} {
		if got := ResponseHash(c.text, []byte(c.calls)); got != sha(c.form) {
			t.Errorf("%s: %s, want the hash of %q", name, got, c.form)
		}
	}
	if got := OutputHash([]byte(`{"b":1,"a":2}`)); got != sha(`{"a":2,"b":1}`) {
		t.Error(got)
	}
	if got := OutputHash([]byte(`{"a":1e999}`)); got != sha(`{"a":1e999}`) {
		t.Error(got)
	}
}

func TestResponseOfAnAnswerThatPasses(t *testing.T) {
	event := func(delta string) string { return `{"choices":[{"index":0,"delta":` + delta + `}]}` }
	for name, c := range map[string]struct {
		primitive chain.Primitive
		stream    bool
		pieces    []string
		form      string
	}{
		"a plain chat":            {chain.LLMChat, false, []string{`{"choices":[{"index":0,"message":{"role":"assistant","content":"hello"}}],"usage":{}}`}, "hello"},
		"a plain chat with calls": {chain.LLMChat, false, []string{`{"choices":[{"message":{"content":null,"tool_calls":` + calls + `}}]}`}, "\n" + callsForm},
		"a stream": {
			chain.LLMChat, true,
			[]string{event(`{"role":"assistant","content":""}`), event(`{"content":"he"}`), event(`{"content":"llo \u00e9"}`), `{"choices":[],"usage":{"total_tokens":3}}`},
			"hello é",
		},
		"reasoning is not the answer": {chain.LLMChat, true, []string{event(`{"reasoning_content":"hm"}`), event(`{"content":"x"}`)}, "x"},
		"calls in pieces that interleave": {
			chain.LLMChat, true,
			[]string{
				event(`{"content":"t"}`),
				event(`{"tool_calls":[{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":""}}]}`),
				event(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\""}}]}`),
				event(`{"tool_calls":[{"index":1,"function":{"arguments":"{}"}},{"index":0,"function":{"arguments":": 1}"}}]}`),
			},
			"t\n" + `[{"function":{"arguments":"{\"a\": 1}","name":"f"},"id":"c1","type":"function"},{"function":{"arguments":"{}","name":"g"},"id":"c2","type":"function"}]`,
		},
		"the first choice counts":       {chain.LLMChat, true, []string{`{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"yes"}}]}`}, "yes"},
		"what is no event adds nothing": {chain.LLMChat, true, []string{`<html>`, `[]`, `{"choices":7}`, `null`, event(`{"content":"x"}`)}, "x"},
		"content in parts":              {chain.LLMChat, false, []string{`{"choices":[{"message":{"content":[ {"type":"text"} ]}}]}`}, `[{"type":"text"}]`},
		"calls of any index":            {chain.LLMChat, true, []string{event(`{"tool_calls":[{"index":-1,"id":"a"},{"index":2000000000,"id":"b"}]}`)}, ""},
		"other work":                    {"embed.text", false, []string{`{"b":[1.0],"a":2}`}, `{"a":2,"b":[1]}`},
		"other work, no answer":         {"embed.text", false, nil, ""},
		"a tier":                        {"llm.t3", false, []string{`{"choices":[{"message":{"content":"t"}}]}`}, "t"},
	} {
		r := NewResponse(c.primitive, c.stream)
		for _, p := range c.pieces {
			before := []byte(p)
			r.Add(before)
			_ = r.Hash() // a look in between changes nothing
			if string(before) != p {
				t.Errorf("%s: the piece was changed", name)
			}
		}
		if got := r.Hash(); got != sha(c.form) {
			t.Errorf("%s: %s, want the hash of %q", name, got, c.form)
		}
	}
}

// However a text is cut, its hash is that of the whole.
func TestCutsOfAStreamDoNotCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.String()).Draw(t, "parts")
		r := NewResponse(chain.LLMChat, true)
		for _, p := range parts {
			b, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": map[string]any{"content": p}}}})
			r.Add(b)
		}
		if r.Hash() != ResponseHash(strings.Join(parts, ""), nil) {
			t.Fatal("another hash")
		}
	})
}

func TestCallsOfToolsAreBounded(t *testing.T) {
	r := NewResponse(chain.LLMChat, true)
	piece := []byte(`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"` + strings.Repeat("a", 1<<20) + `"}}]}}]}`)
	for range 8 {
		r.Add(piece)
	}
	if r.kept > maxCallBytes+1<<20 {
		t.Errorf("%d bytes are kept", r.kept)
	}
}

func FuzzResponse(f *testing.F) {
	f.Add([]byte(`{"choices":[{"index":0,"delta":{"content":"a","tool_calls":[{"index":3,"function":{"arguments":"x"}}]}}]}`), true)
	f.Add([]byte(`{"choices":[{"message":{"tool_calls":[1]}}]}`), false)
	f.Fuzz(func(t *testing.T, data []byte, stream bool) {
		for _, p := range []chain.Primitive{chain.LLMChat, "embed.text"} {
			r := NewResponse(p, stream)
			before := bytes.Clone(data)
			r.Add(data)
			r.Add(data)
			if h := r.Hash(); ParseHash(h) != nil || h != r.Hash() || !bytes.Equal(before, data) {
				t.Fatal(h)
			}
		}
	})
}

// zeros is a source of keys that are the same in every run.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func statement(t *testing.T) (chain.Key, Statement) {
	key, err := chain.NewKey(zeros{})
	if err != nil {
		t.Fatal(err)
	}
	return key, Statement{
		TransactionID: "t1", Nonce: "n1", SeekerDID: "did:key:z6MkSeeker", AgentDID: key.PeerID().DID(),
		RequestHash: sha("in"), ResponseHash: sha("out"), TokenID: "",
	}
}

// The bytes of a statement are fixed: another implementation signs the same.
func TestStatementVector(t *testing.T) {
	key, s := statement(t)
	const want = "{\"agent_did\":\"did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp\",\"nonce\":\"n1\",\"purpose\":\"exec\"," +
		"\"request_hash\":\"sha256:58f2f1ae69b8fb8f15dbb2f3b7eb3ef3b8ddd2cb1a0bcc1dcb0b6e5c6ff1a6bd\"," +
		"\"response_hash\":\"sha256:\",\"seeker_did\":\"did:key:z6MkSeeker\",\"token_id\":\"\",\"transaction_id\":\"t1\"}"
	s.RequestHash, s.ResponseHash = "sha256:58f2f1ae69b8fb8f15dbb2f3b7eb3ef3b8ddd2cb1a0bcc1dcb0b6e5c6ff1a6bd", "sha256:"
	if got := string(s.text()); got != want {
		t.Errorf("%s", got)
	}
	signature, err := s.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	public, _ := key.PeerID().Public()
	if err != nil || !ed25519.Verify(public, []byte("chordwheel-exec-v1\n"+want), raw) {
		t.Error("the signature is over other bytes")
	}
}

func TestStatementIsVerified(t *testing.T) {
	key, s := statement(t)
	other, _ := chain.NewKey(nil)
	signature, err := s.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(key.PeerID(), signature); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sign(other); !errors.Is(err, ErrAgent) {
		t.Errorf("another's name was signed: %v", err)
	}
	if err := s.Verify(other.PeerID(), signature); !errors.Is(err, ErrAgent) {
		t.Errorf("for another executor: %v", err)
	}
	for _, bad := range []string{"", "!", signature + "=", signature[:85], signature[1:] + "A", signature[:len(signature)-1] + "_", signature + "\n", signature[:40] + "\r\n" + signature[40:]} {
		if err := s.Verify(key.PeerID(), bad); !errors.Is(err, ErrSignature) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for name, change := range map[string]func(*Statement){
		"transaction": func(s *Statement) { s.TransactionID = "t2" }, "nonce": func(s *Statement) { s.Nonce = "n2" },
		"seeker": func(s *Statement) { s.SeekerDID = other.PeerID().DID() }, "request": func(s *Statement) { s.RequestHash = sha("x") },
		"response": func(s *Statement) { s.ResponseHash = sha("x") }, "token": func(s *Statement) { s.TokenID = "j" },
	} {
		changed := s
		change(&changed)
		if err := changed.Verify(key.PeerID(), signature); !errors.Is(err, ErrSignature) {
			t.Errorf("with another %s: %v", name, err)
		}
	}
	envelope, err := key.Seal(chain.DomainExecResult, s.text())
	if err != nil || s.Verify(key.PeerID(), base64.RawURLEncoding.EncodeToString(envelope)) == nil {
		t.Error("an envelope passes for a statement")
	}
}

func BenchmarkRequestHash(b *testing.B) {
	for name, body := range map[string][]byte{
		"1KiB": []byte(`{"model":"auto","messages":[{"role":"user","content":"` + strings.Repeat("word ", 200) + `"}],"temperature":0.7}`),
		"1MiB": []byte(`{"model":"auto","messages":[{"role":"user","content":"` + strings.Repeat("word ", 200000) + `"}],"temperature":0.7}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := RequestHash(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
