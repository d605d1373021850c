package edge

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
)

func TestReadChat(t *testing.T) {
	const m = `"messages":[{"role":"user","content":"hi"}]`
	for _, c := range []struct {
		name, in string
		want     chat
	}{
		{"least", `{"model":"auto",` + m + `}`, chat{model: "auto", messages: true}},
		{"stream", `{"model":"auto","stream":true,` + m + `}`, chat{model: "auto", stream: true, messages: true}},
		{"stream false stays false", `{"stream":false,"model":"auto",` + m + `}`, chat{model: "auto", messages: true}},
		{"stream null", `{"stream":null,"model":"auto",` + m + `}`, chat{model: "auto", messages: true}},
		{"usage", `{"stream":true,"stream_options":{"x":1,"include_usage":true},"model":"auto",` + m + `}`, chat{model: "auto", stream: true, usage: true, messages: true}},
		{"usage false", `{"stream":true,"stream_options":{"include_usage":false},"model":"auto",` + m + `}`, chat{model: "auto", stream: true, messages: true}},
		{"stream options null", `{"stream_options":null,"model":"auto",` + m + `}`, chat{model: "auto", messages: true}},
		{"model with slashes and colons", `{"model":"local/ollama/qwen2.5:7b",` + m + `}`, chat{model: "local/ollama/qwen2.5:7b", messages: true}},
		{"model with escapes", `{"model":"a\/b\u00e9",` + m + `}`, chat{model: "a/bé", messages: true}},
		{"fields after messages", `{` + m + `,"model":"x"}`, chat{model: "x", messages: true}},
		{"unknown fields", `{"model":"x","zz":{"model":1,"stream":"no"},"tools":[{"type":"function"}],` + m + `}`, chat{model: "x", messages: true}},
		{"all roles", `{"model":"x","messages":[{"role":"system","content":"a"},{"role":"developer","content":"a"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]},{"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","tool_call_id":"1","content":"x"}]}`, chat{model: "x", messages: true}},
		{"role with escapes", `{"model":"x","messages":[{"role":"\u0075ser"}]}`, chat{model: "x", messages: true}},
		{"512 messages", `{"model":"x","messages":[` + strings.Repeat(`{"role":"user"},`, 511) + `{"role":"user"}]}`, chat{model: "x", messages: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readChat([]byte(c.in), defaultLimits)
			got.ask = nil // a test of its own
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

// What a user says last is what is looked at to choose a model.
func TestReadChatFindsTheAsk(t *testing.T) {
	for _, c := range []struct{ messages, want string }{
		{`{"role":"user","content":"hi"}`, `"hi"`},
		{`{"content":"a \"b\" \u00e9","role":"user"}`, `"a \"b\" \u00e9"`},
		{`{"role":"user","content":"first"},{"role":"assistant","content":"x"},{"role":"user","content":"second"},{"role":"tool","content":"y"}`, `"second"`},
		{`{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:","text":"no"}},{"text":"here","type":"text"},7]}`, `"here"`},
		{`{"role":"user","content":"words"},{"role":"user","content":[{"type":"image_url"}]}`, `"words"`},
		{`{"role":"user","content":"words"},{"role":"user","content":null}`, `"words"`},
		{`{"role":"\u0075ser","content":""}`, `""`},
		{`{"role":"system","content":"x"}`, ""},
		{`{"role":"user","content":{"text":"x"}}`, ""},
		{`{"role":"user","content":[{"text":{"text":"x"}}]}`, ""},
	} {
		got, err := readChat([]byte(`{"model":"auto","messages":[`+c.messages+`]}`), defaultLimits)
		if err != nil || string(got.ask) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.messages, got.ask, err, c.want)
		}
	}
}

// Each refusal is one line that names the field.
func TestReadChatRefuses(t *testing.T) {
	const m = `"messages":[{"role":"user","content":"hi"}]`
	for _, c := range []struct{ name, in, want string }{
		{"a list", `[]`, "body: want an object"},
		{"a broken list", `[`, "body: not JSON: the body ends early, at byte 1"},
		{"null", `null`, "body: want an object"},
		{"HTML", `<html>`, "body: not JSON: no value at byte 0"},
		{"no model", `{` + m + `}`, `model: missing: name one, or "auto"`},
		{"model null", `{"model":null,` + m + `}`, "model: want a string"},
		{"model empty", `{"model":"",` + m + `}`, `model: want 1 to 256 bytes, or "auto"`},
		{"model long", `{"model":"` + strings.Repeat("m", 257) + `",` + m + `}`, `model: want 1 to 256 bytes, or "auto"`},
		{"no messages", `{"model":"x"}`, "messages: missing: want a list of at least one message"},
		{"messages null", `{"model":"x","messages":null}`, "messages: want a list of messages"},
		{"messages text", `{"model":"x","messages":"hi"}`, "messages: want a list of messages"},
		{"messages empty", `{"model":"x","messages":[]}`, "messages: empty: want at least one message"},
		{"513 messages", `{"model":"x","messages":[` + strings.Repeat(`{"role":"user"},`, 512) + `{"role":"user"}]}`, "messages: more than 512 messages"},
		{"message no object", `{"model":"x","messages":[{"role":"user"},"hi"]}`, "messages[1]: want an object"},
		{"no role", `{"model":"x","messages":[{"role":"user"},{"content":"hi"}]}`, "messages[1].role: missing: want system, user, assistant, tool or developer"},
		{"role no text", `{"model":"x","messages":[{"role":7}]}`, "messages[0].role: want a string"},
		{"unknown role", `{"model":"x","messages":[{"role":"wizard"}]}`, `messages[0].role: unknown role "wizard": want system, user, assistant, tool or developer`},
		{"role in capitals", `{"model":"x","messages":[{"role":"User"}]}`, `messages[0].role: unknown role "User": want system, user, assistant, tool or developer`},
		{"long role", `{"model":"x","messages":[{"role":"` + strings.Repeat("r", 99) + `"}]}`, `messages[0].role: unknown role "` + strings.Repeat("r", 32) + `…": want system, user, assistant, tool or developer`},
		{"role twice", `{"model":"x","messages":[{"role":"user","role":"system"}]}`, `messages[0]: the name "role" stands twice in one object`},
		{"model twice", `{"model":"x","model":"y",` + m + `}`, `body: the name "model" stands twice in one object`},
		{"stream text", `{"model":"x","stream":"true",` + m + `}`, "stream: want true or false"},
		{"stream number", `{"model":"x","stream":1,` + m + `}`, "stream: want true or false"},
		{"stream options list", `{"model":"x","stream_options":[],` + m + `}`, "stream_options: want an object"},
		{"include_usage text", `{"model":"x","stream_options":{"include_usage":"yes"},` + m + `}`, "stream_options.include_usage: want true or false"},
		{"broken content", `{"model":"x","messages":[{"role":"user"},{"role":"user","content":"` + "\xff" + `"}]}`, "messages[1]: not UTF-8, at byte 67"},
		{"deep field", `{"model":"x","tools":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `,` + m + `}`, "tools: nested deeper than 64, at byte 84"},
		{"trailing data", `{"model":"x",` + m + `}{}`, "body: data after the JSON document, at byte 57"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readChat([]byte(c.in), defaultLimits)
			r, ok := err.(*Refusal)
			if !ok || r.Code != InvalidRequest || r.Message != c.want {
				t.Errorf("got  %v\nwant invalid_request: %s", err, c.want)
			}
		})
	}
}

func TestReadWork(t *testing.T) {
	const fetch, embed = chain.Primitive("fetch.plain"), chain.Primitive("embed.text")
	for _, c := range []struct {
		name        string
		p           chain.Primitive
		in          string
		model, want string // want "" means the body as it came
	}{
		{"other primitives get the body", fetch, `{"input":"https://example.org","options":{"model":7,"messages":1}}`, "", ""},
		{"any input", embed, ` {"input":[1,null,{"a":2}]} `, "", ""},
		{"input null", embed, `{"input":null}`, "", ""},
		{"options null", embed, `{"input":1,"options":null}`, "", ""},
		{"a chat", chain.LLMChat, `{"input": {"model":"m/x:1", "messages":[{"role":"user","content":"<&\u003c"}]} }`, "m/x:1", `{"model":"m/x:1", "messages":[{"role":"user","content":"<&\u003c"}]}`},
		{"a chat with stream false", chain.LLMChat, `{"input":{"stream":false,"model":"auto","messages":[{"role":"user"}]},"options":{ }}`, "auto", `{"stream":false,"model":"auto","messages":[{"role":"user"}]}`},
		{"a text", chain.LLMChat, `{"input":"say \"hi\" \u00e9"}`, "auto", `{"model":"auto","messages":[{"role":"user","content":"say \"hi\" \u00e9"}]}`},
		{"a text with options", "llm.t2", `{"options":{"temperature":0,"max_tokens":5},"input":"hi"}`, "auto", `{"model":"auto","messages":[{"role":"user","content":"hi"}],"temperature":0,"max_tokens":5}`},
		{"a text with a model", "llm.t2", `{"input":"hi","options":{"model":"small"}}`, "small", `{"messages":[{"role":"user","content":"hi"}],"model":"small"}`},
		{"a text with empty options", "llm.t2", `{"input":"hi","options":{}}`, "auto", `{"model":"auto","messages":[{"role":"user","content":"hi"}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want == "" {
				c.want = c.in
			}
			model, got, err := readWork([]byte(c.in), c.p, defaultLimits)
			if err != nil || model != c.model || string(got) != c.want {
				t.Errorf("got %q, %s, %v\nwant %q, %s", model, got, err, c.model, c.want)
			}
			if !json.Valid(got) {
				t.Errorf("not JSON: %s", got)
			}
		})
	}
}

func TestReadWorkRefuses(t *testing.T) {
	for _, c := range []struct {
		name     string
		p        chain.Primitive
		in, want string
	}{
		{"no object", "embed.text", `"hi"`, "body: want an object"},
		{"no input", "embed.text", `{"options":{}}`, `input: missing: want {"input": …, "options": {…}}`},
		{"options no object", "embed.text", `{"input":1,"options":[]}`, "options: want an object"},
		{"input twice", "embed.text", `{"input":1,"input":2}`, `body: the name "input" stands twice in one object`},
		{"broken input", "embed.text", `{"input":{"a":}}`, "input: not JSON: no value at byte 14"},
		{"number for a chat", chain.LLMChat, `{"input":7}`, "input: want a text or a chat completion request"},
		{"chat without model", chain.LLMChat, `{"input":{"messages":[{"role":"user"}]}}`, `input.model: missing: name one, or "auto"`},
		{"chat without messages", chain.LLMChat, `{"input":{"model":"auto"}}`, "input.messages: missing: want a list of at least one message"},
		{"chat with an unknown role", chain.LLMChat, `{"input":{"model":"auto","messages":[{"role":"x"}]}}`, `input.messages[0].role: unknown role "x": want system, user, assistant, tool or developer`},
		{"chat as a stream", chain.LLMChat, `{"input":{"stream":true,"model":"auto","messages":[{"role":"user"}]}}`, "input.stream: work answers in one piece: use /v1/chat/completions for a stream"},
		{"chat with options", chain.LLMChat, `{"input":{"model":"auto","messages":[{"role":"user"}]},"options":{"temperature":0}}`, "options: a chat completion request as input has its options inside: put them there"},
		{"messages as an option", chain.LLMChat, `{"input":"hi","options":{"messages":[]}}`, "options.messages: not an option of work: leave it out"},
		{"stream as an option", chain.LLMChat, `{"input":"hi","options":{"stream":true}}`, "options.stream: not an option of work: leave it out"},
		{"model option no text", chain.LLMChat, `{"input":"hi","options":{"model":1}}`, "options.model: want a string"},
		{"trailing data", "embed.text", `{"input":1} x`, "body: data after the JSON document, at byte 12"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := readWork([]byte(c.in), c.p, defaultLimits)
			r, ok := err.(*Refusal)
			if !ok || r.Code != InvalidRequest || r.Message != c.want {
				t.Errorf("got  %v\nwant invalid_request: %s", err, c.want)
			}
		})
	}
}

// Whatever is accepted is a chat to any other reader of JSON as well.
func FuzzReadChat(f *testing.F) {
	f.Add([]byte(helloReq))
	f.Add([]byte(streamReq))
	f.Add(chatBody(3, 44))
	f.Add([]byte(`{"stream_options":{"include_usage":true},"stream":true,"model":"a\/b","messages":[{"role":"tool","content":null}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readChat(b, defaultLimits)
		if err != nil {
			if r, ok := err.(*Refusal); !ok || r.Code != InvalidRequest || strings.ContainsAny(r.Message, "\r\n") {
				t.Fatalf("%q: %v", b, err)
			}
			return
		}
		var v struct {
			Model    string                       `json:"model"`
			Messages []map[string]json.RawMessage `json:"messages"`
		}
		if err := json.Unmarshal(b, &v); err != nil || got.model == "" || len(v.Messages) == 0 || len(v.Messages) > 512 {
			t.Fatalf("%q: %+v, %v", b, got, err)
		}
	})
}

// What the adapter gets is JSON and, for llm.*, a chat that reads the same again.
func FuzzReadWork(f *testing.F) {
	f.Add([]byte(`{"input":"hi","options":{"temperature":0}}`))
	f.Add([]byte(`{"input":{"model":"auto","messages":[{"role":"user"}]}}`))
	f.Add([]byte(`{"options":{"model":"x"},"input":"\ud83d\ude00"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, p := range []chain.Primitive{chain.LLMChat, "embed.text"} {
			model, payload, err := readWork(b, p, defaultLimits)
			if err != nil {
				continue
			}
			if !json.Valid(payload) {
				t.Fatalf("%q became %q", b, payload)
			}
			if p != chain.LLMChat {
				continue
			}
			c, err := readChat(payload, defaultLimits)
			if err != nil || c.model != model || c.stream {
				t.Fatalf("%q became %q: %+v, %v, want model %q", b, payload, c, err, model)
			}
		}
	})
}

func BenchmarkReadChat(b *testing.B) {
	for _, n := range []int{5, 160} {
		body := chatBody(n, 400)
		b.Run(fmt.Sprintf("%d bytes", len(body)), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := readChat(body, defaultLimits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
