package wire_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

var update = flag.Bool("update", false, "rewrite the vectors under testdata")

const peer chain.PeerID = "12D3KooWEYBqyRNtbnJxuAeEGRF5pHn2wLDPsFB3vZGNBGXbHoxX"

var home = chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}

// samples has every message, filled.
func samples() map[string]wire.Message {
	body := chain.CIDOf([]byte("body"))
	local := []wire.LocalOption{{Primitives: []chain.Primitive{chain.LLMChat}, Option: chain.Option{ID: "local/ollama/qwen2.5:7b", Kind: chain.Local, Adapter: "openai", Model: "qwen2.5:7b"}}}
	protest := wire.Protest{Slot: home, Body: body, Nonce: "n1", Failed: []chain.Failure{{Option: "alpha/small", Class: chain.Timeout}}, Budget: 5000}
	hello := wire.Hello{Version: "1.0", DeviceID: "7f6c2f0a-6d3c-4f6e-9a52-0f3c1f9a7b11", Name: "laptop", Membership: []byte("membership"),
		Capabilities: []chain.Capability{"submit", "execute:llm.chat"}, Locals: local, BootID: "b1", Metered: true, Addresses: []string{"/ip4/192.0.2.9/tcp/7411"},
		Holds: []wire.Held{{Slot: home, Mark: chain.Mark{Seq: 7, Body: body, Issued: 1772366400000}, Head: []byte("head")}}}
	enrol := wire.Hello{DeviceID: "d", BootID: "b", Invitation: &wire.Redeem{Secret: bytes.Repeat([]byte{1}, 32), Scope: chain.DefaultScope}}
	report := wire.Report{BootID: "b1", Seq: 3, From: 1772366400000, To: 1772366460000, Dropped: 1, Protests: []wire.Protest{protest}, Quota: []wire.LeaseUsage{{ID: "l1", Account: "key alpha usd", Used: 3}}, Chords: []wire.Chord{{Peer: peer, RTT: 350}},
		Counters: []wire.Counter{{Slot: home, Option: "peer", Peer: peer, Attempts: 5, LastOK: true,
			Outcomes: map[chain.Class]uint64{chain.OK: 3, chain.Timeout: 2, chain.Cooling: 9}}},
		Measurements: []wire.Measurement{{Slot: home, Option: "alpha/small", Class: chain.OK, At: 1772366400500, FirstOutput: 200, Total: 900, Bytes: 4000, Input: 10, Output: 20, Cost: 15}}}
	welcome := wire.Welcome{Membership: []byte("m"), Revocations: []byte("r"), Topics: []wire.TopicKey{{Scope: chain.DefaultScope, Key: bytes.Repeat([]byte{9}, 32), Until: 5}},
		Chains: []wire.Available{{Slot: home, Seq: 8, Body: body}}, Behind: []chain.Slot{home}, Now: 1772366400000, ComeBack: 900000, Stay: true,
		Authority: "https://192.0.2.7:7443", Certificate: bytes.Repeat([]byte{3}, 32), Peers: []wire.PeerAddress{{Peer: peer, Addresses: []string{"/ip4/192.0.2.9/tcp/7411"}}},
		MeshName: "home", Scopes: []chain.ScopeID{chain.DefaultScope}}
	greeting := wire.Greeting{Membership: []byte("membership"), Capabilities: []chain.Capability{"execute:llm.chat"}, BootID: "b1",
		Load: wire.Load{Running: 1, Queued: 2, Slots: 4}, Addresses: []string{"/ip4/192.0.2.9/tcp/7411"}, Brief: true, Revocations: 5}
	return map[string]wire.Message{
		"hello":         &wire.Request{Hello: &hello},
		"hello_enrol":   &wire.Request{Hello: &enrol},
		"welcome":       &wire.Reply{Welcome: &welcome},
		"report":        &wire.Request{Report: &report},
		"report_reply":  &wire.Reply{Report: &wire.ReportReply{Accepted: true, Reason: "seen before", ComeBack: 60000}},
		"fetch":         &wire.Request{Fetch: &wire.Fetch{Slot: home, Body: body, Seq: 7}},
		"fetch_reply":   &wire.Reply{Fetch: &wire.FetchReply{Head: []byte("head"), Body: []byte("body")}},
		"protest":       &wire.Request{Protest: &protest},
		"protest_reply": &wire.Reply{Protest: &wire.ProtestReply{Extension: []byte("extension"), Reason: "none left"}},
		"lease": &wire.Request{Lease: &wire.Lease{Asks: []wire.LeaseAsk{{Account: "key alpha usd", Slot: home, Least: 420}},
			Usage: []wire.LeaseUsage{{ID: "l1", Account: "key alpha usd", Used: 77, Done: true}}}},
		"lease_reply": &wire.Reply{Lease: &wire.LeaseReply{Now: 1772364600000, Grants: []wire.Grant{
			{ID: "l2", Account: "key alpha usd", Slot: home, Amount: 900, Until: 1772366400000, Used: 250000}, {Account: "workspace:home gamma/* calls", Slot: home, Until: 1772366400000, Used: 1e6}}}},
		"provider": &wire.Request{Provider: &wire.Provider{Invitation: wire.Redeem{Secret: bytes.Repeat([]byte{7}, 32), Scope: chain.DefaultScope}, Class: "browser",
			Capabilities: []chain.Capability{"execute:text.keywords"}, Nonce: "n1"}},
		"provider_reply": &wire.Reply{Provider: &wire.ProviderReply{Scope: chain.DefaultScope, Granted: []string{"execute:*"}}},
		"refusal":        &wire.Reply{Refusal: &wire.Refusal{Code: "busy", Message: "come back later", ComeBack: 30000}},
		"invalidation":   &wire.Invalidation{Scope: wire.ScopeHash(bytes.Repeat([]byte{9}, 32), chain.DefaultScope), Primitive: chain.LLMChat, Seq: 8, Prefix: []byte(body[4:12])},
		"exec_open":      &wire.ExecOpen{Request: []byte("request"), Membership: []byte("membership"), Head: []byte("head"), Body: []byte("body"), Extension: []byte("extension")},
		"exec_request":   request(),
		"exec_data":      &wire.ExecReply{Data: &wire.ExecData{Bytes: []byte("grüezi"), Meaningful: true, More: true}},
		"exec_part":      &wire.ExecReply{Data: &wire.ExecData{Bytes: []byte{0xc3}, Part: true}},
		"exec_flush":     &wire.ExecReply{Data: &wire.ExecData{}},
		"exec_refusal":   &wire.ExecReply{Refusal: &wire.ExecRefusal{Code: wire.ExecBusy, Message: "two jobs run and four wait", ComeBack: 1500}},
		"exec_stale":     &wire.ExecReply{Refusal: &wire.ExecRefusal{Code: wire.ExecStaleNonce, Boot: "3XQHMV7T2LKZP5RWNDYAGJCBEF"}},
		"exec_trailer": &wire.ExecReply{Trailer: &wire.ExecTrailer{Class: chain.CallerError, Status: 400, RetryAfter: 0, HasRetryAfter: true, Used: 2, Input: 10, Output: 20,
			FirstOutput: 250, Option: "local/ollama/qwen2.5:7b", Model: "qwen2.5:7b", Answer: &wire.ExecAnswer{Status: 400, ContentType: "application/json", Body: []byte("{}")},
			ResponseHash: "sha256:00", Signature: bytes.Repeat([]byte{7}, 64)}},
		"announce":     &wire.Announce{Membership: []byte("membership"), Capabilities: []chain.Capability{"execute:llm.chat"}, Seq: 2, BootID: "b1", Addresses: []string{"/ip4/192.0.2.9/tcp/7411"}},
		"chords":       &wire.Chords{Membership: []byte("membership"), BootID: "b1", Seq: 3, Chords: []wire.Chord{{Peer: peer, RTT: 350}}},
		"ask_greeting": &wire.Ask{Greeting: &greeting},
		"ask_echo":     &wire.Ask{Echo: &wire.Echo{N: 7}},
		"ask_heads":    &wire.Ask{Heads: &wire.Heads{Scope: chain.DefaultScope}},
		"ask_fetch":    &wire.Ask{Fetch: &wire.Fetch{Slot: home, Body: body, Seq: 7}},
		"ask_body":     &wire.Ask{Body: &wire.Body{Scope: chain.DefaultScope, Body: body}},
		"ask_revoked":  &wire.Ask{Revocations: &wire.Revocations{List: []byte("list")}},
		"answer_heads": &wire.Answer{Heads: &wire.Offers{Held: []wire.Held{{Slot: home, Mark: chain.Mark{Seq: 7, Body: body, Issued: 1772366400000}}}}},
		"answer_body":  &wire.Answer{Body: &wire.BodyBytes{Bytes: []byte("body")}},
		"answer_no":    &wire.Answer{Refusal: &wire.Refusal{Code: "revoked", Message: "the membership was revoked"}},
	}
}

