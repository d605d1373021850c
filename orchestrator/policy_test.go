package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/orchestrator/learn"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

func local(id chain.OptionID, primitives ...chain.Primitive) wire.LocalOption {
	return wire.LocalOption{Primitives: primitives, Option: chain.Option{ID: id, Kind: chain.Local, Adapter: "openai", Model: "m",
		Endpoint: "http://127.0.0.1:11434/v1", Keys: []string{"secretname"}}}
}

// TestWhichOptions: who is in and who is out, and that the reason is said.
func TestWhichOptions(t *testing.T) {
	catalogue := func(primitive, workspace string) string {
		text := declared[:strings.Index(declared, "primitives:\n")]
		return text + "primitives:\n  - {name: llm.chat, " + primitive + "}\nworkspaces: [{id: home" + workspace + "}]\n"
	}
	usual := "default: [alpha/small, beta/small, peer], withheld: [gamma/large]"
	for _, c := range []struct {
		name      string
		catalogue string
		can       []chain.Capability
		locals    []wire.LocalOption
		want      []chain.OptionID
		out       map[chain.OptionID]string // part of the reason
	}{
		{name: "no device holds beta's key, none can execute", catalogue: catalogue(usual, ""), can: []chain.Capability{"key:alpha"},
			want: []chain.OptionID{"alpha/small"}, out: map[chain.OptionID]string{"beta/small": "key beta", "peer": "execute:llm.chat"}},
		{name: "the workspace allows no such key", catalogue: catalogue(usual, ", keys: [beta]"), can: []chain.Capability{"key:alpha", "key:beta"},
			want: []chain.OptionID{"beta/small"}, out: map[chain.OptionID]string{"alpha/small": "allows none of its keys"}},
		{name: "a peer can", catalogue: catalogue(usual, ""), can: []chain.Capability{"key:alpha", "key:beta", "execute:llm.chat"},
			want: []chain.OptionID{"alpha/small", "beta/small", "peer"}},
		{name: "denied", catalogue: catalogue(usual, `, deny: ["alpha/*", {primitive: llm.chat, options: [peer]}]`), can: []chain.Capability{"key:alpha", "key:beta", "execute:llm.chat"},
			want: []chain.OptionID{"beta/small"}, out: map[chain.OptionID]string{"alpha/small": "denied by alpha/*", "peer": "denied by peer"}},
		{name: "pinned without being in the default", catalogue: catalogue("default: [alpha/small]", ", pin: [gamma/large]"), can: []chain.Capability{"key:alpha"},
			want: []chain.OptionID{"alpha/small", "gamma/large"}, out: map[chain.OptionID]string{"gamma/huge": "declared by nobody"}},
		{name: "preferred goes first", catalogue: catalogue("default: [alpha/small, beta/small]", ", weights: {preference: 100000}, prefer: [beta/small]"), can: []chain.Capability{"key:alpha", "key:beta"},
			want: []chain.OptionID{"beta/small", "alpha/small"}},
		{name: "fixed keeps the listed order", catalogue: catalogue("order: fixed, default: [gamma/huge, beta/small, alpha/small]", ""), can: []chain.Capability{"key:alpha", "key:beta"},
			want: []chain.OptionID{"gamma/huge", "beta/small", "alpha/small"}},
		{name: "locals stand in front", catalogue: catalogue("order: fixed, default: [alpha/small]", ""), can: []chain.Capability{"key:alpha"},
			locals: []wire.LocalOption{local("local/ollama/q", chain.LLMChat), local("local/other/e", "embed.text")},
			want:   []chain.OptionID{"local/ollama/q", "alpha/small"}},
		{name: "locals stand where the default says", catalogue: catalogue("order: fixed, default: [alpha/small, local]", ""), can: []chain.Capability{"key:alpha"},
			locals: []wire.LocalOption{local("local/b/q", chain.LLMChat), local("local/a/q", chain.LLMChat)},
			want:   []chain.OptionID{"alpha/small", "local/a/q", "local/b/q"}},
		{name: "deny removes a local", catalogue: catalogue("default: [alpha/small, local]", `, deny: ["local/b/*"]`), can: []chain.Capability{"key:alpha"},
			locals: []wire.LocalOption{local("local/b/q", chain.LLMChat)}, want: []chain.OptionID{"alpha/small"}, out: map[chain.OptionID]string{"local/b/q": "denied"}},
		{name: "a local cannot pose as a provider", catalogue: catalogue("default: [alpha/small]", ""), can: []chain.Capability{"key:alpha"},
			locals: []wire.LocalOption{local("gamma/huge", chain.LLMChat), local("peer", chain.LLMChat)}, want: []chain.OptionID{"alpha/small"}},
		{name: "local-only data has no slot", catalogue: catalogue("default: [local, alpha/small], source: {data: local-only}", ""), can: []chain.Capability{"key:alpha", "execute:llm.chat"},
			locals: []wire.LocalOption{local("local/a/q", chain.LLMChat)}, want: []chain.OptionID{"local/a/q", "alpha/small"}},
		{name: "what the source requires goes to every runner", catalogue: catalogue(`default: [alpha/small, gamma/large], source: {requires: ["net:residential"]}`, ""), can: []chain.Capability{"key:alpha"},
			out: map[chain.OptionID]string{"alpha/small": "net:residential", "gamma/large": "net:residential"}},
		{name: "rules without peers", catalogue: catalogue("default: [alpha/small, peer], rules: {peers: false}", ""), can: []chain.Capability{"key:alpha", "execute:llm.chat"},
			want: []chain.OptionID{"alpha/small"}, out: map[chain.OptionID]string{"peer": "no peers"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, newDisk(), parsed(t, c.catalogue))
				d := r.device("a", c.can...)
				d.locals = c.locals
				if _, err := d.enrol(r.invite(orchestrator.Invite{})); err != nil {
					t.Fatal(err)
				}
				if len(c.want) > 0 {
					got, err := d.fetch(home)
					if err != nil {
						t.Fatal(err)
					}
					if order := ids(got.Options()); !slices.Equal(order, c.want) {
						t.Errorf("order %v, want %v", order, c.want)
					}
					for _, o := range got.Options() {
						if o.Kind == chain.Local && (o.Endpoint != "" || o.Keys != nil) {
							t.Errorf("%s tells the others of its address or keys", o.ID)
						}
						if o.Kind == chain.Provider && !strings.HasPrefix(o.Agent, "did:key:z6Mk") {
							t.Errorf("%s: agent %q", o.ID, o.Agent)
						}
					}
				}
				e, err := r.Explain(t.Context(), home)
				if err != nil {
					t.Fatal(err)
				}
				for id, reason := range c.out {
					i := slices.IndexFunc(e.Why, func(v resolve.Verdict) bool { return v.Option == id })
					if i < 0 || e.Why[i].Status != resolve.Out || !strings.Contains(strings.Join(e.Why[i].Reasons, "; "), reason) {
						t.Errorf("%s: want out because of %q, got %+v", id, reason, e.Why)
					}
				}
			})
		})
	}
}

