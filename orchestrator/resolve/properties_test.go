package resolve_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/estimate"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// inputs draws policy and candidates of n0 to n1 options, all reachable.
func inputs(n0, n1 int) *rapid.Generator[resolve.Input] {
	return rapid.Custom(func(t *rapid.T) resolve.Input {
		n := rapid.IntRange(n0, n1).Draw(t, "n")
		in := resolve.Input{Slot: chaintest.Slot, Weights: resolve.DefaultWeights()}
		in.Weights.Failure = rapid.Float64Range(0, 20000).Draw(t, "failure")
		in.Weights.Preference = rapid.Float64Range(0, 3000).Draw(t, "preference")
		learned := func(name string, most float64) resolve.Estimate {
			return resolve.Estimate{Value: rapid.Float64Range(0, most).Draw(t, name), Weight: rapid.SampledFrom([]float64{0, 1, 64}).Draw(t, name+" weight")}
		}
		for i := range n {
			c := resolve.Candidate{Option: chaintest.Options(t, fmt.Sprintf("p%d/m", i))[0]}
			c.Option.Cost.InputPerMtok = chain.MicroUSD(rapid.Int64Range(0, 30e6).Draw(t, "in"))
			c.Option.Cost.OutputPerMtok = chain.MicroUSD(rapid.Int64Range(0, 30e6).Draw(t, "out"))
			c.Option.Cost.Quality = chain.PPM(rapid.Int64Range(0, 1e6).Draw(t, "quality"))
			c.Prior = resolve.Prior{Latency: rapid.Float64Range(0, 60).Draw(t, "prior s"), Reliability: rapid.Float64Range(0, 1).Draw(t, "prior p")}
			c.Estimates = resolve.Estimates{Latency: learned("s", 100), FailureLatency: learned("f", 100), Reliability: learned("p", 1), Quality: learned("q", 1)}
			in.Candidates = append(in.Candidates, c)
			in.Default = append(in.Default, c.Option.ID)
		}
		in.Default = rapid.Permutation(in.Default).Draw(t, "default")
		in.Seeds = []resolve.Seed{{Tier: 1, Name: "workspace", Source: "home", Options: rapid.Permutation(in.Default).Draw(t, "prefer")[:rapid.IntRange(0, n).Draw(t, "preferred")]}}
		return in
	})
}

// trying is the expected cost of an order, told as a story: pay for each attempt
// that is reached, and for running out. It shares no code with the package.
func trying(why []resolve.Verdict, order []int, exhausted float64) float64 {
	if len(order) == 0 {
		return exhausted
	}
	v := why[order[0]]
	return v.P*v.S + (1-v.P)*(v.F+trying(why, order[1:], exhausted))
}

// The order is the cheapest of all orders: no other order of the same independent
// options has a lower expected cost of trying until one succeeds.
func TestTheIndexIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := resolve.Explain(inputs(1, 6).Draw(t, "input"))
		judge(t, r)
	})
}

func TestTheIndexIsOptimalForSevenOptions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		in := resolve.Input{Slot: chaintest.Slot}
		for i := range 7 {
			c := resolve.Candidate{Option: chaintest.Options(t, fmt.Sprintf("p%d/m in=%.3f", i, random.Float64()*20))[0]}
			c.Prior = resolve.Prior{Latency: .1 + random.Float64()*10, FailureLatency: .1 + random.Float64()*30, Reliability: .3 + random.Float64()*.7}
			in.Candidates, in.Default = append(in.Candidates, c), append(in.Default, c.Option.ID)
		}
		judge(t, resolve.Explain(in))
	}
}

// With a cap on attempts, and with options that fail together, no other order is
// cheaper either. Package chain/order holds its cost to the definition.
func TestTheOrderIsOptimalWithCapsAndDomains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := inputs(1, 6).Draw(t, "input")
		for i := range in.Candidates {
			in.Candidates[i].Option.Domain = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "domain")
		}
		in.Cap = rapid.IntRange(0, len(in.Candidates)).Draw(t, "cap")
		r := resolve.Explain(in)
		_, least := chaintest.Best(len(r.Why), func(list []int) float64 {
			ids := make([]chain.OptionID, len(list))
			for i, at := range list {
				ids[i] = r.Why[at].Option
			}
			cost, err := r.ExpectedCost(ids)
			if err != nil {
				t.Fatal(err)
			}
			return cost
		})
		if !near(r.Expected, least) {
			t.Fatalf("expected cost %.9g, the cheapest order %.9g\n%+v", r.Expected, least, r.Why)
		}
	})
}

