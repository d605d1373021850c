package openai

import (
	"context"
	"encoding/json"
	"testing"

	"go.uber.org/goleak"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newAdapter gives an adapter that is closed with its test.
func newAdapter(t testing.TB) *Adapter {
	t.Helper()
	a := New(Config{})
	t.Cleanup(a.Close)
	return a
}

// chat gives a call for the usual request to an endpoint.
func chat(endpoint string, stream bool) adapter.Call {
	body := `{"model":"auto","messages":[{"role":"user","content":"hello"}]}`
	if stream {
		body = `{"model":"auto","messages":[{"role":"user","content":"hello"}],"stream":true}`
	}
	return adapter.Call{
		Request: &adapter.Request{ID: "r1", Primitive: chain.LLMChat, Body: []byte(body), Model: "auto", Stream: stream},
		Attempt: walk.Attempt{Number: 1, Option: chain.Option{ID: "p/small", Kind: chain.Provider, Adapter: "openai", Model: "small", Endpoint: endpoint}},
		Secret:  "sk-test",
	}
}

// collect runs a call and keeps what it emits.
func collect(ctx context.Context, a *Adapter, c adapter.Call) ([]walk.Chunk, walk.Outcome) {
	var got []walk.Chunk
	o := a.Run(ctx, c, func(c walk.Chunk) error {
		if c.Data != nil { // else it only lets go what the walk holds
			got = append(got, c)
		}
		return nil
	})
	return got, o
}

// event is a chunk or an answer, as a client reads it.
type event struct {
	Model   string
	Choices []struct {
		Index          int
		Delta, Message struct {
			Content          string
			ReasoningContent string            `json:"reasoning_content"`
			ToolCalls        []json.RawMessage `json:"tool_calls"`
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage json.RawMessage
}

// text puts the content of all chunks together, and checks each of them.
func text(t *testing.T, chunks []walk.Chunk) (s string) {
	t.Helper()
	for _, c := range chunks {
		var e event
		if err := json.Unmarshal(c.Data, &e); err != nil {
			t.Fatalf("chunk %.200s: %v", c.Data, err)
		}
		if e.Model != "auto" {
			t.Errorf("chunk names model %q: %.200s", e.Model, c.Data)
		}
		for _, choice := range e.Choices {
			s += choice.Delta.Content + choice.Message.Content
		}
	}
	return s
}