// TestBuiltinOrder: without a catalogue, services of the device go first, then
// peers, and the model that every device has inside is the last resort. A peer is
// worth what its devices run.
func TestBuiltinOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), catalog.Builtin())
		primer := local(chain.BuiltinOption, chain.LLMChat)
		primer.Option.Cost.Quality = chain.PPMOf(0.02)
		a := r.device("a", "execute:llm.chat")
		a.locals = []wire.LocalOption{primer}
		if _, err := a.enrol(r.invite(orchestrator.Invite{})); err != nil {
			t.Fatal(err)
		}
		quality := func(id chain.OptionID) float64 {
			for _, axis := range verdict(t, r, id).Axes {
				if axis.Name == "quality" {
					return axis.Value
				}
			}
			return 0
		}
		wantOrder(t, a.order(home), "peer", chain.BuiltinOption)
		want(t, "quality of a peer that only has the model inside", quality("peer"), 0.02)
		a.locals = append(a.locals, local("local/ollama/q", chain.LLMChat))
		if _, err := a.visit(); err != nil {
			t.Fatal(err)
		}
		wantOrder(t, a.order(home), "local/ollama/q", "peer", chain.BuiltinOption)
		want(t, "quality of a peer that has a service", quality("peer"), 0.5)
		// embed.text has no runner, and so no chain.
		if chains, err := r.Chains(t.Context()); err != nil || len(chains) != 1 {
			t.Errorf("%+v %v", chains, err)
		}
	})
}

