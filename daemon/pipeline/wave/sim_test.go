package wave

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// service is how long an answer takes: most around 12 s, three in a hundred 90 s and
// more, with a heavy tail up to ten minutes. Drawn from the names of task and option, so that a
// first copy takes as long whether it is hedged or not.
func service(seed uint64, c Copy) time.Duration {
	h := fnv.New64a()
	fmt.Fprint(h, c.Task.Name, c.Offer.Option)
	random := rand.New(rand.NewPCG(seed, h.Sum64()))
	seconds := 12 * math.Exp(0.5*random.NormFloat64())
	if random.Float64() < 0.03 {
		seconds = 90 * math.Pow(1-random.Float64(), -1/1.5)
	}
	return time.Duration(min(seconds, 600) * float64(time.Second))
}

// server is a provider: places at once, the others wait in its queue. It sells its time,
// also of what is cancelled.
type server struct {
	places  chan struct{}
	waiting int // with those that are served
	longest int
	sold    chain.MicroUSD
}

// world is a runner over simulated servers.
type world struct {
	seed   uint64
	offers []Offer

	mu      sync.Mutex
	servers map[string]*server
	jobs    int
	states  map[job.State]int
	spent   map[string]chain.MicroUSD // by job
	lost    chain.MicroUSD            // of it by jobs that were superseded
}

// simulated makes a world of n providers on devices of two each, all with as many
// places.
func simulated(seed uint64, n, places int) *world {
	w := &world{seed: seed, servers: map[string]*server{}, states: map[job.State]int{}, spent: map[string]chain.MicroUSD{}}
	for i := range n {
		name := fmt.Sprint("p", i)
		w.offers = append(w.offers, Offer{Option: chain.OptionID(name), Provider: name, Device: fmt.Sprint("d", i/2),
			Model: fmt.Sprint("m", i), Quality: 0.7 - float64(i)/100, Latency: 15 * time.Second})
		w.servers[name] = &server{places: make(chan struct{}, places)}
	}
	return w
}

func (w *world) Offers(chain.Primitive) []Offer { return slices.Clone(w.offers) }

func (w *world) Run(ctx context.Context, c Copy, begin func(string), accepted func(chain.OptionID, chain.PeerID)) Outcome {
	w.mu.Lock()
	w.jobs++
	id := fmt.Sprint("j", w.jobs)
	s := w.servers[c.Offer.Provider]
	s.waiting++
	s.longest = max(s.longest, s.waiting)
	w.mu.Unlock()
	begin(id)
	accepted(c.Offer.Option, "")
	out := Outcome{Class: chain.Canceled, Option: c.Offer.Option, Provider: c.Offer.Provider, Model: c.Offer.Model}
	came := time.Now()
	var served time.Duration
	select {
	case s.places <- struct{}{}:
		began := time.Now()
		ends := time.NewTimer(service(w.seed, c))
		select {
		case <-ends.C:
			out.Class, out.Output = chain.OK, 300
		case <-ctx.Done():
			ends.Stop()
		}
		served = time.Since(began)
		<-s.places
	case <-ctx.Done():
	}
	if ctx.Err() == context.DeadlineExceeded {
		out.Class = chain.Timeout
	}
	out.Took = time.Since(came)
	out.Cost = price(served)
	w.mu.Lock()
	s.waiting--
	s.sold += out.Cost
	w.spent[id] = out.Cost
	w.mu.Unlock()
	return out
}

// price is a micro-dollar a millisecond, begun ones included.
func price(served time.Duration) chain.MicroUSD {
	return chain.MicroUSD((served + time.Millisecond - 1) / time.Millisecond)
}

func (w *world) Settle(id string, state job.State, _ job.Hedge) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states[state]++
	if state == job.Superseded {
		w.lost += w.spent[id]
	}
}

// tail runs waves of tasks one after another and gives the 99th percentile of how long
// one took, and the hedges per job without.
func tail(s Settings, seed uint64, waves, tasks int) (p99 time.Duration, extra float64) {
	world, p := simulated(seed, 5, 50), NewPool()
	took := make([]time.Duration, waves)
	for i := range took {
		w := New(s, world, p)
		began := time.Now()
		w.Do(context.Background(), many(fmt.Sprint("w", i), tasks))
		took[i] = time.Since(began)
		w.Close()
	}
	_ = p.Close(context.Background())
	slices.Sort(took)
	t := p.Totals()
	return took[len(took)*99/100], float64(t.Hedges) / float64(t.Jobs-t.Hedges)
}

func many(name string, n int) []Task {
	tasks := make([]Task, n)
	for i := range tasks {
		tasks[i] = worker(fmt.Sprint(name, "-", i))
	}
	return tasks
}

