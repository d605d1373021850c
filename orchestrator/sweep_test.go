package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// apart is a catalogue with two primitives, and a workspace that keeps alpha out.
const apart = `
providers:
  - {name: alpha, adapter: openai, endpoint: "http://127.0.0.1:9001/v1", keys: [k], models: [{name: small, primitives: [llm.chat], price: {input_per_mtok: 0.1}, prior: {latency_ms: 300, reliability: 0.99}}]}
  - {name: beta, adapter: openai, endpoint: "http://127.0.0.1:9002/v1", keys: [k], models: [{name: small, primitives: [llm.chat], price: {input_per_mtok: 0.1}, prior: {latency_ms: 500, reliability: 0.98}}]}
  - {name: gamma, adapter: openai, endpoint: "http://127.0.0.1:9003/v1", keys: [k], models: [{name: vec, primitives: [embed.text], price: {input_per_mtok: 0.1}}]}
primitives:
  - {name: llm.chat, default: [alpha/small, beta/small]}
  - {name: embed.text, default: [gamma/vec]}
workspaces: [{id: home}, {id: lab, deny: ["alpha/*"]}]
`

// world is a hub with a device each in home, lab, and two scopes without overrides.
type world struct {
	*rig
	devices map[chain.ScopeID]*device
}

var scopes = []chain.ScopeID{"workspace:home", "workspace:lab", "workspace:barn", "workspace:attic"}

func newWorld(t *testing.T, text string) *world {
	w := &world{start(t, newDisk(), parsed(t, text)), map[chain.ScopeID]*device{}}
	for _, scope := range scopes {
		d := w.device(strings.TrimPrefix(string(scope), "workspace:"), "key:k")
		if _, err := d.enrol(w.invite(orchestrator.Invite{Scope: scope})); err != nil {
			t.Fatal(err)
		}
		w.devices[scope] = d
	}
	return w
}

// numbers gives the sequence number of every chain.
func (w *world) numbers() map[string]uint64 {
	w.t.Helper()
	list, err := w.Chains(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]uint64{}
	for _, c := range list {
		out[string(c.Scope)+" "+string(c.Primitive)] = c.Seq
	}
	return out
}

func (w *world) orders() uint64 {
	w.t.Helper()
	s, err := w.Status(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Orders
}

// moved names the chains whose number differs.
func moved(before, after map[string]uint64) string {
	var list []string
	for _, scope := range scopes {
		for _, p := range []string{"llm.chat", "embed.text"} {
			if name := string(scope) + " " + p; before[name] != after[name] {
				list = append(list, strings.TrimPrefix(name, "workspace:"))
			}
		}
	}
	return strings.Join(list, ", ")
}

// TestAReportTouchesOnlyItsChains: those in which the option stands, in whatever scope; the
// others are not even worked out anew.
func TestAReportTouchesOnlyItsChains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, apart)
		time.Sleep(2 * time.Second)
		before, orders := w.numbers(), w.orders()
		if len(before) != 8 {
			t.Fatalf("chains: %v", before)
		}
		w.devices["workspace:home"].report("alpha/small", chain.Timeout, 30, 5*time.Second)
		want := "home llm.chat, barn llm.chat, attic llm.chat"
		if got := moved(before, w.numbers()); got != want {
			t.Errorf("moved: %s, want %s", got, want)
		}
		// home has an entry in the catalogue, barn and attic share that they have none.
		if n := w.orders() - orders; n != 2 {
			t.Errorf("%d orders were worked out for it, want 2", n)
		}

		before, orders = w.numbers(), w.orders()
		for range 50 { // within the minute nothing is published again, and hardly anything worked out
			w.devices["workspace:home"].report("alpha/small", chain.OK, 30, 300*time.Millisecond)
		}
		if got := moved(before, w.numbers()); got != "" {
			t.Errorf("within the minute: %s", got)
		}
		if n := w.orders() - orders; n > 0 {
			t.Errorf("%d orders were worked out in vain", n)
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if got := moved(before, w.numbers()); got != want {
			t.Errorf("after the minute: %s, want %s", got, want)
		}
	})
}

