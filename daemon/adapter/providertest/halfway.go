package providertest

import (
	"fmt"
	"net/http"
	"strings"
)

// half sends half of a plain answer and closes the connection.
func half(x *Exchange) {
	a := x.Request.Answer(Text)
	x.Head(http.StatusOK, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(a)))
	x.Raw(a[:len(a)/2])
	x.Drop()
}

// begin opens a stream and says half of the text.
func begin(x *Exchange) {
	x.Open()
	for _, e := range x.Request.events(Text)[:3] {
		x.Event(e)
	}
}

// brokenFaults fail after output was streamed.
func brokenFaults() []Fault {
	then := func(f func(x *Exchange)) Play { return func(x *Exchange) { begin(x); f(x) } }
	return []Fault{
		{Name: "cut after half the tokens", Streamed: cut, Plain: unreachable, Play: modes(then((*Exchange).Drop), half)},
		{Name: "reset mid-answer", Streamed: cut, Plain: unreachable, Play: modes(then(func(x *Exchange) {
			x.Pause(5) // what was sent has to be read before the reset throws it away
			x.Reset()
		}), func(x *Exchange) {
			x.Head(http.StatusOK, "Content-Type: application/json", "Content-Length: 400")
			x.Raw(`{"id":`)
			x.Pause(5)
			x.Reset()
		})},
		{Name: "stall mid-answer", Streamed: cut, Plain: timeout, Hangs: true, Play: modes(then((*Exchange).Hang), func(x *Exchange) {
			x.Head(http.StatusOK, "Content-Type: application/json", "Content-Length: 400")
			x.Raw(`{"id":`)
			x.Hang()
		})},
		{Name: "error event mid-answer", Streamed: cut, Plain: badAnswer, Play: modes(then(func(x *Exchange) {
			x.Event(Problem("the GPU is on fire", "server_error", "internal"))
			x.Event("[DONE]")
			x.End()
		}), reply(Problem("the GPU is on fire", "server_error", "internal")))},
		{Name: "finish reason error", Streamed: cut, Plain: badAnswer, Play: modes(then(func(x *Exchange) {
			x.Event(x.Request.Event(`{}`, "error"))
			x.Event("[DONE]")
			x.End()
		}), func(x *Exchange) {
			x.Respond(http.StatusOK, "application/json", x.Request.Whole(`"content":"half an"`, "error"))
		})},
		{Name: "broken json mid-stream", Streamed: cut, Plain: badAnswer, Play: modes(then(func(x *Exchange) {
			x.Event(`{"choices":[{"index":0,"delta":{"content":"lost`)
			x.Event(x.Request.Finish())
			x.Event("[DONE]")
			x.End()
		}), reply(`{"choices":[{"index":0,"message":{"content":"lost`))},
		{Name: "no finish reason", Streamed: cut, Plain: answers, Play: modes(then((*Exchange).End), func(x *Exchange) {
			x.Respond(http.StatusOK, "application/json", x.Request.Whole(`"content":`+text(Text), ""))
		})},
		{Name: "done without finish reason", Streamed: cut, Plain: answers, Play: modes(then(func(x *Exchange) {
			x.Event("[DONE]")
			x.End()
		}), func(x *Exchange) {
			x.Respond(http.StatusOK, "application/json", x.Request.Whole(`"content":`+text(Text), ""))
		})},
		{Name: "cut behind the finish reason", Streamed: answers, Plain: answers, Play: modes(func(x *Exchange) {
			x.Open()
			for _, e := range x.Request.events(Text) {
				x.Event(e)
			}
			x.Drop()
		}, Healthy(Text))},
	}
}

