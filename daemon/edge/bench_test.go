//go:build unix

package edge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain/walk"
)

// The benchmarks compare the edge with the least that a handler on net/http can
// be: it reads the body into a pooled buffer, checks nothing, logs nothing and
// writes the same bytes. Both serve the same client over loopback.

const benchEvents = 20

var (
	benchReply = bytes.Repeat([]byte("r"), 900)
	benchEvent = []byte(`{"id":"c1","object":"chat.completion.chunk","created":1,"model":"auto","choices":[{"index":0,"delta":{"content":"steady words"}}]}`)
)

func benchWorker() *fake {
	return &fake{do: func(_ context.Context, w *Work, deliver walk.Deliver) (walk.Result, error) {
		a := attempt(1)
		if !w.Stream {
			_ = deliver(a, [][]byte{benchReply})
			return answered()
		}
		one := [][]byte{benchEvent}
		for range benchEvents {
			_ = deliver(a, one)
		}
		return answered()
	}}
}

func leanHandler(stream bool) http.Handler {
	bodies := sync.Pool{New: func() any { return new(bytes.Buffer) }}
	framed := append(append([]byte("data: "), benchEvent...), "\n\n"...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := bodies.Get().(*bytes.Buffer)
		defer bodies.Put(body)
		body.Reset()
		_, _ = body.ReadFrom(r.Body)
		if !stream {
			w.Header()["Content-Type"] = jsonType
			w.Header().Set("Content-Length", fmt.Sprint(len(benchReply)))
			_, _ = w.Write(benchReply)
			return
		}
		w.Header()["Content-Type"] = streamType
		f := w.(http.Flusher)
		for range benchEvents {
			_, _ = w.Write(framed)
			f.Flush()
		}
		_, _ = w.Write(doneEvent)
	})
}

// cpu runs loop and reports the processor time that the process spent on each
// round: on a busy machine it is the steadier figure.
func cpu(b *testing.B, loop func()) {
	spent := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := spent()
	loop()
	b.ReportMetric(float64(spent()-before)/float64(b.N), "cpu-ns/op")
}

func benchmarkOver(b *testing.B, body []byte, serve func(l net.Listener)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go serve(l)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	url := "http://" + l.Addr().String() + "/v1/chat/completions"
	b.ReportAllocs()
	cpu(b, func() {
		for b.Loop() {
			request(b, client, url, body)
		}
	})
}

func request(b *testing.B, client *http.Client, url string, body []byte) {
	req, err := http.NewRequest("POST", url, bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header["Authorization"] = []string{"Bearer " + testKey}
	req.Header["Content-Type"] = jsonType
	res, err := client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	if res.StatusCode != 200 {
		b.Fatal(res.Status)
	}
}

func BenchmarkServe(b *testing.B) {
	plain := chatBody(5, 400)
	for _, c := range []struct {
		name   string
		body   []byte
		stream bool
	}{{"plain", plain, false}, {"stream of 20", append([]byte(`{"stream":true,`), plain[1:]...), true}} {
		b.Run(c.name+"/lean", func(b *testing.B) {
			srv := &http.Server{Handler: leanHandler(c.stream)}
			defer srv.Close()
			benchmarkOver(b, c.body, func(l net.Listener) { _ = srv.Serve(l) })
		})
		b.Run(c.name+"/edge", func(b *testing.B) {
			e := newEdge(b, benchWorker(), func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(io.Discard, nil)) })
			defer e.Shutdown(context.Background())
			benchmarkOver(b, c.body, func(l net.Listener) { _ = e.Serve(l) })
		})
	}
}

// nowhere is a ResponseWriter that takes everything at no cost.
type nowhere struct{ h http.Header }

func (n *nowhere) Header() http.Header         { return n.h }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}
func (n *nowhere) FlushError() error           { return nil }

func (n *nowhere) SetReadDeadline(time.Time) error  { return nil }
func (n *nowhere) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkHandler is the edge alone: what it costs beside net/http.
func BenchmarkHandler(b *testing.B) {
	plain := chatBody(5, 400)
	for _, c := range []struct {
		name string
		body []byte
	}{{"plain", plain}, {"stream of 20", append([]byte(`{"stream":true,`), plain[1:]...)}} {
		b.Run(c.name, func(b *testing.B) {
			e := newEdge(b, benchWorker(), func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(io.Discard, nil)) })
			r := ask("POST", "/v1/chat/completions", string(c.body))
			w, body := &nowhere{http.Header{}}, bytes.NewReader(c.body)
			r.Body, r.ContentLength = io.NopCloser(body), int64(len(c.body))
			b.ReportAllocs()
			cpu(b, func() {
				for b.Loop() {
					body.Reset(c.body)
					clear(w.h)
					e.ServeHTTP(w, r)
				}
			})
		})
	}
}
