package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// provider is a stand-in for a paid service that costs next to nothing: its
// answers are made once, and written as they are, a stream event by event.
type provider struct {
	chunks int // of a streamed answer
	cut    int // where positive, every stream ends after so many chunks, without a finish
}

const answer = "the hub holds the plan, the rim does the work, and a chord joins any two points of it "

// serveProvider answers on the listener until it is closed.
func serveProvider(ln net.Listener, p provider) error {
	plain, stream := [][]byte{p.plain()}, p.stream()
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			p.serve(c, plain, stream)
		}()
	}
}

func (p provider) serve(c net.Conn, plain, stream [][]byte) {
	in := bufio.NewReaderSize(c, 16<<10)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		reply := plain
		if asksForStream(body) {
			reply = stream
		}
		for _, piece := range reply {
			if _, err := c.Write(piece); err != nil {
				return
			}
		}
		if req.Close || p.cut > 0 && asksForStream(body) {
			return
		}
	}
}

// asksForStream looks at the bytes alone; whoever sends them is ours.
func asksForStream(body []byte) bool { return bytes.Contains(body, []byte(`"stream":true`)) }

func (p provider) plain() []byte {
	body := fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"small",`+
		`"choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":500,"completion_tokens":130,"total_tokens":630}}`, strings.Repeat(answer, 7))
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// stream gives the pieces of a streamed answer, one write each.
func (p provider) stream() [][]byte {
	const open = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"small","choices":`
	pieces := [][]byte{[]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")}
	event := func(data string) {
		pieces = append(pieces, fmt.Appendf(nil, "%x\r\ndata: %s\n\n\r\n", len(data)+8, data))
	}
	for i := range p.chunks {
		if p.cut > 0 && i == p.cut {
			return pieces
		}
		event(open + fmt.Sprintf(`[{"index":0,"delta":{"role":"assistant","content":%q},"finish_reason":null}]}`, answer[:24]))
	}
	event(open + `[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
	event(open + `[],"usage":{"prompt_tokens":500,"completion_tokens":130,"total_tokens":630}}`)
	event("[DONE]")
	return append(pieces, []byte("0\r\n\r\n"))
}
