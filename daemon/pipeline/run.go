package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// The fallbacks that a result can name.
const (
	NoteFallbackTier = "supervisor_fallback" // no T3 answered, the fallback tier was asked
	NoteNoPlan       = "no_plan"             // no supervisor answered the question for a plan
	NotePlanText     = "plan_text"           // it gave no plan: its text is the answer
	NoteBadPlan      = "plan_invalid"        // its plan cannot be followed: the request ran as one T2 subtask
	NotePart         = "subtask_failed"      // at least one
	NoteAllParts     = "subtasks_failed"     // all of them
	NoteSynthesis    = "synthesis_failed"    // nobody wrote the answer
	NoteConcatenated = "concatenated"        // so the results stand one after the other
	NoteDirect       = "direct"              // the request was one walk after all
	NoteLastResort   = "last_resort"         // no llm.chat answered, any tier was asked
	NoteScoreFailed  = "score_failed"        // nobody scored
	NoteUnread       = "score_unread"        // a score could not be read: 1.0
	NoteTooLong      = "too_long_to_score"   // the answer stands as it is
	NoteRewrite      = "rewrite_failed"      // the text before it stands
	NoteWorse        = "rewrite_worse"       // a rewrite scored lower, the text before it stands
)

// run is one request on its way.
type run struct {
	p    *Pipeline
	do   Dispatcher
	ask  *ask
	out  Output
	sink *sink
	res  *Result
	left func() bool // the caller is gone

	stream bool // the caller takes the answer as it is made

	noT3         bool            // no T3 answered when last asked: do not wait for it again before the synthesis
	task         string          // the one that ran last
	short        map[string]bool // texts whose model stopped at a limit of length
	waves, parts int             // of the plan
	partsDone    int
}

