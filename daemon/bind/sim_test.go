package bind

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
)

// box is a peer of the simulation: it runs parallel jobs at once and the others
// wait.
type box struct {
	name     string
	rtt      time.Duration
	service  time.Duration
	parallel int
	fails    float64

	free []time.Time // when each place is free
	jobs int
	got  int
}

// take gives when a job that arrives at now is done.
func (b *box) take(now time.Time) time.Time {
	place := 0
	for i := range b.free {
		if b.free[i].Before(b.free[place]) {
			place = i
		}
	}
	begin := now
	if b.free[place].After(now) {
		begin = b.free[place]
	}
	b.free[place] = begin.Add(b.service)
	b.jobs++
	b.got++
	return b.free[place].Add(b.rtt)
}

type event struct {
	at time.Time
	do func(now time.Time)
}
type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// simulate lets devices hand out jobs, every apart, for a while and gives each
// box's share of them. Loads are told every 10 s only.
func simulate(seed uint64, devices int, every time.Duration, jobs int, boxes []*box) map[string]float64 {
	random := rand.New(rand.NewPCG(seed, 1))
	var tables []*Table
	for i := range devices {
		tables = append(tables, newTable(seed+uint64(i)))
	}
	var queue events
	tell := func(now time.Time) {
		for _, b := range boxes {
			for _, t := range tables {
				t.Contact(contact(b.name, func(c *Contact) { c.RTT, c.Load = b.rtt, Load{b.jobs, b.parallel} }), now)
			}
		}
	}
	for _, b := range boxes {
		b.free = make([]time.Time, b.parallel)
	}
	byName := map[chain.PeerID]*box{}
	for _, b := range boxes {
		byName[chain.PeerID(b.name)] = b
	}
	for i := range jobs {
		at := start.Add(time.Duration(i)*every + time.Duration(random.Int64N(int64(every))))
		table := tables[i%devices]
		heap.Push(&queue, event{at, func(now time.Time) {
			p, ok := table.Bind(ask, nil, now)
			if !ok {
				return
			}
			b, class := byName[p], chain.OK
			if random.Float64() < b.fails {
				class = chain.Status
			}
			end, done := table.Begin(p), b.take(now)
			heap.Push(&queue, event{done, func(at time.Time) {
				b.jobs--
				end()
				table.Observe(p, work, class, at.Sub(now), at)
			}})
		}})
	}
	for at := start; at.Before(start.Add(time.Duration(jobs) * every)); at = at.Add(10 * time.Second) {
		heap.Push(&queue, event{at, tell})
	}
	for queue.Len() > 0 {
		e := heap.Pop(&queue).(event)
		e.do(e.at)
	}
	shares := map[string]float64{}
	for _, b := range boxes {
		shares[b.name] = float64(b.got) / float64(jobs)
	}
	return shares
}

func equals(n int) []*box {
	var all []*box
	for i := range n {
		all = append(all, &box{name: fmt.Sprintf("equal%d", i), rtt: 5 * time.Millisecond, service: time.Second, parallel: 2})
	}
	return all
}

// TestLoadSpreadsOverEqualsAndLittleGoesToTheWorse is what binding promises,
// over many seeds.
func TestLoadSpreadsOverEqualsAndLittleGoesToTheWorse(t *testing.T) {
	for seed := range uint64(10) {
		for name, worse := range map[string]*box{
			"nobody":  nil,
			"slow":    {name: "worse", rtt: 5 * time.Millisecond, service: 4 * time.Second, parallel: 2},
			"far":     {name: "worse", rtt: 3 * time.Second, service: time.Second, parallel: 2},
			"failing": {name: "worse", rtt: 5 * time.Millisecond, service: time.Second, parallel: 2, fails: 0.8},
		} {
			boxes := equals(4)
			if worse != nil {
				boxes = append(boxes, worse)
			}
			shares := simulate(seed, 3, 250*time.Millisecond, 1200, boxes)
			for _, b := range boxes[:4] {
				if s := shares[b.name]; s < 0.15 || s > 0.35 {
					t.Errorf("seed %d, beside %s: %s got %.3f: %v", seed, name, b.name, s, shares)
				}
			}
			if shares["worse"] > 0.06 {
				t.Errorf("seed %d: the %s one got %.3f", seed, name, shares["worse"])
			}
		}
	}
}

