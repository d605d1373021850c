package delta_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
)

var idle = delta.Idle{For: time.Hour}

func TestWhatIsExplored(t *testing.T) {
	long := 48 * time.Hour
	for _, c := range []struct {
		name, chain string
		prepare     func(*world)
		idle        delta.Idle
		want        string
	}{
		{"the most optimistic that is not in front", "a p=.99 s=1 | b p=.9 s=3 | c p=.99 s=2 | d p=.99 s=9", nil, idle, "c optimistic"},
		{"peers are measured by use", "a p=.99 s=1 | peer p=.99 s=1 | c p=.99 s=2", nil, idle, "c optimistic"},
		{"a suspect before all, even in front", "a p=.2 s=1 | b p=.9 s=3", func(w *world) { w.view.Options[0].Cost.Usual = 990000 }, idle, "a suspect"},
		{"what the fleet knows little of, whatever its price", "a p=.99 s=1 | b p=.99 s=1.1 | c p=.99 s=90 call=3", func(w *world) {
			w.view.Options[2].Cost.Weight = 1
			w.view.Options[2].Cost.Beside = 3_000_000
		}, idle, "c stale"},
		{"not what is known well and is worse at its best", "a p=.99 s=1 | b p=.99 s=30", nil, idle, ""},
		{"what is known well of others, and might be near", "a p=.99 s=1 | b p=.99 s=30 | c p=.99 s=1.2", nil, idle, "c optimistic"},
		{"not while busy", "a p=.99 s=1 | b p=.9 s=3", nil, delta.Idle{Busy: true, For: long}, ""},
		{"not so soon after a request", "a p=.99 s=1 | b p=.9 s=3", nil, delta.Idle{For: 59 * time.Second}, ""},
		{"not where it is off", "a p=.99 s=1 | b p=.9 s=3", func(w *world) { w.view.Rules.NoExploration = true }, idle, ""},
		{"only what the allowance names", "a p=.99 s=1 | b/x p=.99 s=1 | c/x p=.99 s=1.2", func(w *world) { w.view.Rules.Explore = []string{"c/*"} }, idle, "c/x optimistic"},
		{"not what is nearly used up", "a p=.99 s=1 | b p=.99 s=1 | c p=.99 s=1.2", nil, delta.Idle{For: long, Used: func(o *chain.Option) float64 {
			return map[chain.OptionID]float64{"b": .81, "c": .79}[o.ID]
		}}, "c optimistic"},
		{"not what there is no probe for", "a p=.99 s=1 | b p=.99 s=1 | c p=.99 s=1.2", nil, delta.Idle{For: long, Can: func(_ chain.Slot, o *chain.Option) bool { return o.ID != "b" }}, "c optimistic"},
		{"what the hub seeks, before what might be better", "a p=.99 s=1 | b p=.99 s=30 | c p=.99 s=1.2", func(w *world) {
			w.view.Rules.Sought = []chain.Sought{{Option: "b", Daily: 100}}
		}, idle, "b sought"},
		{"but not before a suspect", "a p=.2 s=1 | b p=.9 s=3", func(w *world) {
			w.view.Options[0].Cost.Usual = 990000
			w.view.Rules.Sought = []chain.Sought{{Option: "b", Daily: 100}}
		}, idle, "a suspect"},
		{"not what the hub seeks beyond the allowance", "a p=.99 s=1 | b p=.99 s=30", func(w *world) {
			w.view.Rules.Sought, w.view.Rules.Explore = []chain.Sought{{Option: "b", Daily: 100}}, []string{"c"}
		}, idle, ""},
		{"not what the hub seeks of a quota nearly used up", "a p=.99 s=1 | b p=.99 s=30", func(w *world) {
			w.view.Rules.Sought = []chain.Sought{{Option: "b", Daily: 100}}
		}, delta.Idle{For: long, Used: func(*chain.Option) float64 { return .81 }}, ""},
		{"nothing but the one in front", "a p=.99 s=1", nil, idle, ""},
	} {
		w := newWorld(t, c.chain)
		if c.prepare != nil {
			c.prepare(w)
		}
		got := ""
		if x, ok := w.book.Explore([]delta.View{w.view}, c.idle, w.now); ok {
			got = string(x.Option) + " " + string(x.Reason)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestStaleOptionsTakeTurns(t *testing.T) {
	w := newWorld(t, "a p=.99 s=1 | b p=.99 s=2 | c p=.99 s=3")
	for i := range w.view.Options {
		w.view.Options[i].Cost.Weight = 0
	}
	w.book.Observe(key("b"), delta.Sample{OK: true, Took: time.Second, At: w.now.Add(-30 * time.Hour)})
	w.book.Observe(key("c"), delta.Sample{OK: true, Took: time.Second, At: w.now.Add(-25 * time.Hour)})
	var got []chain.OptionID
	for range 2 {
		x, _ := w.book.Explore([]delta.View{w.view}, idle, w.now)
		w.book.Probed(x, w.now)
		got = append(got, x.Option)
		w.now = w.now.Add(4 * time.Hour)
	}
	if got[0] != "b" || got[1] != "c" {
		t.Errorf("%v, want the stalest first", got)
	}
}

// TestAllowance: however often a device asks, with however many chains and
// restarts, it never probes more often than allowed, nor while it is busy.
func TestAllowance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, "a p=.99 s=1 | b p=.9 s=3 | c p=.99 s=2")
		other := w.view
		other.Slot.Primitive = "llm.t1"
		per := rapid.SampledFrom([]float64{.1, .3, 1, 7, 60}).Draw(t, "an hour")
		w.view.Rules.Exploration, other.Rules.Exploration = chain.PPMOf(per), chain.PPMOf(per)
		probes, start := 0, w.now
		for range 200 {
			w.now = w.now.Add(time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "pause")))
			d := delta.Idle{Busy: rapid.Bool().Draw(t, "busy"), For: time.Duration(rapid.Int64Range(0, int64(3*time.Minute)).Draw(t, "idle"))}
			x, ok := w.book.Explore([]delta.View{w.view, other}, d, w.now)
			if !ok {
				continue
			}
			if d.Busy || d.For < time.Minute {
				t.Fatalf("probes while busy: %+v", d)
			}
			w.book.Probed(x, w.now)
			probes++
			if rapid.Bool().Draw(t, "restart") {
				kept, _ := w.book.Keep(w.now)
				w.book = delta.New()
				w.book.Restore(kept, w.now)
			}
		}
		if most := 1 + int(w.now.Sub(start).Hours()*per); probes > most {
			t.Fatalf("%d probes in %s at %g an hour", probes, w.now.Sub(start), per)
		}
	})
}

