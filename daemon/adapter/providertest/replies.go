package providertest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Tokens that a healthy answer counts.
const (
	InputTokens  = 11
	OutputTokens = 7
)

// text gives s as a JSON string. The long texts of large faults need no escapes
// and are not searched for any by the library, which would take its time.
func text(s string) string {
	if strings.Trim(s, "x") == "" {
		return `"` + s + `"`
	}
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}

// Event gives the data of one event in the dialect, with one choice.
func (r *Request) Event(delta, finish string) string {
	if finish == "" {
		finish = "null"
	} else {
		finish = text(finish)
	}
	return fmt.Sprintf(`{"id":"chatcmpl-%d","object":"chat.completion.chunk","created":1700000000,"model":%s,"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`,
		r.N, text(r.Model), delta, finish)
}

// Said gives the data of an event that says s.
func (r *Request) Said(s string) string { return r.Event(`{"content":`+text(s)+`}`, "") }

// Role gives the data of the usual first event.
func (r *Request) Role() string { return r.Event(`{"role":"assistant","content":""}`, "") }

// Finish gives the data of the event that ends the choice.
func (r *Request) Finish() string { return r.Event(`{}`, "stop") }

const usage = `{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}`

// Counts gives the data of the usage event.
func (r *Request) Counts() string {
	return fmt.Sprintf(`{"id":"chatcmpl-%d","object":"chat.completion.chunk","created":1700000000,"model":%s,"choices":[],"usage":%s}`, r.N, text(r.Model), usage)
}

// Whole gives a plain answer whose message has the given members beside its role.
func (r *Request) Whole(members, finish string) string {
	if finish == "" {
		finish = "null"
	} else {
		finish = text(finish)
	}
	return fmt.Sprintf(`{"id":"chatcmpl-%d","object":"chat.completion","created":1700000000,"model":%s,"choices":[{"index":0,"message":{"role":"assistant",%s},"finish_reason":%s}],"usage":%s}`,
		r.N, text(r.Model), members, finish, usage)
}

// Answer gives a plain answer that says s.
func (r *Request) Answer(s string) string { return r.Whole(`"content":`+text(s), "stop") }

// Problem gives an error object of the dialect.
func Problem(message, kind, code string) string {
	return fmt.Sprintf(`{"error":{"message":%s,"type":%s,"param":null,"code":%s}}`, text(message), text(kind), text(code))
}

// events are all events of a streamed answer that says s, in three pieces,
// without [DONE].
func (r *Request) events(s string) []string {
	runes := []rune(s)
	third := (len(runes) + 2) / 3
	list := []string{r.Role()}
	for len(runes) > 0 {
		n := min(third, len(runes))
		list = append(list, r.Said(string(runes[:n])))
		runes = runes[n:]
	}
	list = append(list, r.Finish())
	if r.Usage {
		list = append(list, r.Counts())
	}
	return list
}

// Healthy answers as a good provider does, streamed or plain as asked.
func Healthy(s string) Play {
	return func(x *Exchange) {
		if !x.Request.Stream {
			x.Respond(http.StatusOK, "application/json", x.Request.Answer(s))
			return
		}
		x.Open()
		for _, e := range x.Request.events(s) {
			x.Event(e)
		}
		x.Event("[DONE]")
		x.End()
	}
}

// Refusal answers with a status and a body, streamed or not.
func Refusal(status int, body string, headers ...string) Play {
	return func(x *Exchange) { x.Respond(status, "application/json", body, headers...) }
}

// ToolCalls answers with two parallel tool calls, streamed in pieces.
func ToolCalls() Play {
	const first, second = `{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":""}}`,
		`{"index":1,"id":"call_2","type":"function","function":{"name":"time","arguments":""}}`
	return func(x *Exchange) {
		r := &x.Request
		if !r.Stream {
			x.Respond(http.StatusOK, "application/json", r.Whole(`"content":null,"tool_calls":[`+
				`{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Pune\"}"}},`+
				`{"id":"call_2","type":"function","function":{"name":"time","arguments":"{}"}}]`, "tool_calls"))
			return
		}
		x.Open()
		x.Event(r.Event(`{"role":"assistant","content":null,"tool_calls":[`+first+`,`+second+`]}`, ""))
		for _, piece := range []string{`{\"city\":`, `\"Pune\"}`} {
			x.Event(r.Event(`{"tool_calls":[{"index":0,"function":{"arguments":"`+piece+`"}}]}`, ""))
		}
		x.Event(r.Event(`{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]}`, ""))
		x.Event(r.Event(`{}`, "tool_calls"))
		if r.Usage {
			x.Event(r.Counts())
		}
		x.Event("[DONE]")
		x.End()
	}
}

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return b.String()
}

// zippedEvents sends events as one gzip stream, flushed after each.
func zippedEvents(x *Exchange, events []string) {
	x.Open("Content-Encoding: gzip")
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for _, e := range events {
		_, _ = z.Write([]byte("data: " + e + "\n\n"))
		_ = z.Flush()
		x.Chunk(b.String())
		b.Reset()
	}
	_ = z.Close()
	x.Chunk(b.String())
	x.End()
}

// bomb is gzip of so many MiB of blanks, made of equal members so that a test
// does not spend its time on packing.
func bomb(mib int) string { return strings.Repeat(zipped(strings.Repeat(" ", 1<<20)), mib) }