// TestDevicesComeAndGo: what one device can is news for all of its scope, at once.
func TestDevicesComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		a := r.joined("a", "key:alpha")
		wantOrder(t, a.order(home), "alpha/small")
		before := r.said.count()
		b := r.joined("b", "key:beta", "execute:llm.chat")
		wantOrder(t, a.order(home), "alpha/small", "beta/small", "peer")
		if r.said.count() <= before {
			t.Error("nobody was told")
		}
		b.capabilities = nil
		if _, err := b.visit(); err != nil {
			t.Fatal(err)
		}
		wantOrder(t, a.order(home), "alpha/small")
		seq := a.marks[home].Seq
		if _, err := b.visit(); err != nil {
			t.Fatal(err)
		}
		a.order(home)
		want(t, "sequence after a visit without news", a.marks[home].Seq, seq)
	})
}

// TestReload: a new catalogue is in force when Reload returns, and an edit with a
// fault in it never gets that far.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		d := r.joined("a", "key:alpha", "key:beta")
		wantOrder(t, d.order(home), "alpha/small", "beta/small")
		was := d.marks[home]

		if err := r.Reload(t.Context(), parsed(t, strings.Replace(declared, "[alpha/small, beta/small, peer]", "[beta/small, alpha/small, peer]", 1))); err != nil {
			t.Fatal(err)
		}
		wantOrder(t, d.order(home), "beta/small", "alpha/small")
		if now := d.marks[home]; now.Seq <= was.Seq || now.Body == was.Body {
			t.Errorf("mark %+v after %+v", now, was)
		}
		if said := r.said.last(); said.Slot != home || said.Seq != d.marks[home].Seq || said.Body != d.marks[home].Body {
			t.Errorf("said %+v", said)
		}

		if _, err := catalog.Parse("c", []byte(strings.Replace(declared, "price", "prise", 1))); err == nil {
			t.Fatal("the fault was not seen")
		}
		wantOrder(t, d.order(home), "beta/small", "alpha/small")

		// A rate by nature reaches the devices as a rule.
		if err := r.Reload(t.Context(), parsed(t, strings.Replace(declared, "default: [alpha/small, beta/small, peer],", "default: [beta/small, alpha/small, peer], source: {calls_per_minute: 12},", 1))); err != nil {
			t.Fatal(err)
		}
		c, err := d.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "calls a minute", c.Rules().CallsPerMinute, chain.PPMOf(12))

		again := parsed(t, strings.Replace(declared, "[alpha/small, beta/small, peer]", "[beta/small, alpha/small, peer]", 1))
		if err := r.Reload(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		told := r.said.count()
		if err := r.Reload(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		want(t, "invalidations after the same catalogue again", r.said.count(), told)

		// A primitive that is gone takes its chain along.
		if err := r.Reload(t.Context(), catalog.Builtin()); err != nil {
			t.Fatal(err)
		}
		if _, err := d.fetch(home); err == nil {
			t.Error("the builtin catalogue has neither alpha nor beta, and nobody executes")
		}
	})
}

