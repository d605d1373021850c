package orchestrator_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// staged is a workspace with something of its own for a stage, a consumer and an instance.
const staged = `workspaces:
  - id: home
    stages:
      - {name: extract, order: fixed, default: [{primitive: llm.chat, options: [gamma/large, beta/small]}]}
      - {name: elsewhere, default: [{primitive: embed.text, options: [local/x/y]}]}
    consumers: [{name: billing, deny: [beta/small]}]
    instances: [{name: eu-1, pin: [gamma/huge], weights_unknown: 1}]
`

// The hub prepares a chain for every combination that the catalogue speaks of,
// offers them with the others, signs them, and explains who had a say.
func TestOverridesHaveChainsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Replace(declared, "workspaces: [{id: home}]", strings.Replace(strings.Replace(staged, ", weights_unknown: 1", "", 1), "local/x/y", "local", 1), 1)
		text = strings.Replace(text, "primitives:\n", "primitives:\n  - {name: embed.text, default: [local]}\n", 1)
		r := start(t, newDisk(), parsed(t, text))
		d := r.joined("a", "key:alpha", "key:beta", "execute:llm.chat")
		of := func(q chain.Qualifier) chain.Slot {
			return chain.Slot{Scope: chain.DefaultScope.With(q), Primitive: chain.LLMChat}
		}
		w, err := d.visit()
		if err != nil {
			t.Fatal(err)
		}
		var offered []string
		for _, a := range w.Chains {
			offered = append(offered, string(a.Slot.Scope))
		}
		slices.Sort(offered)
		if want := []string{"workspace:home", "workspace:home;consumer=billing", "workspace:home;consumer=billing;instance=eu-1", "workspace:home;instance=eu-1",
			"workspace:home;stage=extract", "workspace:home;stage=extract;consumer=billing", "workspace:home;stage=extract;consumer=billing;instance=eu-1",
			"workspace:home;stage=extract;instance=eu-1"}; !slices.Equal(offered, want) {
			t.Errorf("offered %v", offered)
		}
		wantOrder(t, d.order(home), "alpha/small", "beta/small", "peer")
		wantOrder(t, d.order(of(chain.Qualifier{Stage: "extract"})), "gamma/large", "beta/small", "alpha/small", "peer")
		wantOrder(t, d.order(of(chain.Qualifier{Stage: "extract", Consumer: "billing"})), "gamma/large", "alpha/small", "peer")
		wantOrder(t, d.order(of(chain.Qualifier{Stage: "extract", Consumer: "billing", Instance: "eu-1"})), "gamma/large", "alpha/small", "peer", "gamma/huge")

		e, err := r.Explain(t.Context(), of(chain.Qualifier{Stage: "extract", Consumer: "billing", Instance: "eu-1"}))
		if err != nil {
			t.Fatal(err)
		}
		said := map[chain.OptionID]string{}
		for _, v := range e.Why {
			said[v.Option] = strings.Join(v.Reasons, "; ")
		}
		for id, want := range map[chain.OptionID]string{"gamma/large": "default of stage extract, place 1 of 2", "beta/small": "denied by beta/small (consumer billing)",
			"gamma/huge": "pinned by gamma/huge (instance eu-1)", "alpha/small": "default, place 1 of 3"} {
			if said[id] != want {
				t.Errorf("%s: %q, want %q", id, said[id], want)
			}
		}

		// Whoever asks about a stage that nobody declared is told so, and makes no chain.
		unknown := of(chain.Qualifier{Stage: "nobody's"})
		if _, err := r.Explain(t.Context(), unknown); err == nil || !strings.Contains(err.Error(), "at last that of workspace:home") {
			t.Errorf("explain of an undeclared stage: %v", err)
		}
		if all, err := r.Chains(t.Context()); err != nil || slices.ContainsFunc(all, func(c orchestrator.ChainSummary) bool { return c.Scope == unknown.Scope }) {
			t.Errorf("an undeclared stage has a chain: %v", err)
		}

		// Nobody joins a stage, and a stranger to the scope gets none of its chains.
		if _, err := r.Invite(t.Context(), orchestrator.Invite{Scope: "workspace:home;stage=extract"}); err == nil {
			t.Error("an invitation to a stage")
		}
		other := r.device("b")
		if _, err := other.enrol(r.invite(orchestrator.Invite{Scope: "workspace:other"})); err != nil {
			t.Fatal(err)
		}
		if _, err := other.fetch(of(chain.Qualifier{Stage: "extract"})); code(err) != "scope" {
			t.Errorf("a stranger fetched: %v", err)
		}

		// Without the stage its chains end, and devices are told to ask what there is.
		if err := r.Reload(t.Context(), parsed(t, declared)); err != nil {
			t.Fatal(err)
		}
		if said := r.said.last(); said.Slot != (chain.Slot{Scope: chain.DefaultScope, Primitive: chain.Overrides}) {
			t.Errorf("said %+v", said)
		}
		if _, err := d.fetch(of(chain.Qualifier{Stage: "extract"})); code(err) != "no_chain" {
			t.Errorf("a withdrawn chain: %v", err)
		}
		if w, err = d.visit(); err != nil || len(w.Chains) != 1 {
			t.Errorf("offered %+v %v", w.Chains, err)
		}
	})
}

