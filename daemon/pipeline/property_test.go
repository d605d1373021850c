package pipeline_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/pipeline"
)

// drawLine is anything that a model may do.
func drawLine(rt *rapid.T, name string) line {
	l := line{
		text: rapid.SampledFrom([]string{
			"", " \n", "an answer", "another", `{"score":0.5,"issues":["a","b"]}`, `{"score":"NaN"}`, `{"score":-7,"issues":["x"]}`,
			plan("supervisor", "a 1", "b 2", "c 3"), plan("rule", "a 1", "b 2 a", "c 1 b"), plan("rule", "a 2"), plan("supervisor", "a 1"),
			plan("rule", "a 1 b", "b 1 a"), plan("rule", "a 1 a"), plan("rule", "a 1 zz"), plan("supervisor", "a 1", "a 2"), plan("rule", "a 1", "b 1", "c 1", "d 1"),
			`{"subtasks":[]}`, `{"subtasks":[`, "```json\n" + plan("supervisor", "a 1", "b 1 a") + "\n```",
		}).Draw(rt, name+" text"),
		after: rapid.SampledFrom([]time.Duration{0, time.Second, 40 * time.Second, 4 * time.Minute, 1000 * time.Hour}).Draw(rt, name+" after"),
		class: rapid.SampledFrom([]chain.Class{"", "", "", chain.Unreachable, chain.RateLimited, chain.CallerError, chain.Cut}).Draw(rt, name+" class"),
	}
	if rapid.Bool().Draw(rt, name+" in pieces") {
		l.parts = strings.SplitAfter(l.text, " ")
	}
	return l
}

// Whatever models do, there is an answer or the word that nobody gave one, within
// the budget; and if anybody answers at once there is an answer.
func TestAnswersAreNeverEmpty(t *testing.T) {
	keys := []string{
		"decompose", "decompose-t2", "s1", "s2", "subtask", "synthesise", "synthesise-t2", "score", "score-2", "rewrite", "rewrite-2",
		"direct", "direct-t1", "llm.t1", "llm.t2", "llm.t3", "llm.chat",
	}
	rapid.Check(t, func(rt *rapid.T) {
		lines := map[string]line{}
		for _, k := range keys {
			if rapid.Bool().Draw(rt, k) {
				lines[k] = drawLine(rt, k)
			}
		}
		s := settings(rewrites(rapid.IntRange(0, 10).Draw(rt, "rewrites")))
		s.SupervisorFallbackTier = rapid.IntRange(2, 3).Draw(rt, "fallback")
		s.RewriteScoreThreshold = rapid.Float64Range(0, 1).Draw(rt, "threshold")
		req := pipeline.Request{Stream: rapid.Bool().Draw(rt, "stream"), Budget: rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 10 * time.Minute}).Draw(rt, "budget")}
		synctest.Test(t, func(t *testing.T) {
			m := script(t, lines)
			h := run(t, m, s, req)
			blank := strings.TrimSpace(h.text()) == ""
			switch {
			case h.err == nil && blank:
				rt.Errorf("an empty answer: %q, ran %s, notes %v", h.text(), m.names(), h.res.Notes)
			case errors.Is(h.err, pipeline.ErrNoModels) && len(h.pieces) > 0:
				rt.Errorf("no models, and yet %q", h.text())
			case errors.Is(h.err, pipeline.ErrBroken) && (blank || !req.Stream):
				rt.Errorf("broken off, with %q", h.text())
			case h.err != nil && !errors.Is(h.err, pipeline.ErrNoModels) && !errors.Is(h.err, pipeline.ErrBroken):
				rt.Errorf("error %v", h.err)
			}
			if h.took > req.Budget {
				rt.Errorf("took %s of %s, ran %s", h.took, req.Budget, m.names())
			}
			if len(h.res.Log) > s.MaxRewriteIterations+1 || h.res.Iterations > s.MaxRewriteIterations {
				rt.Errorf("%d rewrites and %d scores with at most %d rewrites", h.res.Iterations, len(h.res.Log), s.MaxRewriteIterations)
			}
			seen := map[string]bool{}
			for _, task := range m.tasks {
				if seen[task.Name] {
					rt.Errorf("two tasks are called %s: %s", task.Name, m.names())
				}
				seen[task.Name] = true
			}
			if l, ok := lines["direct-t1"]; ok && h.res.Last != chain.CallerError && errors.Is(h.err, pipeline.ErrNoModels) && l.class == "" && l.after == 0 && strings.TrimSpace(l.text) != "" {
				rt.Errorf("a T1 answers at once, and was not asked: ran %s", m.names())
			}
		})
	})
}
