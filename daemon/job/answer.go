package job

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
)

// Chat is the answer of a provider to a chat completion request: a plain text, or a
// whole chat completion.
type Chat struct {
	Text       string          // of the assistant
	ToolCalls  json.RawMessage // a list that is not empty; nil without
	Finish     string          // why it stopped; "stop" where it does not say
	Completion json.RawMessage // as it came; nil for a plain text
	Input      int64           // tokens, where the completion says so
	Output     int64
}

// ReadChat reads the output of work for an llm.* primitive. It is foreign input:
// errors wrap [ErrInvalid] and hold nothing of it.
func ReadChat(output json.RawMessage) (Chat, error) {
	c := Chat{Finish: "stop"}
	if json.Unmarshal(output, &c.Text) == nil {
		if strings.TrimSpace(c.Text) == "" {
			return c, fmt.Errorf("%w: output: the text is empty", ErrInvalid)
		}
		return c, nil
	}
	var completion struct {
		Choices []struct {
			Message struct {
				Content   *string         `json:"content"`
				ToolCalls json.RawMessage `json:"tool_calls"`
			} `json:"message"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
		Usage struct {
			Input  int64 `json:"prompt_tokens"`
			Output int64 `json:"completion_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(output, &completion) != nil || len(completion.Choices) != 1 {
		return c, fmt.Errorf("%w: output: want a text, or a chat completion with one choice", ErrInvalid)
	}
	choice := completion.Choices[0]
	if choice.Message.Content != nil {
		c.Text = *choice.Message.Content
	}
	var calls []json.RawMessage
	if len(choice.Message.ToolCalls) > 0 && (json.Unmarshal(choice.Message.ToolCalls, &calls) != nil) {
		return c, fmt.Errorf("%w: output: tool_calls is no list", ErrInvalid)
	}
	if len(calls) > 0 {
		c.ToolCalls = choice.Message.ToolCalls
	}
	if strings.TrimSpace(c.Text) == "" && c.ToolCalls == nil {
		return c, fmt.Errorf("%w: output: the chat completion says nothing", ErrInvalid)
	}
	if choice.Finish != "" {
		c.Finish = chain.ClipTo(choice.Finish, 32)
	}
	const most = 1 << 32
	c.Completion, c.Input, c.Output = output, min(max(completion.Usage.Input, 0), most), min(max(completion.Usage.Output, 0), most)
	return c, nil
}
