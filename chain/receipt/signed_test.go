package receipt

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

var update = flag.Bool("update", false, "write testdata anew")

// example is a receipt with everything in it: a peer ran the request.
func example(t testing.TB) (chain.Key, Receipt) {
	t.Helper()
	seeker, err := chain.NewKey(zeros{})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := chain.NewKey(ones{})
	if err != nil {
		t.Fatal(err)
	}
	r := Receipt{TransactionID: "T1", MessageID: MessageID("T1", RoleRoot), SeekerDID: seeker.PeerID().DID(), AgentDID: agent.PeerID().DID(),
		Capability: "llm.chat", RequestHash: sha("question"), ResponseHash: sha("answer"), TokenID: "jti-1",
		RequestAt: time.UnixMilli(1777629600000), ResponseAt: time.UnixMilli(1777629601042), Status: OK, Executor: &Executor{Nonce: "N1"}}
	if r.Executor.Signature, err = r.statement().Sign(agent); err != nil {
		t.Fatal(err)
	}
	return seeker, r
}

type ones struct{}

func (ones) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 1
	}
	return len(b), nil
}

// The bytes of a receipt are fixed: another implementation makes the same.
func TestReceiptVector(t *testing.T) {
	key, r := example(t)
	s, err := r.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/receipt.json"
	if *update {
		if err := os.WriteFile(file, s.Line, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(want, s.Line) {
		t.Errorf("got  %s\nwant %s, %v", s.Line, want, err)
	}
	public, _ := key.PeerID().Public()
	text, _ := Canonical([]byte(strings.Replace(string(want), `,"signature":"`+lastText(t, want, "signature")+`"`, "", 1)))
	if !ed25519.Verify(public, append([]byte("chordwheel-receipt-v1\n"), text...), s.signature) {
		t.Error("the signature is over other bytes than the prefix and the form without it")
	}
	if err := s.Verify(public); err != nil {
		t.Error(err)
	}
}

func lastText(t *testing.T, b []byte, name string) string {
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m[name].(string)
}

// RFC 8032, section 7.1, test 3, with the library that signs here.
func TestSignaturesAreThoseOfRFC8032(t *testing.T) {
	seed := unhex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7")
	key := ed25519.NewKeyFromSeed(seed)
	want := unhex("6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a")
	if got := ed25519.Sign(key, unhex("af82")); !bytes.Equal(got, want) {
		t.Errorf("%x", got)
	}
}

func unhex(s string) []byte {
	var b []byte
	for i := 0; i < len(s); i += 2 {
		v := strings.IndexByte("0123456789abcdef", s[i])<<4 | strings.IndexByte("0123456789abcdef", s[i+1])
		b = append(b, byte(v))
	}
	return b
}

func TestAnySpellingIsTheSameReceipt(t *testing.T) {
	key, r := example(t)
	s, _ := r.Sign(key)
	var indented bytes.Buffer
	if err := json.Indent(&indented, s.Line, " ", "\t"); err != nil {
		t.Fatal(err)
	}
	again, err := Parse(indented.Bytes())
	public, _ := key.PeerID().Public()
	if err != nil || !bytes.Equal(again.Line, s.Line) || again.Verify(public) != nil {
		t.Errorf("%s, %v", again.Line, err)
	}
}

// Whatever is altered shows, and a member that a later version adds counts too.
func TestEveryAlteredMemberFails(t *testing.T) {
	key, r := example(t)
	s, _ := r.Sign(key)
	public, _ := key.PeerID().Public()
	changes := map[string]any{
		"transaction_id": "T2", "message_id": MessageID("T1", "job/1"), "seeker_did": r.AgentDID, "agent_did": r.SeekerDID, "capability": "llm.t1",
		"request_hash": sha("x"), "response_hash": sha("x"), "token_id": "", "request_at": "2026-05-01T10:00:00.001Z", "response_at": "2026-05-01T10:00:09.000Z",
		"status": "rejected", "executor": map[string]string{"nonce": "N2", "signature": r.Executor.Signature}, "extra": 1,
		"version": 2, "signature": "A" + lastText(t, s.Line, "signature")[1:],
	}
	for name, value := range changes {
		var m map[string]any
		if err := json.Unmarshal(s.Line, &m); err != nil {
			t.Fatal(err)
		}
		m[name] = value
		b, _ := json.Marshal(m)
		altered, err := Parse(b)
		if err == nil {
			err = altered.Verify(public)
		}
		if err == nil {
			t.Errorf("%s was altered, and nothing shows", name)
		}
	}
	var members map[string]any
	_ = json.Unmarshal(s.Line, &members)
	for name := range members {
		if _, ok := changes[name]; !ok {
			t.Errorf("no case alters %s", name)
		}
	}
	if other, _ := chain.NewKey(nil); true {
		p, _ := other.PeerID().Public()
		if err := s.Verify(p); !errors.Is(err, ErrSigned) {
			t.Errorf("another's key: %v", err)
		}
		if _, err := r.Sign(other); !errors.Is(err, ErrReceipt) {
			t.Errorf("another's receipt was signed: %v", err)
		}
	}
}

// The executor's statement is checked on its own: the seeker cannot make one up.
func TestAnExecutorsStatementInAReceipt(t *testing.T) {
	key, r := example(t)
	public, _ := key.PeerID().Public()
	r.ResponseHash = sha("another answer")
	s, err := r.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(public); !errors.Is(err, ErrSignature) {
		t.Errorf("an answer that the executor did not sign: %v", err)
	}
	r.AgentDID = "did:web:example.com"
	s, _ = r.Sign(key)
	if err := s.Verify(public); !errors.Is(err, ErrAgent) {
		t.Errorf("an executor without a key in its name: %v", err)
	}
}

func TestWhatIsNoReceipt(t *testing.T) {
	key, r := example(t)
	s, _ := r.Sign(key)
	for name, c := range map[string]struct{ from, to, want string }{
		"not JSON":            {"{", "", "RFC 8785"},
		"a list":              {string(s.Line), "[]", "object"},
		"null":                {string(s.Line), "null", "object"},
		"another version":     {`"version":1`, `"version":2`, "version"},
		"a version in quotes": {`"version":1`, `"version":"1"`, "version"},
		"a name in capitals":  {`"status"`, `"Status"`, "status"},
		"a number for a text": {`"token_id":"jti-1"`, `"token_id":1`, "token_id"},
		"null for a text":     {`"token_id":"jti-1"`, `"token_id":null`, "token_id"},
		"a blank":             {`"T1"`, `"T 1"`, "transaction_id"},
		"no transaction":      {`"T1"`, `""`, "transaction_id"},
		"no hash":             {"sha256:", "md5:", "hash"},
		"a status of its own": {`"ok"`, `"fine"`, "status"},
		"a time without ms":   {"10:00:00.000Z", "10:00:00Z", "request_at"},
		"a time elsewhere":    {"10:00:00.000Z", "10:00:00.000+00:00", "request_at"},
		"no DID":              {`"seeker_did":"did:`, `"seeker_did":"x:`, "seeker_did"},
		"a short signature":   {`"signature":"` + lastText(t, s.Line, "signature"), `"signature":"AAAA`, "signature"},
		"executor of another": {`"nonce":"N1"`, `"nonce":"N1","more":"x"`, "executor"},
		"a member twice":      {`"version":1`, `"version":1,"version":1`, "RFC 8785"},
		"too long":            {`"T1"`, `"` + strings.Repeat("x", MaxReceipt) + `"`, "bytes"},
	} {
		_, err := Parse([]byte(strings.Replace(string(s.Line), c.from, c.to, 1)))
		if !errors.Is(err, ErrReceipt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReceipt(f *testing.F) {
	key, r := example(f)
	s, err := r.Sign(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.Line)
	f.Add([]byte(`{"version":1,"executor":{}}`))
	public, _ := key.PeerID().Public()
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrReceipt) {
				t.Errorf("another error: %v", err)
			}
			return
		}
		again, err := Parse(got.Line)
		if err != nil || !bytes.Equal(again.Line, got.Line) {
			t.Errorf("its form is not its form: %v", err)
		}
		if got.Verify(public) == nil && !bytes.Equal(got.Line, s.Line) {
			t.Errorf("a receipt that nobody signed: %s", b)
		}
	})
}
