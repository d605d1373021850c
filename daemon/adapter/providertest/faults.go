package providertest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Then is what must come of a fault when another, healthy option follows.
type Then string

// What must come of a fault.
const (
	Answers Then = "answers" // no fault for a good client: this option's answer reaches the caller
	Next    Then = "next"    // the next option answers; nothing of this one reaches the caller
	Breaks  Then = "breaks"  // output has reached the caller: an error event, and no other option
	Stops   Then = "stops"   // the caller gets the refusal; no other option is asked
)

// Expect is what must come of a fault in one mode.
type Expect struct {
	Class chain.Class // of the attempt, as the walk reports it
	Then  Then
}

// Wait is what an attempt must report of the upstream's Retry-After.
type Wait struct {
	Given       bool
	Least, Most time.Duration
}

// Fault is one way for a provider to go wrong.
type Fault struct {
	Name     string
	Streamed Expect
	Plain    Expect
	Hangs    bool   // it never ends by itself: only a limit of the walk gives it its class
	Refuses  bool   // nobody listens; Play is nil
	Retry    Wait   // for statuses
	Text     string // what the caller gets to read where it Answers; "" means [Text]
	Play     Play
}

// Text is what faults that answer say. It is longer than one byte a character.
const Text = "Grüße, 世界: a quick answer 🎡 in several pieces."

// Start starts a provider that has this fault and no other, at every request.
func (f Fault) Start(t testing.TB) *Provider {
	t.Helper()
	if f.Refuses {
		return Refusing(t)
	}
	return New(t, f.Play)
}

var (
	answers     = Expect{chain.OK, Answers}
	unreachable = Expect{chain.Unreachable, Next}
	timeout     = Expect{chain.Timeout, Next}
	badAnswer   = Expect{chain.BadAnswer, Next}
	status      = Expect{chain.Status, Next}
	rateLimited = Expect{chain.RateLimited, Next}
	credentials = Expect{chain.Credentials, Next}
	callerError = Expect{chain.CallerError, Stops}
	tooLong     = Expect{chain.ContextLength, Next}
	lacking     = Expect{chain.Feature, Next}
	filtered    = Expect{chain.Filtered, Stops}
	cut         = Expect{chain.Cut, Breaks}
)

// Faults gives every fault that is played, by a name of its own. The list is the same each
// time, and made when it is first asked for: its large answers are no load on test
// binaries that play none of them.
var Faults = sync.OnceValue(func() []Fault {
	return slices.Concat(connectionFaults(), emptyFaults(), shapeFaults(), statusFaults(), brokenFaults(), framings(), largeFaults(), slowFaults())
})

// modes plays one thing for streams and another for plain calls.
func modes(streamed, plain Play) Play {
	return func(x *Exchange) {
		if x.Request.Stream {
			streamed(x)
		} else {
			plain(x)
		}
	}
}

// reply is a plain answer with status 200.
func reply(body string) Play { return Refusal(http.StatusOK, body) }

// connectionFaults never give an answer.
func connectionFaults() []Fault {
	return []Fault{
		{Name: "refuse", Streamed: unreachable, Plain: unreachable, Refuses: true},
		{Name: "reset", Streamed: unreachable, Plain: unreachable, Play: (*Exchange).Reset},
		{Name: "close after reading the request", Streamed: unreachable, Plain: unreachable, Play: (*Exchange).Drop},
		{Name: "garbage instead of http", Streamed: unreachable, Plain: unreachable, Play: func(x *Exchange) {
			x.Raw("220 smtp.example ready\r\n")
			x.Drop()
		}},
		{Name: "hang before headers", Streamed: timeout, Plain: timeout, Hangs: true, Play: (*Exchange).Hang},
		{Name: "hang after headers", Streamed: timeout, Plain: timeout, Hangs: true, Play: modes(
			func(x *Exchange) { x.Open(); x.Hang() },
			func(x *Exchange) {
				x.Head(http.StatusOK, "Content-Type: application/json", "Content-Length: 400")
				x.Hang()
			})},
	}
}

// drip sends s again and again, one pace apart, until the client has gone.
func drip(headers []string, s func(r *Request) string) Play {
	return func(x *Exchange) {
		x.Head(http.StatusOK, append(headers, "Transfer-Encoding: chunked")...)
		for piece := s(&x.Request); x.Pause(1); {
			x.Chunk(piece)
		}
		x.broken.Store(true)
	}
}