// TestReportMovesAnOrder: what devices measured corrects what was declared. The
// first change is at once; the next of the same chain a minute later.
func TestReportMovesAnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		d := r.joined("a", "key:alpha", "key:beta")
		wantOrder(t, d.order(home), "alpha/small", "beta/small")
		d.report("alpha/small", chain.Timeout, 10, 5*time.Second)
		wantOrder(t, d.order(home), "beta/small", "alpha/small")

		time.Sleep(10 * time.Second)
		d.report("beta/small", chain.Unreachable, 20, time.Second)
		d.report("alpha/small", chain.OK, 20, 100*time.Millisecond)
		d.report("alpha/small", chain.OK, 20, 100*time.Millisecond)
		wantOrder(t, d.order(home), "beta/small", "alpha/small") // not yet: the last change was 10 s ago
		e, err := r.Explain(t.Context(), home)
		if err != nil || e.OfferAgain == nil {
			t.Errorf("explain does not say that a change waits: %v", err)
		}
		time.Sleep(51 * time.Second)
		synctest.Wait()
		wantOrder(t, d.order(home), "alpha/small", "beta/small")
	})
}

// TestSuspect: an outage that most devices see is news at once, however good the
// option's name was, and is over a quarter of an hour after the last word of it.
func TestSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		var devices []*device
		for _, name := range []string{"a", "b", "c"} {
			d := r.joined(name, "key:alpha", "key:beta")
			for range 20 {
				d.report("alpha/small", chain.OK, 20, 300*time.Millisecond)
			}
			devices = append(devices, d)
		}
		time.Sleep(2 * time.Minute)
		a := devices[0]
		wantOrder(t, a.order(home), "alpha/small", "beta/small")
		for _, d := range devices {
			d.report("alpha/small", chain.Timeout, 1, 5*time.Second)
		}
		wantOrder(t, a.order(home), "beta/small", "alpha/small")
		if e, err := r.Explain(t.Context(), home); err != nil || !slices.Equal(e.Suspects, []chain.OptionID{"alpha/small"}) {
			t.Errorf("explain does not say so: %v %v", e.Suspects, err)
		}
		time.Sleep(16 * time.Minute)
		synctest.Wait()
		wantOrder(t, a.order(home), "alpha/small", "beta/small")
	})
}

// TestSlowIsNotFailed: slow answers move an order through latency, instant
// failures do not make an option look fast.
func TestSlowIsNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		d := r.joined("a", "key:alpha", "key:beta")
		d.order(home)
		d.report("alpha/small", chain.OK, 30, 20*time.Second)
		wantOrder(t, d.order(home), "alpha/small", "beta/small") // one device is not the fleet
		for _, name := range []string{"b", "c", "d", "e"} {
			r.joined(name, "key:alpha", "key:beta").report("alpha/small", chain.OK, 30, 20*time.Second)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		wantOrder(t, d.order(home), "beta/small", "alpha/small")
		before := latency(t, r, "beta/small")
		d.report("beta/small", chain.Status, 3, time.Millisecond)
		if after := latency(t, r, "beta/small"); after != before {
			t.Errorf("instant failures moved the latency from %v to %v", before, after)
		}
		p := success(t, r, "beta/small")
		for _, neutral := range []chain.Class{chain.Canceled, chain.CallerError, chain.Offline, chain.Busy, chain.ContextLength, chain.Filtered, chain.NoPeer} {
			d.report("beta/small", neutral, 5, time.Millisecond)
		}
		if after := success(t, r, "beta/small"); after != p {
			t.Errorf("neutral outcomes moved p from %v to %v", p, after)
		}
	})
}

func verdict(t *testing.T, r *rig, id chain.OptionID) resolve.Verdict {
	t.Helper()
	e, err := r.Explain(context.Background(), home)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(e.Why, func(v resolve.Verdict) bool { return v.Option == id })
	if i < 0 {
		t.Fatalf("no verdict on %s", id)
	}
	return e.Why[i]
}

func success(t *testing.T, r *rig, id chain.OptionID) float64 { return verdict(t, r, id).P }