// TestAPriceTouchesOnlyItsChains.
func TestAPriceTouchesOnlyItsChains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, apart)
		for _, c := range []struct{ name, old, new, want string }{
			{"the same again", "", "", ""},
			{"a price", "primitives: [embed.text], price: {input_per_mtok: 0.1}", "primitives: [embed.text], price: {input_per_mtok: 0.2}",
				"home embed.text, lab embed.text, barn embed.text, attic embed.text"},
			{"the price of what lab denies", "primitives: [llm.chat], price: {input_per_mtok: 0.1}, prior: {latency_ms: 300", "primitives: [llm.chat], price: {input_per_mtok: 0.2}, prior: {latency_ms: 300",
				"home llm.chat, barn llm.chat, attic llm.chat"},
			{"a workspace", "workspaces: [", "workspaces: [{id: barn, deny: [\"beta/*\"]}, ", "barn llm.chat"},
		} {
			before := w.numbers()
			text := strings.Replace(apart, c.old, c.new, 1)
			if err := w.Reload(t.Context(), parsed(t, text)); err != nil {
				t.Fatal(err)
			}
			if got := moved(before, w.numbers()); got != c.want {
				t.Errorf("%s moved: %s, want %s", c.name, got, c.want)
			}
			if err := w.Reload(t.Context(), parsed(t, apart)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestASweep: a mesh of thousands of chains is looked over bit by bit, and a device that asks
// before its turn gets what holds now.
func TestASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2100 // scopes of two chains each
		w := &world{start(t, newDisk(), parsed(t, apart)), nil}
		var last *device
		for i := range n {
			last = w.device(fmt.Sprintf("%06d", i), "key:k")
			if _, err := last.enrol(w.invite(orchestrator.Invite{Scope: chain.ScopeID(fmt.Sprintf("workspace:w%06d", i))})); err != nil {
				t.Fatal(err)
			}
		}
		slot := chain.Slot{Scope: "workspace:w002099", Primitive: chain.LLMChat}
		wantOrder(t, last.order(slot), "alpha/small", "beta/small")
		orders := w.orders()
		if err := w.Reload(t.Context(), parsed(t, strings.Replace(apart, "latency_ms: 300", "latency_ms: 3000", 1))); err != nil {
			t.Fatal(err)
		}
		wantOrder(t, last.order(slot), "beta/small", "alpha/small")
		synctest.Wait()
		s, err := w.Status(t.Context())
		if err != nil || s.Sweeping != 0 || s.Bodies > 4 {
			t.Errorf("%d are still to be swept, %d bodies, %v", s.Sweeping, s.Bodies, err)
		}
		if n := w.orders() - orders; n > 10 {
			t.Errorf("%d orders were worked out for scopes that are alike", n)
		}

		time.Sleep(time.Minute)
		orders = w.orders()
		for i := range 300 { // a report every 10 ms: looked at together
			q := batch("boot", uint64(i+1), "alpha/small", chain.OK, 1, time.Duration(100+i)*time.Millisecond)
			q.Counters[0].Slot, q.Measurements[0].Slot = slot, slot
			if reply, err := last.rig.Report(t.Context(), last.key.PeerID(), q); err != nil || !reply.Accepted {
				t.Fatal(reply, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := w.orders() - orders; n == 0 || n > 40 {
			t.Errorf("%d orders were worked out for 300 reports within 3 s", n)
		}
	})
}

// TestManyOverridesAreSwept: chains of stages and consumers count as well. Looked over
// in one turn, thousands of them would keep every protest waiting.
func TestManyOverridesAreSwept(t *testing.T) {
	var text strings.Builder
	text.WriteString(apart[:strings.Index(apart, "primitives:\n")] + "primitives:\n")
	for i := range 9 {
		fmt.Fprintf(&text, "  - {name: llm.x%d, default: [local]}\n", i)
	}
	text.WriteString("  - {name: llm.chat, default: [alpha/small, beta/small]}\nworkspaces:\n  - id: home\n    stages:\n")
	for i := range 19 {
		fmt.Fprintf(&text, "      - {name: s%d, deny: [\"beta/*\"]}\n", i)
	}
	text.WriteString("    consumers:\n")
	for i := range 23 {
		fmt.Fprintf(&text, "      - {name: c%d, deny: [\"alpha/*\"]}\n", i)
	}
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, strings.Replace(declared, "keys: [alpha]", "keys: [k]", 1)))
		r.joined("a", "key:k")
		if err := r.Reload(t.Context(), parsed(t, strings.ReplaceAll(text.String(), "embed.text", "llm.chat"))); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r.LookOver() == 0 { // asked in the same turn: the next ones would end it in no time of the bubble
			t.Error("ten times 480 chains were looked over at once")
		}
		synctest.Wait()
		if n := len(published(t, r)); n != 20*24 {
			t.Errorf("%d chains are published, want %d", n, 20*24)
		}
	})
}

