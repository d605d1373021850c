package openai

import (
	"encoding/json"
	"testing"
)

func TestWhatCountsAsOutput(t *testing.T) {
	for delta, want := range map[string]bool{
		`{}`: false, `{"role":"assistant"}`: false, `{"role":"assistant","content":""}`: false, `{"content":null}`: false, `{"tool_calls":[]}`: false,
		`{"refusal":null}`: false, `{"reasoning":""}`: false, `{"foo":"bar"}`: false, `{"content":[]}`: false, `{"function_call":{}}`: false, `null`: false, `"x"`: false,
		`{"content":"a"}`: true, `{"content":" "}`: true, `{"content":"\n"}`: true, `{"reasoning":"a"}`: true, `{"reasoning_content":"a"}`: true, `{"refusal":"no"}`: true,
		`{"tool_calls":[{"index":0}]}`: true, `{"function_call":{"name":"f"}}`: true, `{"c\u006fntent":"a"}`: true, `{"content":[{"type":"text","text":"a"}]}`: true,
		`{"reasoning_details":[{"text":"a"}]}`: true, `{"audio":{"id":"a"}}`: true,
	} {
		r := reading{part: "delta"}
		if f, ok := r.read([]byte(`{"choices":[{"index":0,"delta":` + delta + `}]}`)); !ok || f.meaningful != want {
			t.Errorf("delta %s: meaningful %v (%v), want %v", delta, f.meaningful, ok, want)
		}
	}
}

func TestAnswersAreEditedAndNothingElse(t *testing.T) {
	for _, tt := range []struct {
		text, want string
		hide       bool
	}{
		{`{"id":"1","model":"up","x":1.50,"choices":[]}`, `{"id":"1","model":"a/b:c","x":1.50,"choices":[]}`, false},
		{`{"m\u006fdel":null,"choices":[{"model":"up"}]}`, `{"m\u006fdel":"a/b:c","choices":[{"model":"up"}]}`, false},
		{`{"choices":[]}`, `{"choices":[]}`, false},
		{`{"model":"up","usage":{"prompt_tokens":1}}`, `{"model":"a/b:c","usage":{"prompt_tokens":1}}`, false},
		{`{"usage":{"prompt_tokens":1},"model":"up"}`, `{"usage":null,"model":"a/b:c"}`, true},
		{`{"model":"up","usage":null}`, `{"model":"a/b:c","usage":null}`, true},
	} {
		r := reading{part: "delta", model: quote("a/b:c"), hide: tt.hide}
		f, ok := r.read([]byte(tt.text))
		if got := string(f.apply(nil, []byte(tt.text))); !ok || got != tt.want {
			t.Errorf("got %s (%v), want %s", got, ok, tt.want)
		}
	}
}

func TestWhenAnAnswerIsComplete(t *testing.T) {
	ended, open := `"finish_reason":"stop"`, `"finish_reason":null`
	for _, tt := range []struct {
		name   string
		events []string
		n      int64
		want   bool
	}{
		{"nothing came", nil, 1, false},
		{"one open", []string{`{"choices":[{"index":0,` + open + `}]}`}, 1, false},
		{"an empty reason is none", []string{`{"choices":[{"index":0,"finish_reason":""}]}`}, 1, false},
		{"one ended", []string{`{"choices":[{"index":0,` + ended + `}]}`}, 1, true},
		{"no index means 0", []string{`{"choices":[{` + open + `}]}`, `{"choices":[{` + ended + `}]}`}, 1, true},
		{"one of two", []string{`{"choices":[{"index":0,` + ended + `},{"index":1,` + open + `}]}`}, 1, false},
		{"two of two", []string{`{"choices":[{"index":1,` + ended + `}]}`, `{"choices":[{"index":0,` + ended + `}]}`}, 2, true},
		{"one of two asked for", []string{`{"choices":[{"index":0,` + ended + `}]}`}, 2, false},
		{"index out of all bounds", []string{`{"choices":[{"index":99999999,` + ended + `}]}`}, 1, true},
		{"text after the end keeps it", []string{`{"choices":[{"index":0,` + ended + `}]}`, `{"choices":[{"index":0,` + open + `}]}`}, 1, true},
	} {
		r := reading{part: "delta"}
		for _, e := range tt.events {
			if _, ok := r.read([]byte(e)); !ok {
				t.Fatal(e)
			}
		}
		if got := r.complete(tt.n); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{
		`{"id":"x","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"é"},"logprobs":null,"finish_reason":null}]}`,
		`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}`, `{"error":{"message":"x"}}`, `{"object":"error"}`, `[]`, `{"m\u006fdel":1,"model":2}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, text []byte, hide bool) {
		r := reading{part: "delta", model: quote("auto"), hide: hide}
		facts, ok := r.read(text)
		if !ok {
			return
		}
		got := facts.apply(nil, text)
		var before, after map[string]json.RawMessage
		if json.Unmarshal(text, &before) != nil || json.Unmarshal(got, &after) != nil || len(before) != len(after) || len(got) != facts.size(len(text)) {
			t.Fatalf("%q became %q", text, got)
		}
		for name, was := range before {
			is := string(after[name])
			switch {
			case name == "model" && is != `"auto"`, name != "model" && name != "usage" && is != string(was):
				t.Fatalf("%q became %q", text, got)
			}
		}
	})
}