// framings are well-formed streams that a careless reader gets wrong.
func framings() []Fault {
	var list []Fault
	add := func(name string, frame func(x *Exchange, events []string)) {
		list = append(list, Fault{Name: name, Streamed: answers, Plain: answers, Play: modes(func(x *Exchange) {
			frame(x, append(x.Request.events(Text), "[DONE]"))
		}, Healthy(Text))})
	}
	joined := func(before, after string) func(x *Exchange, events []string) {
		return func(x *Exchange, events []string) {
			x.Open()
			for _, e := range events {
				x.Chunk(before + e + after)
			}
			x.End()
		}
	}
	add("healthy", joined("data: ", "\n\n"))
	add("no [DONE]", func(x *Exchange, events []string) { joined("data: ", "\n\n")(x, events[:len(events)-1]) })
	add("CRLF", joined("data: ", "\r\n\r\n"))
	add("bare CR", joined("data: ", "\r\r"))
	add("mixed line ends", joined("data: ", "\r\n\n"))
	add("no space after the colon", joined("data:", "\n\n"))
	add("comments and other fields", joined(": ping\nid: 7\nretry: 10\nevent: message\nfoo\ndata: ", "\n: pong\n\n"))
	add("byte order mark", func(x *Exchange, events []string) {
		x.Open()
		x.Chunk("\ufeff")
		for _, e := range events {
			x.Event(e)
		}
		x.End()
	})
	add("multi-line data", func(x *Exchange, events []string) {
		x.Open()
		for _, e := range events {
			x.Chunk("data: " + strings.ReplaceAll(e, `,"choices"`, ",\ndata: \"choices\"") + "\n\n")
		}
		x.End()
	})
	add("last event without a blank line", func(x *Exchange, events []string) {
		x.Open()
		for i, e := range events[:len(events)-1] {
			if i > 0 {
				x.Chunk("\n\n")
			}
			x.Chunk("data: " + e)
		}
		x.End()
	})
	add("one byte at a time", func(x *Exchange, events []string) {
		x.Open()
		for _, c := range []byte("data: " + strings.Join(events, "\r\n\r\ndata: ") + "\r\n\r\n") {
			x.Chunk(string([]byte{c}))
		}
		x.End()
	})
	add("all in one write", func(x *Exchange, events []string) {
		x.Open()
		x.Chunk("data: " + strings.Join(events, "\n\ndata: ") + "\n\n")
		x.End()
	})
	add("stays open after [DONE]", func(x *Exchange, events []string) {
		x.Open()
		for _, e := range events {
			x.Event(e)
		}
		x.Hang()
	})
	list = append(list, Fault{Name: "gzip", Streamed: answers, Plain: answers, Play: modes(
		func(x *Exchange) { zippedEvents(x, append(x.Request.events(Text), "[DONE]")) },
		func(x *Exchange) {
			x.Respond(http.StatusOK, "application/json", zipped(x.Request.Answer(Text)), "Content-Encoding: gzip")
		})})
	return list
}

// largeFaults are lines up to and over what a reader must take.
func largeFaults() []Fault {
	var list []Fault
	for _, l := range []struct {
		name     string
		size     int
		streamed Expect
	}{{"line of 70 KB", 70_000, answers}, {"line of 1 MB", 1_000_000, answers}, {"line of 20 MB", 20_000_000, badAnswer}} {
		s := strings.Repeat("x", l.size)
		list = append(list, Fault{Name: l.name, Streamed: l.streamed, Plain: answers, Text: s, Play: modes(func(x *Exchange) {
			x.Open()
			for _, e := range []string{x.Request.Role(), x.Request.Said(s), x.Request.Finish(), "[DONE]"} {
				x.Event(e)
			}
			x.End()
		}, Healthy(s))})
	}
	return append(list, Fault{Name: "line of 20 MB mid-answer", Streamed: cut, Plain: answers, Play: modes(func(x *Exchange) {
		begin(x)
		x.Event(x.Request.Said(strings.Repeat("x", 20_000_000)))
		x.End()
	}, Healthy(Text))})
}

// slowFaults take their time, but are honest.
func slowFaults() []Fault {
	later := func(x *Exchange) {
		for range 40 {
			if !x.Pause(1) {
				return
			}
		}
		Healthy(Text)(x)
	}
	return []Fault{
		{Name: "reasoning before text", Streamed: answers, Plain: answers, Play: modes(func(x *Exchange) {
			x.Open()
			x.Event(x.Request.Role())
			for i := range 40 {
				if !x.Pause(1) {
					return
				}
				name := "reasoning_content"
				if i%2 == 1 {
					name = "reasoning"
				}
				x.Event(x.Request.Event(`{"`+name+`":"hmm "}`, ""))
			}
			for _, e := range x.Request.events(Text)[1:] {
				x.Event(e)
			}
			x.Event("[DONE]")
			x.End()
		}, later)},
		{Name: "slow first token", Streamed: answers, Plain: answers, Play: modes(func(x *Exchange) {
			x.Open()
			x.Event(x.Request.Role())
			for range 40 {
				if !x.Pause(1) {
					return
				}
				x.Chunk(": working on it\n\n")
			}
			for _, e := range x.Request.events(Text)[1:] {
				x.Event(e)
			}
			x.Event("[DONE]")
			x.End()
		}, later)},
	}
}
