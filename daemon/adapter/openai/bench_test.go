package openai

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

const benchChunks = 100

var benchEvent = `{"id":"chatcmpl-123456789","object":"chat.completion.chunk","created":1700000000,"model":"small","system_fingerprint":"fp_44709d6fcb",` +
	`"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}`

// benchServer is a fast upstream: a short plain answer, or a stream of chunks,
// each flushed.
func benchServer(b *testing.B) *httptest.Server {
	answer := []byte(strings.Replace(benchEvent, `"delta":{"content":" word"}`, `"message":{"role":"assistant","content":"`+strings.Repeat("word ", 100)+`"}`, 1))
	event := []byte("data: " + benchEvent + "\n\n")
	last := []byte("data: " + strings.Replace(benchEvent, `"finish_reason":null`, `"finish_reason":"stop"`, 1) + "\n\ndata: [DONE]\n\n")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(answer)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		f := w.(http.Flusher)
		for range benchChunks {
			_, _ = w.Write(event)
			f.Flush()
		}
		_, _ = w.Write(last)
	}))
	b.Cleanup(s.Close)
	return s
}

// processor reports the processor time of an operation, of all goroutines: on a
// busy machine it is the figure to compare.
func processor(b *testing.B) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begin := used()
	b.Cleanup(func() { b.ReportMetric(float64(used()-begin)/float64(b.N), "cpu-ns/op") })
}

// BenchmarkCall compares a call of the adapter with the floor: a request on the
// same transport whose answer is copied away unread. Compare the figures of one
// run only; the server's work is in both.
func BenchmarkCall(b *testing.B) {
	for _, mode := range []string{"plain", "stream"} {
		s := benchServer(b)
		c := chat(s.URL+"/v1", mode == "stream")
		b.Run(mode+"/floor", func(b *testing.B) {
			a := newAdapter(b)
			u, _ := join(s.URL+"/v1", completionsPath)
			buf := make([]byte, 32<<10)
			b.ReportAllocs()
			processor(b)
			for b.Loop() {
				r := (&http.Request{Method: "POST", URL: u, Host: u.Host, Header: http.Header{"Content-Type": contentType}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
					Body: io.NopCloser(bytes.NewReader(c.Request.Body)), ContentLength: int64(len(c.Request.Body))}).WithContext(b.Context())
				resp, err := a.transport.roundTrip(r)
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = resp.Body.Read(buf)
				}
				_ = resp.Body.Close()
			}
		})
		b.Run(mode+"/adapter", func(b *testing.B) {
			a := newAdapter(b)
			b.ReportAllocs()
			processor(b)
			n := 0
			for b.Loop() {
				if o := a.Run(b.Context(), c, func(walk.Chunk) error { n++; return nil }); o.Class != chain.OK {
					b.Fatal(o.Class)
				}
			}
		})
	}
}

// BenchmarkChunk is the work on one event of a stream, from bytes to a chunk.
func BenchmarkChunk(b *testing.B) {
	for _, size := range []int{0, 4 << 10} {
		event := strings.Replace(benchEvent, " word", " word"+strings.Repeat("x", size), 1)
		text := []byte(strings.Repeat("data: "+event+"\n\n", 64))
		b.Run(fmt.Sprintf("%d bytes", len(event)), func(b *testing.B) {
			w := answer{reading: reading{part: "delta", model: quote("auto"), hide: true}}
			b.SetBytes(int64(len(event)))
			b.ReportAllocs()
			processor(b)
			var e *events
			for b.Loop() {
				if e == nil {
					e = newEvents(bytes.NewReader(text))
				}
				data, err := e.next()
				if err != nil {
					e.free()
					e = nil
					continue
				}
				f, ok := w.read(data)
				if !ok || !f.meaningful {
					b.Fatal("not read")
				}
				_ = w.oneLine(&f, data)
			}
		})
	}
}

// BenchmarkPrepare is the work on one request of 8 KB.
func BenchmarkPrepare(b *testing.B) {
	body := []byte(`{"model":"auto","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("hello world ", 680) + `"}]}`)
	model := quote("small")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := prepare(body, model, true, true); err != nil {
			b.Fatal(err)
		}
	}
}
