package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

var pieces = line{text: "one two three", parts: []string{"one ", "two ", "three"}}

// The answer goes out as it is made where nothing can be changed any more, and in
// one piece where it can.
func TestAnswersStreamWhereNoRewriteCanFollow(t *testing.T) {
	two := plan("supervisor", "a 1", "b 2")
	for _, c := range []struct {
		name     string
		lines    map[string]line
		rewrites int
		stream   bool
		want     []string
	}{
		{"the synthesis", map[string]line{"decompose": says(two), "subtask": says("x"), "synthesise": pieces}, 0, true, pieces.parts},
		{"the synthesis, to who wants it whole", map[string]line{"decompose": says(two), "subtask": says("x"), "synthesise": pieces}, 0, false, []string{pieces.text}},
		{"the synthesis, where a rewrite can follow", map[string]line{"decompose": says(two), "subtask": says("x"), "synthesise": pieces, "score": says(`{"score":1}`)}, 1, true, []string{pieces.text}},
		{"the one worker", map[string]line{"decompose": says(plan("rule", "a 1")), "s1": pieces}, 0, true, pieces.parts},
		{"the one worker of a bad plan", map[string]line{"decompose": says(plan("rule", "a 1 a")), "s1": pieces}, 0, true, pieces.parts},
		{"a worker whose result is no answer yet", map[string]line{"decompose": says(plan("supervisor", "a 1")), "s1": pieces, "synthesise": says("S")}, 0, true, []string{"S"}},
		{"a direct walk", map[string]line{"direct": pieces}, 0, true, pieces.parts},
		{"a direct walk after rewrites were off the table", map[string]line{"direct": pieces}, 3, true, pieces.parts},
		{"results that are put together by rule", map[string]line{"decompose": says(plan("rule", "a 1", "b 1")), "subtask": pieces}, 0, true, []string{pieces.text + "\n\n" + pieces.text}},
		{"a text instead of a plan", map[string]line{"decompose": pieces}, 0, true, []string{pieces.text}},
		{"blank beginnings wait", map[string]line{"direct": {text: "\n\n x", parts: []string{"\n", "\n ", "x"}}}, 0, true, []string{"\n\n x"}},
		{"who delivers nothing gives all at the end", map[string]line{"direct": {text: "late", parts: []string{}}}, 0, true, []string{"late"}},
		{
			"a blank synthesis gives way to the next", map[string]line{
				"decompose": says(two), "subtask": says("x"), "synthesise": {text: " \n", parts: []string{" ", "\n"}}, "synthesise-t2": pieces,
			}, 0, true, pieces.parts,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := run(t, script(t, c.lines), settings(rewrites(c.rewrites)), pipeline.Request{Stream: c.stream})
				if h.err != nil || !slices.Equal(h.pieces, c.want) {
					t.Errorf("%q, %v, want %q", h.pieces, h.err, c.want)
				}
			})
		})
	}
}

// Nothing is glued behind a part of an answer.
func TestAnAnswerThatBreaksOff(t *testing.T) {
	broken := line{class: chain.Cut, parts: []string{"one ", "two "}}
	for _, lines := range []map[string]line{
		{"decompose": says(plan("supervisor", "a 1", "b 2")), "subtask": says("x"), "synthesise": broken, "llm.chat": says("D")},
		{"decompose": says(plan("rule", "a 1")), "s1": broken, "synthesise": says("S")},
		{"direct": broken, "direct-t3": says("T")},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := run(t, script(t, lines), settings(), pipeline.Request{Stream: true})
			if !errors.Is(h.err, pipeline.ErrBroken) || h.text() != "one two " || h.res.Last != chain.Cut {
				t.Errorf("%q, %v, last %s", h.text(), h.err, h.res.Last)
			}
		})
	}
}

// A supervisor that hangs is left in time for the next; one that has begun to
// answer may take all the time there is.
func TestTimeIsLeftForWhatFollows(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines map[string]line
		want  string
		most  time.Duration
	}{
		{"a T3 that hangs", map[string]line{"llm.t3": hangs(), "decompose-t2": says(plan("rule", "a 1", "b 1")), "llm.t1": says("x")}, "x\n\nx", 3 * time.Minute},
		{"supervisors that hang", map[string]line{"llm.t3": hangs(), "llm.t2": hangs(), "llm.chat": says("D")}, "D", 4 * time.Minute},
		{"workers that hang", map[string]line{"decompose": says(plan("supervisor", "a 1", "b 1 a")), "llm.t1": hangs(), "synthesise": says("S")}, "S", 8 * time.Minute},
		{"a synthesis that hangs", map[string]line{"decompose": says(plan("supervisor", "a 1", "b 1")), "llm.t1": says("x"), "llm.t3": hangs(), "llm.t2": hangs()}, "x\n\nx", 10 * time.Minute},
		{"all but the last resort hang", map[string]line{"llm.t3": hangs(), "llm.t2": hangs(), "llm.chat": hangs(), "llm.t1": says("x")}, "x", 10 * time.Minute},
		{
			"the last to be asked may take all the time", map[string]line{
				"decompose-t2": says(plan("supervisor", "a 1", "b 1")), "llm.t1": says("x"), "llm.t3": hangs(), "synthesise-t2": {text: "S", after: 200 * time.Second},
			}, "S", 10 * time.Minute,
		},
		{
			"a synthesis of nothing that hangs", map[string]line{
				"decompose": says(plan("supervisor", "a 1", "b 1")), "llm.t3": hangs(), "llm.t2": hangs(), "llm.chat": says("D"),
			}, "D", 9 * time.Minute,
		},
		{"a long answer that began in time", map[string]line{"direct": {after: 4 * time.Minute, text: strings.Repeat("x", 200), parts: strings.Split(strings.Repeat("x", 200), "")}}, strings.Repeat("x", 200), 9 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := run(t, script(t, c.lines), settings(), pipeline.Request{Stream: true})
				if h.err != nil || h.text() != c.want || h.took > c.most {
					t.Errorf("%q, %v after %s, want %q within %s", h.text(), h.err, h.took, c.want, c.most)
				}
			})
		})
	}
}

func TestACallerWhoLeavesEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		p, _ := pipeline.New(settings(rewrites(3)))
		h := runWith(ctx, p, script(t, map[string]line{"decompose": hangs()}), pipeline.Request{Stream: true})
		if !errors.Is(h.err, context.Canceled) || h.took != time.Minute || len(h.pieces) > 0 {
			t.Errorf("%q, %v after %s", h.pieces, h.err, h.took)
		}
	})
	// A stage that could fall back on something does not: nobody takes it.
	two := says(plan("supervisor", "a 1", "b 2"))
	for stage, lines := range map[string]map[string]line{
		"subtask":    {"decompose": two, "subtask": hangs()},
		"synthesise": {"decompose": two, "subtask": says("x"), "synthesise": hangs()},
		"score":      {"decompose": two, "subtask": says("x"), "synthesise": says("S"), "score": hangs()},
		"rewrite":    {"decompose": two, "subtask": says("x"), "synthesise": says("S"), "score": says(`{"score":0,"issues":["x"]}`), "rewrite": hangs()},
	} {
		for _, stream := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Minute, cancel)
				p, _ := pipeline.New(settings(rewrites(3)))
				h := runWith(ctx, p, script(t, lines), pipeline.Request{Stream: stream})
				if !errors.Is(h.err, context.Canceled) || h.took != time.Minute || len(h.pieces) > 0 || len(h.res.Notes) > 0 {
					t.Errorf("%s, stream %v: %q, %v after %s, notes %q", stage, stream, h.pieces, h.err, h.took, h.res.Notes)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) { // or who is gone when something is written
		p, _ := pipeline.New(settings())
		gone := errors.New("gone")
		n := 0
		_, err := p.Run(t.Context(), script(t, map[string]line{"direct": pieces}), pipeline.Request{Body: []byte(question), Stream: true},
			pipeline.Decision{Class: "complex", Staged: true}, pipeline.Output{Text: func(string) error { n++; return gone }})
		if !errors.Is(err, gone) || n != 1 {
			t.Errorf("%v after %d pieces", err, n)
		}
	})
}

func TestProgressTellsOfStagesAndWaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := script(t, map[string]line{"decompose": says(plan("supervisor", "a 1", "b 2 a")), "s1": says("A"), "synthesise": says("S"), "score": says(`{"score":0.9,"issues":["x"]}`)})
		h := run(t, m, settings(rewrites(2)), pipeline.Request{})
		want := []pipeline.Progress{
			{Stage: job.Decompose, State: job.Running, Task: "decompose"},
			{Stage: job.Decompose, State: job.Done, Task: "decompose"},
			{Stage: job.Subtask, State: job.Running, Task: "s1", Wave: 1, Waves: 2, Tasks: 2},
			{Stage: job.Subtask, State: job.Done, Task: "s1", Wave: 1, Waves: 2, Done: 1, Tasks: 2},
			{Stage: job.Subtask, State: job.Running, Task: "s2", Wave: 2, Waves: 2, Done: 1, Tasks: 2},
			{Stage: job.Subtask, State: job.Failed, Task: "s2", Wave: 2, Waves: 2, Done: 2, Tasks: 2},
			{Stage: job.Synthesise, State: job.Running, Task: "synthesise", Waves: 2, Done: 2, Tasks: 2},
			{Stage: job.Synthesise, State: job.Done, Task: "synthesise", Waves: 2, Done: 2, Tasks: 2},
			{Stage: job.Score, State: job.Running, Task: "score-1", Waves: 2, Done: 2, Tasks: 2},
			{Stage: job.Score, State: job.Done, Task: "score-1", Waves: 2, Done: 2, Tasks: 2},
		}
		it := h.progress[len(h.progress)-1].Iteration
		if it == nil || it.Score != 0.9 || it.Issues != 1 {
			t.Fatalf("the score's iteration is %+v", it)
		}
		h.progress[len(h.progress)-1].Iteration = nil
		if !slices.Equal(h.progress, want) {
			t.Errorf("progress:\n%+v\nwant\n%+v", h.progress, want)
		}
	})
}