// Order is Explain without the texts.
func TestOrderAndExplainAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := inputs(1, 9).Draw(t, "input")
		a, b := resolve.Order(in), resolve.Explain(in)
		if a.Why != nil || a.Gradient != nil || a.Expected != b.Expected || !reflect.DeepEqual(a.Options, b.Options) {
			t.Fatalf("%+v\n%+v", a, b)
		}
		for i, o := range b.Options {
			if v := b.Why[i]; v.Option != o.ID || v.Position != i+1 {
				t.Fatalf("place %d: %s, verdict %+v", i+1, o.ID, v)
			}
		}
	})
}

// Credit is the mean over a tier's sources, weighed by 8^tier over the tiers that
// hold any entry; absent counts 0.
func TestTheCreditByHand(t *testing.T) {
	in := scenario(t, "default: a/m b/m\na/m\nb/m")
	in.Seeds = []resolve.Seed{
		{Tier: 3, Name: "consumer", Source: "two", Options: []chain.OptionID{"b/m", "a/m"}},
		{Tier: 3, Name: "consumer", Source: "one", Options: []chain.OptionID{"b/m"}},
		{Tier: 1, Name: "workspace", Source: "empty"}, // holds no entry: its tier does not count
	}
	r := resolve.Explain(in)
	for id, want := range map[chain.OptionID]float64{"a/m": (1 + 512*(0.5+0)/2) / 513, "b/m": (0.5 + 512*(1+1)/2) / 513} {
		if v := verdict(t, r, id); !near(v.Credit, want) || !near(total(v.Success), v.S) {
			t.Errorf("%s: %g, want %g", id, v.Credit, want)
		}
	}
}

func TestTheMultiplierOfACeiling(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct{ mu, used, ceiling, elapsed, want float64 }{
		{0, 50, 100, .05, 0},  // too early to project
		{2, 50, 100, .05, 2},  //
		{0, 50, 100, .25, .1}, // twice the pace
		{0, 50, 100, .5, 0},   // on pace
		{1, 25, 100, .5, .95}, // half the pace
		{.02, 0, 100, .5, 0},  // never below 0
		{9.99, 500, 100, .5, 10},
		{99, 50, 100, .5, 10},
		{0, 1, 0, .5, 10}, // a ceiling of nothing
		{1, 0, 0, .5, .9},
		{nan, 50, 100, .25, .1}, {1, nan, 100, .5, 1}, {1, 50, nan, .5, 1}, {1, 50, 100, nan, 1}, {1, math.Inf(1), 100, .5, 10}, {-3, 50, 100, .25, .1},
		{0, 200, 100, 7, .1}, // a period that is over
	} {
		if got := resolve.NextMultiplier(c.mu, c.used, c.ceiling, c.elapsed); !near(got, c.want) {
			t.Errorf("%+v: %g", c, got)
		}
	}
}

func judge(t chaintest.T, r resolve.Resolution) {
	best, least := chaintest.Best(len(r.Why), func(order []int) float64 { return trying(r.Why, order, r.Weights.Exhausted) })
	if tolerance := 1e-9 * (math.Abs(least) + 1e6); r.Expected > least+tolerance || r.Expected < least-tolerance {
		t.Fatalf("expected cost %.9g; the order %v costs %.9g\n%+v", r.Expected, best, least, r.Why)
	}
}

