package escalate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/order"
)

func option(id chain.OptionID, domain string) chain.Option {
	return chain.Option{ID: id, Kind: chain.Provider, Domain: domain}
}

// price makes earlier withheld options cheaper, and all equally reliable.
func price(id chain.OptionID) (order.Option, bool) {
	at := slices.IndexFunc(withheld, func(o chain.Option) bool { return o.ID == id })
	return order.Option{ID: id, P: .9, S: 100 + 50*float64(at), F: 5000}, true
}

var terms = order.Terms{Exhausted: 20000}

func plan(open, withheld []chain.Option) *Plan {
	return NewPlan("body", open, withheld, price, terms, DefaultLimits())
}

var (
	open     = []chain.Option{option("a/1", "a"), option("b/1", "b")}
	withheld = []chain.Option{option("a/2", "a"), option("c/1", "c"), option("d/1", "")}
)

func revealed(a Answer) chain.OptionID {
	if a.Option == nil {
		return ""
	}
	return a.Option.ID
}

// TestNext: the first withheld option that did not fail, what shares a domain with
// a fresh outage last.
func TestNext(t *testing.T) {
	f := func(id chain.OptionID, class chain.Class) chain.Failure {
		return chain.Failure{Option: id, Class: class}
	}
	for _, c := range []struct {
		name   string
		failed []chain.Failure
		want   chain.OptionID
	}{
		{"nothing said", nil, "a/2"},
		{"a bad answer says nothing of the domain", []chain.Failure{f("a/1", chain.BadAnswer), f("b/1", chain.Status)}, "a/2"},
		{"the domain is unreachable", []chain.Failure{f("a/1", chain.Unreachable)}, "c/1"},
		{"the domain refuses the keys", []chain.Failure{f("a/1", chain.Credentials)}, "c/1"},
		{"the domain is down, the others failed", []chain.Failure{f("a/1", chain.Unreachable), f("c/1", chain.Status), f("d/1", chain.Status)}, "a/2"},
		{"one that was revealed failed", []chain.Failure{f("a/2", chain.Status)}, "c/1"},
		{"all failed", []chain.Failure{f("a/2", chain.Status), f("c/1", chain.Status), f("d/1", chain.Status)}, ""},
		{"an option that is not ours", []chain.Failure{f("z/9", chain.Unreachable)}, "a/2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := plan(open, withheld)
			got := p.Next(c.failed, open)
			if revealed(got) != c.want || (c.want == "") != (got.Reason != "") || got.Coalesced {
				t.Errorf("%+v, want %q", got, c.want)
			}
			slices.Reverse(c.failed)
			if again := p.Next(append(c.failed, c.failed...), open); revealed(again) != c.want || !again.Coalesced {
				t.Errorf("an equal protest: %+v", again)
			}
		})
	}
	if got := plan(open, nil).Next(nil, nil); got.Option != nil || got.Reason == "" {
		t.Errorf("nothing withheld: %+v", got)
	}
}

// TestEveryWithheldOptionComes: who protests again after each failure gets every
// withheld option once, and then a final no, however they failed.
func TestEveryWithheldOptionComes(t *testing.T) {
	classes := []chain.Class{chain.Unreachable, chain.Status, chain.Timeout, chain.Credentials, chain.BadAnswer}
	rapid.Check(t, func(t *rapid.T) {
		p := plan(open, withheld)
		var failed []chain.Failure
		for range withheld {
			a := p.Next(failed, open)
			if a.Option == nil || slices.ContainsFunc(failed, func(f chain.Failure) bool { return f.Option == a.Option.ID }) {
				t.Fatalf("%+v after %+v", a, failed)
			}
			failed = append(failed, chain.Failure{Option: a.Option.ID, Class: rapid.SampledFrom(classes).Draw(t, "class")})
		}
		if a := p.Next(failed, open); a.Option != nil {
			t.Fatalf("a fourth: %+v", a)
		}
	})
}

// crowd is n withheld options of some domains, priced at random.
func crowd(n int, seed uint64) (open, withheld []chain.Option, price func(chain.OptionID) (order.Option, bool)) {
	r := rand.New(rand.NewPCG(seed, 1))
	priced := map[chain.OptionID]order.Option{}
	for i := range n + 4 {
		o := option(chain.OptionID(fmt.Sprintf("o%02d", i)), string(rune('a'+r.IntN(5))))
		priced[o.ID] = order.Option{ID: o.ID, P: .5 + .49*r.Float64(), S: 3000 * r.Float64(), F: 5000, Domain: o.Domain}
		if i < 4 {
			open = append(open, o)
		} else {
			withheld = append(withheld, o)
		}
	}
	return open, withheld, func(id chain.OptionID) (order.Option, bool) { o, ok := priced[id]; return o, ok }
}