func latency(t *testing.T, r *rig, id chain.OptionID) float64 {
	t.Helper()
	for _, a := range verdict(t, r, id).Axes {
		if a.Name == "latency" {
			return a.Value
		}
	}
	t.Fatal("no latency axis")
	return 0
}

// TestImpossibleReports: one value that cannot be, and the whole batch is refused:
// nothing of it is learned, and the number of the batch is not used up.
func TestImpossibleReports(t *testing.T) {
	for name, spoil := range map[string]func(*wire.Report){
		"more outcomes than attempts":  func(r *wire.Report) { r.Counters[0].Outcomes[chain.OK] = 21 },
		"an unknown class":             func(r *wire.Report) { r.Counters[0].Outcomes["splendid"] = 1 },
		"a window in the future":       func(r *wire.Report) { r.To += 3_600_000 },
		"a window that runs backwards": func(r *wire.Report) { r.From = r.To + 1 },
		"a negative duration":          func(r *wire.Report) { r.Measurements[0].Total = -1 },
		"a duration of a month":        func(r *wire.Report) { r.Measurements[0].Total = 31 * 24 * 3_600_000 },
		"first output after the end":   func(r *wire.Report) { r.Measurements[0].FirstOutput = r.Measurements[0].Total + 1 },
		"a measurement from before":    func(r *wire.Report) { r.Measurements[0].At = r.From - 7_200_000 },
		"negative tokens":              func(r *wire.Report) { r.Measurements[0].Output = -1 },
		"a success that nobody counted": func(r *wire.Report) {
			r.Counters[0].Outcomes = map[chain.Class]uint64{chain.Timeout: 20}
			r.Counters[0].LastOK = true
		},
		"attempts beyond counting": func(r *wire.Report) { r.Counters[0].Attempts = 1 << 60 },
		"a cost of a billion":      func(r *wire.Report) { r.Measurements[0].Cost = 1e15 },
		"no boot id":               func(r *wire.Report) { r.BootID = "" },
		"sequence zero":            func(r *wire.Report) { r.Seq = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, newDisk(), parsed(t, declared))
				d := r.joined("a", "key:alpha", "key:beta")
				p := success(t, r, "beta/small")
				bad := batch("boot", 1, "beta/small", chain.OK, 20, time.Second)
				bad.Counters = append(bad.Counters, wire.Counter{Slot: home, Option: "alpha/small", Attempts: 20, Outcomes: map[chain.Class]uint64{chain.Timeout: 20}})
				slices.Reverse(bad.Counters) // the good half comes first
				bad.Counters = slices.Clone(bad.Counters)
				slices.Reverse(bad.Counters)
				spoil(&bad)
				reply, err := r.Report(t.Context(), d.key.PeerID(), bad)
				if err != nil || reply.Accepted || reply.Reason == "" {
					t.Fatalf("%+v %v", reply, err)
				}
				if success(t, r, "beta/small") != p || verdict(t, r, "alpha/small").Learned {
					t.Error("something of it was learned")
				}
				good := batch("boot", 1, "beta/small", chain.Timeout, 20, time.Second)
				if reply, err := r.Report(t.Context(), d.key.PeerID(), good); err != nil || !reply.Accepted {
					t.Fatalf("%+v %v", reply, err)
				}
				if success(t, r, "beta/small") >= p {
					t.Error("the good batch under the same number did not count")
				}
			})
		})
	}
}