// Run answers req by stages, or by one walk if d is not staged, and gives the
// answer to out. There is one unless the error is ErrNoModels; with ErrBroken a
// part of one. Any other error is the context's, or what out.Text returned: the
// caller is gone. The result is filled in either way. Run ends soon after ctx, and
// waits for the tasks that it began as the dispatcher does.
func (p *Pipeline) Run(ctx context.Context, do Dispatcher, req Request, d Decision, out Output) (Result, error) {
	res := Result{Class: string(d.Class), Reasons: d.Reasons}
	a := d.ask
	if a == nil {
		var err error
		if a, err = readAsk(req.Body); err != nil {
			return res, err
		}
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	if req.Budget > 0 {
		var done context.CancelFunc
		within, done = context.WithTimeout(within, req.Budget)
		defer done()
	}
	r := &run{p: p, do: do, ask: a, out: out, stream: req.Stream, res: &res, sink: &sink{text: out.Text, gone: cancel}}
	r.left = func() bool { return errors.Is(within.Err(), context.Canceled) }
	err := r.answer(within, d.Staged && a.unfit == "")
	switch {
	case r.sink.err != nil:
		err = r.sink.err
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		err = ctx.Err()
	}
	return res, err
}

// answer takes the request through the stages.
func (r *run) answer(ctx context.Context, staged bool) error {
	if !staged {
		return r.direct(ctx)
	}
	p, text, ok := r.decompose(ctx)
	switch {
	case r.left():
		return ctx.Err()
	case text != "":
		return r.give(text)
	case !ok:
		return r.direct(ctx)
	}
	results, err := r.work(ctx, p)
	switch {
	case err != nil || r.sink.done():
		return err
	case r.left():
		return ctx.Err()
	}
	text, fit, err := r.synthesise(ctx, p, results)
	switch {
	case err != nil || r.sink.done():
		return err
	case r.left():
		return ctx.Err()
	case text == "":
		return r.direct(ctx)
	}
	if fit {
		text = r.improve(ctx, text)
	}
	return r.give(text)
}

// give gives a whole answer to a caller who is still there. What the stages fell
// back on because they were cancelled is nobody's answer; what they fell back on
// because the time is up is one.
func (r *run) give(text string) error {
	if r.left() {
		return context.Canceled
	}
	r.res.Short = r.short[text]
	return r.sink.give(text)
}

// direct is one walk with the request as the caller made it. If no model of
// llm.chat answers it, any other may; but not where the fault is the request's, or
// a filter's no, which the owner's rules let stand.
func (r *run) direct(ctx context.Context) error {
	if r.staged() {
		r.note(NoteDirect)
	}
	resorts := []struct {
		primitive chain.Primitive
		tier      int
	}{{chain.LLMChat, 0}, {chain.T3, 3}, {chain.T2, 2}, {chain.T1, 1}}
	for i, to := range resorts {
		if i == 1 {
			r.note(NoteLastResort)
		}
		t := wave.Task{Name: named(job.Direct, 0, to.tier), Role: job.Direct, Primitive: to.primitive, Tier: to.tier, Final: true, Body: r.ask.own()}
		out, err := r.finally(ctx, t, i < len(resorts)-1)
		if err != nil || r.sink.done() {
			return err
		}
		if out.Class == chain.OK {
			return r.give(out.Text)
		}
		if ctx.Err() != nil || out.Class == chain.CallerError || out.Class == chain.Filtered {
			break
		}
	}
	return fmt.Errorf("%w: the last one asked ended %s", ErrNoModels, chain.Clip(string(r.res.Last)))
}

// staged reports whether a stage was begun.
func (r *run) staged() bool { return r.res.Last != "" }

// supervise has the best tier that answers do t: T3, then the fallback tier. Where
// the caller takes the answer as it is made, a final task gives it at once. With
// spare, time is left for what follows if none answers. The error is ErrBroken.
func (r *run) supervise(ctx context.Context, t wave.Task, spare bool) (wave.Outcome, error) {
	tiers := []int{3}
	if fallback := r.p.settings.SupervisorFallbackTier; fallback != 3 {
		if tiers = append(tiers, fallback); r.noT3 {
			tiers = tiers[1:]
		}
	}
	var out wave.Outcome
	for i, tier := range tiers {
		t.Name, t.Tier, t.Primitive = named(t.Role, t.Iteration, tier), tier, chain.TierPrimitive(tier)
		if tier != 3 {
			r.note(NoteFallbackTier)
		}
		var err error
		if out, err = r.finally(ctx, t, spare || i < len(tiers)-1); err != nil || out.Class == chain.OK || ctx.Err() != nil {
			return out, err
		}
		r.noT3 = r.noT3 || tier == 3
	}
	return out, nil
}

// named is a task's name, which no other task of the request has.
func named(role job.Role, iteration, tier int) string {
	name := string(role)
	if iteration > 0 {
		name += fmt.Sprintf("-%d", iteration)
	}
	if tier > 0 && (tier < 3 || role == job.Direct) {
		name += fmt.Sprintf("-t%d", tier)
	}
	return name
}

// finally runs one task and tells of it. With spare it leaves half of the time to
// what follows: the task is given up if nothing came of it by then. The error is
// ErrBroken: a part of the answer is out already.
func (r *run) finally(ctx context.Context, t wave.Task, spare bool) (wave.Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	live := r.live(t)
	t.Budget = remaining(ctx)
	stop := func() bool { return true }
	if half := t.Budget / 2; spare && half > 0 {
		// By a timer and not by a deadline: what has begun to reach the caller may
		// take all the time there is.
		timer := time.AfterFunc(half, cancel)
		defer timer.Stop()
		if stop = timer.Stop; !live {
			t.Budget = half
		}
	}
	shut := func() {}
	if live {
		way := r.sink.open(stop)
		t.Deliver, shut = way.deliver, way.close
	}
	r.task = t.Name
	r.tell(Progress{Stage: t.Role, State: job.Running, Task: t.Name, Wave: t.Wave})
	out := r.one(ctx, t)
	shut() // before anything else is said: who was given up may be at a piece still
	if t.Wave > 0 {
		r.partsDone++
	}
	if state := ended(out); state == job.Failed || t.Role != job.Score { // of a score, its reader tells
		r.tell(Progress{Stage: t.Role, State: state, Task: t.Name, Wave: t.Wave})
	}
	if !r.sink.begun() {
		return out, nil
	}
	if out.Class != chain.OK {
		return out, fmt.Errorf("%w: %s", ErrBroken, chain.Clip(string(out.Class)))
	}
	r.res.Short = out.Short
	r.sink.end()
	return out, nil
}

// live reports whether the caller gets what t gives as it is made: if it is the
// answer, and no rewrite can follow. None follows a direct walk.
func (r *run) live(t wave.Task) bool {
	return r.stream && t.Final && (t.Role == job.Direct || r.p.settings.MaxRewriteIterations == 0)
}

func ended(o wave.Outcome) job.State {
	if o.Class == chain.OK {
		return job.Done
	}
	return job.Failed
}

// one runs one task to its end. A blank answer is none.
func (r *run) one(ctx context.Context, t wave.Task) wave.Outcome {
	outs := r.do.Do(ctx, []wave.Task{t})
	out := wave.Outcome{Class: chain.Internal}
	if len(outs) == 1 {
		out = sound(outs[0])
	}
	r.res.Last = out.Class
	if out.Short && out.Class == chain.OK {
		if r.short == nil {
			r.short = map[string]bool{}
		}
		r.short[out.Text] = true
	}
	return out
}

// sound is an outcome without its text where that is no answer.
func sound(o wave.Outcome) wave.Outcome {
	if o.Class == chain.OK && blank(o.Text) {
		o.Class = chain.BadAnswer
	}
	if o.Class == "" {
		o.Class = chain.Internal
	}
	if o.Class != chain.OK {
		o.Text = ""
	}
	return o
}

// remaining is how long ctx lasts; 0 if for ever.
func remaining(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(time.Until(deadline), 1)
	}
	return 0
}

// note keeps a fallback that was taken. What was cut short because the caller left
// fell back on nothing.
func (r *run) note(word string) {
	if r.left() {
		return
	}
	for _, n := range r.res.Notes {
		if n == word {
			return
		}
	}
	r.res.Notes = append(r.res.Notes, word)
}

func (r *run) tell(p Progress) {
	if r.out.Progress == nil {
		return
	}
	p.Waves, p.Done, p.Tasks = r.waves, r.partsDone, r.parts
	r.out.Progress(p)
}