// The tree keeps to its limits, and its answers are those that would be computed
// on the spot: what lies beyond it is answered in the same way, only later.
func TestTheTreeIsComputedAhead(t *testing.T) {
	classes := []chain.Class{chain.Unreachable, chain.Credentials, chain.BadAnswer}
	hits, asked := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		open, withheld, price := crowd(rapid.IntRange(1, 12).Draw(t, "n"), rapid.Uint64().Draw(t, "seed"))
		limits := Limits{Depth: rapid.IntRange(1, 4).Draw(t, "depth"), Nodes: rapid.SampledFrom([]int{1, 16, 256}).Draw(t, "nodes"),
			CutOff: rapid.SampledFrom([]float64{1e-6, .001, .2}).Draw(t, "cut-off")}
		p := NewPlan("body", open, withheld, price, terms, limits)
		none := NewPlan("body", open, withheld, price, terms, Limits{Depth: 0, Nodes: 0, CutOff: 2})
		if nodes, depth := p.Size(); nodes > limits.Nodes || depth > limits.Depth {
			t.Fatalf("%d nodes, depth %d", nodes, depth)
		}
		if nodes, _ := none.Size(); nodes != 0 {
			t.Fatalf("%d nodes where none are wanted", nodes)
		}
		var failed []chain.Failure
		for i := range open {
			failed = append(failed, chain.Failure{Option: open[i].ID, Class: rapid.SampledFrom(classes).Draw(t, "class")})
		}
		for range withheld {
			a, b := p.Next(failed, open), none.Next(failed, open)
			if revealed(a) != revealed(b) || b.Planned {
				t.Fatalf("%s from the tree, %s on the spot", revealed(a), revealed(b))
			}
			asked++
			if a.Planned {
				hits++
			}
			failed = append(failed, chain.Failure{Option: revealed(a), Class: rapid.SampledFrom(classes).Draw(t, "class")})
		}
	})
	t.Logf("%d of %d answers stood in the tree", hits, asked)
	if hits == 0 {
		t.Error("nothing was computed ahead")
	}
}

// The same inputs give the same tree.
func TestTheTreeIsTheSameEachTime(t *testing.T) {
	open, withheld, price := crowd(9, 5)
	p, q := NewPlan("body", open, withheld, price, terms, DefaultLimits()), NewPlan("body", open, withheld, price, terms, DefaultLimits())
	if len(p.nodes) == 0 || len(p.nodes) != len(q.nodes) {
		t.Fatalf("%d and %d nodes", len(p.nodes), len(q.nodes))
	}
	for s, n := range p.nodes {
		if m := q.nodes[s]; m == nil || *m != *n {
			t.Fatalf("%+v: %+v and %+v", s, n, m)
		}
	}
	if got := p.Preview(); len(got) != 4 || !slices.Equal(got, q.Preview()) {
		t.Errorf("preview %v", got)
	}
}

// A plan holds until an input of policy changes: the body, what is withheld in any
// of its fields, the limits.
func TestWhatMakesAPlanAnew(t *testing.T) {
	p := plan(open, withheld)
	other := slices.Clone(withheld)
	other[1].Endpoint = "https://moved.example/v1"
	for _, c := range []struct {
		name     string
		body     chain.CID
		withheld []chain.Option
		limits   Limits
		want     bool
	}{
		{"nothing", "body", slices.Clone(withheld), DefaultLimits(), true},
		{"the body", "another", withheld, DefaultLimits(), false},
		{"an endpoint", "body", other, DefaultLimits(), false},
		{"one is withheld no more", "body", withheld[:2], DefaultLimits(), false},
		{"the cut-off", "body", withheld, Limits{Depth: 4, Nodes: 256, CutOff: .1}, false},
	} {
		if got := p.Fits(c.body, c.withheld, c.limits); got != c.want {
			t.Errorf("%s: fits %v", c.name, got)
		}
	}
}