// TestCountsOnce: each batch up to three times, in any order, over a restart: the
// result is that of each once, in order.
func TestCountsOnce(t *testing.T) {
	reports := func(now chain.Instant) []wire.Report {
		var list []wire.Report
		for i := range uint64(40) {
			class := chain.OK
			if i%3 == 0 {
				class = chain.Timeout
			}
			list = append(list, wire.Report{BootID: "boot", Seq: i + 1, From: now, To: now,
				Counters: []wire.Counter{{Slot: home, Option: "alpha/small", Attempts: 1, Outcomes: map[chain.Class]uint64{class: 1}}}})
		}
		return list
	}
	record := func(order func([]wire.Report) []wire.Report, restart bool) (successes, failures uint64) {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk()
			r := start(t, d, parsed(t, declared))
			a := r.joined("a", "key:alpha")
			list := order(reports(chain.InstantOf(time.Now())))
			for i, q := range list {
				if restart && i == len(list)/2 {
					r.stop()
					r = start(t, d, parsed(t, declared))
				}
				if reply, err := r.Report(t.Context(), a.key.PeerID(), q); err != nil || !reply.Accepted {
					t.Fatalf("%+v %v", reply, err)
				}
			}
			r.stop()
			book := learn.NewBook()
			for key, b := range d.buckets["hub-learned"] {
				var raw []byte
				if err := chain.Unmarshal(b, &raw); err != nil {
					t.Fatal(err)
				}
				if err := book.Restore(key, raw); err != nil {
					t.Fatal(err)
				}
			}
			successes, failures = book.Totals(learn.Key{Primitive: home.Primitive, Option: "alpha/small"})
		})
		return successes, failures
	}
	wantOK, wantBad := record(func(l []wire.Report) []wire.Report { return l }, false)
	if wantOK != 26 || wantBad != 14 {
		t.Fatalf("once and in order: %d and %d", wantOK, wantBad)
	}
	for seed := range uint64(6) {
		shuffled := func(l []wire.Report) []wire.Report {
			random := rand.New(rand.NewPCG(seed, 0))
			var all []wire.Report
			for _, q := range l {
				for range 1 + random.IntN(3) {
					all = append(all, q)
				}
			}
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			return all
		}
		if ok, bad := record(shuffled, seed%2 == 1); ok != wantOK || bad != wantBad {
			t.Errorf("seed %d: %d and %d, want %d and %d", seed, ok, bad, wantOK, wantBad)
		}
	}
}

// TestInventedOptions: what no chain and no catalogue knows leaves nothing behind.
func TestInventedOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		d := r.joined("a", "key:alpha")
		d.report("made/up", chain.OK, 3, time.Second)
		d.report("local/made/up", chain.OK, 3, time.Second)
		if s, err := r.Status(t.Context()); err != nil || s.Learned != 0 {
			t.Errorf("%d options were learned: %v", s.Learned, err)
		}
	})
}

// TestReportsDescribe: a report may bring news of what a device can; what it does
// not speak of stays.
func TestReportsDescribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		d := r.device("a", "key:alpha")
		d.locals = []wire.LocalOption{local("local/ollama/q", chain.LLMChat)}
		if _, err := d.enrol(r.invite(orchestrator.Invite{})); err != nil {
			t.Fatal(err)
		}
		wantOrder(t, slices.Sorted(slices.Values(d.order(home))), "alpha/small", "local/ollama/q")
		now := chain.InstantOf(time.Now())
		if reply, err := r.Report(t.Context(), d.key.PeerID(), wire.Report{BootID: "b", Seq: 1, From: now, To: now, Capabilities: []chain.Capability{"key:beta"}}); err != nil || !reply.Accepted {
			t.Fatalf("%+v %v", reply, err)
		}
		wantOrder(t, slices.Sorted(slices.Values(d.order(home))), "beta/small", "local/ollama/q")
	})
}