// The judge can say no: any order that is worse is found to be worse.
func TestAnotherOrderIsDearer(t *testing.T) {
	r := resolve.Explain(scenario(t, "default: a/m b/m c/m\na/m p=.9 s=1\nb/m p=.5 s=9\nc/m p=.7 s=4"))
	for _, order := range [][]chain.OptionID{{"b/m", "a/m", "c/m"}, {"a/m", "b/m", "c/m"}, {"c/m", "b/m", "a/m"}} {
		if cost, err := r.ExpectedCost(order); err != nil || cost <= r.Expected {
			t.Errorf("%v costs %g, the chain %g: %v", order, cost, r.Expected, err)
		}
	}
	if cost, err := r.ExpectedCost(nil); err != nil || cost != r.Weights.Exhausted {
		t.Errorf("no option at all costs %g: %v", cost, err)
	}
	if _, err := r.ExpectedCost([]chain.OptionID{"a/m", "z/m"}); err == nil {
		t.Error("an unknown option has a price")
	}
}

// The same inputs give the same bytes, in whatever order the candidates come.
func TestTheSameInputsGiveTheSameBytes(t *testing.T) {
	bytes := func(in resolve.Input) string {
		r := resolve.Explain(in)
		why, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := chain.Marshal([]any{r.Options, r.Withheld})
		if err != nil {
			t.Fatal(err)
		}
		return string(why) + string(body)
	}
	rapid.Check(t, func(t *rapid.T) {
		in := inputs(1, 15).Draw(t, "input")
		in.Deny = rapid.SampledFrom([][]resolve.Ruling{nil, {{Pattern: "p1/*"}}}).Draw(t, "deny")
		in.Cap = rapid.IntRange(0, 8).Draw(t, "cap")
		in.Seeds = append(in.Seeds, resolve.Seed{Tier: 2, Name: "stage", Source: "stage b", Options: in.Default[:1]}, resolve.Seed{Tier: 2, Name: "stage", Source: "stage a", Options: in.Default})
		for i := range in.Candidates {
			in.Candidates[i].Withheld = rapid.IntRange(0, 3).Draw(t, "withheld") == 0
			in.Candidates[i].Option.Domain = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "domain")
		}
		first := bytes(in)
		in.Candidates = rapid.Permutation(in.Candidates).Draw(t, "candidates")
		in.Seeds = rapid.Permutation(in.Seeds).Draw(t, "seeds")
		if again := bytes(in); again != first {
			t.Fatalf("%s\nthen\n%s", first, again)
		}
	})
}

func TestOrderChangesNothingOfItsInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := inputs(1, 6).Draw(t, "input")
		before, _ := json.Marshal(in)
		r := resolve.Explain(in)
		for i := range r.Options {
			r.Options[i].ID = "changed"
		}
		if after, _ := json.Marshal(in); string(after) != string(before) {
			t.Fatalf("%s\nbecame\n%s", before, after)
		}
	})
}

// Out is out: no list, pin, preference or price brings an option back that is
// denied, unreachable, used up or withheld; and everything has one verdict.
func TestOutIsOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := inputs(1, 8).Draw(t, "input")
		in.Mode = rapid.SampledFrom([]resolve.Mode{resolve.Learned, resolve.Fixed}).Draw(t, "mode")
		in.Pin = []resolve.Ruling{{Pattern: "*"}}
		wanted := map[chain.OptionID]string{}
		for i := range in.Candidates {
			c := &in.Candidates[i]
			switch rapid.IntRange(0, 4).Draw(t, "fate") {
			case 1:
				in.Deny = append(in.Deny, resolve.Ruling{Pattern: string(c.Option.ID)})
				wanted[c.Option.ID] = "denied by " + string(c.Option.ID)
			case 2:
				c.Unreachable = "no device"
				wanted[c.Option.ID] = "unreachable: no device"
			case 3:
				c.Ceilings = []resolve.Ceiling{{Name: "month", Breached: true}}
				wanted[c.Option.ID] = "ceiling: month"
			case 4:
				c.Option.Kind, c.Option.Data = chain.Peer, chain.LocalOnly
				wanted[c.Option.ID] = "invalid: "
			}
		}
		r := resolve.Explain(in)
		if len(r.Why) != len(in.Candidates) || len(r.Options) != len(in.Candidates)-len(wanted) {
			t.Fatalf("%d candidates, %d to keep out, %d in, %d verdicts", len(in.Candidates), len(wanted), len(r.Options), len(r.Why))
		}
		for _, v := range r.Why {
			reason, out := wanted[v.Option]
			if out != (v.Status == resolve.Out) || out && (len(v.Reasons) != 1 || !strings.HasPrefix(v.Reasons[0], reason) || v.Position != 0) {
				t.Fatalf("%s: %s %v, want %q", v.Option, v.Status, v.Reasons, reason)
			}
		}
	})
}