// TestManyPrimitivesAreSwept: a sweep comes to its end also where one turn cannot
// hold a few scopes' chains.
func TestManyPrimitivesAreSwept(t *testing.T) {
	var text strings.Builder
	text.WriteString(apart[:strings.Index(apart, "primitives:\n")] + "primitives:\n  - {name: llm.chat, default: [alpha/small, beta/small]}\n  - {name: embed.text, default: [gamma/vec]}\n")
	for i := range 900 {
		fmt.Fprintf(&text, "  - {name: p%d, default: [local]}\n", i)
	}
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, text.String()+"workspaces: [{id: home}]\n"))
		for i := range 6 {
			if _, err := r.device(fmt.Sprint("d", i), "key:k").enrol(r.invite(orchestrator.Invite{Scope: chain.ScopeID(fmt.Sprint("workspace:w", i))})); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Reload(t.Context(), parsed(t, strings.ReplaceAll(text.String(), "alpha/small, beta", "beta"))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := r.Sweeping(); n != 0 {
			t.Errorf("%d scopes still wait", n)
		}
	})
}

// TestALargeStatus: whoever looks at a hub of thousands of chains gets the first of
// them and the number of the others, and makes it work nothing out.
func TestALargeStatus(t *testing.T) {
	text := strings.Replace(apart, "primitives:\n", "primitives:\n  - {name: p.a, default: [peer]}\n  - {name: p.b, default: [peer]}\n  - {name: p.c, default: [peer]}\n  - {name: p.d, default: [peer]}\n  - {name: p.e, default: [peer]}\n  - {name: p.f, default: [peer]}\n", 1)
	synctest.Test(t, func(t *testing.T) {
		w := &world{start(t, newDisk(), parsed(t, text)), nil}
		for i := range 520 { // of eight chains each
			if _, err := w.device(fmt.Sprintf("%06d", i), "key:k", "execute:p.a", "execute:p.b", "execute:p.c", "execute:p.d", "execute:p.e", "execute:p.f").enrol(w.invite(orchestrator.Invite{Scope: chain.ScopeID(fmt.Sprintf("workspace:w%06d", i))})); err != nil {
				t.Fatal(err)
			}
		}
		w.stop()
		w.rig = start(t, w.disk, parsed(t, text))
		if made := w.PlansOfALook(); made > 1000 {
			t.Errorf("looking made %d answers to protests", made)
		}
		s, err := w.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Chains) > 2000 || len(s.Chains)+s.MoreChains != 4160 || len(s.Devices) != 520 || s.MoreDevices != 0 {
			t.Errorf("%d chains and %d more, %d devices and %d more", len(s.Chains), s.MoreChains, len(s.Devices), s.MoreDevices)
		}
		if c := s.Chains[0]; c.Scope != "workspace:w000000" || len(c.Options) == 0 {
			t.Errorf("the first: %+v", c)
		}
	})
}