// TestFullDisk: what cannot be kept is not acknowledged, and counts once when it
// comes again.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		r := start(t, d, parsed(t, declared))
		a := r.joined("a", "key:alpha", "key:beta")
		p := success(t, r, "alpha/small")
		d.failing(errors.New("no space left"))
		q := batch("boot", 1, "alpha/small", chain.Timeout, 20, time.Second)
		if reply, err := r.Report(t.Context(), a.key.PeerID(), q); err == nil || reply.Accepted {
			t.Fatalf("acknowledged: %+v", reply)
		}
		want(t, "p", success(t, r, "alpha/small"), p)
		if _, err := r.Invite(t.Context(), orchestrator.Invite{}); err == nil {
			t.Error("an invitation that is not kept was handed out")
		}
		d.failing(nil)
		if reply, err := r.Report(t.Context(), a.key.PeerID(), q); err != nil || !reply.Accepted {
			t.Fatalf("%+v %v", reply, err)
		}
		if success(t, r, "alpha/small") >= p {
			t.Error("it did not count")
		}
	})
}

// What members declare of their own must not crowd the catalogue's options out of a
// chain, nor make it too large to publish.
func TestLocalsDoNotCrowdTheCatalogueOut(t *testing.T) {
	for name, text := range map[string]string{"many": "", "large": strings.Repeat("x", 2000)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, newDisk(), parsed(t, declared))
				a := r.joined("a", "key:alpha", "key:beta", "execute:llm.chat")
				for i := range 3 {
					d := r.device(fmt.Sprint("gr", i), "execute:llm.chat")
					for j := range wire.MaxLocals {
						l := local(chain.OptionID(fmt.Sprintf("local/greedy%d/%d", i, j)), chain.LLMChat)
						l.Option.Cost.Quality, l.Option.Domain, l.Option.Model, l.Option.Adapter = 1e6, text, "m"+text, "a"+text
						d.locals = append(d.locals, l)
					}
					if _, err := d.enrol(r.invite(orchestrator.Invite{})); err != nil {
						t.Fatal(err)
					}
				}
				a.locals = []wire.LocalOption{local("local/ollama/q", chain.LLMChat)}
				if _, err := a.visit(); err != nil {
					t.Fatal(err)
				}
				order := a.order(home)
				for _, id := range []chain.OptionID{"alpha/small", "beta/small", "peer", "local/ollama/q"} {
					if !slices.Contains(order, id) {
						t.Errorf("%s is not among the %d options", id, len(order))
					}
				}
				if len(order) > chain.MaxOptions {
					t.Errorf("%d options", len(order))
				}
			})
		})
	}
}

// A price that no arithmetic of a body can hold puts its option last, and keeps
// nothing from being published.
func TestAHugePrice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Replace(declared, "price: {per_call: 1}", "price: {per_call: 1000000, input_per_mtok: 1000000, output_per_mtok: 1000000}", 1)
		r := start(t, newDisk(), parsed(t, strings.Replace(text, "[{id: home}]", "[{id: home, pin: [gamma/huge]}]", 1)))
		a := r.joined("a", "key:alpha", "key:beta", "execute:llm.chat")
		l := local("local/dear/q", chain.LLMChat)
		l.Option.Cost.PerCall, l.Option.Cost.InputPerMtok, l.Option.Cost.OutputPerMtok = 1<<53, 1<<53, 1<<53
		a.locals = []wire.LocalOption{l}
		if _, err := a.visit(); err != nil {
			t.Fatal(err)
		}
		order := a.order(home)
		if len(order) != 5 || order[len(order)-1] != "local/dear/q" || order[len(order)-2] != "gamma/huge" {
			t.Errorf("%v", order)
		}
	})
}

// A slot that lets providers be used is there for devices that have nothing but
// keys: they say that they can run it once they hold the chain with it.
func TestASlotForDevicesWithKeysAlone(t *testing.T) {
	for peer, want := range map[string]bool{"peer: {via: [local, provider]}": true, "peer: {via: [local]}": false} {
		text := strings.Replace(declared, "default: [alpha/small, beta/small, peer]", "default: [alpha/small, beta/small, peer], "+peer, 1)
		r := start(t, newDisk(), parsed(t, text))
		d := r.joined("a", "key:alpha", "key:beta", "submit")
		if got := slices.Contains(d.order(home), "peer"); got != want {
			t.Errorf("%s: a slot: %v", peer, got)
		}
	}
}