// A request that was too long for what failed is not sent to what declares no more.
func TestALongRequestWantsALongContext(t *testing.T) {
	short, long, silent := option("short", ""), option("long", ""), option("silent", "")
	short.Limits.Context, long.Limits.Context = 8000, 128000
	first := option("first", "")
	first.Limits.Context = 16000
	priced := func(id chain.OptionID) (order.Option, bool) {
		return order.Option{P: .9, S: map[chain.OptionID]float64{"short": 1, "long": 300, "silent": 200}[id], F: 5000}, true
	}
	p := NewPlan("body", []chain.Option{first}, []chain.Option{short, silent, long}, priced, terms, DefaultLimits())
	for _, c := range []struct {
		failed []chain.Failure
		want   chain.OptionID
	}{
		{[]chain.Failure{{Option: "first", Class: chain.Timeout}}, "short"},
		{[]chain.Failure{{Option: "first", Class: chain.ContextLength}}, "silent"},
		{[]chain.Failure{{Option: "first", Class: chain.ContextLength}, {Option: "silent", Class: chain.ContextLength}}, "long"},
		{[]chain.Failure{{Option: "first", Class: chain.ContextLength}, {Option: "silent", Class: chain.ContextLength}, {Option: "long", Class: chain.ContextLength}}, ""},
	} {
		if a := p.Next(c.failed, nil); revealed(a) != c.want || c.want == "" && a.Reason != "nothing that is withheld takes a request as long as this" {
			t.Errorf("%v: %+v, want %q", c.failed, a, c.want)
		}
	}
}

func TestRate(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	var r Rate
	if share, n := r.Share(now); share != 0 || n != 0 {
		t.Errorf("nothing seen: %d of %g", share, n)
	}
	r.Count(0, 2, now) // protests come first
	if share, n := r.Share(now); share != 1e6 || n != 2 {
		t.Errorf("%d of %g", share, n)
	}
	r.Count(98, 0, now.Add(time.Minute))
	r.Count(2, 0, now.Add(-time.Hour)) // a late report
	if share, n := r.Share(now.Add(time.Minute)); share < 19900 || share > 20100 || n < 99.9 || n > 100 {
		t.Errorf("%d of %g", share, n)
	}
	if share, n := r.Share(now.Add(24 * time.Hour)); share < 19900 || share > 20100 || n < 49 || n > 51 {
		t.Errorf("a day later %d of %g", share, n)
	}
	r.Count(50, 0, now.Add(24*time.Hour))
	if share, _ := r.Share(now.Add(24 * time.Hour)); share > 10100 {
		t.Errorf("old protests count as much as new answers: %d", share)
	}
	if share, n := r.Share(now.AddDate(50, 0, 0)); share != 0 || n != 0 {
		t.Errorf("a clock that jumps: %d of %g", share, n)
	}

	r.Count(1, 1, now.AddDate(50, 0, 0)) // the clock was wrong
	r.Count(100, 1, now)
	if _, n := r.Share(now.Add(48 * time.Hour)); n > 30 {
		t.Errorf("after a clock that was ahead nothing fades: %g requests", n)
	}
}

// TestARateIsKept: it comes back as it was, to a thousandth of a request, and what
// nobody can have counted does no harm.
func TestARateIsKept(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	var r Rate
	r.Count(300, 7, now.Add(-30*time.Hour))
	r.Count(100, 2, now)
	back := r.Keep().Rate(now)
	for _, at := range []time.Time{now, now.Add(20 * time.Hour)} {
		share, n := r.Share(at)
		if gotShare, gotN := back.Share(at); math.Abs(float64(gotShare)-float64(share)) > 10 || math.Abs(gotN-n) > 0.01 {
			t.Errorf("%d of %g, want %d of %g", gotShare, gotN, share, n)
		}
	}
	if (&Rate{}).Keep().Rate(now).requests != 0 {
		t.Error("nothing became something")
	}
	wild := Kept{math.MaxUint64, math.MaxUint64, math.MaxInt64}.Rate(now)
	wild.Count(1, 0, now)
	if share, n := wild.Share(now.AddDate(1, 0, 0)); share != 0 || n != 0 {
		t.Errorf("a wild record never fades: %d of %g", share, n)
	}
	wild = Rate{requests: math.Inf(1), protests: math.NaN()}
	if k := wild.Keep(); k.Requests > maxKept*1000 || k.Protests > maxKept*1000 {
		t.Errorf("kept %+v", k)
	}
}

func BenchmarkNext(b *testing.B) {
	p := plan(open, withheld)
	failed := []chain.Failure{{Option: "a/1", Class: chain.Timeout}, {Option: "b/1", Class: chain.Status}}
	b.ReportAllocs()
	for b.Loop() {
		p.Next(failed, open)
	}
}

func BenchmarkNewPlan(b *testing.B) {
	for _, n := range []int{1, 3, 8, 32} {
		open, withheld, price := crowd(n, 1)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewPlan("body", open, withheld, price, terms, DefaultLimits())
			}
			nodes, _ := NewPlan("body", open, withheld, price, terms, DefaultLimits()).Size()
			b.ReportMetric(float64(nodes), "nodes")
		})
	}
}