// Every number of the why can be checked by hand: the terms add up, the index
// follows from them, positions and ranks agree with values.
func TestTheWhyAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := resolve.Explain(inputs(1, 8).Draw(t, "input"))
		for i, v := range r.Why {
			if s, f := total(v.Success), total(v.Failure); !near(s, v.S) || !near(f, v.F) || !near(v.Index, (v.P*v.S+(1-v.P)*v.F)/v.P) {
				t.Fatalf("%+v", v)
			}
			if v.P < .001 || v.P > .999 || v.Position != i+1 || r.Options[i].ID != v.Option || len(v.Reasons) == 0 {
				t.Fatalf("%+v", v)
			}
			if i > 0 && r.Why[i-1].Index > v.Index {
				t.Fatalf("%g before %g", r.Why[i-1].Index, v.Index)
			}
			dominated := false
			for _, w := range r.Why {
				dominated = dominated || atLeastAsGood(w, v) && !atLeastAsGood(v, w)
			}
			if v.Pareto == dominated {
				t.Fatalf("%s: pareto %v, dominated %v", v.Option, v.Pareto, dominated)
			}
		}
	})
}

// atLeastAsGood compares by rank: lower is better on every axis.
func atLeastAsGood(a, b resolve.Verdict) bool {
	for i := range a.Axes {
		if a.Axes[i].Rank > b.Axes[i].Rank {
			return false
		}
	}
	return true
}

func total(terms []resolve.Term) (sum float64) {
	for _, t := range terms {
		sum += t.Value
	}
	return sum
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// What gets cheaper, faster, better or more preferred never moves back.
func TestImprovementNeverMovesAnOptionBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := inputs(2, 8).Draw(t, "input")
		which := rapid.IntRange(0, len(in.Candidates)-1).Draw(t, "which")
		c := &in.Candidates[which]
		before := verdict(t, resolve.Explain(in), c.Option.ID)
		switch rapid.IntRange(0, 4).Draw(t, "improvement") {
		case 0:
			c.Option.Cost.InputPerMtok /= 2
		case 1:
			c.Estimates.Latency = resolve.Estimate{Value: before.Axes[1].Value / 2, Weight: 1}
		case 2: // more reliable is better as long as succeeding is worth it at all
			if before.F < 0 {
				return
			}
			c.Estimates.Reliability = resolve.Estimate{Value: (1 + before.P) / 2, Weight: 1}
		case 3:
			c.Estimates.Quality = resolve.Estimate{Value: (1 + before.Axes[5].Value) / 2, Weight: 1}
		case 4:
			in.Seeds[0].Options = slices.Insert(slices.DeleteFunc(slices.Clone(in.Seeds[0].Options), func(id chain.OptionID) bool { return id == c.Option.ID }), 0, c.Option.ID)
		}
		after := verdict(t, resolve.Explain(in), c.Option.ID)
		if after.Position > before.Position {
			t.Fatalf("from place %d to %d\n%+v\n%+v", before.Position, after.Position, before, after)
		}
	})
}

func TestAFixedOrderIsTheListedOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := inputs(1, 8).Draw(t, "input")
		in.Mode = resolve.Fixed
		r := resolve.Explain(in)
		var got []chain.OptionID
		for _, o := range r.Options {
			got = append(got, o.ID)
		}
		if !slices.Equal(got, in.Default) {
			t.Fatalf("%v, listed %v", got, in.Default)
		}
	})
}