// emptyFaults send bytes that are no output.
func emptyFaults() []Fault {
	events, plain := []string{"Content-Type: text/event-stream"}, []string{"Content-Type: application/json"}
	blanks := drip(plain, func(*Request) string { return " " })
	always := func(s string) func(*Request) string { return func(*Request) string { return s } }
	return []Fault{
		{Name: "comments only", Streamed: timeout, Plain: timeout, Hangs: true, Play: modes(drip(events, always(": keep-alive\n\n")), blanks)},
		{Name: "empty deltas for ever", Streamed: timeout, Plain: timeout, Hangs: true, Play: modes(drip(events, func(r *Request) string {
			return "data: " + r.Event(`{"content":""}`, "") + "\n\n"
		}), blanks)},
		{Name: "role only, then error", Streamed: badAnswer, Plain: badAnswer, Play: modes(func(x *Exchange) {
			x.Open()
			x.Event(x.Request.Role())
			x.Event(Problem("overloaded", "server_error", "overloaded"))
			x.End()
		}, reply(Problem("overloaded", "server_error", "overloaded")))},
		{Name: "role only, then end", Streamed: badAnswer, Plain: badAnswer, Play: modes(func(x *Exchange) {
			x.Open()
			x.Event(x.Request.Role())
			x.End()
		}, func(x *Exchange) {
			x.Respond(http.StatusOK, "application/json", x.Request.Whole(`"content":null`, ""))
		})},
		{Name: "role only, then cut", Streamed: unreachable, Plain: unreachable, Play: modes(func(x *Exchange) {
			x.Open()
			x.Event(x.Request.Role())
			x.Drop()
		}, half)},
		{Name: "finish without content", Streamed: badAnswer, Plain: badAnswer, Play: modes(func(x *Exchange) {
			x.Open()
			x.Event(x.Request.Role())
			x.Event(x.Request.Finish())
			x.Event("[DONE]")
			x.End()
		}, func(x *Exchange) {
			x.Respond(http.StatusOK, "application/json", x.Request.Whole(`"content":""`, "stop"))
		})},
		{Name: "done at once", Streamed: badAnswer, Plain: badAnswer, Play: modes(func(x *Exchange) {
			x.Open()
			x.Event("[DONE]")
			x.End()
		}, reply(`{"id":"x","object":"chat.completion","choices":[]}`))},
		{Name: "filtered without content", Streamed: filtered, Plain: filtered, Play: modes(func(x *Exchange) {
			x.Open()
			x.Event(x.Request.Event(`{"role":"assistant"}`, "content_filter"))
			x.Event("[DONE]")
			x.End()
		}, func(x *Exchange) {
			x.Respond(http.StatusOK, "application/json", x.Request.Whole(`"content":null`, "content_filter"))
		})},
	}
}

// shapeFaults are answers with status 200 that are none.
func shapeFaults() []Fault {
	bad := func(name string, p Play) Fault {
		return Fault{Name: name, Streamed: badAnswer, Plain: badAnswer, Play: p}
	}
	eventsOf := func(s string) Play {
		return func(x *Exchange) {
			x.Open()
			x.Chunk(s)
			x.End()
		}
	}
	page := "<!doctype html><title>Sign in</title><p>Welcome to the hotel network."
	return []Fault{
		bad("200 with error", reply(Problem("something broke", "server_error", "internal"))),
		bad("200 with error as event", modes(eventsOf("data: "+Problem("something broke", "server_error", "internal")+"\n\n"),
			reply(`{"object":"error","message":"something broke","type":"server_error","code":500}`))),
		bad("200 with event called error", modes(eventsOf("event: error\ndata: {\"message\":\"something broke\"}\n\n"), reply(`{"error":"something broke"}`))),
		bad("200 with html", func(x *Exchange) { x.Respond(http.StatusOK, "text/html; charset=utf-8", page) }),
		bad("200 with html declared as asked", modes(eventsOf(page), reply(page))),
		bad("200 with null", modes(eventsOf("data: null\n\n"), reply("null"))),
		bad("200 with list", modes(eventsOf("data: []\n\n"), reply("[]"))),
		bad("200 with number", modes(eventsOf("data: 42\n\n"), reply("42"))),
		bad("200 with empty object", modes(eventsOf("data: {}\n\n"), reply("{}"))),
		bad("200 empty", modes(eventsOf(""), reply(""))),
		bad("204", func(x *Exchange) { x.Head(http.StatusNoContent) }),
		bad("200 with wrong content type", modes(
			func(x *Exchange) {
				x.Respond(http.StatusOK, "text/plain", "data: "+strings.Join(x.Request.events(Text), "\n\ndata: ")+"\n\n")
			},
			func(x *Exchange) { x.Respond(http.StatusOK, "text/plain", x.Request.Answer(Text)) })),
		bad("200 with wrong charset", modes(
			func(x *Exchange) {
				x.Respond(http.StatusOK, "text/event-stream; charset=utf-16", "data: "+strings.Join(x.Request.events(Text), "\n\ndata: ")+"\n\n")
			},
			func(x *Exchange) {
				x.Respond(http.StatusOK, "application/json; charset=utf-16", x.Request.Answer(Text))
			})),
		bad("the other kind of answer", modes(
			func(x *Exchange) { x.Respond(http.StatusOK, "application/json", x.Request.Answer(Text)) },
			func(x *Exchange) {
				x.Open()
				for _, e := range x.Request.events(Text) {
					x.Event(e)
				}
				x.Event("[DONE]")
				x.End()
			})),
		bad("unknown content encoding", modes(
			func(x *Exchange) { x.Open("Content-Encoding: br"); x.Chunk("\x0b\x02\x80"); x.End() },
			func(x *Exchange) {
				x.Respond(http.StatusOK, "application/json", "\x0b\x02\x80", "Content-Encoding: br")
			})),
		bad("gzip that is none", modes(
			func(x *Exchange) { x.Open("Content-Encoding: gzip"); x.Chunk("data: {}\n\n-------"); x.End() },
			func(x *Exchange) {
				x.Respond(http.StatusOK, "application/json", "{\"choices\":[]}", "Content-Encoding: gzip")
			})),
		bad("gzip bomb", modes(
			func(x *Exchange) { x.Open("Content-Encoding: gzip"); x.Chunk(bomb(32)); x.End() },
			func(x *Exchange) {
				x.Respond(http.StatusOK, "application/json", bomb(32), "Content-Encoding: gzip")
			})),
	}
}

