package pipeline_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/pipeline"
)

// Every row of the failure rules: what the models do, what the caller gets, which
// tasks ran (waves apart, tasks of one wave with a plus), what is noted.
func TestFailureRules(t *testing.T) {
	two := plan("supervisor", "a 1", "b 2")
	line3 := plan("supervisor", "a 1", "b 2 a", "c 2 a b")
	for _, c := range []struct {
		name   string
		lines  map[string]line
		change func(*pipeline.Settings)
		want   string // the answer; "" for no models
		ran    string
		notes  string
	}{
		{
			name: "all is well", lines: map[string]line{"decompose": says(two), "s1": says("A"), "s2": says("B"), "synthesise": says("AB")},
			want: "AB", ran: "decompose s1+s2 synthesise",
		},
		{
			name: "waves follow what builds on what", lines: map[string]line{"decompose": says(line3), "subtask": says("x"), "synthesise": says("ABC")},
			want: "ABC", ran: "decompose s1 s2 s3 synthesise",
		},
		{
			name: "rule puts results one after the other", lines: map[string]line{"decompose": says(plan("rule", "b 1 a", "a 1")), "s1": says("B"), "s2": says("A")},
			want: "A\n\nB", ran: "decompose s2 s1",
		},
		{
			name: "no plan in the text: it is the answer", lines: map[string]line{"decompose": says("Pumped hydro is best.")},
			want: "Pumped hydro is best.", ran: "decompose", notes: "plan_text",
		},
		{
			name: "a blank plan: one direct walk", lines: map[string]line{"decompose": says("  \n "), "decompose-t2": says("\t"), "direct": says("D")},
			want: "D", ran: "decompose decompose-t2 direct", notes: "supervisor_fallback no_plan direct",
		},
		{
			name: "no supervisor: one direct walk", lines: map[string]line{"llm.chat": says("D")},
			want: "D", ran: "decompose decompose-t2 direct", notes: "supervisor_fallback no_plan direct",
		},
		{
			name: "a cycle: the request as one T2 subtask", lines: map[string]line{"decompose": says(plan("supervisor", "a 1 b", "b 1 a")), "s1": says("W")},
			want: "W", ran: "decompose s1", notes: "plan_invalid",
		},
		{
			name: "too many subtasks", lines: map[string]line{"decompose": says(plan("rule", "a 1", "b 1", "c 1", "d 1")), "s1": says("W")},
			want: "W", ran: "decompose s1", notes: "plan_invalid",
		},
		{
			name: "one subtask fails", lines: map[string]line{"decompose": says(two), "s1": fails(), "s2": says("B"), "synthesise": says("B and more")},
			want: "B and more", ran: "decompose s1+s2 synthesise", notes: "subtask_failed",
		},
		{
			name: "all subtasks fail: synthesise what there is", lines: map[string]line{"decompose": says(two), "subtask": fails(), "synthesise": says("my own")},
			want: "my own", ran: "decompose s1+s2 synthesise", notes: "subtask_failed subtasks_failed",
		},
		{
			name: "synthesis fails: concatenate", lines: map[string]line{"decompose": says(two), "s1": says("A"), "s2": says("B")},
			want: "A\n\nB", ran: "decompose s1+s2 synthesise synthesise-t2", notes: "supervisor_fallback synthesis_failed concatenated",
		},
		{
			name: "nothing to concatenate: one direct walk", lines: map[string]line{"decompose": says(two), "llm.chat": says("D")},
			want: "D", ran: "decompose s1+s2 synthesise synthesise-t2 direct",
			notes: "subtask_failed subtasks_failed supervisor_fallback synthesis_failed direct",
		},
		{
			name: "the one worker fails: a supervisor writes", lines: map[string]line{"decompose": says(plan("rule", "a 1 a")), "synthesise": says("S")},
			want: "S", ran: "decompose s1 synthesise", notes: "plan_invalid subtask_failed subtasks_failed",
		},
		{
			name: "no T3: the fallback tier supervises", lines: map[string]line{"decompose-t2": says(two), "s1": says("A"), "s2": says("B"), "synthesise-t2": says("AB")},
			want: "AB", ran: "decompose decompose-t2 s1+s2 synthesise synthesise-t2", notes: "supervisor_fallback",
		},
		{
			name: "no T3 and no fallback", lines: map[string]line{"llm.t2": says(two), "llm.chat": says("D")},
			change: func(s *pipeline.Settings) { s.SupervisorFallbackTier = 3 },
			want:   "D", ran: "decompose direct", notes: "no_plan direct",
		},
		{
			name: "everything down but one small model", lines: map[string]line{"llm.t1": says("small")},
			want: "small", ran: "decompose decompose-t2 direct direct-t3 direct-t2 direct-t1", notes: "supervisor_fallback no_plan direct last_resort",
		},
		{
			name: "a request at fault is not taken to everybody", lines: map[string]line{"direct": {class: chain.CallerError}, "llm.t1": says("T")},
			ran: "decompose decompose-t2 direct", notes: "supervisor_fallback no_plan direct",
		},
		{
			name: "no model at all", ran: "decompose decompose-t2 direct direct-t3 direct-t2 direct-t1", notes: "supervisor_fallback no_plan direct last_resort",
		},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := script(t, c.lines)
					change := c.change
					if change == nil {
						change = func(*pipeline.Settings) {}
					}
					h := run(t, m, settings(change), pipeline.Request{Stream: stream})
					if c.want == "" && !errors.Is(h.err, pipeline.ErrNoModels) || c.want != "" && h.err != nil {
						t.Errorf("error %v", h.err)
					}
					if h.text() != c.want {
						t.Errorf("answer %q, want %q", h.text(), c.want)
					}
					if m.names() != c.ran {
						t.Errorf("ran %q, want %q", m.names(), c.ran)
					}
					if got := strings.Join(h.res.Notes, " "); got != c.notes {
						t.Errorf("notes %q, want %q", got, c.notes)
					}
				})
			})
		}
	}
}