func TestTheFormulaByHand(t *testing.T) {
	in := scenario(t, `
		default: a/m
		geo: IN
		weights: second=100 failure=3000 quality=1000 geo=700 preference=500 quota=50
		profile: 2000 500
		a/m in=1 out=4 call=.0001 q=.8 ; geo=US learned-s=2:9 learned-f=5:9 learned-p=.8:9 money=m:.5 calls=c:2 bill=.0007`)
	v := verdict(t, resolve.Explain(in), "a/m")
	money := (2000*1.0 + 500*4.0 + 100) * 1.5
	s := money + 50*2 + 100*2 + 1000*(1-.8) + 700 - 500
	f := 100*5.0 + 3000 + 700
	if !near(v.S, s) || !near(v.F, f) || !near(v.P, .8) || !near(v.Index, (.8*s+.2*f)/.8) {
		t.Errorf("got s %g f %g index %g, want %g %g %g", v.S, v.F, v.Index, s, f, (.8*s+.2*f)/.8)
	}
}

func TestUndeclaredMeansTheProductsOwnPrior(t *testing.T) {
	v := verdict(t, resolve.Explain(scenario(t, "default: a/m\na/m")), "a/m")
	latency := 2 * estimate.StartCorrection()
	if v.P != .95 || !near(v.Axes[1].Value, latency) || v.Axes[5].Value != .5 || v.Learned {
		t.Errorf("%+v", v)
	}
	// Numbers that are none count for nothing.
	in := scenario(t, "default: a/m\na/m")
	nan := resolve.Estimate{Value: math.NaN(), Weight: 64}
	in.Candidates[0].Estimates = resolve.Estimates{Latency: nan, FailureLatency: resolve.Estimate{Value: math.Inf(1), Weight: 9},
		Reliability: nan, Quality: resolve.Estimate{Value: 1, Weight: math.NaN()}}
	in.Candidates[0].Prior = resolve.Prior{Latency: math.NaN(), FailureLatency: -1, Reliability: 1.5}
	if got := verdict(t, resolve.Explain(in), "a/m"); !reflect.DeepEqual(got, v) {
		t.Errorf("%+v", got)
	}
}

// An option that was never measured and one that was measured to be just as
// declared must cost nearly the same, or the first measurement would reorder.
func TestTheFirstMeasurementMakesNoJump(t *testing.T) {
	axis := estimate.LatencyAxis()
	e, err := axis.Observe(estimate.Estimate{}, 3, 1, chaintest.Start)
	if err != nil {
		t.Fatal(err)
	}
	in := scenario(t, "default: a/m b/m\na/m s=3\nb/m s=3")
	in.Candidates[0].Estimates.Latency = resolve.Estimate{Value: axis.Expected(e, 3, chaintest.Start), Weight: axis.Weight(e, chaintest.Start)}
	r := resolve.Explain(in)
	if a, b := verdict(t, r, "a/m").Axes[1].Value, verdict(t, r, "b/m").Axes[1].Value; !near(a, b) {
		t.Errorf("measured %g, declared %g", a, b)
	}
}

func TestABodyHoldsTheEstimatesRounded(t *testing.T) {
	in := scenario(t, "default: a/m\na/m q=.7 in=.59 keys=k ; learned-s=1.95:3 learned-f=.4:3 learned-p=.9865:120 low-n geo=US\ngeo: IN")
	o := resolve.Explain(in).Options[0]
	if o.Cost.InputPerMtok != 590_000 || o.Cost.Quality != 700_000 || !o.Cost.Outside || !o.Cost.LowN || len(o.Keys) != 1 {
		t.Errorf("%+v", o)
	}
	for _, c := range []struct{ got, want float64 }{
		{float64(o.Cost.Latency) / 1000, 1.95}, {float64(o.Cost.FailureLatency) / 1000, .4}, {1 - o.Cost.Reliability.Share(), 1 - .9865}, {float64(o.Cost.Weight), 3},
	} {
		if ratio := c.got / c.want; ratio < .95 || ratio > 1.06 {
			t.Errorf("%g for %g: off by more than half a step", c.got, c.want)
		}
	}
	// A little noise makes no other body.
	in.Candidates[0].Estimates.Latency.Value *= 1.01
	in.Candidates[0].Estimates.Reliability.Value = .9866
	if again := resolve.Explain(in).Options[0]; !reflect.DeepEqual(again, o) {
		t.Errorf("%+v\nthen %+v", o.Cost, again.Cost)
	}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}

