package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
)

// Model is the name of the builtin model in its option, [chain.BuiltinOption].
const Model = "primer"

// Adapter answers chat completions with the builtin model. The zero value is
// ready; it holds nothing and needs no closing.
type Adapter struct{}

var _ adapter.Adapter = Adapter{}

// Run implements [adapter.Adapter].
func (Adapter) Run(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
	if !c.Request.Primitive.LLM() {
		return walk.Outcome{Class: chain.Feature}
	}
	q, err := read(c.Request.Body)
	switch {
	case errors.Is(err, errFeature):
		return walk.Outcome{Class: chain.Feature, Answer: refusal(err, "unsupported_feature")}
	case err != nil:
		return walk.Outcome{Class: chain.CallerError, Answer: refusal(err, "invalid_request")}
	}
	text, _ := reply(q.text)
	kept, finish := q.cut(text)
	a := completion{ID: "chatcmpl-" + c.Request.ID, Created: time.Now().Unix(), Model: c.Request.Model}
	used := &usage{Prompt: q.tokens, Completion: int64(len(kept)), Total: q.tokens + int64(len(kept))}
	if c.Request.Stream {
		err = stream(ctx, a, kept, finish, used, c.Request.Usage, emit)
	} else {
		err = whole(ctx, a, kept, finish, used, emit)
	}
	if err != nil {
		return walk.Outcome{Class: chain.Canceled}
	}
	return walk.Outcome{Class: chain.OK, Status: http.StatusOK, Input: used.Prompt, Output: used.Completion}
}

// The shapes of the dialect, as far as primer speaks it.
type (
	completion struct {
		ID      string   `json:"id"`
		Object  string   `json:"object"`
		Created int64    `json:"created"`
		Model   string   `json:"model"`
		Choices []choice `json:"choices"`
		Usage   *usage   `json:"usage,omitempty"`
	}
	choice struct {
		Index   int      `json:"index"`
		Message *message `json:"message,omitempty"`
		Delta   *message `json:"delta,omitempty"`
		Finish  *string  `json:"finish_reason"`
	}
	message struct {
		Role    string  `json:"role,omitempty"`
		Content *string `json:"content,omitempty"`
	}
	usage struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Total      int64 `json:"total_tokens"`
	}
)

func whole(ctx context.Context, a completion, kept []string, finish string, used *usage, emit func(walk.Chunk) error) error {
	text := strings.Join(kept, "")
	a.Object, a.Usage = "chat.completion", used
	a.Choices = []choice{{Message: &message{"assistant", &text}, Finish: &finish}}
	return send(ctx, a, true, emit)
}

func stream(ctx context.Context, a completion, kept []string, finish string, used *usage, wanted bool, emit func(walk.Chunk) error) error {
	a.Object = "chat.completion.chunk"
	empty := ""
	a.Choices = []choice{{Delta: &message{"assistant", &empty}}}
	if err := send(ctx, a, false, emit); err != nil {
		return err
	}
	for i := range kept {
		a.Choices = []choice{{Delta: &message{Content: &kept[i]}}}
		if err := send(ctx, a, true, emit); err != nil {
			return err
		}
	}
	a.Choices = []choice{{Delta: &message{}, Finish: &finish}}
	if err := send(ctx, a, false, emit); err != nil || !wanted {
		return err
	}
	a.Choices, a.Usage = []choice{}, used
	return send(ctx, a, false, emit)
}

func send(ctx context.Context, a completion, meaningful bool, emit func(walk.Chunk) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return emit(walk.Chunk{Data: b, Meaningful: meaningful, More: true}) // nothing here waits
}

// refusal is the answer for a request that primer cannot or must not serve.
func refusal(err error, code string) *walk.Answer {
	type problem struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    string `json:"code"`
	}
	b, err := json.Marshal(map[string]problem{"error": {err.Error(), "invalid_request_error", code}})
	if err != nil {
		b = []byte(`{"error":{"message":"the request was refused","type":"invalid_request_error","code":"invalid_request"}}`)
	}
	return &walk.Answer{Status: http.StatusBadRequest, ContentType: "application/json", Body: b}
}
