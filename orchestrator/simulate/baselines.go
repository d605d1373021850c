package simulate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

// Names of the policies. All walk with the same cool-downs.
const (
	Product     = "chordwheel"
	C1          = "c1"             // knows the true parameters of the moment, ongoing outages included
	C2          = "c2"             // knows all but outages
	FixedOrder  = "fixed"          // as listed
	AtRandom    = "random"         // another order for each request
	RoundRobin  = "round-robin"    // each request begins one further
	LeastTime   = "latency"        // lowest mean latency as the device saw it
	LeastBusy   = "least-busy"     // fewest requests under way over the fleet, then the least recently used
	Cheapest    = "cheapest"       // lowest price first
	Greedy      = "epsilon-greedy" // lowest mean cost as the device saw it; one in ten at random
	PowerOfTwo  = "power-of-two"   // the faster of two at random, then by latency
	epsilon     = 0.1
	meanStep    = 0.1 // weight of the newest in a moving mean, once it has seen ten
	exploitFrom = 1
)

// Names gives the product and all it is compared with, in the order of the tables.
func Names() []string {
	return []string{Product, C1, C2, FixedOrder, AtRandom, RoundRobin, LeastTime, LeastBusy, Cheapest, Greedy, PowerOfTwo}
}

// baseline is a policy without a hub.
type baseline struct {
	s       *sim
	name    string
	options []chain.Option // by place
	rules   chain.Rules
	random  *rand.Rand
	devices []own
	flying  []int     // requests under way, by option
	used    []moment  // when an option was used last
	left    []allowed // of the ceilings
}

// own is what one device remembers.
type own struct {
	time, cost []mean // by option
	turn       int
	hooks      walk.Hooks
	known      []int // a clairvoyant's order
	knownFor   int
}

type mean struct {
	value float64
	n     float64
}

func (m *mean) add(x float64) {
	m.n++
	m.value += (x - m.value) * math.Max(1/m.n, meanStep)
}

// allowed is what is left of a ceiling. Who is compared with the product spends it first
// come, first served, over the fleet, to the last request.
type allowed struct {
	*ceiling
	period time.Time
	left   int64
}

func newBaseline(s *sim, name string) *baseline {
	b := &baseline{s: s, name: name, rules: s.s.rules().WithDefaults(), random: stream(s.s.Seed, name, 0), flying: make([]int, len(s.w.options)), used: make([]moment, len(s.w.options))}
	b.declared()
	for _, l := range s.ceilings() {
		b.left = append(b.left, allowed{ceiling: l})
	}
	b.devices = make([]own, len(s.devices))
	for i := range b.devices {
		o := &b.devices[i]
		o.knownFor = -1
		for k := range s.s.Options {
			// What is declared counts as one observation.
			o.time = append(o.time, mean{s.s.Options[k].Prior.Latency.Seconds(), exploitFrom})
			o.cost = append(o.cost, mean{b.expected(k), exploitFrom})
		}
		if len(b.left) > 0 {
			o.hooks.Reserve = b.reserve
		}
	}
	return b
}

// expected is what the catalogue makes one believe of an option's cost.
func (b *baseline) expected(k int) float64 {
	o, w := &b.s.s.Options[k], &b.s.s.Weights
	return b.s.w.options[k].money + w.Quality*(1-o.Quality) + w.Second*o.Prior.Latency.Seconds() + w.Failure*(1-o.Prior.Reliability)
}

func (b *baseline) declared() {
	b.options = nil
	for i := range b.s.w.options {
		b.options = append(b.options, b.s.w.option(i))
	}
}

func (b *baseline) plan(d *device) walk.Plan {
	places := b.order(d)
	list := make([]chain.Option, len(places))
	for k, i := range places {
		list[k] = b.options[i]
	}
	return walk.Plan{Options: list, Rules: b.rules, Hooks: b.devices[d.number].hooks}
}

// order gives the places of options as this policy tries them.
func (b *baseline) order(d *device) []int {
	o := &b.devices[d.number]
	if b.name == C1 || b.name == C2 {
		now := b.s.turned
		if b.name == C2 {
			now = b.s.lasting
		}
		if o.knownFor != now {
			o.known, o.knownFor = b.s.w.knowing(d.place, b.name == C1, b.rules.Attempts, &b.s.solver), now
		}
		return o.known
	}
	open := b.s.w.open()
	sorted := func(of func(i int) float64) []int {
		slices.SortStableFunc(open, func(x, y int) int { return cmp.Compare(of(x), of(y)) })
		return open
	}
	latency := func(i int) float64 { return o.time[i].value }
	switch b.name {
	case AtRandom:
		b.random.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	case RoundRobin:
		o.turn++
		first := o.turn % len(open)
		return append(slices.Clone(open[first:]), open[:first]...)
	case LeastTime:
		return sorted(latency)
	case LeastBusy:
		slices.SortStableFunc(open, func(x, y int) int {
			return cmp.Or(cmp.Compare(b.flying[x], b.flying[y]), cmp.Compare(b.used[x], b.used[y]))
		})
	case Cheapest:
		return sorted(func(i int) float64 { return b.s.w.options[i].money })
	case Greedy:
		sorted(func(i int) float64 { return o.cost[i].value })
		if b.random.Float64() < epsilon {
			toFront(open, b.random.IntN(len(open)))
		}
	case PowerOfTwo:
		x, y := open[b.random.IntN(len(open))], open[b.random.IntN(len(open))]
		if latency(y) < latency(x) {
			x = y
		}
		sorted(latency)
		toFront(open, slices.Index(open, x))
	}
	return open
}

// toFront moves the place at i to the front.
func toFront(list []int, i int) {
	x := list[i]
	copy(list[1:i+1], list[:i])
	list[0] = x
}

func (b *baseline) begins(r *request) {
	b.flying[r.option]++
	b.used[r.option] = b.s.now
}

func (b *baseline) ends(r *request, seconds, cost float64, ok bool) {
	b.flying[r.option]--
	o := &b.devices[r.d.number]
	if ok {
		o.time[r.option].add(seconds)
	} else {
		o.time[r.option].add(math.Max(seconds, b.s.s.Limit.Seconds())) // a failure is no quick answer
	}
	o.cost[r.option].add(cost)
}

// reserve takes from the ceilings.
func (b *baseline) reserve(o *chain.Option, _ string) (func(walk.Measurement), *walk.Short) {
	i, now := b.s.places[o.ID], b.s.time()
	amount := func(l *allowed) int64 {
		if l.Calls {
			return 1
		}
		return int64(math.Ceil(b.s.w.options[i].money))
	}
	var of []*allowed
	for k := range b.left {
		l := &b.left[k]
		if !l.covered[i] {
			continue
		}
		if from, _ := l.Period(now); from.After(l.period) {
			l.period, l.left = from, l.Limit
		}
		if l.left < amount(l) {
			return nil, new(walk.Short)
		}
		of = append(of, l)
	}
	for _, l := range of {
		l.left -= amount(l)
	}
	return func(x walk.Measurement) {
		for _, l := range of {
			if x.Class == chain.Unreachable || x.Class == chain.Status && !l.Calls {
				l.left += amount(l)
			} else {
				b.s.tally.spend(l.ceiling, amount(l), now)
			}
		}
	}, nil
}

func (b *baseline) ended(*device, *request)                         {}
func (b *baseline) protest(*device, []chain.Failure) []chain.Option { return nil }
func (b *baseline) due(int, *device)                                {}
func (b *baseline) listed() []int                                   { return nil }
