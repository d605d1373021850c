package pipeline_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/daemon/pipeline"
)

// verdict is a scorer's text.
func verdict(score float64, issues ...string) line {
	return line{text: fmt.Sprintf(`{"score":%v,"issues":["%s"]}`, score, strings.Join(issues, `","`)), model: "judge"}
}

// drafted answers with a draft: what happens to it is up to scorers and rewriters.
func drafted(t *testing.T) *models {
	return script(t, map[string]line{"decompose": says(plan("rule", "a 1")), "s1": says("draft")})
}

func TestRewriting(t *testing.T) {
	for _, c := range []struct {
		name     string
		limit    int
		scores   []line
		rewrites []line
		want     string
		ran      string // after the draft
		notes    string
		log      string // score:issues:fixed:new
	}{
		{"good at once", 3, []line{verdict(0.7, "x")}, nil, "draft", "score-1", "", "0.7:1:0:0"},
		{"nothing is wrong with it", 3, []line{says(`{"score":0.1}`)}, nil, "draft", "score-1", "", "0.1:0:0:0"},
		{
			"better and better", 3, []line{verdict(0.2, "a", "b"), verdict(0.5, "b", "c"), verdict(0.9, "d")}, []line{says("r1"), says("r2")},
			"r2", "score-1 rewrite-1 score-2 rewrite-2 score-3", "", "0.2:2:0:0 0.5:2:1:1 0.9:1:2:1",
		},
		{
			"issues without end", 2, []line{verdict(0.1, "a"), verdict(0.1, "b"), verdict(0.1, "c")}, []line{says("r1"), says("r2")},
			"r2", "score-1 rewrite-1 score-2 rewrite-2 score-3", "", "0.1:1:0:0 0.1:1:1:1 0.1:1:1:1",
		},
		{
			"a rewrite that is worse is not taken", 2, []line{verdict(0.5, "a"), verdict(0.4, "b"), verdict(0.8)}, []line{says("worse"), says("better")},
			"better", "score-1 rewrite-1 score-2 rewrite-2 score-3", "rewrite_worse", "0.5:1:0:0 0.4:1:1:1 0.8:0:1:0",
		},
		{
			"only worse ones", 2, []line{verdict(0.5, "a"), verdict(0.4, "a"), verdict(0.3, "a")}, []line{says("w1"), says("w2")},
			"draft", "score-1 rewrite-1 score-2 rewrite-2 score-3", "rewrite_worse", "0.5:1:0:0 0.4:1:0:0 0.3:1:0:0",
		},
		{"a score that cannot be read", 3, []line{says("It is fine.")}, nil, "draft", "score-1", "score_unread", "1:0:0:0"},
		{
			"a later one that cannot be read", 3, []line{verdict(0.2, "a"), says("NaN")}, []line{says("r1")},
			"r1", "score-1 rewrite-1 score-2", "score_unread", "0.2:1:0:0 1:0:1:0",
		},
		{"scores beyond the range", 3, []line{verdict(-5, "a"), verdict(12, "b")}, []line{says("r1")}, "r1", "score-1 rewrite-1 score-2", "", "0:1:0:0 1:1:1:1"},
		{"nobody scores", 3, []line{fails(), fails()}, nil, "draft", "score-1 score-1-t2", "supervisor_fallback score_failed", ""},
		{
			"nobody scores the rewrite", 3, []line{verdict(0.2, "a"), fails(), fails()}, []line{says("r1")},
			"draft", "score-1 rewrite-1 score-2 score-2-t2", "supervisor_fallback score_failed", "0.2:1:0:0",
		},
		{
			"the rewriter is down", 3, []line{verdict(0.2, "a")}, []line{fails(), fails()},
			"draft", "score-1 rewrite-1 rewrite-1-t2", "supervisor_fallback rewrite_failed", "0.2:1:0:0",
		},
		{
			"a blank rewrite", 3, []line{verdict(0.2, "a")}, []line{says(" "), says("\n")},
			"draft", "score-1 rewrite-1 rewrite-1-t2", "supervisor_fallback rewrite_failed", "0.2:1:0:0",
		},
		{
			"an endless rewrite", 3, []line{verdict(0.2, "a")}, []line{says(strings.Repeat("x", 1<<20))},
			"draft", "score-1 rewrite-1", "rewrite_failed", "0.2:1:0:0",
		},
		{
			"the fallback tier goes on where T3 failed", 3, []line{fails(), verdict(0.2, "a"), verdict(0.9)}, []line{says("r1")},
			"r1", "score-1 score-1-t2 rewrite-1-t2 score-2-t2", "supervisor_fallback", "0.2:1:0:0 0.9:0:1:0",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := drafted(t).then(scoring, c.scores...).then(rewrite, c.rewrites...)
				h := run(t, m, settings(rewrites(c.limit)), pipeline.Request{Stream: true})
				if h.err != nil || len(h.pieces) != 1 || h.text() != c.want {
					t.Errorf("%q, %v, want %q", h.pieces, h.err, c.want)
				}
				if got := strings.TrimSpace(strings.TrimPrefix(m.names(), "decompose s1")); got != c.ran {
					t.Errorf("ran %q, want %q", got, c.ran)
				}
				if got := strings.Join(h.res.Notes, " "); got != c.notes {
					t.Errorf("notes %q, want %q", got, c.notes)
				}
				if got := logged(h.res.Log); got != c.log {
					t.Errorf("log %q, want %q", got, c.log)
				}
			})
		})
	}
}

