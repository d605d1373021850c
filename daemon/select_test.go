package daemon_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/selection"
)

// suspended is a registry in which all are active but these.
type suspended map[string]bool

func (s suspended) Active(did, capability string) bool { return !s[did] && !s[did+" "+capability] }

// choosing is a device that selects as s says, with a chain for chat and one for
// llm.t2.
func choosing(t *testing.T, s daemon.Selection) *bench {
	m := newMemory()
	p := &provider{fails: map[chain.OptionID]walk.Outcome{}}
	b := assemble(t, p, func(c *daemon.Config) {
		c.Chains, c.Marks, c.State, c.Selection = chains{m}, marks{m}, m, s
	})
	b.memory, b.provider = m, p
	b.hub.serve("chat/a agent=did:web:a | chat/b agent=did:web:b | local/own/m kind=local adapter=openai model=m")
	if err := b.Join(t.Context(), b.invitation()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	h := b.hub.policy.For(chain.DefaultScope, "llm.t2")
	body := h.Body(t, "worker/x agent=did:web:x | worker/y agent=did:web:y")
	if _, err := m.Accept(h.Trust, h.Slot, h.Head(t, body, time.Now()), body, time.Now()); err != nil {
		t.Fatal(err)
	}
	return b
}

const seedText = `{"date":"2026-11-30","capabilities":[{"id":"translate","primitive":"llm.t2","keywords":["translat*"]},{"id":"sing","primitive":"llm.t3","keywords":["sing"]}]}`

func TestSelection(t *testing.T) {
	taxonomy, err := selection.Parse([]byte(seedText))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		selection daemon.Selection
		work      edge.Work
		fails     []chain.OptionID
		answer    string // the option that answers
		method    string
		code      edge.Code
	}{
		"a match goes to the primitive of its capability": {
			daemon.Selection{Taxonomy: taxonomy}, edge.Work{Ask: []byte(`"translate this"`)}, nil, "worker/x", "matched", ""},
		"the other candidates follow in chain order": {
			daemon.Selection{Taxonomy: taxonomy}, edge.Work{Ask: []byte(`"translate this"`)}, []chain.OptionID{"worker/x"}, "worker/y", "matched", ""},
		"candidates are active for the capability": {
			daemon.Selection{Taxonomy: taxonomy, Agents: suspended{"did:web:x translate": true}}, edge.Work{Ask: []byte(`"translate this"`)}, nil, "worker/y", "matched", ""},
		"no candidate is no match": {
			daemon.Selection{Taxonomy: taxonomy, Agents: suspended{"did:web:x": true, "did:web:y": true}}, edge.Work{Ask: []byte(`"translate this"`)}, nil, "chat/a", "fallback-default", ""},
		"a capability without a chain is no match": {
			daemon.Selection{Taxonomy: taxonomy}, edge.Work{Ask: []byte(`"sing"`)}, nil, "chat/a", "fallback-default", ""},
		"nothing matched": {
			daemon.Selection{Taxonomy: taxonomy}, edge.Work{Ask: []byte(`"hello"`)}, nil, "chat/a", "fallback-default", ""},
		"no taxonomy": {
			daemon.Selection{}, edge.Work{Ask: []byte(`"translate this"`)}, nil, "chat/a", "fallback-default", ""},
		"the first whose agent is active": {
			daemon.Selection{Agents: suspended{"did:web:a": true}}, edge.Work{Ask: []byte(`"hello"`)}, nil, "chat/b", "fallback-default", ""},
		"the default agent": {
			daemon.Selection{Default: "did:web:b"}, edge.Work{Ask: []byte(`"hello"`)}, nil, "chat/b", "fallback-default", ""},
		"the others follow the default agent": {
			daemon.Selection{Default: "did:web:b"}, edge.Work{Ask: []byte(`"hello"`)}, []chain.OptionID{"chat/b"}, "chat/a", "fallback-default", ""},
		"a default agent that is suspended": {
			daemon.Selection{Default: "did:web:b", Agents: suspended{"did:web:b": true}}, edge.Work{Ask: []byte(`"hello"`)}, nil, "", "", edge.NoAgent},
		"a default agent of no option": {
			daemon.Selection{Default: "did:web:z"}, edge.Work{Ask: []byte(`"hello"`)}, nil, "", "", edge.NoAgent},
		"nobody is active": {
			daemon.Selection{Agents: nobody{}}, edge.Work{Ask: []byte(`"hello"`)}, nil, "", "", edge.NoAgent},
		"work that is no chat is not selected": {
			daemon.Selection{Taxonomy: taxonomy, Default: "did:web:b"}, edge.Work{}, nil, "chat/a", "fallback-default", ""},
		"an agent's DID is direct": {
			daemon.Selection{Taxonomy: taxonomy}, edge.Work{Model: "did:web:b", Ask: []byte(`"translate this"`)}, nil, "chat/b", "direct", ""},
		"a suspended agent, direct": {
			daemon.Selection{Agents: suspended{"did:web:b": true}}, edge.Work{Model: "chat/b"}, nil, "", "", edge.AgentSuspended},
		"an agent outside the chain, direct": {
			daemon.Selection{}, edge.Work{Model: "did:web:x", Ask: []byte(`"translate this"`)}, nil, "", "", edge.ModelNotFound},
		"what looks like a DID and is none, direct": {
			daemon.Selection{}, edge.Work{Model: "did:web:", Ask: []byte(`"translate this"`)}, nil, "", "", edge.InvalidDID},
		"what an inlet chose by a match, direct": {
			daemon.Selection{Taxonomy: taxonomy}, edge.Work{Model: "worker/y", Ask: []byte(`"translate this"`)}, nil, "worker/y", "direct", ""},
		"its agent, direct": {
			daemon.Selection{Taxonomy: taxonomy}, edge.Work{Model: "did:web:y", Ask: []byte(`""`)}, nil, "worker/y", "direct", ""},
		"its agent, suspended": {
			daemon.Selection{Taxonomy: taxonomy, Agents: suspended{"did:web:y": true}}, edge.Work{Model: "worker/y", Ask: []byte(`""`)}, nil, "", "", edge.AgentSuspended},
		"work is not of another primitive than it says": {
			daemon.Selection{Taxonomy: taxonomy}, edge.Work{Model: "worker/y"}, nil, "", "", edge.ModelNotFound},
		"a chat without a word goes to the default agent": {
			daemon.Selection{Taxonomy: taxonomy, Default: "did:web:b"}, edge.Work{Ask: []byte(`""`)}, nil, "chat/b", "fallback-default", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := choosing(t, c.selection)
				for _, id := range c.fails {
					b.provider.fail(id, chain.Unreachable)
				}
				want := ""
				if c.answer != "" {
					want = "answer of " + c.answer
				}
				w := c.work
				text, _, err := b.askFor(&w)
				if text != want || w.Method != c.method || codeOf(err) != c.code {
					t.Errorf("%q %s %v, want %q %s %s", text, w.Method, err, want, c.method, c.code)
				}
			})
		})
	}
}

