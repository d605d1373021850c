package order_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/order"
)

// byWorlds is the expected cost by its definition: every combination of domains
// that are up and down is a world, in which options succeed independently. It
// shares no line with the package.
func byWorlds(options []order.Option, t order.Terms) float64 {
	best, size := map[string]float64{}, map[string]int{}
	var names []string
	for _, o := range options {
		if o.Domain != "" && size[o.Domain] == 0 {
			names = append(names, o.Domain)
		}
		size[o.Domain]++
		best[o.Domain] = math.Max(best[o.Domain], o.P)
	}
	q := map[string]float64{}
	for _, d := range names {
		q[d] = 1
		if size[d] > 1 {
			q[d] = 1 - t.Rho*(1-best[d])
		}
	}
	cap := len(options)
	if t.Cap > 0 && t.Cap < cap {
		cap = t.Cap
	}
	total := 0.0
	for world := range 1 << len(names) {
		weight, up := 1.0, map[string]bool{}
		for i, d := range names {
			if up[d] = world&(1<<i) != 0; up[d] {
				weight *= q[d]
			} else {
				weight *= 1 - q[d]
			}
		}
		reach := 1.0
		for _, o := range options[:cap] {
			p := o.P
			if o.Domain != "" {
				if p = 0; up[o.Domain] {
					p = o.P / q[o.Domain]
				}
			}
			total += weight * reach * (p*o.S + (1-p)*o.F)
			reach *= 1 - p
		}
		total += weight * reach * t.Exhausted
	}
	return total
}

// generated draws a problem: probabilities and costs over their whole range,
// credits, equal twins, domains and caps as asked.
func generated(t *rapid.T, most int, domains, capped bool) ([]order.Option, order.Terms) {
	n := rapid.IntRange(1, most).Draw(t, "n")
	options := make([]order.Option, n)
	for i := range options {
		o := &options[i]
		*o = order.Option{ID: chain.OptionID(fmt.Sprintf("o%02d", i)),
			P: float64(rapid.IntRange(1, 999).Draw(t, "p")) / 1000,
			S: float64(rapid.IntRange(-2000, 20000).Draw(t, "s")),
			F: float64(rapid.IntRange(0, 20000).Draw(t, "f"))}
		if domains {
			o.Domain = rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "domain")
		}
		if i > 0 && rapid.IntRange(0, 9).Draw(t, "twin") == 0 {
			id := o.ID
			*o = options[i-1]
			o.ID = id
		}
	}
	terms := order.Terms{Exhausted: float64(rapid.IntRange(0, 100000).Draw(t, "exhausted")), Rho: float64(rapid.IntRange(1, 10).Draw(t, "rho")) / 10}
	if capped {
		terms.Cap = rapid.IntRange(1, n).Draw(t, "cap")
	}
	return options, terms
}

func in(options []order.Option, list []int) []order.Option {
	out := make([]order.Option, len(list))
	for i, at := range list {
		out[i] = options[at]
	}
	return out
}

// cheapest tries every order.
func cheapest(options []order.Option, t order.Terms) float64 {
	least := math.Inf(1)
	var try func(k int)
	o := slices.Clone(options)
	try = func(k int) {
		if k == len(o) {
			least = math.Min(least, order.Cost(o, t))
			return
		}
		for i := k; i < len(o); i++ {
			o[k], o[i] = o[i], o[k]
			try(k + 1)
			o[k], o[i] = o[i], o[k]
		}
	}
	try(0)
	return least
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*(1+math.Abs(a)+math.Abs(b)) }

func TestCostIsThatOfAllWorlds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options, terms := generated(t, 7, true, rapid.Bool().Draw(t, "capped"))
		if got, want := order.Cost(options, terms), byWorlds(options, terms); !near(got, want) {
			t.Fatalf("cost %v, over all worlds %v", got, want)
		}
	})
}

// The first sentence of the ordering: nothing beats the order found, for
// independent options, with caps, and with failure domains.
func TestBestIsBruteForce(t *testing.T) {
	for _, c := range []struct {
		name            string
		domains, capped bool
	}{{"independent", false, false}, {"caps", false, true}, {"domains", true, false}, {"domains and caps", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				options, terms := generated(t, 7, c.domains, c.capped)
				var s order.Solver
				list, method := s.Best(options, terms)
				if method == order.Approximate {
					t.Fatalf("%d options are approximate", len(options))
				}
				if got, want := order.Cost(in(options, list), terms), cheapest(options, terms); !near(got, want) {
					t.Fatalf("order %v costs %v, the cheapest %v", list, got, want)
				}
			})
		})
	}
}

// Seven options have 5040 orders each: fewer cases, from a seed that is printed.
func TestBestIsBruteForceOfSeven(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 7))
	var s order.Solver
	for range 24 {
		options := random(r, 7)
		terms := order.Terms{Exhausted: 20000, Rho: 0.1 + 0.9*r.Float64(), Cap: r.IntN(8)}
		list, _ := s.Best(options, terms)
		if got, want := order.Cost(in(options, list), terms), cheapest(options, terms); !near(got, want) {
			t.Fatalf("seed %d: order %v costs %v, the cheapest %v: %+v", seed, list, got, want, options)
		}
	}
}

func random(r *rand.Rand, n int) []order.Option {
	options := make([]order.Option, n)
	for i := range options {
		options[i] = order.Option{ID: chain.OptionID(fmt.Sprintf("o%03d", i)), P: 0.3 + 0.699*r.Float64(), S: 3000 * r.Float64(),
			F: 5000 + 3000*r.Float64(), Domain: string(rune('a' + r.IntN(1+n/2)))}
	}
	return options
}

