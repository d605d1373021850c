package wave

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
)

type offers = map[chain.Primitive][]Offer
type script = map[chain.OptionID]serving

// TestHedge plays a single task against scripted providers, and tells what jobs there
// were and when the task was answered.
func TestHedge(t *testing.T) {
	slow := serving{takes: 300 * time.Second, text: "slow"}
	quick := serving{takes: 10 * time.Second, text: "quick"}
	two := offers{"llm.t2": {at("a", "big"), at("b", "other")}}
	for _, c := range []struct {
		name   string
		set    func(*Settings)
		task   func(*Task)
		offers offers
		script script
		jobs   []string
		took   time.Duration
		text   string
	}{
		{name: "quick enough: none", offers: two, script: script{"a/big": quick},
			jobs: []string{"a/big 0 done "}, took: 10 * time.Second, text: "quick"},
		{name: "a hedge that wins", offers: two, script: script{"a/big": slow, "b/other": quick},
			jobs: []string{"a/big 0 superseded loser", "b/other 1 done winner"}, took: 85 * time.Second, text: "quick"},
		{name: "a hedge that loses", offers: two, script: script{"a/big": {takes: 80 * time.Second, text: "first"}, "b/other": quick},
			jobs: []string{"a/big 0 done winner", "b/other 1 superseded loser"}, took: 80 * time.Second, text: "first"},
		{name: "a hedge that fails", offers: two, script: script{"a/big": slow, "b/other": {takes: time.Second, class: chain.Status}},
			jobs: []string{"a/big 0 done winner", "b/other 1 failed "}, took: 300 * time.Second, text: "slow"},
		{name: "the first fails after its hedge began", offers: two,
			script: script{"a/big": {takes: 80 * time.Second, class: chain.Cut}, "b/other": {takes: 20 * time.Second, text: "second"}},
			jobs:   []string{"a/big 0 failed ", "b/other 1 done winner"}, took: 95 * time.Second, text: "second"},
		{name: "a failure before: the walk went through the chain, so no second one", offers: two,
			script: script{"a/big": {takes: time.Second, class: chain.Status}},
			jobs:   []string{"a/big 0 failed "}, took: time.Second},
		{name: "the clock starts when somebody accepts", offers: two,
			script: script{"a/big": {accept: 200 * time.Second, takes: 70 * time.Second, text: "late"}},
			jobs:   []string{"a/big 0 done "}, took: 270 * time.Second, text: "late"},
		{name: "and anew when the walk goes on after its runner died", offers: two,
			script: script{"a/big": {takes: 70 * time.Second, text: "walked on", moves: &move{60 * time.Second, "c/third"}}},
			jobs:   []string{"a/big 0 done "}, took: 130 * time.Second, text: "walked on"},
		{name: "a hedge keeps away from where the walk went", offers: offers{"llm.t2": {at("a", "big"), at("b", "other"), at("c", "third")}},
			script: script{"a/big": {takes: 300 * time.Second, moves: &move{10 * time.Second, "b/other"}}, "c/third": quick, "b/other": quick},
			jobs:   []string{"a/big 0 superseded loser", "c/third 1 done winner"}, took: 95 * time.Second, text: "quick"},
		{name: "rung 1 takes the fastest other model at another provider",
			offers: offers{"llm.t2": {at("a", "big"), with(at("a", "mini"), time.Second), at("b", "big"), with(at("c", "x"), 20*time.Second), with(at("d", "y"), 5*time.Second)}},
			script: script{"a/big": slow, "d/y": quick},
			jobs:   []string{"a/big 0 superseded loser", "d/y 1 done winner"}, took: 85 * time.Second, text: "quick"},
		{name: "rung 2: one tier lower", offers: offers{"llm.t2": {at("a", "big"), at("b", "big")}, "llm.t1": {at("a", "tiny"), at("c", "tiny")}},
			script: script{"a/big": slow, "c/tiny": quick},
			jobs:   []string{"a/big 0 superseded loser", "c/tiny 2 done winner"}, took: 85 * time.Second, text: "quick"},
		{name: "rung 3 where no lower tier is wanted: the same model elsewhere", set: func(s *Settings) { s.TierDown = false },
			offers: offers{"llm.t2": {at("a", "big"), at("b", "big")}, "llm.t1": {at("c", "tiny")}},
			script: script{"a/big": slow, "b/big": quick},
			jobs:   []string{"a/big 0 superseded loser", "b/big 3 done winner"}, took: 85 * time.Second, text: "quick"},
		{name: "whoever writes the answer stops at rung 1", task: func(t *Task) { t.Final = true },
			offers: offers{"llm.t2": {at("a", "big"), at("b", "big")}, "llm.t1": {at("c", "tiny")}},
			script: script{"a/big": slow},
			jobs:   []string{"a/big 0 done "}, took: 300 * time.Second, text: "slow"},
		{name: "a direct walk has its chain and no hedge", task: func(t *Task) { t.Tier, t.Primitive = 0, "llm.chat" },
			offers: offers{"llm.chat": {at("a", "big"), at("b", "other")}}, script: script{"chain": slow},
			jobs: []string{"chain 0 done "}, took: 300 * time.Second, text: "slow"},
		{name: "nobody is asked who rests, or is slow himself", offers: offers{"llm.t2": {at("a", "big"), resting(at("b", "x")), with(at("c", "y"), 80*time.Second)}},
			script: script{"a/big": slow},
			jobs:   []string{"a/big 0 done "}, took: 300 * time.Second, text: "slow"},
		{name: "never, where hedge_after is 0", set: func(s *Settings) { s.HedgeAfter = 0 }, offers: two, script: script{"a/big": slow},
			jobs: []string{"a/big 0 done "}, took: 300 * time.Second, text: "slow"},
		{name: "nor beyond the budget", set: func(s *Settings) { s.HedgeBudget = 0.99 }, offers: two, script: script{"a/big": slow},
			jobs: []string{"a/big 0 done "}, took: 300 * time.Second, text: "slow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, task := settings(), worker("s1")
				if c.set != nil {
					c.set(&s)
				}
				if c.task != nil {
					c.task(&task)
				}
				r := play(c.offers, by(c.script))
				p := NewPool()
				w := New(s, r, p)
				out := w.Do(t.Context(), []Task{task})[0]
				took := time.Since(r.start)
				w.Close()
				same(t, "jobs", r.told(), c.jobs)
				same(t, "took", took, c.took)
				if out.Class == chain.OK {
					same(t, "text", out.Text, c.text)
				}
				r.once(t)
				if err := p.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func with(o Offer, latency time.Duration) Offer { o.Latency = latency; return o }
func resting(o Offer) Offer                     { o.Resting = true; return o }

// TestHedgeAsksAgain has the only other provider wake up after the first refusal.
func TestHedgeAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &waking{theatre: play(nil, by(script{"a/big": {takes: time.Hour}, "b/other": {takes: time.Second}}))}
		p := NewPool()
		w := New(settings(), r, p)
		same(t, "class", w.Do(t.Context(), []Task{worker("s1")})[0].Class, chain.OK)
		same(t, "took", time.Since(r.start).Truncate(time.Second), 113*time.Second) // 75 s and two more of 18.75 s, and 1
		same(t, "refused", p.Totals().Nowhere, 1)
		w.Close()
		r.once(t)
	})
}