// TestALoadedPeerGetsLittle: one of the equals works for somebody else.
func TestALoadedPeerGetsLittle(t *testing.T) {
	for seed := range uint64(10) {
		boxes := equals(4)
		boxes[0].jobs = 6 // for ever, by others
		shares := simulate(seed, 3, 250*time.Millisecond, 1200, boxes)
		if s := shares["equal0"]; s > 0.1 {
			t.Errorf("seed %d: the loaded one got %.3f: %v", seed, s, shares)
		}
	}
}

// TestWhoeverWasTriedFirstDoesNotStayAhead: work is far quicker than assumed, and
// there is so little of it that load tells nothing.
func TestWhoeverWasTriedFirstDoesNotStayAhead(t *testing.T) {
	for seed := range uint64(10) {
		boxes := equals(4)
		for _, b := range boxes {
			b.service = 50 * time.Millisecond
		}
		for name, s := range simulate(seed, 1, time.Second, 100, boxes) {
			if s < 0.1 || s > 0.4 {
				t.Errorf("seed %d: %s got %.3f", seed, name, s)
			}
		}
	}
}

// TestManyDevicesDoNotHerd: each sees the same loads, told 10 s ago.
func TestManyDevicesDoNotHerd(t *testing.T) {
	shares := simulate(3, 40, 100*time.Millisecond, 2000, equals(8))
	for name, s := range shares {
		if s < 0.06 || s > 0.2 {
			t.Errorf("%s got %.3f: %v", name, s, shares)
		}
	}
}

// TestWhatAlwaysHolds: after any history Bind gives a peer exactly when there is
// an eligible one that is not excepted, and it is one of those expected soonest.
func TestWhatAlwaysHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, now := newTable(rapid.Uint64().Draw(t, "seed")), start
		names := []string{"a", "b", "c", "d", "e"}
		classes := []chain.Class{chain.OK, chain.OK, chain.Status, chain.Unreachable, chain.Busy, chain.Timeout}
		var open []func()
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "peer")
			p := chain.PeerID(name)
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "pause")) * time.Millisecond)
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1:
				table.Contact(contact(name, func(c *Contact) {
					c.RTT = time.Duration(rapid.IntRange(0, 4000).Draw(t, "rtt")) * time.Millisecond
					c.Load = Load{rapid.IntRange(-5, 50).Draw(t, "jobs"), rapid.IntRange(-1, 8).Draw(t, "parallel")}
				}), now)
			case 2:
				table.Parted(p, now)
			case 3:
				table.Silent(p, now)
			case 4:
				table.Heard(p, time.Second, now)
			case 5:
				open = append(open, table.Begin(p))
			case 6:
				table.Introduce(Introduction{Peer: p}, now)
			case 9:
				table.Declined(p, Work{}, now.Add(time.Minute))
			case 7:
				took := time.Duration(rapid.Int64Range(-5, int64(time.Hour)).Draw(t, "took"))
				table.Observe(p, work, rapid.SampledFrom(classes).Draw(t, "class"), took, now)
			case 8:
				if len(open) > 0 {
					open[0]()
					open = open[1:]
				}
			}
		}
		excepted := map[chain.PeerID]bool{}
		for _, name := range names {
			excepted[chain.PeerID(name)] = rapid.Bool().Draw(t, "except")
		}
		var best time.Duration
		eligible := map[chain.PeerID]time.Duration{}
		for _, v := range table.Explain(ask, nil, now) {
			if v.Completion <= 0 || v.Ahead < 0 {
				t.Fatalf("%+v", v)
			}
			if v.Why == Eligible && !excepted[v.Peer] {
				if len(eligible) == 0 {
					best = v.Completion
				}
				eligible[v.Peer] = v.Completion
			}
		}
		p, ok := table.Bind(ask, func(p chain.PeerID) bool { return excepted[p] }, now)
		if ok != (len(eligible) > 0) {
			t.Fatalf("bound %v with %d eligible", ok, len(eligible))
		}
		if by, can := eligible[p]; ok && (!can || float64(by) > float64(best)*nearFactor+float64(nearSlack)+1) {
			t.Fatalf("bound to %s: eligible %v, expected after %s, the best after %s", p, can, by, best)
		}
	})
}
