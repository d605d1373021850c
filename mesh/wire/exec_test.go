package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

func TestExecRequestsAreSigned(t *testing.T) {
	key, err := chain.NewKey(rand.New(rand.NewSource(1)))
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := wire.SealExecRequest(key, *request())
	if err != nil {
		t.Fatal(err)
	}
	from, got, err := wire.OpenExecRequest(envelope)
	if err != nil || from != key.PeerID() || !reflect.DeepEqual(&got, request()) {
		t.Fatalf("%s %+v %v", from, got, err)
	}
	path := filepath.Join("testdata", "exec_request_envelope.hex")
	if *update {
		if err := os.WriteFile(path, []byte(hex.EncodeToString(envelope)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(text)) != hex.EncodeToString(envelope) {
		t.Errorf("the envelope's bytes changed: %v", err)
	}
	payload, err := wire.Encode(request())
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(d chain.Domain, payload []byte) []byte {
		b, err := key.Seal(d, payload)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	changed := bytes.Clone(envelope)
	changed[len(changed)-80] ^= 1
	late := *request()
	late.Hop = 2
	hop, err := chain.Marshal(&late)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		envelope []byte
		want     error
	}{
		"nothing":            {nil, chain.ErrEncoding},
		"one bit":            {changed, chain.ErrSignature},
		"a membership":       {sealed(chain.DomainMembership, payload), chain.ErrDomain},
		"a result":           {sealed(chain.DomainExecResult, payload), chain.ErrDomain},
		"a broken payload":   {sealed(chain.DomainExecRequest, payload[1:]), chain.ErrEncoding},
		"a second hop":       {sealed(chain.DomainExecRequest, hop), wire.ErrMessage},
		"a byte behind":      {append(bytes.Clone(envelope), 0), chain.ErrEncoding},
		"thirty-three KiB":   {make([]byte, 33<<10), wire.ErrTooLarge},
		"an empty signature": {envelope[:len(envelope)-64], chain.ErrEncoding},
	} {
		if from, got, err := wire.OpenExecRequest(c.envelope); !errors.Is(err, c.want) || from != "" || !reflect.DeepEqual(got, wire.ExecRequest{}) {
			t.Errorf("%s: %s, %v", name, from, err)
		}
	}
	if _, err := wire.SealExecRequest(key, late); !errors.Is(err, wire.ErrMessage) {
		t.Errorf("what nobody accepts was signed: %v", err)
	}
	if _, err := wire.SealExecRequest(chain.Key{}, *request()); err == nil {
		t.Error("nobody signed it")
	}
}

// Each field's last value that passes and first that does not.
func TestExecCaps(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	ask := func(change func(*wire.ExecRequest, int)) func(int) wire.Message {
		return func(n int) wire.Message { r := request(); change(r, n); return r }
	}
	open := func(change func(*wire.ExecOpen, int)) func(int) wire.Message {
		return func(n int) wire.Message { o := &wire.ExecOpen{Request: []byte("r")}; change(o, n); return o }
	}
	trailer := func(change func(*wire.ExecTrailer, int)) func(int) wire.Message {
		return func(n int) wire.Message {
			r := &wire.ExecTrailer{Class: chain.OK, Answer: &wire.ExecAnswer{Status: 400}}
			change(r, n)
			return r
		}
	}
	for name, c := range map[string]struct {
		most int
		make func(int) wire.Message
	}{
		"request envelope": {32 << 10, open(func(o *wire.ExecOpen, n int) { o.Request = make([]byte, n) })},
		"membership":       {16 << 10, open(func(o *wire.ExecOpen, n int) { o.Membership = make([]byte, n) })},
		"head":             {4096, open(func(o *wire.ExecOpen, n int) { o.Head = make([]byte, n) })},
		"body":             {chain.MaxBodyBytes, open(func(o *wire.ExecOpen, n int) { o.Body = make([]byte, n) })},
		"extension":        {64 << 10, open(func(o *wire.ExecOpen, n int) { o.Extension = make([]byte, n) })},
		"membership hash":  {32, ask(func(r *wire.ExecRequest, n int) { r.Membership = make([]byte, n) })},
		"head hash":        {32, ask(func(r *wire.ExecRequest, n int) { r.Head = make([]byte, n) })},
		"extension hash":   {32, ask(func(r *wire.ExecRequest, n int) { r.Extension = make([]byte, n) })},
		"payload hash":     {32, ask(func(r *wire.ExecRequest, n int) { r.PayloadHash = make([]byte, n) })},
		"payload":          {wire.MaxExecPayload, ask(func(r *wire.ExecRequest, n int) { r.PayloadBytes = int64(n) })},
		"option":           {256, ask(func(r *wire.ExecRequest, n int) { r.Option = chain.OptionID(text(n)) })},
		"transaction":      {128, ask(func(r *wire.ExecRequest, n int) { r.TransactionID = text(n) })},
		"nonce":            {64, ask(func(r *wire.ExecRequest, n int) { r.Nonce = text(n) })},
		"request hash":     {128, ask(func(r *wire.ExecRequest, n int) { r.RequestHash = text(n) })},
		"token ID":         {256, ask(func(r *wire.ExecRequest, n int) { r.TokenID = text(n) })},
		"token":            {16 << 10, ask(func(r *wire.ExecRequest, n int) { r.Token = make([]byte, n) })},
		"request ID":       {128, ask(func(r *wire.ExecRequest, n int) { r.RequestID = text(n) })},
		"model":            {256, ask(func(r *wire.ExecRequest, n int) { r.Model = text(n) })},
		"attempts":         {256, ask(func(r *wire.ExecRequest, n int) { r.Attempts = n })},
		"hop":              {1, ask(func(r *wire.ExecRequest, n int) { r.Hop = n })},
		"data":             {16 << 10, func(n int) wire.Message { return &wire.ExecData{Bytes: make([]byte, n)} }},
		"used":             {256, trailer(func(r *wire.ExecTrailer, n int) { r.Used = n })},
		"status":           {999, trailer(func(r *wire.ExecTrailer, n int) { r.Status = n })},
		"answer":           {64 << 10, trailer(func(r *wire.ExecTrailer, n int) { r.Answer.Body = make([]byte, n) })},
		"content type":     {256, trailer(func(r *wire.ExecTrailer, n int) { r.Answer.ContentType = text(n) })},
		"response hash":    {128, trailer(func(r *wire.ExecTrailer, n int) { r.ResponseHash = text(n) })},
		"signature":        {512, trailer(func(r *wire.ExecTrailer, n int) { r.Signature = make([]byte, n) })},
		"its option":       {256, trailer(func(r *wire.ExecTrailer, n int) { r.Option = chain.OptionID(text(n)) })},
		"code":             {64, func(n int) wire.Message { return &wire.ExecRefusal{Code: wire.ExecCode(text(n))} }},
		"boot":             {wire.MaxBoot, func(n int) wire.Message { return &wire.ExecRefusal{Code: "c", Boot: text(n)} }},
		"message":          {1024, func(n int) wire.Message { return &wire.ExecRefusal{Code: "c", Message: text(n)} }},
	} {
		for n, ok := range map[int]bool{c.most: true, c.most + 1: false, 3*c.most + 1: false} {
			if err := c.make(n).Validate(); (err == nil) != ok || err != nil && !errors.Is(err, wire.ErrMessage) {
				t.Errorf("%s of %d: %v", name, n, err)
			}
		}
	}
	for name, change := range map[string]func(*wire.ExecRequest){
		"no executor":      func(r *wire.ExecRequest) { r.Executor = "" },
		"no body":          func(r *wire.ExecRequest) { r.Body = "" },
		"no scope":         func(r *wire.ExecRequest) { r.Scope = "" },
		"short nonce":      func(r *wire.ExecRequest) { r.Nonce = "123" },
		"a line in an id":  func(r *wire.ExecRequest) { r.RequestID = "a\nb" },
		"negative payload": func(r *wire.ExecRequest) { r.PayloadBytes = -1 },
		"no attempts":      func(r *wire.ExecRequest) { r.Attempts = 0 },
		"minus attempts":   func(r *wire.ExecRequest) { r.Attempts = -8 },
		"no budget":        func(r *wire.ExecRequest) { r.Budget = 0 },
		"endless budget":   func(r *wire.ExecRequest) { r.Budget = 1 << 60 },
		"endless request":  func(r *wire.ExecRequest) { r.Expires = 1 << 60 },
		"no hop":           func(r *wire.ExecRequest) { r.Hop = 0 },
		// No receipt can be made of these, and the work would have none.
		"a blank in the transaction": func(r *wire.ExecRequest) { r.TransactionID = "a b" },
		"another script in it":       func(r *wire.ExecRequest) { r.TransactionID = "é" },
		"a blank in the nonce":       func(r *wire.ExecRequest) { r.Nonce = "sixteen bytes and more" },
		"another script there":       func(r *wire.ExecRequest) { r.Nonce = strings.Repeat("é", 10) },
		"a blank in the token's ID":  func(r *wire.ExecRequest) { r.TokenID = "a b" },

		"no DID asks":     func(r *wire.ExecRequest) { r.Seeker = "did:key:z6Mk" },
		"no DID is asked": func(r *wire.ExecRequest) { r.Agent = "did:web:" + text(chain.MaxDIDBytes) },
	} {
		r := request()
		if change(r); !errors.Is(r.Validate(), wire.ErrMessage) {
			t.Errorf("%s passes", name)
		}
	}
}

// fail frames of an exec stream that every submitter refuses.
func TestExecFailVectors(t *testing.T) {
	type tree = map[string]any
	for name, v := range map[string]tree{
		"nothing":             {},
		"of_a_later_version":  {"pause": tree{}},
		"two_kinds":           {"data": tree{}, "trailer": tree{"class": "ok"}},
		"unknown_class":       {"trailer": tree{"class": "melted"}},
		"no_class":            {"trailer": tree{}},
		"negative_tokens":     {"trailer": tree{"class": "ok", "input": -1}},
		"negative_used":       {"trailer": tree{"class": "ok", "used": -1}},
		"count_over_int64":    {"trailer": tree{"class": "ok", "output": uint64(1) << 63}},
		"no_code":             {"refusal": tree{"message": "no"}},
		"blank_in_boot":       {"refusal": tree{"code": "stale_nonce", "boot": "two words"}},
		"escape_in_message":   {"refusal": tree{"code": "busy", "message": "\x1b[2J"}},
		"empty_part":          {"data": tree{"part": true}},
		"part_that_is_whole":  {"data": tree{"bytes": []byte("a"), "part": true, "more": true}},
		"text_for_bytes":      {"data": tree{"bytes": "a"}},
		"number_for_a_string": {"trailer": tree{"class": 1}},
	} {
		b, err := chain.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "exec_fail_"+name+".hex")
		if *update {
			if err := os.WriteFile(path, []byte(hex.EncodeToString(b)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(text)) != hex.EncodeToString(b) {
			t.Errorf("%s: the file has other bytes, %v", name, err)
		}
		err = wire.Decode(b, new(wire.ExecReply))
		if !errors.Is(err, wire.ErrMessage) && !errors.Is(err, chain.ErrEncoding) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A nonce says which boot of the executor it is for; whatever boot that names itself, the
// nonce is one that a request may have.
func TestANonceIsOfABoot(t *testing.T) {
	const random = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for boot, of := range map[string]bool{"B": true, "BOOT": true, strings.Repeat("b", wire.MaxBoot): true, strings.Repeat("b", wire.MaxBoot+1): false, "": false, "two words": false, "é": false} {
		r := request()
		r.Nonce = wire.ExecNonce(boot, random)
		if err := r.Validate(); err != nil || r.OfBoot(boot) != of {
			t.Errorf("%q: nonce %q, %v", boot, r.Nonce, err)
		}
		if !strings.HasSuffix(r.Nonce, random) || r.OfBoot(boot+".") || r.OfBoot("b"+boot) || r.OfBoot(strings.TrimSuffix(r.Nonce, random)) {
			t.Errorf("%q: nonce %q", boot, r.Nonce)
		}
	}
}

func TestExecRefusals(t *testing.T) {
	err := fmt.Errorf("attempt 2: %w", wire.RefuseExec(wire.ExecBusy, "%d jobs run", 2))
	var no *wire.ExecRefusal
	if !errors.Is(err, &wire.ExecRefusal{Code: wire.ExecBusy}) || errors.Is(err, &wire.ExecRefusal{Code: wire.ExecRevoked}) || !errors.As(err, &no) {
		t.Errorf("the code of %v is lost", err)
	}
	if got := no.Error(); got != "the executor refused: 2 jobs run (busy)" {
		t.Error(got)
	}
}

func FuzzExecEnvelope(f *testing.F) {
	key, err := chain.NewKey(rand.New(rand.NewSource(1)))
	if err != nil {
		f.Fatal(err)
	}
	envelope, err := wire.SealExecRequest(key, *request())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(envelope)
	f.Fuzz(func(t *testing.T, b []byte) {
		from, r, err := wire.OpenExecRequest(b)
		if err != nil {
			return
		}
		if from == "" || r.Validate() != nil {
			t.Fatalf("accepted from %q: %v", from, r.Validate())
		}
	})
}

func BenchmarkExecFrames(b *testing.B) {
	all := samples()
	for _, name := range []string{"exec_open", "exec_request", "exec_data", "exec_trailer"} {
		encoded, err := wire.Encode(all[name])
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/encode", func(b *testing.B) {
			for b.Loop() {
				if _, err := wire.Encode(all[name]); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/decode", func(b *testing.B) {
			for b.Loop() {
				if err := wire.Decode(encoded, fresh(all[name])); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
