package pipeline

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// decompose has a supervisor cut the request. It gives a plan to follow, or the
// supervisor's own answer, or false: nobody answered.
func (r *run) decompose(ctx context.Context) (p plan, text string, ok bool) {
	ctx, cancel := slice(ctx, 3)
	defer cancel()
	out, _ := r.supervise(ctx, wave.Task{Role: job.Decompose, Body: instruct(decomposePrompt, r.ask.situation())}, false)
	if out.Class != chain.OK {
		r.note(NoteNoPlan)
		return plan{}, "", false
	}
	p, err := parsePlan(out.Text)
	switch {
	case errors.Is(err, errNoPlan):
		r.note(NotePlanText)
		return plan{}, out.Text, true
	case err != nil:
		r.note(NoteBadPlan)
		p = wholePlan()
	}
	return p, "", true
}

// slice is a context for one part of what is left: an n-th of the time.
func slice(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	if left := remaining(ctx); left > 0 {
		return context.WithTimeout(ctx, left/time.Duration(n))
	}
	return context.WithCancel(ctx)
}

// work runs the parts of p, wave by wave, and gives what came of each; "" where
// nothing did. Each wave gets its share of the time, with one left for what
// follows. The error is ErrBroken.
func (r *run) work(ctx context.Context, p plan) ([]string, error) {
	r.waves, r.parts = len(p.levels), len(p.parts)
	results := make([]string, len(p.parts))
	if p.alone() {
		out, err := r.finally(ctx, r.subtask(p, 0, 1, results), true)
		if err != nil {
			return nil, err
		}
		results[0] = out.Text
	} else {
		for w, level := range p.levels {
			share, cancel := slice(ctx, len(p.levels)-w+1)
			r.wave(share, p, w+1, level, results)
			cancel()
		}
	}
	failed := 0
	for _, text := range results {
		if text == "" {
			failed++
		}
	}
	if failed > 0 {
		r.note(NotePart)
	}
	if failed == len(results) {
		r.note(NoteAllParts)
	}
	return results, nil
}

// wave runs the parts of one wave side by side and puts what comes of them into
// results. Each is told of when it ends.
func (r *run) wave(ctx context.Context, p plan, number int, level []int, results []string) {
	tasks := make([]wave.Task, len(level))
	told := make([]bool, len(level))
	var mu sync.Mutex
	tell := func(n int, out wave.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		if told[n] {
			return
		}
		told[n] = true
		r.partsDone++
		r.tell(Progress{Stage: job.Subtask, State: ended(sound(out)), Task: tasks[n].Name, Wave: number})
	}
	for n, i := range level {
		tasks[n] = r.subtask(p, i, number, results)
		tasks[n].Budget = remaining(ctx)
		tasks[n].Ended = func(out wave.Outcome) { tell(n, out) }
		r.tell(Progress{Stage: job.Subtask, State: job.Running, Task: tasks[n].Name, Wave: number})
	}
	outs := r.do.Do(ctx, tasks)
	for n, i := range level {
		out := wave.Outcome{Class: chain.Internal}
		if n < len(outs) {
			out = sound(outs[n])
		}
		tell(n, out) // of those that did not even begin
		results[i], r.res.Last = out.Text, out.Class
	}
}

func (r *run) subtask(p plan, i, number int, results []string) wave.Task {
	t, final := p.parts[i], p.alone()
	task := wave.Task{Name: t.name, Role: job.Subtask, Primitive: chain.TierPrimitive(t.tier), Tier: t.tier, Kind: t.kind, Wave: number, Final: final}
	for _, j := range t.after {
		task.After = append(task.After, p.parts[j].name)
	}
	if p.whole {
		task.Body = r.ask.own()
	} else {
		task.Body = r.ask.saying(r.ask.part(t, results, p.parts), final)
	}
	return task
}

// synthesise makes one answer of the results; "" if nothing can be made of them.
// fit says that it may be scored: a supervisor is there to do so.
func (r *run) synthesise(ctx context.Context, p plan, results []string) (text string, fit bool, err error) {
	joined := concatenate(p, results)
	if p.rule && joined != "" {
		return joined, true, nil
	}
	r.noT3 = false // the waves took their time: ask the best again
	body := r.ask.saying(r.ask.synthesis(p.parts, results), true)
	out, err := r.supervise(ctx, wave.Task{Role: job.Synthesise, Final: true, Body: body}, joined == "")
	if err != nil || out.Class == chain.OK {
		return out.Text, true, err
	}
	r.note(NoteSynthesis)
	if joined != "" {
		r.note(NoteConcatenated)
	}
	return joined, false, nil
}

// concatenate puts the results one after the other, each behind all that it
// builds on.
func concatenate(p plan, results []string) string {
	var texts []string
	for _, level := range p.levels {
		for _, i := range level {
			if s := strings.TrimSpace(results[i]); s != "" {
				texts = append(texts, s)
			}
		}
	}
	return strings.Join(texts, "\n\n")
}