// spread gives tasks of several requests away at once, and gives the longest queue at
// one provider.
func spread(seed uint64, providers, requests, tasks int) int {
	world, p := simulated(seed, providers, 1), NewPool()
	s := Default()
	s.HedgeAfter = 0
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			w := New(s, world, p)
			w.Do(context.Background(), many(fmt.Sprint("r", i), tasks))
			w.Close()
		})
	}
	all.Wait()
	_ = p.Close(context.Background())
	longest := 0
	for _, s := range world.servers {
		longest = max(longest, s.longest)
	}
	return longest
}

// race runs tasks in as many copies, one task after another, and gives what the losers
// spent, what the servers sold, and the time it took for each second of one copy.
func race(seed uint64, replicas, tasks int) (lost, sold chain.MicroUSD, faster float64) {
	world, p := simulated(seed, 5, 50), NewPool()
	s := Default()
	s.Race, s.Replicas, s.HedgeAfter = true, replicas, 0
	var raced time.Duration
	for i := range tasks {
		w := New(s, world, p)
		began := time.Now()
		w.Do(context.Background(), many(fmt.Sprint("t", i), 1))
		raced += time.Since(began)
		w.Close()
	}
	_ = p.Close(context.Background())
	for _, s := range world.servers {
		sold += s.sold
	}
	var single time.Duration
	for i := range tasks {
		task := many(fmt.Sprint("t", i), 1)[0]
		single += service(seed, Copy{Task: &task, Offer: &world.offers[0]})
	}
	return world.lost, sold, float64(raced) / float64(single)
}

// overload has half as many tasks more come in than the servers can do, for half an hour,
// and gives the jobs per task that this makes, and how many tasks were answered.
func overload(s Settings, seed uint64) (amplification, answered float64) {
	world, p := simulated(seed, 4, 2), NewPool()
	random := rand.New(rand.NewPCG(seed, 1))
	var all sync.WaitGroup
	var mu sync.Mutex
	tasks, good := 0, 0
	for end := time.Now().Add(30 * time.Minute); time.Now().Before(end); tasks++ {
		time.Sleep(time.Duration(random.ExpFloat64() * float64(1500*time.Millisecond))) // 8 places, 18 s each: one in 2.3 s
		name := fmt.Sprint("o", tasks)
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			w := New(s, world, p)
			out := w.Do(ctx, many(name, 1))[0]
			w.Close()
			mu.Lock()
			defer mu.Unlock()
			if out.Class == chain.OK {
				good++
			}
		})
	}
	all.Wait()
	_ = p.Close(context.Background())
	return float64(p.Totals().Jobs) / float64(tasks), float64(good) / float64(tasks)
}

func seeds(t testing.TB) []uint64 {
	all := []uint64{1, 2}
	t.Logf("seeds %v", all)
	return all
}

func TestHedgeCutsTheTail(t *testing.T) {
	for _, seed := range seeds(t) {
		synctest.Test(t, func(t *testing.T) {
			off := Default()
			off.HedgeAfter = 0
			before, none := tail(off, seed, 1000, 4)
			after, extra := tail(Default(), seed, 1000, 4)
			t.Logf("seed %d: p99 of a wave of 4: %s, hedged %s with %.1f%% extra jobs", seed, before.Round(time.Second), after.Round(time.Second), 100*extra)
			if none != 0 || float64(after) > 0.6*float64(before) {
				t.Errorf("the hedge lowers p99 from %s to %s", before, after)
			}
			if extra == 0 || extra >= 0.05 {
				t.Errorf("it costs %.3f extra jobs", extra)
			}
		})
	}
}

func TestSpreadShortensQueues(t *testing.T) {
	for _, seed := range seeds(t) {
		synctest.Test(t, func(t *testing.T) {
			one, four := spread(seed, 1, 8, 3), spread(seed, 4, 8, 3)
			t.Logf("seed %d: the longest queue of 24 tasks: %d at one provider, %d over four", seed, one, four)
			if one != 24 || 2*four > one {
				t.Errorf("the longest queue is %d, with one provider %d", four, one)
			}
		})
	}
}

func TestARaceIsFasterForTheCostOfItsLosers(t *testing.T) {
	for _, seed := range seeds(t) {
		synctest.Test(t, func(t *testing.T) {
			lost, sold, faster := race(seed, 2, 400)
			t.Logf("seed %d: a race of 2 takes %.2f of the time of one, and spends %.2f of it on losers", seed, faster, float64(lost)/float64(sold))
			if faster > 0.7 || lost <= 0 || lost >= sold {
				t.Errorf("%.2f of the time, losers spent %d of %d", faster, lost, sold)
			}
		})
	}
}

func TestOverloadIsNotAmplified(t *testing.T) {
	for _, seed := range seeds(t) {
		synctest.Test(t, func(t *testing.T) {
			amplified, answered := overload(Default(), seed)
			t.Logf("seed %d: %.3f jobs a task, %.2f answered", seed, amplified, answered)
			if amplified > 1.05 || answered < 0.3 {
				t.Errorf("%.3f jobs a task, %.2f answered", amplified, answered)
			}
		})
	}
}
