package wave

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// drawn is a wave and how it goes, drawn before its clock starts.
type drawn struct {
	settings Settings
	offers   offers
	tasks    []Task
	going    map[string]serving // by task and option
	abort    time.Duration      // 0 never
}

func draw(t *rapid.T) drawn {
	d := drawn{settings: settings(), offers: offers{}, going: map[string]serving{}}
	s := &d.settings
	s.Race, s.Replicas = rapid.Bool().Draw(t, "race"), rapid.IntRange(1, 4).Draw(t, "replicas")
	s.Parallel = rapid.IntRange(1, 4).Draw(t, "parallel")
	s.HedgeAfter = time.Duration(rapid.IntRange(0, 4).Draw(t, "hedge after")) * time.Second
	s.HedgeBudget = rapid.SampledFrom([]float64{0, 0.2, 0.5, 1}).Draw(t, "budget")
	s.TierDown = rapid.Bool().Draw(t, "tier down")
	for _, p := range []chain.Primitive{"llm.t1", "llm.t2", "llm.t3"} {
		for i := range rapid.IntRange(0, 3).Draw(t, "offers") {
			o := at(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "provider"), rapid.SampledFrom([]string{"m", "n", ""}).Draw(t, "model"))
			o.Option = chain.OptionID(fmt.Sprintf("%s%d", p[4:], i))
			o.Latency = time.Duration(rapid.IntRange(0, 2).Draw(t, "latency")) * time.Second
			o.Resting = rapid.IntRange(0, 4).Draw(t, "rests") == 0
			d.offers[p] = append(d.offers[p], o)
		}
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "tasks") {
		task := Task{Name: fmt.Sprint("s", i), Role: job.Subtask, Tier: rapid.IntRange(0, 3).Draw(t, "tier"), Primitive: "llm.chat", Kind: "k"}
		if task.Tier > 0 {
			task.Primitive = chain.TierPrimitive(task.Tier)
		}
		task.Final = rapid.Bool().Draw(t, "final")
		task.Budget = time.Duration(rapid.IntRange(0, 9).Draw(t, "budget of a task")) * time.Second
		if rapid.Bool().Draw(t, "streams") {
			task.Deliver = func(string) error { return nil }
		}
		d.tasks = append(d.tasks, task)
		for _, at := range []string{"chain", "t10", "t11", "t12", "t20", "t21", "t22", "t30", "t31", "t32"} {
			g := serving{
				accept: time.Duration(rapid.IntRange(0, 2).Draw(t, "accept")) * time.Second,
				takes:  time.Duration(rapid.IntRange(0, 8).Draw(t, "takes")) * time.Second,
				class:  rapid.SampledFrom([]chain.Class{chain.OK, chain.OK, chain.Status, chain.Canceled}).Draw(t, "class"),
				deaf:   time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 20}).Draw(t, "deaf")) * time.Second,
			}
			if task.Deliver != nil && rapid.Bool().Draw(t, "delivers") {
				g.pieces = []piece{{g.takes / 2, at}, {g.takes, at}}
			}
			d.going[task.Name+at] = g
		}
	}
	if rapid.Bool().Draw(t, "aborted") {
		d.abort = time.Duration(rapid.IntRange(1, 16).Draw(t, "abort")) * 500 * time.Millisecond
	}
	return d
}

// TestAnyOrder plays waves of any kind: whatever happens when, of each task's copies at
// most one wins and exactly one does if there is an answer, each job is settled once, no
// more hedges run than the budget has, an abort ends everything within a second, and
// nothing is left over.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := draw(rt)
		var wrong []string
		synctest.Test(t, func(t *testing.T) { wrong = d.play(t.Context()) })
		if len(wrong) > 0 {
			rt.Fatal(strings.Join(wrong, "\n"))
		}
	})
}

func (d *drawn) play(ctx context.Context) (wrong []string) {
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	r := play(d.offers, func(c Copy) serving { return d.going[c.Task.Name+string(c.Offer.Option)] })
	p := NewPool()
	w := New(d.settings, r, p)
	if d.abort > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(d.abort, cancel).Stop()
	}
	streams := make([]string, len(d.tasks))
	for i := range d.tasks {
		if d.tasks[i].Deliver != nil {
			d.tasks[i].Deliver = func(text string) error { streams[i] += text + " "; return nil }
		}
	}
	outs := w.Do(ctx, d.tasks)
	if took := time.Since(r.start); d.abort > 0 && took > d.abort+time.Second {
		fail("aborted after %s, it ended after %s", d.abort, took)
	}
	w.Close()
	if held := p.held(); held != "map[] map[]" {
		fail("held at the end: %s", held)
	}
	if err := p.Close(context.Background()); err != nil {
		fail("%v", err)
	}
	for i, out := range outs {
		d.judge(i, out, r.jobs, streams[i], fail)
	}
	totals := p.Totals()
	if most := uint64(math.Floor(d.settings.HedgeBudget*float64(totals.Jobs-totals.Hedges) + 1e-9)); totals.Hedges > most {
		fail("%d hedges, %d are in the budget", totals.Hedges, most)
	}
	for _, j := range r.jobs {
		if j.settled != 1 {
			fail("job %s of %s was settled %d times", j.id, j.copy.Task.Name, j.settled)
		}
	}
	return wrong
}

func (d *drawn) judge(i int, out Outcome, jobs []*begun, stream string, fail func(string, ...any)) {
	name := d.tasks[i].Name
	var copies, winners, done, hedges int
	for _, j := range jobs {
		if j.copy.Task.Name != name {
			continue
		}
		copies++
		if j.hedge == job.Winner {
			winners++
		}
		if j.state == job.Done {
			done++
		}
		if j.copy.Rung > 0 {
			hedges++
		}
		if (j.hedge == job.Winner) && j.state != job.Done || (j.hedge == job.Loser) != (j.state == job.Superseded) {
			fail("%s: a job is %s %s", name, j.state, j.hedge)
		}
	}
	answered := 0
	if out.Class == chain.OK {
		answered = 1
	}
	if done != answered || winners > done || copies > 1 && winners != done || copies == 1 && winners != 0 {
		fail("%s ended %s: %d copies, %d done, %d winners", name, out.Class, copies, done, winners)
	}
	if hedges > 1 || d.tasks[i].Final && d.tasks[i].Tier > 0 && slicesAny(jobs, name, func(j *begun) bool { return j.copy.Rung > 1 }) {
		fail("%s had %d hedges", name, hedges)
	}
	if from := strings.Fields(stream); len(from) == 2 && from[0] != from[1] {
		fail("%s: pieces of two copies: %s", name, stream)
	}
}

func slicesAny(jobs []*begun, name string, is func(*begun) bool) bool {
	for _, j := range jobs {
		if j.copy.Task.Name == name && is(j) {
			return true
		}
	}
	return false
}