type waking struct{ *theatre }

func (w *waking) Offers(chain.Primitive) []Offer {
	b := at("b", "other")
	b.Resting = time.Since(w.start) < 100*time.Second
	return []Offer{at("a", "big"), b}
}

// TestDeafLoser has a loser that goes on for a minute after it was cancelled.
func TestDeafLoser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(offers{"llm.t2": {at("a", "big"), at("b", "other")}},
			by(script{"a/big": {takes: 300 * time.Second, deaf: time.Minute, text: "late"}, "b/other": {takes: time.Second, text: "quick"}}))
		p := NewPool()
		w := New(settings(), r, p)
		out := w.Do(t.Context(), []Task{worker("s1")})[0]
		same(t, "the winner is not kept waiting", time.Since(r.start), 76*time.Second)
		same(t, "text", out.Text, "quick")
		same(t, "the loser holds its place", p.held(), "map[a:1] map[a:1]")
		w.Close()
		same(t, "for less than a second", time.Since(r.start) < 77*time.Second, true)
		same(t, "its place is free", p.held(), "map[] map[]")
		same(t, "its job is settled", r.told(), []string{"a/big 0 superseded loser", "b/other 1 done winner"})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Close(short); err == nil {
			t.Error("the pool closed while a goroutine of it runs")
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		same(t, "the pool waits for it", time.Since(r.start), (76+60)*time.Second)
		same(t, "totals", p.Totals(), Totals{Jobs: 2, Hedges: 1, Won: 1, Stuck: 1})
		r.once(t)
	})
}

// TestAbort cancels a wave of tasks in every state: running, hedged, not accepted, deaf,
// not begun.
func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(offers{"llm.t2": {at("a", "m"), at("b", "n"), at("c", "o"), at("d", "p"), at("e", "q")}}, by(script{
			"a/m": {takes: time.Hour}, "b/n": {accept: time.Hour}, "c/o": {takes: time.Hour, deaf: time.Minute}, "d/p": {takes: time.Hour}, "e/q": {takes: time.Hour},
		}))
		p := NewPool()
		s := settings()
		s.Parallel = 3
		w := New(s, r, p)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Second, cancel)
		outs := w.Do(ctx, []Task{worker("s1"), worker("s2"), worker("s3"), worker("s4")})
		if took := time.Since(r.start); took < 100*time.Second || took > 101*time.Second {
			t.Errorf("it ended after %s", took)
		}
		for i, out := range outs {
			same(t, "class", out.Class, chain.Canceled)
			if i == 3 {
				same(t, "the fourth never began", out.Option, "")
			}
		}
		w.Close()
		for _, j := range r.jobs {
			same(t, "state of "+string(j.copy.Offer.Option), j.state, job.Cancelled)
		}
		same(t, "copies", len(r.jobs), 5) // three first ones, and a hedge for the two that were accepted
		r.once(t)
		_ = p.Close(t.Context())
	})
}

