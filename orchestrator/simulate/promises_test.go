package simulate

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/orchestrator/learn"
)

// shipped reads a shipped scenario and makes it small enough for a test.
func shipped(t testing.TB, name string, devices int, days float64) *Scenario {
	t.Helper()
	b, err := os.ReadFile("../../examples/simulate/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(name, b)
	if err != nil {
		t.Fatal(err)
	}
	s.Fleet.Devices, s.Days = devices, days
	return s
}

// calm takes outages away.
func (s *Scenario) calm() *Scenario {
	s.Storm.Options, s.Storm.Domains = 0, 0
	return s
}

// outcome runs one policy.
func outcome(t testing.TB, s *Scenario, policy string) Outcome {
	t.Helper()
	o, err := s.Run(t.Context(), policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// living runs the product and gives its inside, too.
func living(t *testing.T, s *Scenario) (*sim, *product) {
	t.Helper()
	m := newSim(s)
	p := newProduct(m)
	m.policy = p
	if err := m.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m, p
}

// TestItIsNearTheBest: a small fleet pays little more than who knows everything but
// outages, and no simpler policy pays less.
func TestItIsNearTheBest(t *testing.T) {
	s := shipped(t, "wide/steady", 40, 1)
	product, c2 := outcome(t, s, Product), outcome(t, s, C2)
	if over := product.Cost/c2.Cost - 1; over > 0.08 {
		t.Errorf("%.1f %% over c2", 100*over)
	}
	for _, name := range Names()[3:] {
		if o := outcome(t, s, name); o.Cost < 0.99*product.Cost {
			t.Errorf("%s pays %.0f, the product %.0f", name, o.Cost, product.Cost)
		}
	}
}

// TestAFewReordersADay: without outages and liars, once the priors are corrected.
func TestAFewReordersADay(t *testing.T) {
	for _, name := range []string{"close/steady", "wide/steady"} {
		o := outcome(t, shipped(t, name, 25, 2).calm(), Product)
		t.Logf("%s: a device and day moves %.2f options, and has %.2f orders; the hub %.1f", name, o.OwnReorders, o.Orders, o.HubReorders)
		if o.OwnReorders > 2 {
			t.Errorf("%s: %.2f reorders a device and day", name, o.OwnReorders)
		}
	}
}

// TestAShiftIsFollowed: for the worse within two half-lives of the latency; for the
// better, of an option that nobody uses any more, within a day.
func TestAShiftIsFollowed(t *testing.T) {
	s, err := Parse("s", []byte(`
days: 3
fleet: {devices: 40, most: 30}
options:
  - {name: best/m, latency: 1s}
  - {name: next/m, latency: 2s, input: 0.2}
  - {name: third/m, latency: 3s, input: 0.2}
  - {name: fourth/m, latency: 3s, input: 0.4}
changes:
  - {at: 12h, option: best/m, slower: 4}
  - {at: 36h, option: best/m, slower: 1}
`))
	if err != nil {
		t.Fatal(err)
	}
	series := outcome(t, s, Product).Series
	right := func(from int) int {
		for h := from; h < len(series); h++ {
			if series[h].Hub < 0.03 {
				return h - from
			}
		}
		return len(series)
	}
	worse, better := right(12), right(36)
	t.Logf("within 3 %% of right after %d h for the worse, %d h for the better", worse, better)
	if worse > 12 || better > 24 {
		t.Errorf("right after %d h for the worse, %d h for the better", worse, better)
	}
	if series[12].Hub < 0.03 || series[36].Hub < 0.03 {
		t.Error("the shifts made no order wrong: the test says nothing")
	}
}

// TestAnOutageIsLeftAlone: five minutes after the best option went down hardly anybody
// tries it first, whether it refuses or hangs, by itself or with its domain.
func TestAnOutageIsLeftAlone(t *testing.T) {
	for _, out := range []Outage{{Hang: false, Domain: "yes"}, {Hang: true}} {
		s := shipped(t, "wide/steady", 80, 0.7).calm()
		w := newWorld(s)
		o := &w.options[w.knowingMiddle()[0]]
		out.From, out.For = 14*time.Hour, 90*time.Minute
		if out.Domain != "" {
			out.Domain = o.domain
		} else {
			out.Option = string(o.id)
		}
		s.Outages = []Outage{out}
		m, _ := living(t, s)
		during := m.tally.series[14].Requests + m.tally.series[15].Requests/2
		late := float64(m.tally.deadLate) / during
		t.Logf("hang %v: of %.0f requests during the outage %d tried it first, %d later than 5 min", out.Hang, during, m.tally.dead, m.tally.deadLate)
		if m.tally.dead == 0 || late > 0.04 {
			t.Errorf("hang %v: %.1f %% tried it first later than 5 min", out.Hang, 100*late)
		}
	}
}

// TestCeilingsHold: in any run no ceiling is exceeded by more than one block of leases.
func TestCeilingsHold(t *testing.T) {
	used := false
	for seed := range uint64(2) {
		for _, world := range []string{"close", "wide"} {
			s := shipped(t, world+"/ceiling", 20, 0.8)
			s.Seed = seed
			s.Fleet.Sleepy = 0.3
			for i := range s.Ceilings {
				if c := &s.Ceilings[i]; c.CallsPerDay > 0 {
					c.CallsPerDay = 150
				} else {
					c.USDPerMonth = 0.05
				}
			}
			for _, a := range outcome(t, s, Product).Ceilings {
				if a.Over > a.Block {
					t.Errorf("seed %d: %s was exceeded by %d, a block is %d", seed, a.Name, a.Over, a.Block)
				}
				used = used || a.Most > a.Limit*9/10
			}
		}
	}
	if !used {
		t.Error("no ceiling was ever reached: the test says nothing")
	}
}

// TestLiarsMarksMoveNobody: liars mark the best option suspect, without ever a failure of
// an honest device. Devices whose own attempts succeed stay with it.
func TestLiarsMarksMoveNobody(t *testing.T) {
	s := shipped(t, "wide/steady", 40, 1).calm()
	s.Fleet.Least, s.Fleet.Most, s.Fleet.Night = 30, 60, 1 // an own attempt is always young
	for i := range s.Options {
		s.Options[i].Reliability = 1
	}
	m := newSim(s)
	p := newProduct(m)
	m.policy = p
	moved, kept, marked := 0, 0, 0
	now := epoch
	// A world within the world: each device has just used the chain's first option.
	v := p.hub.edition.view
	suspects := v
	suspects.Options = append([]chain.Option(nil), v.Options...)
	first := &suspects.Options[0]
	first.Cost.Usual, first.Cost.Reliability = first.Cost.Reliability, chain.PPMOf(0.05)
	suspects.Body = "marked"
	for i, member := range p.members {
		for k := range 6 {
			member.book.Observe(delta.Key{Primitive: slot.Primitive, Option: first.ID}, delta.Sample{OK: true, Took: time.Second, At: now.Add(time.Duration(k) * time.Minute)})
			member.book.Evaluate(&v, now.Add(time.Duration(k)*time.Minute))
		}
		at := now.Add(10 * time.Minute)
		if i%2 == 1 {
			at = now.Add(21 * time.Minute) // too long ago: the mark counts
		}
		before := v.Options[member.book.Order(&v, delta.Conversation{}, at)[0]].ID
		for range 5 {
			member.book.Evaluate(&suspects, at)
		}
		after := suspects.Options[member.book.Order(&suspects, delta.Conversation{}, at)[0]].ID
		switch {
		case i%2 == 1:
			marked++
		case before != after:
			moved++
		default:
			kept++
		}
	}
	if moved > 0 || kept == 0 || marked == 0 {
		t.Errorf("%d were moved, %d stayed", moved, kept)
	}
}

// TestLiars: with 40 % of those that report on an option lying, its latency stays within
// what honest devices see. BenchmarkLiars prints what lies of all kinds cost.
func TestLiars(t *testing.T) {
	s := shipped(t, "wide/steady", 30, 0.5).calm()
	s.Liars = Liars{Share: 0.4, Kind: Slow}
	m, p := living(t, s)
	used := p.hub.edition.places[0] // honest devices report on it
	least, most := math.Inf(1), 0.0
	for _, d := range m.devices {
		typical := m.w.options[used].latency * d.slowness[used]
		least, most = min(least, typical*0.7), max(most, typical*1.5)
	}
	e := p.hub.book.Estimates(key(m.w.options[used].id), learn.Segment{}, p.hub.prior(used), m.time())
	if e.Latency.Value < least || e.Latency.Value > most {
		t.Errorf("%.2f s is outside what honest devices see, %.2f to %.2f s", e.Latency.Value, least, most)
	}
}

// BenchmarkLiars prints, for three kinds of liars, what a request costs over c2, the
// orders that a device has in a day, and the chains that the hub publishes in one. A
// favourite that is praised is an option that at first only liars use.
func BenchmarkLiars(b *testing.B) {
	for _, kind := range []string{Slow, Random, Favourite} {
		for _, share := range []float64{0.1, 0.2, 0.3, 0.4, 0.5} {
			b.Run(fmt.Sprintf("%s-%.0f%%", kind, 100*share), func(b *testing.B) {
				s := shipped(b, "wide/steady", 50, 1).calm()
				list := newWorld(s).knowingMiddle()
				s.Liars = Liars{Share: share, Kind: kind, Favourite: s.Options[list[len(list)/2]].Name}
				for b.Loop() {
					o, c2 := outcome(b, s, Product), outcome(b, s, C2)
					b.ReportMetric(100*(o.Cost/c2.Cost-1), "%over-c2")
					b.ReportMetric(o.Orders, "orders/day")
					b.ReportMetric(o.OwnReorders, "own/day")
					b.ReportMetric(o.Editions, "chains/day")
				}
			})
		}
	}
}

// TestEscalation: where the chain is exhausted, a protest reveals what is withheld, and
// requests are answered that would not have been.
func TestEscalation(t *testing.T) {
	s := shipped(t, "close/narrow", 20, 3)
	o, c1 := outcome(t, s, Product), outcome(t, s, C1)
	if o.Extensions == 0 || o.Success <= c1.Success {
		t.Errorf("%d extensions; %.4f of the requests answered, %.4f without", o.Extensions, o.Success, c1.Success)
	}
}

// TestAllOptionsCanGo: a world in which ceilings take every option away does not end the
// simulation, and requests fail.
func TestAllOptionsCanGo(t *testing.T) {
	s, err := Parse("s", []byte(strings.Join([]string{"days: 0.5", "fleet: {devices: 4}", "options:", "  - {name: a/m, latency: 1s, input: 1, output: 1}",
		"ceilings:", "  - {options: '*', calls_per_day: 20}"}, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		if o := outcome(t, s, name); o.Success > 0.9 || o.Success == 0 || o.Ceilings[0].Over > 0 {
			t.Errorf("%s", fmt.Sprintf("%+v", o))
		}
	}
}
