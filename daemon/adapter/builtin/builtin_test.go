package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
)

func call(body string, stream, usage bool) adapter.Call {
	return adapter.Call{Request: &adapter.Request{ID: "r1", Primitive: chain.LLMChat, Body: []byte(body), Model: "auto", Stream: stream, Usage: usage}}
}

// run collects what a call emits.
func run(t *testing.T, c adapter.Call) ([]walk.Chunk, walk.Outcome) {
	t.Helper()
	var got []walk.Chunk
	o := Adapter{}.Run(t.Context(), c, func(ch walk.Chunk) error { got = append(got, ch); return nil })
	return got, o
}

type event struct {
	Object, Model string
	Choices       []struct {
		Delta, Message struct{ Role, Content string }
		FinishReason   string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
	}
}

func decode(t *testing.T, c walk.Chunk) (e event) {
	t.Helper()
	if err := json.Unmarshal(c.Data, &e); err != nil {
		t.Fatalf("%s: %v", c.Data, err)
	}
	return e
}

func TestStreamAndPlainGiveTheSameText(t *testing.T) {
	const body = `{"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"What is chordwheel?"}]}`
	plain, o := run(t, call(body, false, false))
	if o.Class != chain.OK || len(plain) != 1 || !plain[0].Meaningful {
		t.Fatalf("plain: %v, %d chunks", o.Class, len(plain))
	}
	e := decode(t, plain[0])
	want := e.Choices[0].Message.Content
	if e.Model != "auto" || e.Object != "chat.completion" || e.Choices[0].FinishReason != "stop" || !strings.Contains(want, "mesh") {
		t.Fatalf("plain answer %s", plain[0].Data)
	}
	if e.Usage == nil || e.Usage.Completion != o.Output || o.Output == 0 || o.Input == 0 {
		t.Fatalf("usage %+v, outcome %+v", e.Usage, o)
	}

	streamed, o := run(t, call(body, true, true))
	if o.Class != chain.OK {
		t.Fatal(o.Class)
	}
	var text string
	for i, c := range streamed {
		e := decode(t, c)
		if e.Model != "auto" || e.Object != "chat.completion.chunk" {
			t.Fatalf("chunk %s", c.Data)
		}
		if i == len(streamed)-1 {
			if len(e.Choices) != 0 || e.Usage == nil || e.Usage.Completion != o.Output {
				t.Fatalf("last chunk %s", c.Data)
			}
			continue
		}
		text += e.Choices[0].Delta.Content
		if said := e.Choices[0].Delta.Content != ""; said != c.Meaningful {
			t.Errorf("meaningful is %v for %s", c.Meaningful, c.Data)
		}
	}
	if text != want {
		t.Errorf("streamed %q\nplain %q", text, want)
	}
	if unasked, _ := run(t, call(body, true, false)); len(unasked) != len(streamed)-1 {
		t.Errorf("without the wish for usage: %d chunks, with it %d", len(unasked), len(streamed))
	}
}

func TestRequests(t *testing.T) {
	hello := `"messages":[{"role":"user","content":"hello"}]`
	for _, tt := range []struct {
		name, body string
		class      chain.Class
	}{
		{"text", `{` + hello + `}`, chain.OK},
		{"text parts", `{"messages":[{"role":"user","content":[{"type":"text","text":"hel"},{"type":"text","text":"lo"}]}]}`, chain.OK},
		{"null content", `{"messages":[{"role":"assistant","content":null,"tool_calls":[]},{"role":"user","content":"hello"}]}`, chain.OK},
		{"tools that need not be called", `{"tools":[{}],"tool_choice":"auto",` + hello + `}`, chain.OK},
		{"unknown fields", `{"temperature":0.3,"seed":1,"x":{"y":[]},` + hello + `}`, chain.OK},
		{"image", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, chain.Feature},
		{"tool demanded", `{"tool_choice":"required",` + hello + `}`, chain.Feature},
		{"tool named", `{"tool_choice":{"type":"function","function":{"name":"f"}},` + hello + `}`, chain.Feature},
		{"json demanded", `{"response_format":{"type":"json_object"},` + hello + `}`, chain.Feature},
		{"two choices", `{"n":2,` + hello + `}`, chain.Feature},
		{"logprobs", `{"logprobs":true,` + hello + `}`, chain.Feature},
		{"audio", `{"modalities":["text","audio"],` + hello + `}`, chain.Feature},
		{"no messages", `{}`, chain.CallerError},
		{"empty messages", `{"messages":[]}`, chain.CallerError},
		{"content is a number", `{"messages":[{"role":"user","content":7}]}`, chain.CallerError},
		{"not json", `{"messages":`, chain.CallerError},
		{"two values", `{` + hello + `}{}`, chain.CallerError},
		{"no room", `{"max_tokens":0,` + hello + `}`, chain.CallerError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			chunks, o := run(t, call(tt.body, false, false))
			if o.Class != tt.class {
				t.Fatalf("class %s, want %s", o.Class, tt.class)
			}
			if (len(chunks) == 1) != (tt.class == chain.OK) || (o.Answer != nil) == (tt.class == chain.OK) {
				t.Errorf("%d chunks, answer %v", len(chunks), o.Answer)
			}
			if o.Answer != nil && !json.Valid(o.Answer.Body) {
				t.Errorf("answer %s", o.Answer.Body)
			}
		})
	}
}

func TestAnswersAreCutAsAsked(t *testing.T) {
	for _, tt := range []struct{ extra, finish, ends string }{
		{`"max_tokens":3`, "length", "Hello! I am"},
		{`"max_completion_tokens":1`, "length", "Hello!"},
		{`"stop":["I am"]`, "stop", "Hello! "},
		{`"stop":"primer"`, "stop", "Hello! I am "},
	} {
		c, o := run(t, call(`{"messages":[{"role":"user","content":"hello"}],`+tt.extra+`}`, false, false))
		if o.Class != chain.OK {
			t.Fatalf("%s: %s", tt.extra, o.Class)
		}
		if e := decode(t, c[0]); e.Choices[0].FinishReason != tt.finish || e.Choices[0].Message.Content != tt.ends {
			t.Errorf("%s: %s", tt.extra, c[0].Data)
		}
	}
}

func TestOtherWorkIsRefused(t *testing.T) {
	c := call(`{}`, false, false)
	c.Request.Primitive = "embed.text"
	if _, o := run(t, c); o.Class != chain.Feature {
		t.Error(o.Class)
	}
}

func TestStopsWithItsCaller(t *testing.T) {
	const body = `{"messages":[{"role":"user","content":"What is chordwheel?"}]}`
	for _, tt := range []struct {
		name string
		emit func(n int, cancel func()) error
	}{
		{"context ends", func(n int, cancel func()) error { cancel(); return nil }},
		{"emit fails", func(int, func()) error { return errors.New("gone") }},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		o := Adapter{}.Run(ctx, call(body, true, false), func(walk.Chunk) error { n++; return tt.emit(n, cancel) })
		cancel()
		if o.Class != chain.Canceled || n != 1 {
			t.Errorf("%s: %s after %d chunks", tt.name, o.Class, n)
		}
	}
}