// TestBudgetOfATask has a runner that holds no budget: the task ends all the same.
func TestBudgetOfATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(offers{"llm.t2": {at("a", "big"), at("b", "other")}}, by(script{"a/big": {takes: time.Hour}, "b/other": {takes: time.Hour}}))
		p := NewPool()
		w := New(settings(), r, p)
		task := worker("s1")
		task.Budget = 100 * time.Second
		same(t, "class", w.Do(t.Context(), []Task{task})[0].Class, chain.Timeout)
		same(t, "took", time.Since(r.start), 100*time.Second+patience)
		w.Close()
		same(t, "jobs", r.told(), []string{"a/big 0 cancelled ", "b/other 1 cancelled "})
		same(t, "what a hedge has left", r.jobs[1].copy.Task.Budget, 25*time.Second)
		_ = p.Close(t.Context())
	})
}

// TestCloseCancels has the device stop in the middle of a task.
func TestCloseCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(offers{"llm.t2": {at("a", "big")}}, by(script{"a/big": {takes: time.Hour}}))
		p := NewPool()
		w := New(settings(), r, p)
		go func() {
			time.Sleep(time.Second)
			_ = p.Close(context.Background())
		}()
		same(t, "class", w.Do(t.Context(), []Task{worker("s1")})[0].Class, chain.Canceled)
		same(t, "took", time.Since(r.start), time.Second)
		same(t, "afterwards nothing begins", w.Do(t.Context(), []Task{worker("s2")})[0].Class, chain.Canceled)
		same(t, "jobs", r.told(), []string{"a/big 0 cancelled "})
		w.Close()
	})
}

// TestStuckProvider does not hedge with a provider that is stuck with what it has, and
// does with one that is stuck with the lesser part.
func TestStuckProvider(t *testing.T) {
	for fresh, want := range map[int]string{0: "a/big", 1: "b/other", 2: "b/other"} {
		synctest.Test(t, func(t *testing.T) {
			r := play(offers{"llm.t1": {at("b", "other")}, "llm.t2": {at("a", "big"), at("b", "other")}}, func(c Copy) serving {
				switch {
				case c.Rung > 0:
					return serving{takes: time.Second}
				case c.Task.Name == "x":
					return serving{takes: 400 * time.Second}
				}
				return serving{takes: 300 * time.Second}
			})
			p := NewPool()
			w := New(settings(), r, p)
			var others sync.WaitGroup
			other := func() {
				others.Go(func() {
					task := worker("x")
					task.Tier, task.Primitive = 1, "llm.t1"
					w.Do(t.Context(), []Task{task})
				})
			}
			other() // late when the hedge is due, after 145 s
			time.Sleep(70 * time.Second)
			time.AfterFunc(70*time.Second, func() {
				for range fresh {
					other()
				}
			})
			w.Do(t.Context(), []Task{worker("s1")})
			others.Wait()
			w.Close()
			answered := ""
			for _, j := range r.jobs {
				if j.copy.Task.Name == "s1" && j.state == job.Done {
					answered = string(j.copy.Offer.Option)
				}
			}
			same(t, fmt.Sprint("answered by, with fresh ones: ", fresh), answered, want)
			_ = p.Close(t.Context())
		})
	}
}

// TestBudget gives hedges within the budget of the window, and of the moment.
func TestBudget(t *testing.T) {
	for _, c := range []struct {
		jobs, hedges     int64 // of the window
		others, together int   // that run now
		want             bool
	}{
		{jobs: 19, others: 1, want: false},
		{jobs: 20, others: 1, want: true},
		{jobs: 39, hedges: 1, others: 1, want: false},
		{jobs: 1000, hedges: 10, others: 39, together: 1, want: false},
		{jobs: 1000, hedges: 10, others: 40, together: 1, want: true},
		{jobs: 1000, hedges: 10, others: 3, together: 0, want: true},
	} {
		p, s, now := NewPool(), Default(), time.Now()
		p.history.spend(effort{jobs: c.jobs, hedges: c.hedges}, s.Window, now)
		for range c.others {
			p.legs[&leg{}] = struct{}{}
		}
		for range c.together {
			p.legs[&leg{copy: Copy{Rung: 1}}] = struct{}{}
		}
		same(t, fmt.Sprintf("%+v", c), p.affordable(&s, now), c.want)
	}
}
