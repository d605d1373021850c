package wave

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

func racing(replicas int, tiers ...int) Settings {
	s := settings()
	s.Race, s.Replicas, s.RaceTiers = true, replicas, tiers
	return s
}

// TestRace plays one task that is raced.
func TestRace(t *testing.T) {
	three := offers{"llm.t2": {at("a", "m"), at("b", "m"), at("c", "m")}}
	for _, c := range []struct {
		name   string
		set    Settings
		offers offers
		script script
		jobs   []string
		took   time.Duration
	}{
		{name: "the first success wins and the others are superseded", set: racing(3, 2), offers: three,
			script: script{"a/m": {takes: 9 * time.Second}, "b/m": {takes: 4 * time.Second}, "c/m": {takes: 6 * time.Second}},
			jobs:   []string{"a/m 0 superseded loser", "b/m 0 done winner", "c/m 0 superseded loser"},
			took:   4 * time.Second},
		{name: "a failure does not end it", set: racing(2, 2), offers: three,
			script: script{"a/m": {takes: time.Second, class: chain.Status}, "b/m": {takes: 4 * time.Second}},
			jobs:   []string{"a/m 0 failed ", "b/m 0 done winner"},
			took:   4 * time.Second},
		{name: "all fail", set: racing(2, 2), offers: three,
			script: script{"a/m": {takes: time.Second, class: chain.Status}, "b/m": {takes: 4 * time.Second, class: chain.Timeout}},
			jobs:   []string{"a/m 0 failed ", "b/m 0 failed "},
			took:   4 * time.Second},
		{name: "no more copies than there are places, and none for one that rests", set: racing(5, 2),
			offers: offers{"llm.t2": {at("a", "m"), resting(at("b", "m")), at("c", "m")}},
			script: script{"a/m": {takes: 9 * time.Second}, "c/m": {takes: 4 * time.Second}},
			jobs:   []string{"a/m 0 superseded loser", "c/m 0 done winner"},
			took:   4 * time.Second},
		{name: "another tier is not raced", set: racing(2, 1, 3), offers: three, script: script{"a/m": {takes: 9 * time.Second}},
			jobs: []string{"a/m 0 done "}, took: 9 * time.Second},
		{name: "and what is raced is not hedged", set: racing(2, 2), offers: three,
			script: script{"a/m": {takes: 300 * time.Second}, "b/m": {takes: time.Second, class: chain.Status}, "c/m": {takes: time.Second}},
			jobs:   []string{"a/m 0 done winner", "b/m 0 failed "},
			took:   300 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := play(c.offers, func(cp Copy) serving { return c.script[cp.Offer.Option] })
				p := NewPool()
				w := New(c.set, r, p)
				w.Do(t.Context(), []Task{worker("s1")})
				took := time.Since(r.start)
				w.Close()
				r.sort()
				same(t, "jobs", r.told(), c.jobs)
				same(t, "took", took, c.took)
				for _, j := range r.jobs {
					same(t, "the others name the first one", (j.copy.First == "") == (j.copy.Offer.Option == "a/m"), true)
					if strings.Contains(fmt.Sprint(j.copy.Avoid), string(j.copy.Offer.Option)) {
						t.Errorf("%s avoids itself: %v", j.copy.Offer.Option, j.copy.Avoid)
					}
				}
				r.once(t)
				_ = p.Close(t.Context())
			})
		})
	}
}

// sort orders jobs by option: copies of a race begin at the same moment.
func (t *theatre) sort() {
	for i := range t.jobs {
		for j := i; j > 0 && t.jobs[j].copy.Offer.Option < t.jobs[j-1].copy.Offer.Option; j-- {
			t.jobs[j], t.jobs[j-1] = t.jobs[j-1], t.jobs[j]
		}
	}
}

