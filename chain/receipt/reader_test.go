package receipt

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// elements gives the elements of a JSON array. b has to be valid JSON; nothing is
// given of what is no array.
func elements(b []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		at := blanks(b, 0)
		if at >= len(b) || b[at] != '[' {
			return
		}
		for at = blanks(b, at+1); at < len(b) && b[at] != ']'; at = blanks(b, at+1) {
			end := valueEnd(b, at)
			if !yield(b[at:end]) {
				return
			}
			if at = blanks(b, end); at >= len(b) || b[at] != ',' {
				return
			}
		}
	}
}

// choicesByMembers is choicesOf in several passes, behind the library's check.
func choicesByMembers(data []byte, said string) (out []choice, ok bool) {
	if !json.Valid(data) {
		return nil, false
	}
	for name, choices := range members(data) {
		if string(name) != "choices" {
			continue
		}
	each:
		for c := range elements(choices) {
			var message []byte
			for name, value := range members(c) {
				switch string(name) {
				case "index":
					if string(value) != "0" && string(value) != "null" {
						continue each
					}
				case said:
					message = value
				}
			}
			var one choice
			for name, value := range members(message) {
				switch string(name) {
				case "content":
					one.content = value
				case "tool_calls":
					one.calls = value
				}
			}
			out = append(out, one)
		}
	}
	return out, true
}

func compareChoices(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, b []byte) {
	t.Helper()
	in := reader{b: b}
	in.at = blanks(b, 0)
	if got := in.value() && in.end(); got != json.Valid(b) {
		t.Fatalf("%q is JSON: %t", b, got)
	}
	want, valid := choicesByMembers(b, "delta")
	got, ok := choicesOf(b, "delta", nil)
	same := func(a, b choice) bool { return bytes.Equal(a.content, b.content) && bytes.Equal(a.calls, b.calls) }
	if ok != valid || ok && !slices.EqualFunc(got, want, same) {
		t.Fatalf("%q: %q %t, want %q %t", b, got, ok, want, valid)
	}
}

// pieces are what texts of an answer, and of what is none, are put together from.
var pieces = []string{`{`, `}`, `[`, `]`, `,`, `:`, ` `, "\n", `"choices":[`, `"index":`, `"delta":{`, `"content":`, `"tool_calls":`, `0`, `1`, `-1.5e+3`, `01`, `null`, `true`, `nul`, `"a"`, `"\u00e9"`, `"\u00g9"`, `"\x"`, "\"\x01\"", "\"\xff\"", `"`, `\`}

// However a text came about, one pass finds in it what several find behind the
// library's check.
func TestOnePassFindsWhatSeveralFind(t *testing.T) {
	for _, s := range []string{
		`{"choices":[{"index":0,"delta":{"content":"a","tool_calls":[1]}}]}`,
		` { "choices" : [ { "delta" : { "content" : "a" } , "index" : 1 } , { "delta" : 7 } , 3 ] , "choices" : [ { "delta" : { } , "delta" : {"content":"b","content":null} } ] } `,
		`{"choices":{"delta":{"content":"a"}}}`, `[{"choices":[]}]`, `7`, ``, ` `, `{"choices":[{"delta":{"content":"a"}}]`, `{"a":1,}`, `{,}`, `{"a" 1}`, `[1 2]`, `1 2`, `-`, `1.`, `1e`, `.5`, `"`, `{"a":1}}`,
		strings.Repeat("[", deepest) + strings.Repeat("]", deepest), strings.Repeat("[", deepest+1) + strings.Repeat("]", deepest+1),
	} {
		compareChoices(t, []byte(s))
	}
	rapid.Check(t, func(t *rapid.T) {
		compareChoices(t, []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 24).Draw(t, "pieces"), "")))
	})
	rapid.Check(t, func(t *rapid.T) { // one byte of an event is another one
		b := []byte(`{"id":"x","choices":[{"index":0,"delta":{"role":null,"content":"a\u00e9\n"},"n":-1.0e5,"b":[true,false]}],"u":{}}`)
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		compareChoices(t, b)
	})
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"choices":[{"index":0,"delta":{"content":"a","tool_calls":[{"index":3}]}},{"delta":{}}],"u":-1.5e3}`))
	f.Add([]byte(`{"choices":[{"delta":{"content":"\u00e9\\"}}], "choices" : [] }`))
	f.Fuzz(func(t *testing.T, b []byte) { compareChoices(t, b) })
}

func BenchmarkResponse(b *testing.B) {
	event := []byte(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"small","choices":[{"index":0,"delta":{"role":"assistant","content":"the hub holds the plan, t"},"finish_reason":null}]}`)
	b.Run("an event of a stream", func(b *testing.B) {
		b.ReportAllocs()
		r := NewResponse("llm.chat", true)
		for b.Loop() {
			r.Add(event)
		}
	})
	b.Run("the library's check alone", func(b *testing.B) {
		for b.Loop() {
			json.Valid(event)
		}
	})
}
