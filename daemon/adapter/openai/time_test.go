package openai

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

// overPipe runs one streamed call in fake time against a server on a pipe, and
// gives how long it took. serve writes the events; when it returns, the
// connection stays open until the client closes it.
func overPipe(t *testing.T, serve func(send func(data string))) (o walk.Outcome, chunks int, took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Config{})
		defer a.Close()
		a.transport.plain.DialContext = func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				in := bufio.NewReader(server)
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				fmt.Fprint(server, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
				serve(func(data string) { fmt.Fprintf(server, "data: %s\n\n", data) })
				_, _ = in.ReadByte()
			}()
			return client, nil
		}
		begin := time.Now()
		o = a.Run(t.Context(), chat("http://127.0.0.1:1/v1", true), func(walk.Chunk) error { chunks++; return nil })
		took = time.Since(begin)
	})
	return o, chunks, took
}

const (
	thinks   = `{"choices":[{"index":0,"delta":{"reasoning_content":"hmm"}}]}`
	says     = `{"choices":[{"index":0,"delta":{"content":"word"}}]}`
	finishes = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
)

func TestTheAdapterHasNoPatienceOfItsOwn(t *testing.T) {
	o, chunks, took := overPipe(t, func(send func(string)) {
		for range 10 {
			time.Sleep(30 * time.Minute)
			send(thinks)
		}
		send(says)
		send(finishes)
		send("[DONE]")
	})
	if o.Class != chain.OK || chunks != 12 || took < 5*time.Hour {
		t.Errorf("%+v, %d chunks in %v", o, chunks, took)
	}
}

func TestAFinishedAnswerDoesNotWaitForItsServer(t *testing.T) {
	for name, tt := range map[string]struct {
		last []string
		want time.Duration
	}{
		"silent behind [DONE]":             {[]string{says, finishes, "[DONE]"}, drainWait},
		"silent behind the finish reason":  {[]string{says, finishes}, tailWait},
		"the usage behind a little pause":  {[]string{says, finishes, `{"choices":[],"usage":{"prompt_tokens":1}}`}, tailWait},
		"an empty delta behind the finish": {[]string{says, finishes, `{"choices":[]}`}, tailWait},
	} {
		o, _, took := overPipe(t, func(send func(string)) {
			for _, e := range tt.last {
				send(e)
			}
		})
		if o.Class != chain.OK || took != tt.want {
			t.Errorf("%s: %+v after %v, want %v", name, o, took, tt.want)
		}
	}
}
