package chaintest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

func TestTextBecomesOptions(t *testing.T) {
	got := Options(t, `
		groq/llama p=.99 s=2 f=0.5 q=.7 in=.1 out=.4 call=.001 keys=a,b domain=groq first=2s idle=5s total=1m context=8192  # dear but quick
		peer/big tries=2 via=local,provider requires=execute:llm.chat | local | local/ollama/qwen:7b local-only | x kind=quantum adapter=q`)
	want := []chain.Option{
		{ID: "groq/llama", Kind: chain.Provider, Adapter: "openai", Model: "llama", Keys: []string{"a", "b"}, Domain: "groq",
			Cost: chain.Cost{Reliability: 990_000, Latency: 2000, FailureLatency: 500, Quality: 700_000,
				InputPerMtok: 100_000, OutputPerMtok: 400_000, PerCall: 1000},
			Limits: chain.Limits{FirstOutput: 2000, Idle: 5000, Total: 60_000, Context: 8192}},
		{ID: "peer/big", Kind: chain.Peer, Tries: 2, Via: []chain.Kind{chain.Local, chain.Provider}, Requires: []chain.Capability{"execute:llm.chat"}},
		{ID: "local", Kind: chain.Local, Adapter: "builtin"},
		{ID: "local/ollama/qwen:7b", Kind: chain.Local, Adapter: "ollama", Model: "qwen:7b", Data: chain.LocalOnly},
		{ID: "x", Kind: "quantum", Adapter: "q", Model: "x"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, bad := range []string{"a p=x", "a nonsense", "a first=2", "a tries=", "a context=1.5"} {
		if _, err := Parse(bad); err == nil || !strings.Contains(err.Error(), "option a") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestHubSignsWhatItsDevicesAccept(t *testing.T) {
	h := NewHub()
	c := h.Chain(t, "groq | peer/llm.chat | local", Start)
	if c.Slot() != Slot || len(c.Options()) != 3 || c.Head().Seq != uint64(Start.UnixMilli()) {
		t.Errorf("got %v %v", c.Head(), c.Options())
	}
	device := PeerID(1)
	options, err := h.Trust.VerifyExtension(c, "n1", device, h.Extension(t, c, "n1", device, "dear", Start), Start)
	if err != nil || len(options) != 1 || options[0].ID != "dear" {
		t.Errorf("extension: %v %v", options, err)
	}
	other := h.For("session:s1", "embed.text").Chain(t, "local", Start)
	if other.Slot().String() != "session:s1/embed.text" {
		t.Errorf("got %s", other.Slot())
	}
}

func TestStrangersAreRefused(t *testing.T) {
	h := NewHub()
	body := h.Body(t, "groq")
	_, err := h.Trust.Verify(Slot, Stranger().Head(t, body, Start), body, chain.Mark{}, Start.Add(time.Second))
	if !errors.Is(err, chain.ErrSigner) {
		t.Errorf("got %v", err)
	}
}

func TestKeysAreFixed(t *testing.T) {
	if a, b := PeerID(1), PeerID(1); a != b {
		t.Errorf("%s, then %s", a, b)
	}
	if PeerID(1) == PeerID(2) {
		t.Error("two numbers, one key")
	}
	// Vectors elsewhere name this identity: it may never change.
	if got, want := PeerID(0), chain.PeerID("12D3KooWHxyki3HJG161QBevgrjfF9gvABoA4MsQVViY8kZmJMfe"); got != want {
		t.Errorf("key 0 is %s, was %s", got, want)
	}
}

func TestOrdersAreAllDifferentAndComplete(t *testing.T) {
	for n, want := range []int{1, 1, 2, 6, 24, 120} {
		seen := map[string]bool{}
		Orders(n, func(order []int) bool { seen[fmt.Sprint(order)] = true; return true })
		if len(seen) != want {
			t.Errorf("%d orders of %d, want %d", len(seen), n, want)
		}
	}
}

func TestBestFindsThePlantedOrder(t *testing.T) {
	planted := []int{2, 0, 3, 1}
	best, least := Best(4, func(order []int) float64 {
		cost := 0.0
		for i := range order {
			if order[i] != planted[i] {
				cost++
			}
		}
		return cost
	})
	if !reflect.DeepEqual(best, planted) || least != 0 {
		t.Errorf("got %v at %v", best, least)
	}
}