// Where an override leaves nothing, its requests get nothing: a device must not
// fall back to a wider chain, and to what the override denied.
func TestAnOverrideThatDeniesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, strings.Replace(declared, "workspaces: [{id: home}]", `workspaces: [{id: home, consumers: [{name: guest, deny: ["*"]}]}]`, 1)))
		d := r.joined("a", "key:alpha")
		guest := chain.Slot{Scope: chain.DefaultScope.With(chain.Qualifier{Consumer: "guest"}), Primitive: chain.LLMChat}
		c, err := d.fetch(guest)
		if err != nil {
			t.Fatal(err)
		}
		if options := c.Options(); len(options) != 1 || options[0].Known() {
			t.Errorf("options %+v", options)
		}
		reply, err := r.Protest(t.Context(), d.key.PeerID(), wire.Protest{Slot: guest, Body: c.Head().Body, Nonce: "n", Failed: []chain.Failure{{Option: "nothing", Class: chain.Absent}}})
		if err != nil || reply.Extension != nil {
			t.Errorf("a protest brings %+v %v", reply, err)
		}
		d.capabilities = append(d.capabilities, "key:beta")
		if _, err := d.visit(); err != nil {
			t.Fatal(err)
		}
		wantOrder(t, d.order(guest), "nothing")
		wantOrder(t, d.order(home), "alpha/small", "beta/small")
	})
}

// grown is a catalogue in parts, so that a test can add one.
type grown struct{ tiers, providers, primitives, workspaces string }

func (g grown) text() string {
	return g.tiers + "providers:\n" + g.providers + "primitives:\n" + g.primitives + "workspaces:\n" + g.workspaces
}

// Growth is an edit of the catalogue: it takes effect at once, without a restart,
// and touches no chain that it does not concern.
func TestGrowthIsAnEditOfTheCatalogue(t *testing.T) {
	const alpha = "  - {name: alpha, adapter: openai, endpoint: \"http://127.0.0.1:9001/v1\", keys: [alpha], models: [{name: small, primitives: [llm.chat], price: {per_call: 0.001}}]}\n"
	const beta = "  - {name: beta, adapter: openai, endpoint: \"http://127.0.0.1:9002/v1\", models: [{name: words, primitives: [embed.text]}]}\n"
	base := grown{providers: alpha + beta,
		primitives: "  - {name: llm.chat, default: [alpha/small, gamma/large]}\n  - {name: embed.text, default: [beta/words]}\n",
		workspaces: "  - {id: home}\n  - {id: work, prefer: [alpha/small]}\n"}
	base.providers += "  - {name: gamma, adapter: openai, endpoint: \"http://127.0.0.1:9003/v1\", keys: [gamma, gamma2], models: [{name: large, primitives: [llm.chat]}]}\n"
	const (
		homeChat, homeWords = "workspace:home/llm.chat", "workspace:home/embed.text"
		workChat, workWords = "workspace:work/llm.chat", "workspace:work/embed.text"
	)
	for _, c := range []struct {
		name    string
		edit    func(*grown)
		act     func(*device) error // what a device does besides
		changed []string
		made    []string
	}{
		{name: "nothing", edit: func(*grown) {}},
		{name: "a provider", edit: func(g *grown) {
			g.providers += "  - {name: delta, adapter: openai, endpoint: \"http://127.0.0.1:9004/v1\", models: [{name: m, primitives: [llm.chat]}]}\n"
			g.primitives = strings.Replace(g.primitives, "[alpha/small, gamma/large]", "[alpha/small, delta/m]", 1)
		}, changed: []string{homeChat, workChat}},
		{name: "a provider that no list names", edit: func(g *grown) {
			g.providers += "  - {name: delta, adapter: openai, endpoint: \"http://127.0.0.1:9004/v1\", models: [{name: m, primitives: [llm.chat]}]}\n"
		}},
		{name: "a price", edit: func(g *grown) { g.providers = strings.Replace(g.providers, "0.001", "0.002", 1) }, changed: []string{homeChat, workChat}},
		{name: "a key", edit: func(g *grown) { g.providers = strings.Replace(g.providers, "keys: [alpha]", "keys: [alpha, spare]", 1) }, changed: []string{homeChat, workChat}},
		{name: "a key on a device", edit: func(*grown) {}, act: func(d *device) error {
			d.capabilities = append(d.capabilities, "key:gamma")
			_, err := d.visit()
			return err
		},
			changed: []string{homeChat, workChat}},
		{name: "a primitive", edit: func(g *grown) {
			g.providers = strings.Replace(g.providers, "primitives: [embed.text]", "primitives: [embed.text, embed.image]", 1)
			g.primitives += "  - {name: embed.image, default: [beta/words]}\n"
		}, made: []string{"workspace:home/embed.image", "workspace:work/embed.image"}},
		{name: "a tier", edit: func(g *grown) {
			g.tiers = "tiers: [global, team, workspace, stage, consumer, instance]\n"
			g.workspaces = strings.Replace(g.workspaces, "{id: home}", "{id: home, prefer: [{tier: team, source: research, options: [alpha/small]}]}", 1)
		}, changed: nil}, // one option only: preferred or not, it is credited as before
		{name: "a tier whose seeds reorder", edit: func(g *grown) {
			g.tiers = "tiers: [global, team, workspace, stage, consumer, instance]\n"
			g.workspaces = strings.Replace(g.workspaces, "{id: home}", "{id: home, weights: {preference: 500000}, prefer: [{tier: team, source: research, options: [beta/words]}]}", 1)
		}, changed: []string{homeChat, homeWords}},
		{name: "a workspace", edit: func(g *grown) { g.workspaces += "  - {id: new, deny: [alpha/small]}\n" }},
		{name: "a workspace that a device joins", edit: func(g *grown) { g.workspaces += "  - {id: new, deny: [alpha/small]}\n" }, act: func(d *device) error {
			_, err := d.enrol(d.rig.invite(orchestrator.Invite{Scope: "workspace:new"}))
			return err
		}, made: []string{"workspace:new/embed.text"}},
		{name: "a workspace's stage", edit: func(g *grown) {
			g.workspaces = strings.Replace(g.workspaces, "{id: home}", "{id: home, stages: [{name: s, deny: [{primitive: embed.text, options: [none/x*, alpha/*]}]}]}", 1)
			g.workspaces = strings.Replace(g.workspaces, "none/x*, ", "", 1)
		}, made: []string{"workspace:home;stage=s/embed.text"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, newDisk(), parsed(t, base.text()))
				d := r.device("a", "key:alpha")
				for _, scope := range []chain.ScopeID{"workspace:home", "workspace:work"} {
					if _, err := d.enrol(r.invite(orchestrator.Invite{Scope: scope})); err != nil {
						t.Fatal(err)
					}
				}
				before := published(t, r)
				if len(before) != 4 {
					t.Fatalf("%d chains before: %v", len(before), before)
				}
				g := base
				c.edit(&g)
				if err := r.Reload(t.Context(), parsed(t, g.text())); err != nil {
					t.Fatal(err)
				}
				if c.act != nil {
					if err := c.act(d); err != nil {
						t.Fatal(err)
					}
				}
				var changed, made []string
				after := published(t, r)
				for _, slot := range slices.Sorted(maps.Keys(after)) {
					if was, had := before[slot]; !had {
						made = append(made, slot)
					} else if was != after[slot] {
						changed = append(changed, slot)
					}
				}
				slices.Sort(c.changed)
				t.Logf("changed %v, new %v, untouched %d", changed, made, len(before)-len(changed))
				if !slices.Equal(changed, c.changed) || !slices.Equal(made, c.made) {
					t.Errorf("changed %v, want %v; new %v, want %v", changed, c.changed, made, c.made)
				}
			})
		})
	}
}