// TestPhotoFinish races copies that succeed at the same moment, in real time: exactly
// one of them wins.
func TestPhotoFinish(t *testing.T) {
	const races, replicas = 10_000, 3
	p := NewPool()
	var one []Offer
	for i := range replicas {
		one = append(one, at(fmt.Sprint(i), "m"))
	}
	var winners [replicas]int
	for race := range races {
		r := &photo{theatre: play(offers{"llm.t2": one}, nil)}
		r.gate.Add(replicas)
		w := New(racing(replicas, 2), r, p)
		out := w.Do(t.Context(), []Task{worker("s1")})[0]
		w.Close()
		won := 0
		for _, j := range r.jobs {
			if j.hedge == "winner" {
				won++
				if j.id != out.Text || j.state != "done" {
					t.Fatalf("race %d: %s won and is %s, but the answer is that of %s", race, j.id, j.state, out.Text)
				}
				winners[j.copy.Offer.Option[0]-'0']++
			} else if j.hedge != "loser" || j.state != "superseded" {
				t.Fatalf("race %d: %s is %s %s", race, j.id, j.state, j.hedge)
			}
		}
		if won != 1 || len(r.jobs) != replicas {
			t.Fatalf("race %d: %d winners of %d", race, won, len(r.jobs))
		}
		r.once(t)
	}
	t.Logf("wins by place: %v", winners)
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// photo ends all copies of a task at once, whether they were cancelled or not.
type photo struct {
	*theatre
	gate  sync.WaitGroup
	count atomic.Int64
}

func (p *photo) Run(_ context.Context, c Copy, begin func(string), accepted func(chain.OptionID, chain.PeerID)) Outcome {
	j := &begun{id: fmt.Sprint("j", p.count.Add(1)), copy: c}
	p.mu.Lock()
	p.jobs = append(p.jobs, j)
	p.mu.Unlock()
	begin(j.id)
	accepted(c.Offer.Option, "")
	p.gate.Done()
	p.gate.Wait()
	return Outcome{Class: chain.OK, Text: j.id}
}

// TestStream plays tasks that deliver: one copy owns the stream.
func TestStream(t *testing.T) {
	words := func(after time.Duration, text ...string) (p []piece) {
		for i, word := range text {
			p = append(p, piece{after + time.Duration(i)*time.Second, word})
		}
		return p
	}
	two := offers{"llm.t2": {at("a", "m"), at("b", "n")}}
	for _, c := range []struct {
		name   string
		set    Settings
		script script
		jobs   []string
		text   string
		class  chain.Class
	}{
		{name: "alone, and for long: what has delivered is not hedged", set: settings(),
			script: script{"a/m": {takes: 200 * time.Second, pieces: words(70*time.Second, "a1", "a2")}},
			jobs:   []string{"a/m 0 done "}, text: "a1 a2", class: chain.OK},
		{name: "silent for long: the hedge delivers first and owns it", set: settings(),
			script: script{"a/m": {takes: 200 * time.Second, pieces: words(90*time.Second, "a1", "a2")}, "b/n": {takes: 50 * time.Second, pieces: words(10*time.Second, "b1", "b2")}},
			jobs:   []string{"a/m 0 superseded loser", "b/n 1 done winner"}, text: "b1 b2", class: chain.OK},
		{name: "the first delivers before its hedge does", set: settings(),
			script: script{"a/m": {takes: 200 * time.Second, pieces: words(80*time.Second, "a1", "a2")}, "b/n": {takes: 50 * time.Second, pieces: words(10*time.Second, "b1", "b2")}},
			jobs:   []string{"a/m 0 done winner", "b/n 1 superseded loser"}, text: "a1 a2", class: chain.OK},
		{name: "a race: a deaf loser delivers nothing", set: racing(2, 2),
			script: script{"a/m": {takes: 9 * time.Second, pieces: words(3*time.Second, "a1", "a2")}, "b/n": {takes: 3 * time.Second, deaf: time.Minute, pieces: words(3*time.Second+time.Millisecond, "b1")}},
			jobs:   []string{"a/m 0 done winner", "b/n 0 superseded loser"}, text: "a1 a2", class: chain.OK},
		{name: "who owns it fails: so does the task, for nobody can go on with its text", set: racing(2, 2),
			script: script{"a/m": {takes: 9 * time.Second, class: chain.Cut, pieces: words(3*time.Second, "a1", "a2")}, "b/n": {takes: 5 * time.Second, pieces: words(5*time.Second, "b1")}},
			jobs:   []string{"a/m 0 failed ", "b/n 0 superseded loser"}, text: "a1 a2", class: chain.Cut},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := play(two, by(c.script))
				p := NewPool()
				w := New(c.set, r, p)
				var got []string
				task := worker("answer")
				task.Deliver = func(text string) error { got = append(got, text); return nil }
				out := w.Do(t.Context(), []Task{task})[0]
				w.Close()
				r.sort()
				same(t, "jobs", r.told(), c.jobs)
				same(t, "text", strings.Join(got, " "), c.text)
				same(t, "class", out.Class, c.class)
				r.once(t)
				_ = p.Close(t.Context())
			})
		})
	}
}
