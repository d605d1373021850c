package receipt

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
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

// RFC 8032, section 7.1, with the library that signs here.
func TestSignaturesAreThoseOfRFC8032(t *testing.T) {
	for name, v := range map[string]struct{ seed, public, message, signature string }{
		"test 1": {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
			"e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"},
		"test 2": {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb", "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
			"92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"},
		"test 3": {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7", "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
			"6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"},
		"test SHA(abc)": {"833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42", "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
			"ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
			"dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704"},
	} {
		key, signature := ed25519.NewKeyFromSeed(unhex(v.seed)), unhex(v.signature)
		if got := ed25519.Sign(key, unhex(v.message)); !bytes.Equal(got, signature) {
			t.Errorf("%s: %x", name, got)
		}
		if public := key.Public().(ed25519.PublicKey); !bytes.Equal(public, unhex(v.public)) || !ed25519.Verify(public, unhex(v.message), signature) {
			t.Errorf("%s: %x", name, public)
		}
	}
}

// A signature over the very text of a receipt, made for another purpose, is no receipt's:
// neither a proof of control nor an executor's statement can become one.
func TestASignatureForAnotherPurposeIsNoReceipts(t *testing.T) {
	key, r := example(t)
	s, err := r.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	public, _ := key.PeerID().Public()
	signature := lastText(t, s.Line, "signature")
	text, err := Canonical([]byte(strings.Replace(string(s.Line), `,"signature":"`+signature+`"`, "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	for prefix, holds := range map[chain.Prefix]bool{chain.PrefixReceipt: true, chain.PrefixControl: false, chain.PrefixExec: false} {
		raw, err := key.SignText(prefix, text)
		if err != nil {
			t.Fatal(err)
		}
		other, err := Parse([]byte(strings.Replace(string(s.Line), signature, base64.RawURLEncoding.EncodeToString(raw), 1)))
		if err != nil || (other.Verify(public) == nil) != holds {
			t.Errorf("%q: %v, %v", prefix, err, other.Verify(public))
		}
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

// Whoever signs and whoever ran it is named by a DID, in the one reading of all.
func TestAReceiptNamesDIDs(t *testing.T) {
	for why, s := range chaintest.NoDIDs() {
		for name, change := range map[string]func(*Receipt){
			"seeker_did": func(r *Receipt) { r.SeekerDID = s }, "agent_did": func(r *Receipt) { r.AgentDID = s },
		} {
			key, r := example(t)
			r.Executor = nil
			good, err := r.Sign(key)
			if err != nil {
				t.Fatal(err)
			}
			line := strings.Replace(string(good.Line), `"`+name+`":"`+lastText(t, good.Line, name)+`"`, `"`+name+`":`+strconv.Quote(s), 1)
			if _, err := Parse([]byte(line)); !errors.Is(err, ErrReceipt) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %q: %v", why, s, err)
			}
			change(&r)
			if _, err := r.Sign(key); !errors.Is(err, ErrReceipt) {
				t.Errorf("%s: %q is signed: %v", why, s, err)
			}
		}
	}
}

func TestAGlance(t *testing.T) {
	key, r := example(t)
	s, _ := r.Sign(key)
	if id, at, err := Glance(s.Line); err != nil || id != r.ID() || !at.Equal(r.ResponseAt) {
		t.Errorf("%s, %s, %v", id, at, err)
	}
	for name, line := range map[string][]byte{
		"no JSON": s.Line[1:], "a list": []byte("[]"), "no name": bytes.Replace(s.Line, []byte(`"T1"`), []byte(`""`), 1), "no time": bytes.Replace(s.Line, []byte(`.042Z`), []byte(`Z`), 1),
		"another's name": bytes.Replace(s.Line, []byte(`"message_id":"`), []byte(`"message_id":"x`), 1),
	} {
		if id, _, err := Glance(line); !errors.Is(err, ErrReceipt) {
			t.Errorf("%s: %s, %v", name, id, err)
		}
	}
}

func BenchmarkReading(b *testing.B) {
	key, r := example(b)
	s, _ := r.Sign(key)
	for name, read := range map[string]func() error{
		"whole":       func() error { _, err := Parse(s.Line); return err },
		"at a glance": func() error { _, _, err := Glance(s.Line); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
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
		if _, _, err := Glance(b); err != nil && !errors.Is(err, ErrReceipt) {
			t.Errorf("at a glance, another error: %v", err)
		}
		got, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrReceipt) {
				t.Errorf("another error: %v", err)
			}
			return
		}
		if id, at, err := Glance(got.Line); err != nil || id != got.ID() || !at.Equal(got.ResponseAt) {
			t.Errorf("at a glance it is %s of %s, %v", id, at, err)
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