// published gives the sequence number and body of every chain by slot.
func published(t *testing.T, r *rig) map[string]string {
	list, err := r.Chains(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, s := range list {
		out[string(s.Scope)+"/"+string(s.Primitive)] = s.Body.String()
	}
	return out
}

// The names of stages are any device's to choose. What the catalogue does not
// speak of makes no chain, gets no block of a ceiling and is not remembered.
func TestStagesThatNobodyDeclared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, rationed))
		d := r.joined("a", "key:alpha", "key:beta")
		c, err := d.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		before := len(published(t, r))
		invented := func(i int) chain.Slot {
			return chain.Slot{Scope: chain.DefaultScope.With(chain.Qualifier{Stage: fmt.Sprint("x", i)}), Primitive: chain.LLMChat}
		}
		rep := batch("boot-of-a", 1, "alpha/small", chain.OK, 1, time.Second)
		for i := range 8 {
			slot := invented(i)
			reply, err := r.Lease(t.Context(), d.key.PeerID(), wire.Lease{Asks: []wire.LeaseAsk{{Account: "key beta calls_per_day", Slot: slot, Least: 1}}})
			if err != nil || reply.Grants[0].Amount != 0 {
				t.Errorf("leased for a stage that nobody declared: %+v %v", reply, err)
			}
			r.Sweep(chain.DefaultScope) // not every chain is looked over yet
			if _, err := d.fetch(slot); code(err) != "no_chain" {
				t.Errorf("fetched: %v", err)
			}
			if _, err := r.Protest(t.Context(), d.key.PeerID(), wire.Protest{Slot: slot, Body: c.Head().Body, Nonce: fmt.Sprint("nonce-", i)}); err != nil {
				t.Error(err)
			}
			rep.Protests = append(rep.Protests, wire.Protest{Slot: slot, Nonce: fmt.Sprint("queued-", i)})
		}
		if reply, err := r.Report(t.Context(), d.key.PeerID(), rep); err != nil || !reply.Accepted {
			t.Errorf("%+v %v", reply, err)
		}
		if n := r.ProtestSlots(); n != 0 {
			t.Errorf("protests of %d slots are counted", n)
		}
		if after := len(published(t, r)); after != before {
			t.Errorf("%d chains are published, %d were", after, before)
		}
	})
}