// request is one that an executor reads.
func request() *wire.ExecRequest {
	return &wire.ExecRequest{Executor: peer, Membership: wire.EnvelopeHash([]byte("membership")), Head: wire.EnvelopeHash([]byte("head")), Body: chain.CIDOf([]byte("body")),
		Extension: wire.EnvelopeHash([]byte("extension")), Option: "peer", Scope: home.Scope, Primitive: home.Primitive,
		PayloadBytes: 7, PayloadHash: wire.EnvelopeHash([]byte("payload")), TransactionID: "t1", Nonce: "0123456789abcdef", RequestHash: "sha256:00", Seeker: "did:key:z6MkeXBLjYiSvqnhFb6D7sHm8yKm4jV45wwBFRaatf1cfZ76",
		Agent: "did:web:example.org:agents:a", TokenID: "k1", Token: []byte("token"), RequestID: "r1", Model: "auto", Stream: true, Usage: true, Attempts: 8, Budget: 60000,
		Hop: 1, Expires: 1772366460000}
}

// fresh makes a zero message of m's type.
func fresh(m wire.Message) wire.Message {
	return reflect.New(reflect.TypeOf(m).Elem()).Interface().(wire.Message)
}

func TestVectors(t *testing.T) {
	for name, m := range samples() {
		b, err := wire.Encode(m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		path := filepath.Join("testdata", "good_"+name+".hex")
		if *update {
			if err := os.WriteFile(path, []byte(hex.EncodeToString(b)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(string(text)) != hex.EncodeToString(b) {
			t.Errorf("%s: the bytes changed: nodes of other versions would not understand each other", name)
		}
		got := fresh(m)
		if err := wire.Decode(b, got); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: came back as %+v, %v", name, got, err)
		}
	}
}

// fail_ files hold requests and replies that every implementation refuses.
func TestFailVectors(t *testing.T) {
	make := func(v any) []byte {
		b, err := chain.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	type tree = map[string]any
	slot := tree{"scope": "workspace:home", "primitive": "llm.chat"}
	bad := map[string][]byte{
		"nothing":           make(tree{}),
		"unknown_kind":      make(tree{"merge": tree{}}),
		"lease_account":     make(tree{"lease": tree{"asks": []any{tree{"account": " ", "slot": slot}}}}),
		"lease_negative":    make(tree{"lease": tree{"usage": []any{tree{"id": "1", "account": "a", "used": -1}}}}),
		"two_kinds":         make(tree{"fetch": tree{"slot": slot}, "report": tree{"boot_id": "b"}}),
		"kind_in_capitals":  make(tree{"FETCH": tree{"slot": slot}}),
		"unknown_class":     make(tree{"protest": tree{"slot": slot, "nonce": "n", "failed": []any{tree{"option": "a", "class": "melted"}}}}),
		"counter_class":     make(tree{"report": tree{"boot_id": "b", "counters": []any{tree{"slot": slot, "option": "a", "attempts": 1, "outcomes": tree{"melted": 1}}}}}),
		"more_than_tried":   make(tree{"report": tree{"boot_id": "b", "counters": []any{tree{"slot": slot, "option": "a", "attempts": 1, "outcomes": tree{"ok": 1, "timeout": 1}}}}}),
		"negative_duration": make(tree{"protest": tree{"slot": slot, "nonce": "n", "budget": -1}}),
		"ends_before_begin": make(tree{"report": tree{"boot_id": "b", "from": 2, "to": 1}}),
		"no_boot_id":        make(tree{"report": tree{}}),
		"bad_scope":         make(tree{"fetch": tree{"slot": tree{"scope": "home", "primitive": "llm.chat"}}}),
		"bad_primitive":     make(tree{"fetch": tree{"slot": tree{"scope": "workspace:home", "primitive": "LLM chat"}}}),
		"no_proof":          make(tree{"hello": tree{"device_id": "d", "boot_id": "b"}}),
		"two_proofs":        make(tree{"hello": tree{"device_id": "d", "boot_id": "b", "membership": []byte("m"), "invitation": tree{"secret": bytes.Repeat([]byte{1}, 32), "scope": "workspace:home"}}}),
		"escape_in_name":    make(tree{"hello": tree{"device_id": "d", "boot_id": "b", "name": "\x1b[2J", "membership": []byte("m")}}),
		"text_for_bytes":    make(tree{"hello": tree{"device_id": "d", "boot_id": "b", "membership": "m"}}),
		"foreign_option":    make(tree{"hello": tree{"device_id": "d", "boot_id": "b", "membership": []byte("m"), "locals": []any{tree{"primitives": []any{"llm.chat"}, "option": tree{"id": "a", "kind": "provider"}}}}}),
		"float":             {0xa1, 0x65, 'f', 'e', 't', 'c', 'h', 0xfb, 0, 0, 0, 0, 0, 0, 0, 0},
		"indefinite_map":    {0xbf, 0xff},
		"claims_2_32":       {0x9a, 0xff, 0xff, 0xff, 0xff},
		"empty":             {},
	}
	if *update {
		for name, b := range bad {
			if err := os.WriteFile(filepath.Join("testdata", "fail_"+name+".hex"), []byte(hex.EncodeToString(b)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := filepath.Glob("testdata/fail_*.hex")
	if err != nil || len(files) != len(bad) {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		err = wire.Decode(b, new(wire.Request))
		if !errors.Is(err, wire.ErrMessage) && !errors.Is(err, chain.ErrEncoding) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
	if err := wire.Decode(bad["unknown_kind"], new(wire.Request)); !errors.Is(err, wire.ErrUnknown) {
		t.Errorf("a request of a later version is told from a broken one: %v", err)
	}
}

// What a device says that it signs as is a DID.
func TestAHelloNamesADID(t *testing.T) {
	h := &wire.Hello{DeviceID: "d", BootID: "b", Membership: []byte("m"), DID: "did:webvh:Qm1:a.example"}
	if err := h.Validate(); err != nil {
		t.Error(err)
	}
	for why, s := range chaintest.NoDIDs() {
		if h.DID = s; !errors.Is(h.Validate(), wire.ErrMessage) {
			t.Errorf("%s: %q passes", why, s)
		}
	}
}

// Every list and string has a cap: at it a message passes, one over it does not.
func TestCaps(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	hello := func(change func(*wire.Hello, int)) func(int) wire.Message {
		return func(n int) wire.Message {
			h := &wire.Hello{DeviceID: "d", BootID: "b", Membership: []byte("m")}
			change(h, n)
			return h
		}
	}
	welcome := func(change func(*wire.Welcome, int)) func(int) wire.Message {
		return func(n int) wire.Message { w := &wire.Welcome{}; change(w, n); return w }
	}
	report := func(change func(*wire.Report, int)) func(int) wire.Message {
		return func(n int) wire.Message { r := &wire.Report{BootID: "b"}; change(r, n); return r }
	}
	capability := func(n int) []chain.Capability { return slices.Repeat([]chain.Capability{"c"}, n) }
	local := wire.LocalOption{Primitives: []chain.Primitive{"p"}, Option: chain.Option{ID: "a", Kind: chain.Local}}
	for name, c := range map[string]struct {
		most int
		make func(int) wire.Message
	}{
		"version":    {256, hello(func(h *wire.Hello, n int) { h.Version = text(n) })},
		"device ID":  {64, hello(func(h *wire.Hello, n int) { h.DeviceID = chain.DeviceID(text(n)) })},
		"name":       {256, hello(func(h *wire.Hello, n int) { h.Name = text(n) })},
		"boot ID":    {64, hello(func(h *wire.Hello, n int) { h.BootID = text(n) })},
		"membership": {16 << 10, hello(func(h *wire.Hello, n int) { h.Membership = make([]byte, n) })},
		"secret": {64, func(n int) wire.Message {
			return &wire.Hello{DeviceID: "d", BootID: "b", Invitation: &wire.Redeem{Secret: make([]byte, n), Scope: "workspace:a"}}
		}},
		"capabilities": {1024, hello(func(h *wire.Hello, n int) { h.Capabilities = capability(n) })},
		"capability":   {128, hello(func(h *wire.Hello, n int) { h.Capabilities = []chain.Capability{chain.Capability(text(n))} })},
		"locals":       {128, hello(func(h *wire.Hello, n int) { h.Locals = slices.Repeat([]wire.LocalOption{local}, n) })},
		"primitives": {64, hello(func(h *wire.Hello, n int) {
			h.Locals = []wire.LocalOption{{Primitives: slices.Repeat([]chain.Primitive{"p"}, n), Option: local.Option}}
		})},
		"holds":       {4096, hello(func(h *wire.Hello, n int) { h.Holds = slices.Repeat([]wire.Held{{Slot: home}}, n) })},
		"head":        {4096, hello(func(h *wire.Hello, n int) { h.Holds = []wire.Held{{Slot: home, Head: make([]byte, n)}} })},
		"revocations": {64 << 10, welcome(func(w *wire.Welcome, n int) { w.Revocations = make([]byte, n) })},
		"topics": {128, welcome(func(w *wire.Welcome, n int) {
			w.Topics = slices.Repeat([]wire.TopicKey{{Scope: "workspace:a", Key: make([]byte, 32)}}, n)
		})},
		"topic key":   {64, func(n int) wire.Message { return &wire.TopicKey{Scope: "workspace:a", Key: make([]byte, n)} }},
		"chains":      {4096, welcome(func(w *wire.Welcome, n int) { w.Chains = slices.Repeat([]wire.Available{{Slot: home}}, n) })},
		"behind":      {4096, welcome(func(w *wire.Welcome, n int) { w.Behind = slices.Repeat([]chain.Slot{home}, n) })},
		"authority":   {256, welcome(func(w *wire.Welcome, n int) { w.Authority = text(n) })},
		"certificate": {64, welcome(func(w *wire.Welcome, n int) { w.Certificate = make([]byte, n) })},
		"peers":       {256, welcome(func(w *wire.Welcome, n int) { w.Peers = slices.Repeat([]wire.PeerAddress{{Peer: peer}}, n) })},
		"addresses": {32, welcome(func(w *wire.Welcome, n int) {
			w.Peers = []wire.PeerAddress{{Peer: peer, Addresses: slices.Repeat([]string{"/a"}, n)}}
		})},
		"scopes":   {64, welcome(func(w *wire.Welcome, n int) { w.Scopes = slices.Repeat([]chain.ScopeID{"workspace:a"}, n) })},
		"counters": {4096, report(func(r *wire.Report, n int) { r.Counters = slices.Repeat([]wire.Counter{{Slot: home, Option: "a"}}, n) })},
		"measurements": {4096, report(func(r *wire.Report, n int) {
			r.Measurements = slices.Repeat([]wire.Measurement{{Slot: home, Option: "a", Class: chain.OK}}, n)
		})},
		"protests": {64, report(func(r *wire.Report, n int) { r.Protests = slices.Repeat([]wire.Protest{{Slot: home, Nonce: "n"}}, n) })},
		"option id": {256, report(func(r *wire.Report, n int) {
			r.Counters = []wire.Counter{{Slot: home, Option: chain.OptionID(text(n))}}
		})},
		"asks": {256, func(n int) wire.Message {
			return &wire.Lease{Asks: slices.Repeat([]wire.LeaseAsk{{Account: "a", Slot: home}}, n)}
		}},
		"usage": {1024, func(n int) wire.Message {
			return &wire.Lease{Usage: slices.Repeat([]wire.LeaseUsage{{ID: "1", Account: "a"}}, n)}
		}},
		"quota": {1024, report(func(r *wire.Report, n int) { r.Quota = slices.Repeat([]wire.LeaseUsage{{ID: "1", Account: "a"}}, n) })},
		"grants": {256, func(n int) wire.Message {
			return &wire.LeaseReply{Grants: slices.Repeat([]wire.Grant{{Account: "a", Slot: home}}, n)}
		}},
		"provided": {64, func(n int) wire.Message {
			return &wire.Provider{Invitation: wire.Redeem{Secret: make([]byte, 32), Scope: "workspace:a"}, Class: "agent", Nonce: "n", Capabilities: capability(n)}
		}},
		"granted": {64, func(n int) wire.Message {
			return &wire.ProviderReply{Scope: "workspace:a", Granted: slices.Repeat([]string{"*"}, n)}
		}},
		"reason": {1024, func(n int) wire.Message { return &wire.ReportReply{Reason: text(n)} }},
		"body":   {chain.MaxBodyBytes, func(n int) wire.Message { return &wire.FetchReply{Head: []byte("h"), Body: make([]byte, n)} }},
		"nonce":  {64, func(n int) wire.Message { return &wire.Protest{Slot: home, Nonce: text(n)} }},
		"failed": {chain.MaxOptions, func(n int) wire.Message {
			return &wire.Protest{Slot: home, Nonce: "n", Failed: slices.Repeat([]chain.Failure{{Option: "a", Class: chain.OK}}, n)}
		}},
		"extension":  {64 << 10, func(n int) wire.Message { return &wire.ProtestReply{Extension: make([]byte, n)} }},
		"code":       {64, func(n int) wire.Message { return &wire.Refusal{Code: text(n)} }},
		"message":    {1024, func(n int) wire.Message { return &wire.Refusal{Code: "c", Message: text(n)} }},
		"scope hash": {32, func(n int) wire.Message { return &wire.Invalidation{Scope: make([]byte, n), Primitive: "p"} }},
		"prefix": {16, func(n int) wire.Message {
			return &wire.Invalidation{Scope: make([]byte, 16), Primitive: "p", Prefix: make([]byte, n)}
		}},
		"announced": {1024, func(n int) wire.Message {
			return &wire.Announce{Membership: []byte("m"), BootID: "b", Capabilities: capability(n)}
		}},
		"own addresses": {32, hello(func(h *wire.Hello, n int) { h.Addresses = slices.Repeat([]string{"/a"}, n) })},
		"an address":    {256, hello(func(h *wire.Hello, n int) { h.Addresses = []string{text(n)} })},
		"greeted addresses": {32, func(n int) wire.Message {
			return &wire.Greeting{Membership: []byte("m"), BootID: "b", Addresses: slices.Repeat([]string{"/a"}, n)}
		}},
		"greeted membership": {16 << 10, func(n int) wire.Message { return &wire.Greeting{Membership: make([]byte, n), BootID: "b"} }},
		"chords": {256, func(n int) wire.Message {
			return &wire.Chords{Membership: []byte("m"), BootID: "b", Chords: slices.Repeat([]wire.Chord{{Peer: peer}}, n)}
		}},
		"reported chords": {256, report(func(r *wire.Report, n int) { r.Chords = slices.Repeat([]wire.Chord{{Peer: peer}}, n) })},
		"round trip":      {60_000_000, report(func(r *wire.Report, n int) { r.Chords = []wire.Chord{{Peer: peer, RTT: int64(n)}} })},
		"load": {1 << 20, func(n int) wire.Message {
			return &wire.Greeting{Membership: []byte("m"), BootID: "b", Load: wire.Load{Queued: int64(n)}}
		}},
		"offers":       {256, func(n int) wire.Message { return &wire.Offers{Held: slices.Repeat([]wire.Held{{Slot: home}}, n)} }},
		"offered body": {chain.MaxBodyBytes, func(n int) wire.Message { return &wire.BodyBytes{Bytes: make([]byte, n)} }},
		"offered list": {64 << 10, func(n int) wire.Message { return &wire.Revocations{List: make([]byte, n)} }},
	} {
		for n, ok := range map[int]bool{c.most: true, c.most + 1: false, 3*c.most + 1: false} {
			if err := c.make(n).Validate(); (err == nil) != ok || err != nil && !errors.Is(err, wire.ErrMessage) {
				t.Errorf("%s of %d: %v", name, n, err)
			}
		}
	}
}

func TestFramesRoundTrip(t *testing.T) {
	var b bytes.Buffer
	sizes := []int{0, 1, 127, 128, 16383, 16384, 16<<10 + 1, 100_000, wire.MaxControl}
	for _, n := range sizes {
		if err := wire.WriteFrame(&b, bytes.Repeat([]byte{byte(n)}, n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := wire.WriteFrame(&b, make([]byte, wire.MaxControl+1)); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("a frame over the limit was written: %v", err)
	}
	r := bufio.NewReader(iotest.OneByteReader(&b))
	for _, n := range sizes {
		got, err := wire.ReadFrame(r, wire.MaxControl)
		if err != nil || len(got) != n || !bytes.Equal(got, bytes.Repeat([]byte{byte(n)}, n)) {
			t.Errorf("frame of %d: %d bytes, %v", n, len(got), err)
		}
	}
	if _, err := wire.ReadFrame(r, wire.MaxControl); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestBrokenFrames(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes []byte
		limit int
		want  error
	}{
		{"one over", append([]byte{11}, make([]byte, 11)...), 10, wire.ErrTooLarge},
		{"a terabyte", binary.AppendUvarint(nil, 1<<40), wire.MaxControl, wire.ErrFrame},
		{"four gigabytes", binary.AppendUvarint(nil, 1<<32), wire.MaxControl, wire.ErrTooLarge},
		{"no end", bytes.Repeat([]byte{0xff}, 12), wire.MaxControl, wire.ErrFrame},
		{"longer than needed", []byte{0x80, 0x00}, 10, wire.ErrFrame},
		{"cut in the length", []byte{0x80}, 1000, io.ErrUnexpectedEOF},
		{"cut in the payload", []byte{5, 1, 2}, 10, io.ErrUnexpectedEOF},
	} {
		if _, err := wire.ReadFrame(bytes.NewReader(c.bytes), c.limit); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// A megabyte that is announced and not sent costs its reader next to nothing.
func TestAnnouncedLengthsAreNotAllocated(t *testing.T) {
	b := append(binary.AppendUvarint(nil, wire.MaxControl), make([]byte, 100)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if _, err := wire.ReadFrame(bytes.NewReader(b), wire.MaxControl); err == nil {
			t.Fatal("a cut frame was read")
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / 100; each > 32<<10 {
		t.Errorf("%d bytes are allocated for 100", each)
	}
}

func TestScopeHashAndShard(t *testing.T) {
	a, b := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	seen := map[string]bool{}
	for _, k := range [][]byte{a, b} {
		for _, s := range []chain.ScopeID{"workspace:home", "workspace:work"} {
			seen[string(wire.ScopeHash(k, s))] = true
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d names of 4", len(seen))
	}
	if got := hex.EncodeToString(wire.ScopeHash(a, "workspace:home")); got != "f342f6b24ebe60b67803c67cc7969cd5" {
		t.Errorf("scope hash changed: %s", got)
	}
	if got := wire.PolicyShard("workspace:home"); got != 3 {
		t.Errorf("shard changed: %d", got)
	}
	shards := map[int]int{}
	for i := range 1600 {
		shards[wire.PolicyShard(chain.ScopeID(fmt.Sprintf("workspace:%d", i)))]++
	}
	for n, k := range shards {
		if n < 0 || n >= wire.PolicyShards || k < 50 || k > 200 {
			t.Errorf("shard %d has %d of 1600", n, k)
		}
	}
}

func FuzzRequest(f *testing.F) { fuzz(f, func() wire.Message { return new(wire.Request) }) }
func FuzzReply(f *testing.F)   { fuzz(f, func() wire.Message { return new(wire.Reply) }) }
func FuzzInvalidation(f *testing.F) {
	fuzz(f, func() wire.Message { return new(wire.Invalidation) })
}
func FuzzExecOpen(f *testing.F)    { fuzz(f, func() wire.Message { return new(wire.ExecOpen) }) }
func FuzzExecRequest(f *testing.F) { fuzz(f, func() wire.Message { return new(wire.ExecRequest) }) }
func FuzzExecReply(f *testing.F)   { fuzz(f, func() wire.Message { return new(wire.ExecReply) }) }
func FuzzChords(f *testing.F)      { fuzz(f, func() wire.Message { return new(wire.Chords) }) }
func FuzzAsk(f *testing.F)         { fuzz(f, func() wire.Message { return new(wire.Ask) }) }
func FuzzAnswer(f *testing.F)      { fuzz(f, func() wire.Message { return new(wire.Answer) }) }
func FuzzAnnounce(f *testing.F)    { fuzz(f, func() wire.Message { return new(wire.Announce) }) }

// fuzz holds a decoder to this: no panic, and what it accepts it can write and
// read again as the same.
func fuzz(f *testing.F, zero func() wire.Message) {
	all := samples()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if b, err := wire.Encode(all[name]); err == nil {
			f.Add(b)
		}
	}
	f.Add([]byte{0xa0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := zero()
		if wire.Decode(b, m) != nil {
			return
		}
		again, err := wire.Encode(m)
		if err != nil {
			t.Fatalf("accepted what it would not send: %v", err)
		}
		back := zero()
		if err := wire.Decode(again, back); err != nil {
			t.Fatalf("does not read what it wrote: %v", err)
		}
		third, err := wire.Encode(back)
		if err != nil || !bytes.Equal(again, third) {
			t.Fatalf("not stable: %v", err)
		}
	})
}

func FuzzFrames(f *testing.F) {
	var b bytes.Buffer
	_ = wire.WriteFrame(&b, []byte("payload"))
	f.Add(b.Bytes())
	f.Add([]byte{0x80, 0x80, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			before := r.Len()
			payload, err := wire.ReadFrame(r, 4096)
			if err != nil {
				return
			}
			var again bytes.Buffer
			if err := wire.WriteFrame(&again, payload); err != nil || !bytes.Equal(again.Bytes(), b[len(b)-before:len(b)-r.Len()]) {
				t.Fatalf("a frame has two forms: %v", err)
			}
		}
	})
}

func BenchmarkReport(b *testing.B) {
	r := *samples()["report"].(*wire.Request).Report
	random := rand.New(rand.NewSource(1))
	r.Counters, r.Measurements = nil, nil
	for i := range 40 {
		id := chain.OptionID(fmt.Sprintf("provider/model-%d", i))
		r.Counters = append(r.Counters, wire.Counter{Slot: home, Option: id, Attempts: 9, Outcomes: map[chain.Class]uint64{chain.OK: 8, chain.Timeout: 1}})
		r.Measurements = append(r.Measurements, wire.Measurement{Slot: home, Option: id, Class: chain.OK, At: 1772366400000, Total: chain.Millis(random.Intn(9000))})
	}
	q := &wire.Request{Report: &r}
	payload, err := wire.Encode(q)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { b.ReportMetric(float64(len(payload)), "B/message") }()
	for b.Loop() {
		if err := wire.Decode(payload, new(wire.Request)); err != nil {
			b.Fatal(err)
		}
	}
}