func logged(log []pipeline.Iteration) string {
	var all []string
	for _, it := range log {
		all = append(all, fmt.Sprintf("%g:%d:%d:%d", it.Score, it.Issues, it.Fixed, it.NewIssues))
	}
	return strings.Join(all, " ")
}

func TestResultOfARewrittenAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := drafted(t).then(scoring, verdict(0.2, "a", "b"), verdict(0.6, "b"), verdict(0.5, "b")).then(rewrite, says("r1"), says("r2"))
		h := run(t, m, settings(rewrites(2)), pipeline.Request{})
		r := h.res
		if !r.Scored || r.First != 0.2 || r.Score != 0.6 || r.Iterations != 2 || r.Issues != 1 || r.Unscored != 0 || h.text() != "r1" {
			t.Errorf("%+v with %q", r, h.text())
		}
	})
}

// A rewriter gets the issues that are there now, and is told of those that are
// fixed so that they stay so.
func TestRewritersAreToldWhatIsFixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := drafted(t).then(scoring, verdict(0.1, "ISSUE-A", "ISSUE-B"), verdict(0.2, "ISSUE-B"), verdict(0.3, "ISSUE-C"), verdict(1)).
			then(rewrite, says("r1"), says("r2"), says("r3"))
		run(t, m, settings(rewrites(5)), pipeline.Request{})
		for name, want := range map[string]string{"rewrite-1": "draft|ISSUE-A|ISSUE-B|", "rewrite-2": "r1|ISSUE-B|fixed|ISSUE-A", "rewrite-3": "r2|ISSUE-C|fixed|ISSUE-A|ISSUE-B"} {
			rest := m.body(name)
			if !strings.Contains(rest, "Compare three ways") {
				t.Errorf("%s does not begin with the request: %q", name, rest)
			}
			for part := range strings.SplitSeq(want, "|") {
				_, after, found := strings.Cut(rest, part)
				if !found {
					t.Errorf("%s: want %q in it, in order: %q", name, want, m.body(name))
				}
				rest = after
			}
		}
		if strings.Contains(m.body("rewrite-3"), "ISSUE-B\n- ISSUE-C") {
			t.Error("an issue that is fixed is still to be changed")
		}
	})
}

// What a model's scores are worth is seen by how many could not be read.
func TestUnreadScoresAreCountedByModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := pipeline.New(settings(rewrites(3)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			m := drafted(t).then(scoring, line{text: "rubbish", model: fmt.Sprintf("m%d", min(i/2, 140))})
			runWith(t.Context(), p, m, pipeline.Request{})
		}
		counts := p.Unscored()
		sum := int64(0)
		for n := range maps.Values(counts) {
			sum += n
		}
		if counts["m0"] != 2 || sum != 300 || len(counts) > 129 {
			t.Errorf("%d counted for %d models, %d for m0", sum, len(counts), counts["m0"])
		}
	})
}

func TestScoringHasItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // of length
		long := strings.Repeat("x", 256<<10+1)
		m := script(t, map[string]line{"decompose": says(plan("rule", "a 1")), "s1": says(long), "score": verdict(0)})
		h := run(t, m, settings(rewrites(3)), pipeline.Request{})
		if h.text() != long || h.res.Scored || strings.Join(h.res.Notes, " ") != "too_long_to_score" {
			t.Errorf("%d bytes, %+v", len(h.text()), h.res)
		}
	})
	synctest.Test(t, func(t *testing.T) { // and of time: an answer that is there is not kept for a scorer that hangs
		m := drafted(t).then(scoring, hangs(), hangs())
		h := run(t, m, settings(rewrites(3)), pipeline.Request{})
		if h.text() != "draft" || h.took > 5*time.Minute {
			t.Errorf("%q after %s", h.text(), h.took)
		}
	})
}