// A wave may take minutes: each part is told of when it ends.
func TestProgressOfAWave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := pipeline.New(settings())
		if err != nil {
			t.Fatal(err)
		}
		m := script(t, map[string]line{
			"decompose": says(plan("supervisor", "a 1", "b 1", "c 1")), "synthesise": says("S"),
			"s1": {text: "x", after: 3 * time.Second}, "s2": {text: "x", after: time.Second}, "s3": {text: "x", after: 2 * time.Second},
		})
		began := time.Now()
		var got []string
		out := pipeline.Output{Text: func(string) error { return nil }, Progress: func(p pipeline.Progress) {
			if p.Stage == job.Subtask && p.State == job.Done {
				got = append(got, fmt.Sprintf("%s %d/%d %s", p.Task, p.Done, p.Tasks, time.Since(began)))
			}
		}}
		if _, err := p.Run(t.Context(), m, pipeline.Request{Body: []byte(question)}, pipeline.Decision{Staged: true}, out); err != nil {
			t.Fatal(err)
		}
		if want := []string{"s2 1/3 1s", "s3 2/3 2s", "s1 3/3 3s"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// stubborn answers tasks by name, and hears of nothing.
type stubborn map[string]func(ctx context.Context, t *wave.Task) wave.Outcome

func (s stubborn) Do(ctx context.Context, tasks []wave.Task) []wave.Outcome {
	outs := make([]wave.Outcome, len(tasks))
	for i := range tasks {
		outs[i].Class = chain.NoPeer
		if f := s[tasks[i].Name]; f != nil {
			outs[i] = f(ctx, &tasks[i])
		}
	}
	return outs
}

func (s stubborn) run(t *testing.T, text func(string) error) (pipeline.Result, error) {
	t.Helper()
	p, err := pipeline.New(settings())
	if err != nil {
		t.Fatal(err)
	}
	return p.Run(t.Context(), s, pipeline.Request{Body: []byte(question), Stream: true, Budget: 10 * time.Minute}, pipeline.Decision{Staged: true}, pipeline.Output{Text: text})
}

// Who was given up delivers nothing, however late it hears of it.
func TestWhoWasGivenUpDeliversNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := ""
		var late func(string) error
		_, err := stubborn{
			"direct": func(_ context.Context, task *wave.Task) wave.Outcome {
				late = task.Deliver
				time.Sleep(6 * time.Minute) // past the half
				if late("too late") == nil {
					t.Error("it may still deliver")
				}
				return wave.Outcome{Class: chain.Canceled}
			},
			"direct-t3": func(_ context.Context, task *wave.Task) wave.Outcome {
				if late("much too late") == nil {
					t.Error("it may deliver beside another")
				}
				return wave.Outcome{Class: chain.OK, Text: "T"}
			},
		}.run(t, func(s string) error { got += s; return nil })
		if got != "T" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if late("after all") == nil || got != "T" {
			t.Errorf("%q after the end", got)
		}
	})
	synctest.Test(t, func(t *testing.T) { // nor once its task ended
		got := ""
		var late func(string) error
		_, err := stubborn{"direct": func(_ context.Context, task *wave.Task) wave.Outcome {
			late = task.Deliver
			task.Deliver("T")
			return wave.Outcome{Class: chain.OK, Text: "T"}
		}}.run(t, func(s string) error { got += s; return nil })
		if late("more") == nil || got != "T" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// Output is called from one goroutine at a time, also where a task was given up while
// a piece of it is on its way to a slow reader. The race detector sees it.
func TestProgressWaitsForThePieceOfWhoWasGivenUp(t *testing.T) {
	entered, over := make(chan struct{}), make(chan struct{})
	var ended sync.WaitGroup
	said, writing := 0, false
	p, _ := pipeline.New(settings())
	_, err := p.Run(t.Context(), stubborn{"direct": func(_ context.Context, task *wave.Task) wave.Outcome {
		ended.Go(func() { task.Deliver("half an ") })
		<-entered
		close(over)
		return wave.Outcome{Class: chain.Canceled}
	}}, pipeline.Request{Body: []byte(question), Stream: true, Budget: time.Hour}, pipeline.Decision{Class: "complex", Staged: true}, pipeline.Output{
		Text: func(string) error {
			writing = true
			close(entered)
			<-over
			for range 100 {
				runtime.Gosched()
			}
			said++
			writing = false
			return nil
		},
		Progress: func(pipeline.Progress) {
			if said++; writing {
				t.Error("something is said in the middle of a piece")
			}
		},
	})
	ended.Wait()
	if !errors.Is(err, pipeline.ErrBroken) {
		t.Error(err)
	}
}

// A caller who is gone ends what is under way, also where a model does not mind
// that nobody takes its words.
func TestACallerWhoIsGoneEndsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, gone := time.Now(), errors.New("gone")
		_, err := stubborn{"direct": func(ctx context.Context, task *wave.Task) wave.Outcome {
			task.Deliver("a word")
			<-ctx.Done()
			return wave.Outcome{Class: chain.Canceled}
		}}.run(t, func(string) error { return gone })
		if !errors.Is(err, gone) || time.Since(began) > 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
