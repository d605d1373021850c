package daemon

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/edge"
	jobs "github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline"
)

// spoken is the answer of the pipeline on its way to the caller, in the form of a
// chat completion or of the events of one. One goroutine at a time uses it.
type spoken struct {
	piped   *piped
	deliver walk.Deliver

	began bool // something is on its way
	gone  bool // the caller is
	whole strings.Builder
}

// completion is a chat completion, or an event of one.
type completion struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Choices []spokenChoice `json:"choices"`
	Usage   *spokenUsage   `json:"usage,omitempty"`
}

type spokenChoice struct {
	Index   int          `json:"index"`
	Message *spokenWords `json:"message,omitempty"`
	Delta   *spokenWords `json:"delta,omitempty"`
	Finish  *string      `json:"finish_reason"`
	Log     *struct{}    `json:"logprobs"`
}

type spokenWords struct {
	Role      string  `json:"role,omitempty"`
	Content   *string `json:"content,omitempty"`
	Reasoning string  `json:"reasoning_content,omitempty"`

	ToolCalls json.RawMessage `json:"tool_calls,omitempty"`
}

type spokenUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

// completionOf is an answer to w without a choice yet. It is called after its
// transaction, and goes by the model that was asked for.
func completionOf(object string, w *edge.Work, a *account, began time.Time) completion {
	return completion{ID: "chatcmpl-" + a.receipt.TransactionID, Object: object, Created: began.Unix(), Model: cmp.Or(w.Model, edge.Auto), Choices: []spokenChoice{}}
}

func (s *spoken) form(object string) completion {
	return completionOf(object, s.piped.work, s.piped.whole, s.piped.began)
}

// send hands one event or answer to the caller.
func (s *spoken) send(c completion, last bool) error {
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("make the answer of a pipeline: %w", err)
	}
	err = s.deliver(walk.Attempt{Number: int(max(1, s.piped.calls.Load())), Option: chain.Option{ID: pipelineOption}, Ended: last}, [][]byte{b})
	s.gone = s.gone || err != nil
	return err
}

// event hands the caller of a stream what the assistant says or thinks.
func (s *spoken) event(words spokenWords, finish *string) error {
	if !s.began {
		words.Role = "assistant"
	}
	s.began = true
	c := s.form("chat.completion.chunk")
	c.Choices = append(c.Choices, spokenChoice{Delta: &words, Finish: finish})
	return s.send(c, false)
}

// text takes a piece of the answer.
func (s *spoken) text(piece string) error {
	if !s.piped.work.Stream {
		s.whole.WriteString(piece)
		return nil
	}
	return s.event(spokenWords{Content: &piece}, nil)
}

// end says that the answer is whole or that its model stopped at a limit, and what it took.
func (s *spoken) end(total jobs.Record, short bool) error {
	finish, usage := finishStop, &spokenUsage{total.Input, total.Output, total.Input + total.Output}
	if short {
		finish = finishLength
	}
	if !s.piped.work.Stream {
		text := s.whole.String()
		c := s.form("chat.completion")
		c.Choices, c.Usage = append(c.Choices, spokenChoice{Message: &spokenWords{Role: "assistant", Content: &text}, Finish: &finish}), usage
		return s.send(c, true)
	}
	if err := s.event(spokenWords{}, &finish); err != nil || !s.piped.work.Usage {
		return err
	}
	c := s.form("chat.completion.chunk")
	c.Usage = usage
	return s.send(c, true)
}

// progress tells a person who waits what is going on. The first word fixes the
// status of the answer, so there is none before it is certain that there will be
// one.
func (s *spoken) progress(p pipeline.Progress) {
	if p.Iteration != nil {
		s.piped.scored(p.Task, p.Iteration)
	}
	w := s.piped.work
	if !w.Stream || s.gone || !s.piped.answers.Load() {
		return
	}
	line := inProgress(&p, time.Since(s.piped.began))
	if w.Reasoning {
		_ = s.event(spokenWords{Reasoning: line + "\n"}, nil) // a caller who is gone is noticed with the answer
		return
	}
	if w.Comment != nil {
		w.Comment(line)
	}
}

// inProgress puts p into words. All of them are ours.
func inProgress(p *pipeline.Progress, after time.Duration) string {
	line := fmt.Sprintf("%.1f s: ", after.Seconds())
	switch {
	case p.Iteration != nil:
		line += fmt.Sprintf("the answer scores %.2f", p.Iteration.Score)
		if p.Iteration.Issues > 0 {
			line += fmt.Sprintf(", %d issues", p.Iteration.Issues)
		}
	case p.Stage == jobs.Subtask:
		line += fmt.Sprintf("part %s %s", strings.TrimPrefix(p.Task, "s"), p.State)
	default:
		line += fmt.Sprintf("%s %s", p.Stage, p.State)
	}
	if p.Tasks > 0 {
		line += fmt.Sprintf(", %d of %d parts ended", p.Done, p.Tasks)
	}
	return line
}