// nobody is a registry without agents.
type nobody struct{}

func (nobody) Active(string, string) bool { return false }

// What selection leaves out is not shown as usable, by whichever name it would be let through.
func TestAnOptionWhoseAgentIsNotActiveIsNotUsable(t *testing.T) {
	taxonomy, err := selection.Parse([]byte(seedText))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := choosing(t, daemon.Selection{Taxonomy: taxonomy, Agents: suspended{"did:web:b": true, "did:web:x translate": true, "did:web:y": true}})
		for primitive, want := range map[chain.Primitive][]chain.Class{chain.LLMChat: {"", chain.Denied, ""}, "llm.t2": {"", chain.Denied}} {
			v, err := b.Chain(chain.Slot{Scope: chain.DefaultScope, Primitive: primitive})
			if err != nil {
				t.Fatal(err)
			}
			for i, o := range v.Options {
				if o.Why != want[i] || o.Usable != (want[i] == "") {
					t.Errorf("%s %s: usable %t, %q; want %q", primitive, o.ID, o.Usable, o.Why, want[i])
				}
			}
		}
	})
}

// This device's own DID names its local options.
func TestTheDeviceIsAnAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := choosing(t, daemon.Selection{Agents: suspended{"did:web:a": true, "did:web:b": true}})
		self := b.hub.peer.DID()
		for _, w := range []edge.Work{{}, {Model: self}} {
			if text, _, err := b.ask(w); text != "answer of local/own/m" {
				t.Errorf("%+v: %q %v", w, text, err)
			}
		}
	})
}

// What a match may bring is listed, and goes by its name: an inlet gives that name to
// who carries the chat.
func TestTheModelsOfTheTaxonomyAreListed(t *testing.T) {
	taxonomy, err := selection.Parse([]byte(seedText))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := choosing(t, daemon.Selection{Taxonomy: taxonomy})
		var ids []string
		for _, m := range b.Models(nil).Agents {
			ids = append(ids, m.ID)
		}
		if want := []string{"chat/a", "chat/b", "local/own/m", "worker/x", "worker/y"}; !slices.Equal(ids, want) {
			t.Errorf("models %v, want %v", ids, want)
		}
		chosen, err := b.Select(&edge.Work{Primitive: chain.LLMChat, Model: edge.Auto, Ask: []byte(`"translate this"`)})
		if err != nil {
			t.Fatal(err)
		}
		again, err := b.Select(&edge.Work{Primitive: chain.LLMChat, Model: chosen.Model, Ask: []byte(`"translate this"`)})
		if err != nil || again.Model != chosen.Model || again.Agent != chosen.Agent || again.Capability != chosen.Capability {
			t.Errorf("%+v, %v; the inlet chose %+v", again, err, chosen)
		}
	})
}
