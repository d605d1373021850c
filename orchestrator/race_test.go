package orchestrator_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// edited is a catalogue that is edited while it is used: alpha's price and keys, what
// work denies, a provider that home pins, a primitive and a tier more or less. Lab denies
// alpha, and none of it concerns it.
type edited struct {
	price                       int // of a call of alpha, in thousandths of a dollar
	spare, denies, delta, image bool
	tier                        bool
}

func (e edited) text() string {
	var y strings.Builder
	pick := func(yes bool, a, b string) string {
		if yes {
			return a
		}
		return b
	}
	y.WriteString(pick(e.tier, "tiers: [global, team, workspace, stage, consumer, instance]\n", ""))
	fmt.Fprintf(&y, `providers:
  - {name: alpha, adapter: openai, endpoint: "http://127.0.0.1:9001/v1", keys: [alpha%s], models: [{name: small, primitives: [llm.chat], price: {per_call: 0.%03d}}]}
  - {name: beta, adapter: openai, endpoint: "http://127.0.0.1:9002/v1", models: [{name: small, primitives: [llm.chat]}, {name: words, primitives: [embed.text%s]}]}
  - {name: gamma, adapter: openai, endpoint: "http://127.0.0.1:9003/v1", models: [{name: large, primitives: [llm.chat]}]}
%sprimitives:
  - {name: llm.chat, default: [alpha/small, beta/small], withheld: [gamma/large]}
  - {name: embed.text, default: [beta/words]}
%sworkspaces: [{id: home%s%s}, {id: work%s}, {id: lab, deny: ["alpha/*"]}]
`, pick(e.spare, ", spare", ""), e.price, pick(e.image, ", embed.image", ""),
		pick(e.delta, "  - {name: delta, adapter: openai, endpoint: \"http://127.0.0.1:9004/v1\", models: [{name: m, primitives: [llm.chat]}]}\n", ""),
		pick(e.image, "  - {name: embed.image, default: [beta/words]}\n", ""),
		pick(e.delta, ", pin: [delta/m]", ""), pick(e.tier, ", prefer: [{tier: team, source: research, options: [beta/small]}]", ""), pick(e.denies, ", deny: [\"beta/small\"]", ""))
	return y.String()
}

// draw makes one edit.
func (e *edited) draw(r *rand.Rand) string {
	toggle := func(what string, b *bool) string { *b = !*b; return what }
	switch r.IntN(8) {
	case 0:
		return toggle("a key", &e.spare)
	case 1:
		return toggle("a workspace", &e.denies)
	case 2:
		return toggle("a provider", &e.delta)
	case 3:
		return toggle("a primitive", &e.image)
	case 4:
		return toggle("a tier", &e.tier)
	default:
		e.price = (e.price + 1 + r.IntN(400)) % 1000
		return "a price"
	}
}

// check compares what a device gets of a scope with what the catalogue says since
// Reload returned.
func (e *edited) check(t *testing.T, c *chain.Chain) {
	t.Helper()
	scope := c.Head().Scope
	want := []chain.OptionID{"alpha/small", "beta/small"}
	if e.delta && scope == chain.DefaultScope {
		want = append(want, "delta/m")
	}
	want = slices.DeleteFunc(want, func(id chain.OptionID) bool {
		return scope == "workspace:work" && e.denies && id == "beta/small" || scope == "workspace:lab" && id != "beta/small"
	})
	got := ids(c.Options())
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s has %v, want %v", scope, got, want)
	}
	for _, o := range c.Options() {
		if o.ID == "alpha/small" && (o.Cost.PerCall != chain.MicroUSD(e.price*1000) || (len(o.Keys) == 2) != e.spare) {
			t.Errorf("%s: alpha costs %d with keys %v, want %d and %+v", scope, o.Cost.PerCall, o.Keys, e.price*1000, *e)
		}
	}
}