func TestRounding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := math.Exp(rapid.Float64Range(-10, 14).Draw(t, "log x"))
		step := resolve.RoundStep(x)
		if ratio := step / x; ratio < 1/1.0489 || ratio > 1.0489 || math.Abs(resolve.RoundStep(step)-step) > 1e-9*step {
			t.Fatalf("%g became %g, then %g", x, step, resolve.RoundStep(step))
		}
		p := rapid.Float64Range(0, 1).Draw(t, "p")
		q := resolve.RoundOdds(p)
		if q < .001 || q > .999 || math.Abs(resolve.RoundOdds(q)-q) > 1e-6 {
			t.Fatalf("%g became %g, then %g", p, q, resolve.RoundOdds(q))
		}
	})
	if resolve.RoundStep(0) != 0 || resolve.RoundStep(-1) != 0 || resolve.RoundStep(math.NaN()) != 0 {
		t.Error("zero is no step")
	}
	if a, b := resolve.RoundOdds(.99), resolve.RoundOdds(.999); b-a < .008 {
		t.Errorf(".99 and .999 became %g and %g", a, b)
	}
}

func TestAChainHoldsNoMoreThanABodyMay(t *testing.T) {
	in := resolve.Input{Slot: chaintest.Slot, Pin: []resolve.Ruling{{Pattern: "*"}}}
	for i := range chain.MaxOptions + 3 {
		in.Candidates = append(in.Candidates, candidate(t, fmt.Sprintf("p%04d/m s=%d", i, i+1), nil))
	}
	r := resolve.Explain(in)
	if len(r.Options) != chain.MaxOptions || len(r.Why) != chain.MaxOptions+3 {
		t.Fatalf("%d options, %d verdicts", len(r.Options), len(r.Why))
	}
	if v := verdict(t, r, "p0258/m"); v.Status != resolve.Out || !strings.Contains(strings.Join(v.Reasons, ";"), "at most 256") {
		t.Errorf("%+v", v)
	}
	body := chain.Body{Primitive: chain.LLMChat, Options: r.Options}
	if err := body.Validate(); err != nil {
		t.Error(err)
	}
}

func TestTwoCandidatesOfOneIDAreOne(t *testing.T) {
	r := resolve.Explain(scenario(t, "default: a/m\na/m s=1\na/m s=2"))
	if len(r.Options) != 1 || len(r.Why) != 1 {
		t.Errorf("%d options, %d verdicts", len(r.Options), len(r.Why))
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("gamma/*", "gamma/large")
	f.Add("*a*b*", "xxaxxbxx")
	f.Fuzz(func(t *testing.T, pattern, id string) {
		if len(pattern) > 60 || strings.Count(pattern, "*") > 8 || strings.ToValidUTF8(pattern, "") != pattern || strings.ToValidUTF8(id, "") != id {
			return
		}
		parts := strings.Split(pattern, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		want := regexp.MustCompile(`(?s)\A` + strings.Join(parts, ".*") + `\z`).MatchString(id)
		if got := resolve.Match(pattern, chain.OptionID(id)); got != want {
			t.Errorf("Match(%q, %q) = %v", pattern, id, got)
		}
	})
}

func BenchmarkOrder(b *testing.B) {
	for _, n := range []int{8, 12, 32, 128} {
		in := resolve.Input{Slot: chaintest.Slot, Cap: 8}
		for i := range n {
			c := candidate(b, fmt.Sprintf("p%d/m s=%d in=%d domain=d%d", i, i+1, 20-i%20, i/2), nil)
			in.Candidates, in.Default = append(in.Candidates, c), append(in.Default, c.Option.ID)
		}
		for name, order := range map[string]func(resolve.Input) resolve.Resolution{"order": resolve.Order, "explain": resolve.Explain} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					order(in)
				}
			})
		}
	}
}
