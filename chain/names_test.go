package chain_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
)

func TestParseScope(t *testing.T) {
	for s, good := range map[string]bool{
		"workspace:home": true, "session:0b2f": true, "device:6f1f2ad0-1d1c-4a57-9a02-1f8f4f8b6c11": true, "workspace:a:b/c": true, "workspace:größe": true,
		"": false, "home": false, "workspace:": false, ":home": false, "Workspace:home": false, "user:me": false, "workspace:a b": false,
		"workspace:a\n": false, "workspace:a\u00a0b": false, "workspace:a\u202eb": false, "workspace:a\u200bb": false, "workspace:a\u061cb": false, "workspace:a\U000e0041b": false, "workspace:a😀": true, "workspace:\xff": false,
		"workspace:" + strings.Repeat("x", chain.MaxScopeID-10): true, "workspace:" + strings.Repeat("x", chain.MaxScopeID-9): false,
	} {
		got, err := chain.ParseScope(s)
		if (err == nil) != good || good && string(got) != s || !good && got != "" {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
}

func TestParsePrimitive(t *testing.T) {
	for s, good := range map[string]bool{
		"llm.chat": true, "embed.text": true, "llm": true, "fetch.rendered-2_x": true, strings.Repeat("x", 64): true,
		"": false, ".": false, "llm.": false, ".llm": false, "llm..chat": false, "LLM.chat": false, "llm chat": false, "llm/chat": false, "../x": false,
		"llm.é": false, strings.Repeat("x", 65): false,
	} {
		got, err := chain.ParsePrimitive(s)
		if (err == nil) != good || good && string(got) != s || !good && got != "" {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
}

func TestParsePeerID(t *testing.T) {
	id := chaintest.PeerID(1)
	for s, good := range map[string]bool{
		string(id): true, "": false, "12D3KooW": false, string(id) + "x": false,
		"QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N":              false, // of an RSA key: its public key is not in it
		"bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi": false, // of a file
	} {
		got, err := chain.ParsePeerID(s)
		if (err == nil) != good || good && got != id {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
}

func TestParseCID(t *testing.T) {
	good := chain.CIDOf([]byte("x"))
	same, err := cid.Cast([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	raw := cid.NewCidV1(cid.Raw, same.Hash())
	for _, c := range []struct {
		name, in string
		good     bool
	}{
		{"its own text", good.String(), true}, {"empty", "", false}, {"no CID", "bafy", false}, {"raw codec", raw.String(), false},
		{"version 0", cid.NewCidV0(same.Hash()).String(), false}, {"something behind it", good.String() + "a", false},
		{"long rubbish", strings.Repeat("b", 10_000), false},
	} {
		got, err := chain.ParseCID(c.in)
		if (err == nil) != c.good || c.good && got != good {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%s: error of %d bytes", c.name, len(err.Error()))
		}
	}
	if s := chain.CID("rubbish").String(); s == "" {
		t.Error("rubbish has the text of the zero value")
	}
}

func TestCIDsInJSON(t *testing.T) {
	m := chain.Mark{Seq: 1, Body: chain.CIDOf([]byte("x"))}
	b, err := json.Marshal([]chain.Mark{m, {}})
	if err != nil || !bytes.Contains(b, []byte(`"bafyrei`)) {
		t.Fatalf("%s %v", b, err)
	}
	var again []chain.Mark
	if err := json.Unmarshal(b, &again); err != nil || again[0] != m || again[1] != (chain.Mark{}) {
		t.Errorf("%+v %v", again, err)
	}
}

func TestUnits(t *testing.T) {
	for ms, want := range map[chain.Millis]time.Duration{
		0: 0, 1500: 1500 * time.Millisecond, -1: -time.Millisecond, math.MaxInt64: math.MaxInt64, math.MinInt64: math.MinInt64,
		9223372036854: 9223372036854 * time.Millisecond, 9223372036855: math.MaxInt64,
	} {
		if got := ms.Duration(); got != want {
			t.Errorf("%d ms: %v, want %v", ms, got, want)
		}
	}
	if got := chain.PPMOf(.29); got != 290_000 || got.Share() != .29 {
		t.Errorf("%v", got)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_999_999, time.FixedZone("x", 3600))
	if got := chain.InstantOf(at).Time(); !got.Equal(at.Truncate(time.Millisecond)) || got.Location() != time.UTC {
		t.Errorf("%v", got)
	}
}

// A secret prints as *** whatever is done to it; only Reveal tells.
func TestSecretsDoNotPrint(t *testing.T) {
	const value = "sk-verysecret"
	s := chain.Secret(value)
	holder := struct {
		Key  chain.Secret
		List []chain.Secret
		Map  map[string]chain.Secret
		Ptr  *chain.Secret
	}{s, []chain.Secret{s}, map[string]chain.Secret{"k": s}, &s}
	var printed []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%t", "%e", "%c", "%U", "%10.3s"} {
		printed = append(printed, fmt.Sprintf(verb, s), fmt.Sprintf(verb, holder))
	}
	text, err := s.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	printed = append(printed, fmt.Sprint(s), fmt.Errorf("x: %v", s).Error(), s.String(), s.GoString(), string(text))
	for _, v := range []any{s, holder} {
		j, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		printed = append(printed, string(j), string(chaintest.Encode(t, v)))
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", s, "holder", holder)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", s, "holder", holder)
	for _, p := range append(printed, log.String()) {
		for _, leak := range []string{value, value[3:8], fmt.Sprintf("%x", value), fmt.Sprintf("%X", value[:4]), "115, 107", "[115 107"} {
			if strings.Contains(p, leak) {
				t.Errorf("%q holds %q", p, leak)
			}
		}
	}
	if s.Reveal() != value {
		t.Error("Reveal does not reveal")
	}
}

func TestKeys(t *testing.T) {
	k := chaintest.Key(1)
	b, err := k.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	again, err := chain.ParseKey(b)
	if err != nil || again.PeerID() != k.PeerID() {
		t.Errorf("%v: %s", err, again.PeerID())
	}
	if _, err := chain.ParseKey(b[:len(b)-1]); err == nil || strings.Contains(err.Error(), string(b[:8])) {
		t.Errorf("a cut key: %v", err)
	}
	for _, verb := range []string{"%v", "%+v", "%s", "%d", "%#v"} {
		p := fmt.Sprintf(verb, k)
		if strings.Contains(p, fmt.Sprint(b[4:12])) || strings.Contains(p, string(b[4:12])) {
			t.Errorf("printed: %s", p)
		}
	}
	var nobody chain.Key
	if _, err := nobody.Seal(chain.DomainChain, nil); err == nil {
		t.Error("the zero key signed")
	}
	if _, err := nobody.Bytes(); err == nil || nobody.PeerID() != "" {
		t.Errorf("the zero key is somebody: %q, %v", nobody.PeerID(), err)
	}
	if _, err := (chain.Trust{}).Verify(chaintest.Slot, nil, nil, chain.Mark{}, chaintest.Start); !errors.Is(err, chain.ErrEncoding) {
		t.Errorf("no trust, no bytes: %v", err)
	}
	fresh, err := chain.NewKey(nil)
	if err != nil || fresh.PeerID() == "" {
		t.Errorf("%v", err)
	}
}

func TestTheZeroTrustTrustsNobody(t *testing.T) {
	o := newOffer(t)
	p := o.seal(t)
	if _, err := (chain.Trust{}).Verify(o.slot, p.Head, p.Body, chain.Mark{}, o.now); !errors.Is(err, chain.ErrSigner) {
		t.Errorf("%v", err)
	}
}

func TestClip(t *testing.T) {
	long := strings.Repeat("a", 63) + "é"
	for s, want := range map[string]string{"": "", "short": "short", strings.Repeat("a", 64): strings.Repeat("a", 64), long: strings.Repeat("a", 63) + "…"} {
		if got := chain.Clip(s); got != want {
			t.Errorf("Clip(%q) = %q, want %q", s, got, want)
		}
	}
	if got := chain.ClipTo(chain.OptionID("alpha/small"), 5); got != "alpha…" {
		t.Errorf("ClipTo gave %q", got)
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"gamma/large", "gamma/large", true}, {"gamma/large", "gamma/larger", false}, {"", "", true}, {"", "a", false},
		{"*", "", true}, {"*", "a/b", true}, {"gamma/*", "gamma/a/b", true}, {"gamma/*", "gamma", false}, {"*large", "gamma/large", true},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "abbc", true}, {"a*b*c", "acb", false}, {"**", "x", true}, {"a**b", "ab", true},
		{"*ab*ab", "ab", false}, {"*ab*ab", "abcab", true}, {"a*", "*a", false},
	} {
		if got := chain.Match(c.pattern, c.s); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
}

// What counts against an option was an attempt at it, and no success.
func TestWhatIsBlamedRan(t *testing.T) {
	for _, c := range []chain.Class{chain.OK, chain.Unreachable, chain.Status, chain.Timeout, chain.BadAnswer, chain.RateLimited, chain.Credentials,
		chain.CallerError, chain.ContextLength, chain.Feature, chain.Filtered, chain.Cut, chain.Canceled, chain.Busy, chain.Declined, chain.Denied, chain.Offline, chain.Internal,
		chain.NoPeer, chain.KeyMissing, chain.Cooling, chain.Ceiling, chain.Absent, chain.Withdrawn} {
		if c.Blames() && (!c.Ran() || c == chain.OK) {
			t.Errorf("%s blames an option that was not tried, or that answered", c)
		}
	}
}

// What a capability is put together of comes out of it again, and of no other.
func TestCapabilitiesAreTakenApart(t *testing.T) {
	for capability, want := range map[chain.Capability]string{
		chain.ExecuteCapability(chain.T2):     "runs llm.t2",
		chain.ModelCapability("qwen2.5:7b"):   "has qwen2.5:7b",
		chain.DeviceCapability("6f1c"):        "is 6f1c",
		chain.KeyCapability("execute:llm.t2"): "",
		chain.Submit:                          "",
	} {
		got := ""
		if p, ok := capability.Executes(); ok {
			got += "runs " + string(p)
		}
		if m, ok := capability.Model(); ok {
			got += "has " + m
		}
		if d, ok := capability.Device(); ok {
			got += "is " + string(d)
		}
		if got != want {
			t.Errorf("%s %s, want %s", capability, got, want)
		}
	}
	if !chain.LLMChat.LLM() || !chain.TierPrimitive(3).LLM() || chain.Primitive("embed.text").LLM() {
		t.Error("llm.chat and llm.t3 are chat completions, embed.text is none")
	}
}