// TestEditsRaceUse: the catalogue is edited again and again while devices fetch, report
// and protest and somebody looks on. Each edit is in force when Reload returns; no device
// sees a number go back, two bodies of one number or an extension that it may not have;
// and the chains that no edit and no report concerns are to the end what they were.
func TestEditsRaceUse(t *testing.T) {
	const seed, edits, least, most = 7, 40, 20, 120
	scopes := []chain.ScopeID{"workspace:home", "workspace:work", "workspace:lab"}
	now := edited{price: 1}
	r := start(t, newDisk(), parsed(t, now.text()))
	member := func(name string) *device {
		d := r.device(name, "key:alpha", "key:spare")
		for _, scope := range scopes {
			if _, err := d.enrol(r.invite(orchestrator.Invite{Scope: scope})); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	editor := member("editor")
	before := published(t, r)
	first := maps.Clone(before)
	changes := map[string]int{}
	count := func() {
		for slot, body := range published(t, r) {
			if was, had := before[slot]; had && was != body {
				changes[slot]++
			}
			before[slot] = body
		}
	}

	var users sync.WaitGroup
	var done atomic.Bool
	use := func(name string, once func(d *device, random *rand.Rand, n int) error) {
		for i := range 3 {
			d, random := member(fmt.Sprint(i, name)), rand.New(rand.NewPCG(seed, uint64(len(name)+i)))
			users.Go(func() {
				for n := 0; n < least || n < most && !done.Load(); n++ {
					if err := once(d, random, n); err != nil {
						t.Errorf("seed %d: %s: %v", seed, name, err)
						return
					}
				}
			})
		}
	}
	slotOf := func(random *rand.Rand, p chain.Primitive) chain.Slot {
		return chain.Slot{Scope: scopes[random.IntN(len(scopes))], Primitive: p}
	}
	use("fetch", func(d *device, random *rand.Rand, _ int) error {
		_, err := d.fetch(slotOf(random, []chain.Primitive{chain.LLMChat, "embed.text"}[random.IntN(2)]))
		return err
	})
	use("report", func(d *device, random *rand.Rand, n int) error {
		class := chain.OK
		if random.IntN(3) == 0 {
			class = chain.Timeout
		}
		reply, err := r.Report(t.Context(), d.key.PeerID(), batch(d.boot, uint64(n+1), "alpha/small", class, uint64(1+random.IntN(20)), time.Duration(random.IntN(5000))*time.Millisecond))
		if err == nil && !reply.Accepted {
			err = fmt.Errorf("%+v", reply)
		}
		return err
	})
	use("protest", func(d *device, random *rand.Rand, n int) error {
		slot := slotOf(random, chain.LLMChat)
		c, err := d.fetch(slot)
		if err != nil {
			return err
		}
		nonce := fmt.Sprint(n)
		reply, err := r.Protest(t.Context(), d.key.PeerID(), wire.Protest{Slot: slot, Body: c.Head().Body, Nonce: nonce, Failed: []chain.Failure{{Option: "beta/small", Class: chain.Timeout}}})
		if err != nil {
			return err
		}
		if reply.Extension == nil {
			if !strings.Contains(reply.Reason, "not in force any more") {
				return fmt.Errorf("refused: %s", reply.Reason)
			}
			return nil
		}
		options, err := r.trust().VerifyExtension(c, nonce, d.key.PeerID(), reply.Extension, time.Now())
		if err == nil && (len(options) != 1 || options[0].ID != "gamma/large") {
			err = fmt.Errorf("extension %v", ids(options))
		}
		return err
	})
	use("look", func(_ *device, random *rand.Rand, _ int) error {
		if _, err := r.Status(t.Context()); err != nil {
			return err
		}
		_, err := r.Explain(t.Context(), slotOf(random, chain.LLMChat))
		return err
	})

	random := rand.New(rand.NewPCG(seed, 0))
	made := map[string]int{}
	for range edits {
		made[now.draw(random)]++
		if err := r.Reload(t.Context(), parsed(t, now.text())); err != nil {
			t.Fatal(err)
		}
		for _, scope := range scopes {
			c, err := editor.fetch(chain.Slot{Scope: scope, Primitive: chain.LLMChat})
			if err != nil {
				t.Fatal(err)
			}
			now.check(t, c)
		}
		count()
	}
	done.Store(true)
	users.Wait()
	count()
	t.Logf("edits: %v; changes: %v", made, changes)
	if len(made) != 6 {
		t.Errorf("the seed does not draw every kind of edit: %v", made)
	}
	for slot, body := range first {
		touched := slot == "workspace:home/llm.chat" || slot == "workspace:work/llm.chat"
		if touched != (changes[slot] > 0) || !touched && before[slot] != body {
			t.Errorf("%s changed %d times", slot, changes[slot])
		}
	}
}
