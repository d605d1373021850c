package pipeline

import (
	"context"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// improve has the answer scored and rewritten until it is good enough, nothing is
// wrong with it, or the limit is reached. It always gives an answer: the best one.
func (r *run) improve(ctx context.Context, text string) string {
	limit, threshold := r.p.settings.MaxRewriteIterations, r.p.settings.RewriteScoreThreshold
	if limit == 0 {
		return text
	}
	best, ok := r.score(ctx, text, nil)
	if !ok {
		return text
	}
	var fixed []string
	for r.res.Iterations < limit && best.score < threshold && len(best.issues) > 0 && ctx.Err() == nil {
		better, ok := r.rewrite(ctx, text, best.issues, fixed)
		if !ok {
			break
		}
		now, ok := r.score(ctx, better, &best)
		if !ok {
			break // nobody says that it is no worse
		}
		if now.score < best.score {
			r.note(NoteWorse)
			continue
		}
		gone, _ := compare(best.issues, now.issues)
		fixed = append(fixed, gone...)
		fixed = fixed[max(0, len(fixed)-maxFixed):]
		text, best = better, now
	}
	r.res.Score, r.res.Issues = best.score, len(best.issues)
	return text
}

// score has text scored, and compares the verdict with the best answer's so far.
// It is false if nobody gave one.
func (r *run) score(ctx context.Context, text string, best *verdict) (verdict, bool) {
	if len(text) > maxRewritable {
		r.note(NoteTooLong)
		return verdict{}, false
	}
	number := len(r.res.Log) + 1
	share, cancel := slice(ctx, 2)
	defer cancel()
	body := instruct(scorePrompt, r.ask.situation()+"\n\n"+quote("answer", text))
	out, _ := r.supervise(share, wave.Task{Role: job.Score, Iteration: number, Body: body}, false)
	if out.Class != chain.OK {
		r.note(NoteScoreFailed)
		return verdict{}, false
	}
	v := parseScore(out.Text)
	it := Iteration{Score: v.score, Unscored: !v.read, Issues: len(v.issues), Model: out.Model}
	if it.Model == "" {
		it.Model = string(out.Option)
	}
	if !v.read {
		r.note(NoteUnread)
		r.res.Unscored++
		r.p.countUnscored(it.Model)
	}
	if best == nil {
		r.res.Scored, r.res.First, r.res.Score, r.res.Issues = true, v.score, v.score, len(v.issues)
	} else {
		gone, fresh := compare(best.issues, v.issues)
		it.Fixed, it.NewIssues = len(gone), fresh
	}
	r.res.Log = append(r.res.Log, it)
	r.tell(Progress{Stage: job.Score, State: job.Done, Task: r.task, Iteration: &it})
	return v, true
}

// rewrite has the issues, and nothing else, put right.
func (r *run) rewrite(ctx context.Context, text string, issues, fixed []string) (string, bool) {
	r.res.Iterations++
	share, cancel := slice(ctx, 2)
	defer cancel()
	task := wave.Task{Role: job.Rewrite, Iteration: r.res.Iterations, Final: true, Body: r.ask.saying(r.ask.rewrite(text, issues, fixed), true)}
	out, _ := r.supervise(share, task, false)
	if out.Class != chain.OK || len(out.Text) > maxRewritable {
		r.note(NoteRewrite)
		return "", false
	}
	return out.Text, true
}