// statusFaults are refusals by status.
func statusFaults() []Fault {
	var list []Fault
	add := func(name string, e Expect, w Wait, p Play) {
		list = append(list, Fault{Name: name, Streamed: e, Plain: e, Retry: w, Play: p})
	}
	of := func(code int, e Expect) {
		add(fmt.Sprint(code), e, Wait{}, Refusal(code, Problem(fmt.Sprintf("refused with %d", code), "some_error", "some_code")))
	}
	for _, c := range []int{404, 405, 408, 409, 410, 413, 418, 500, 501, 502, 503, 504} {
		of(c, status)
	}
	for _, c := range []int{401, 402, 403} {
		of(c, credentials)
	}
	of(400, callerError)
	of(422, callerError)
	of(529, rateLimited)
	add("302", status, Wait{}, Refusal(302, "", "Location: http://127.0.0.1:1/elsewhere"))

	busy := Problem("slow down", "rate_limit_error", "rate_limit_exceeded")
	second := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	exactly := func(n float64) Wait { return Wait{true, second(n), second(n)} }
	add("429", rateLimited, Wait{}, Refusal(429, busy))
	for _, r := range []struct {
		name, value string
		want        Wait
	}{{"seconds", "7", exactly(7)}, {"fraction", "1.5", exactly(1.5)}, {"zero", "0", exactly(0)}, {"past date", "Mon, 02 Jan 2006 15:04:05 GMT", exactly(0)},
		{"garbage", "soon", Wait{}}, {"negative", "-3", Wait{}}, {"exponent", "1e3", Wait{}}} {
		add("429 retry-after "+r.name, rateLimited, r.want, Refusal(429, busy, "Retry-After: "+r.value))
	}
	add("429 retry-after date", rateLimited, Wait{true, 100 * time.Second, 121 * time.Second}, func(x *Exchange) {
		x.Respond(429, "application/json", busy, "Retry-After: "+time.Now().Add(2*time.Minute).UTC().Format(http.TimeFormat))
	})
	add("429 retry-after in milliseconds", rateLimited, exactly(2.5), Refusal(429, busy, "Retry-After-Ms: 2500"))
	add("429 gzip", rateLimited, exactly(3), Refusal(429, zipped(busy), "Retry-After: 3", "Content-Encoding: gzip"))
	add("429 hanging body", rateLimited, exactly(4), func(x *Exchange) {
		x.Head(429, "Retry-After: 4", "Content-Length: 100")
		x.Hang()
	})
	add("503 retry-after", status, exactly(5), Refusal(503, busy, "Retry-After: 5"))
	add("404 retry-after", status, exactly(6), Refusal(404, busy, "Retry-After: 6"))

	long := Problem("This model's maximum context length is 4096 tokens. Please reduce the length of the messages.", "invalid_request_error", "context_length_exceeded")
	add("400 context length", tooLong, Wait{}, Refusal(400, long))
	add("400 context length gzip", tooLong, Wait{}, Refusal(400, zipped(long), "Content-Encoding: gzip"))
	add("400 feature", lacking, Wait{}, Refusal(400, Problem("registry/small does not support tools", "api_error", "")))
	add("400 filtered", filtered, Wait{}, Refusal(400, Problem("The response was filtered due to the content management policy.", "invalid_request_error", "content_filter")))
	add("400 without a body", callerError, Wait{}, Refusal(400, ""))
	add("400 as html", callerError, Wait{}, func(x *Exchange) { x.Respond(400, "text/html", "<h1>Bad Request</h1>") })
	return list
}