// The index alone is wrong by more than a factor of two where a cap bites: that
// is why there is a dynamic program.
func TestIndexIsNotEnoughUnderACap(t *testing.T) {
	terms := order.Terms{Cap: 1, Exhausted: 20000}
	options := []order.Option{{ID: "cheap", P: 0.05, S: 0, F: 1}, {ID: "sound", P: 0.99, S: 100, F: 5000}}
	var s order.Solver
	list, method := s.Best(options, terms)
	if method != order.Exact || options[list[0]].ID != "sound" {
		t.Fatalf("%s %v", method, list)
	}
	if options[0].Index() >= options[1].Index() {
		t.Fatal("the index says so too: the case shows nothing")
	}
}

// Past the cap options stand by index.
func TestPastTheCapByIndex(t *testing.T) {
	options := []order.Option{{ID: "a", P: 0.5, S: 900, F: 10}, {ID: "b", P: 0.5, S: 100, F: 10}, {ID: "c", P: 0.99, S: 50, F: 10}, {ID: "d", P: 0.5, S: 500, F: 10}}
	var s order.Solver
	list, _ := s.Best(options, order.Terms{Cap: 1, Exhausted: 20000})
	if !slices.Equal(list, []int{2, 1, 3, 0}) {
		t.Fatalf("order %v", list)
	}
}

// After a failure in a domain the rest of it is less likely to work, and another
// domain's option comes first although its index is worse.
func TestAFailureSpeaksOfItsDomain(t *testing.T) {
	options := []order.Option{
		{ID: "a/one", P: 0.9, S: 100, F: 5000, Domain: "a"},
		{ID: "a/two", P: 0.9, S: 110, F: 5000, Domain: "a"},
		{ID: "b/one", P: 0.9, S: 300, F: 5000, Domain: "b"},
	}
	var s order.Solver
	list, _ := s.Best(options, order.Terms{Exhausted: 20000})
	if !slices.Equal(list, []int{0, 2, 1}) {
		t.Fatalf("order %v", list)
	}
	steps := order.Steps(in(options, list), order.Terms{Exhausted: 20000})
	if steps[0].P != 0.9 || !near(steps[1].P, 0.9) || steps[2].P >= 0.6 {
		t.Fatalf("steps %+v", steps)
	}
}

// The same options in another order of arrival give the same order, also among twins.
func TestArrivalHasNoSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options, terms := generated(t, 16, true, rapid.Bool().Draw(t, "capped"))
		var a, b order.Solver
		first, method := a.Best(options, terms)
		want := in(options, first)
		shuffled := rapid.Permutation(options).Draw(t, "shuffled")
		second, again := b.Best(shuffled, terms)
		if got := in(shuffled, second); method != again || !slices.Equal(got, want) {
			t.Fatalf("%v, shuffled %v", want, got)
		}
	})
}

// Twins stand by id.
func TestTiesGoToTheLowerID(t *testing.T) {
	var options []order.Option
	for _, id := range []chain.OptionID{"e", "b", "d", "a", "c"} {
		options = append(options, order.Option{ID: id, P: 0.7, S: 123.4, F: 5000.1, Domain: "same"})
	}
	for _, terms := range []order.Terms{{Exhausted: 20000}, {Exhausted: 20000, Cap: 3}} {
		var s order.Solver
		list, _ := s.Best(options, terms)
		if !slices.Equal(list, []int{3, 1, 4, 2, 0}) {
			t.Fatalf("order %v", list)
		}
	}
}

// Beyond twelve the order is approximate; it stays close to the best. Twelve
// options can be ordered both ways, so the distance is known.
func TestApproximateIsClose(t *testing.T) {
	worst, mean, n := 0.0, 0.0, 200
	for i := range n {
		options := random(rand.New(rand.NewPCG(1, uint64(i))), 12)
		terms := order.Terms{Exhausted: 20000, Cap: i % 13}
		var s order.Solver
		list, _ := s.Best(options, terms)
		best := order.Cost(in(options, list), terms)
		over := order.Cost(in(options, order.Approximated(options, terms)), terms)/best - 1
		if over < -1e-9 {
			t.Fatalf("case %d: the approximation is better than exact by %g", i, -over)
		}
		worst, mean = math.Max(worst, over), mean+over/float64(n)
	}
	t.Logf("over the exact order: mean %.4f %%, worst %.2f %%", 100*mean, 100*worst)
	if worst > 0.05 {
		t.Errorf("worst case %.1f %% over the exact order", 100*worst)
	}
}

// No value from outside stops the arithmetic or leaves an option out.
func TestWildNumbers(t *testing.T) {
	wild := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, -1, 1, 2, 1e308}
	r := rand.New(rand.NewPCG(3, 3))
	pick := func() float64 { return wild[r.IntN(len(wild))] }
	var s order.Solver
	for range 300 {
		options := random(r, 1+r.IntN(16))
		for i := range options {
			options[i].P, options[i].S, options[i].F = pick(), pick(), pick()
		}
		list, _ := s.Best(options, order.Terms{Cap: r.IntN(20) - 2, Exhausted: pick(), Rho: pick()})
		if got := slices.Sorted(slices.Values(list)); len(got) != len(options) || got[0] != 0 || got[len(got)-1] != len(got)-1 || len(slices.Compact(got)) != len(options) {
			t.Fatalf("order %v of %d options", list, len(options))
		}
	}
	if list, _ := s.Best(nil, order.Terms{}); len(list) != 0 {
		t.Fatalf("order of nothing: %v", list)
	}
}

func BenchmarkBest(b *testing.B) {
	for _, n := range []int{8, 12, 32, 128} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			options := random(rand.New(rand.NewPCG(1, 1)), n)
			var s order.Solver
			b.ReportAllocs()
			for b.Loop() {
				s.Best(options, order.Terms{Cap: 8, Exhausted: 20000})
			}
		})
	}
}