// TestTheFleetTakesTurns: an option that could not stand in front is sampled by one
// device of a fleet a day, one that could by a few dozen; all devices have their turn.
func TestTheFleetTakesTurns(t *testing.T) {
	const fleet, days = 400, 40
	for _, c := range []struct {
		name        string
		beside      chain.MicroUSD
		least, most float64 // samples a day
	}{
		{"dear", 1_000_000, 0.5, 2}, {"cheap", 0, 40, 56},
	} {
		probes, devices := 0, 0
		for i := range fleet {
			w := newWorld(t, "a p=.99 s=1 | b p=.99 s=30")
			w.view.Options[1].Cost.Weight, w.view.Options[1].Cost.Beside = 3, c.beside
			d := idle
			d.Fleet, d.Lot = fleet, delta.LotOf(chain.PeerID(fmt.Sprintf("device %d", i)))
			mine := 0
			for range days {
				w.now = w.now.Add(25 * time.Hour)
				if x, ok := w.book.Explore([]delta.View{w.view}, d, w.now); ok && x.Reason == delta.IsStale {
					w.book.Probed(x, w.now)
					mine++
				}
			}
			if probes += mine; mine > 0 {
				devices++
			}
		}
		each := float64(probes) / days
		t.Logf("%s: %.1f samples a day, of %d devices", c.name, each, devices)
		if each < c.least || each > c.most {
			t.Errorf("%s: %.1f samples a day, want %g to %g", c.name, each, c.least, c.most)
		}
	}
}
