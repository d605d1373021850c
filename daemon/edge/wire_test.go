package edge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a listener without sockets, so that real servers and clients run in
// a time bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return pipeAddr{} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// rig is an Edge being served in a bubble and a client of it.
type rig struct {
	t      *testing.T
	edge   *Edge
	net    *pipes
	client *http.Client
	served chan error
}

func newRig(t *testing.T, do func(ctx context.Context, w *Work, deliver walk.Deliver) (walk.Result, error), change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, edge: newEdge(t, &fake{do: do}, change...), net: newPipes(), served: make(chan error, 1)}
	go func() { r.served <- r.edge.Serve(r.net) }()
	r.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.net.dial(ctx) }}}
	return r
}

// close shuts the rig down and fails the test if that is not clean.
func (r *rig) close() {
	r.t.Helper()
	r.client.CloseIdleConnections()
	if err := r.edge.Shutdown(context.Background()); err != nil {
		r.t.Error(err)
	}
	if err := <-r.served; err != nil {
		r.t.Error(err)
	}
}

func (r *rig) post(ctx context.Context, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", "http://localhost/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testKey)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return r.client.Do(req)
}

// mustPost is post where no error may be.
func (r *rig) mustPost(body string, header ...string) *http.Response {
	r.t.Helper()
	res, err := r.post(context.Background(), body, header...)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// raw opens a connection and sends head.
func (r *rig) raw(head string) net.Conn {
	r.t.Helper()
	c, err := r.net.dial(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.WriteString(c, head); err != nil {
		r.t.Fatal(err)
	}
	return c
}

const streamReq = `{"stream":true,"model":"auto","messages":[{"role":"user","content":"hello"}]}`

func answered() (walk.Result, error) {
	return walk.Result{End: walk.Answered, Option: "alpha/small", Attempts: 1, Delivered: true}, nil
}

func event(s string) [][]byte { return [][]byte{[]byte(s)} }

func slurp(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("after %q: %v", b, err)
	}
	return string(b)
}

func TestEventsLeaveAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
			for i := range 5 {
				time.Sleep(3 * time.Second)
				if err := deliver(attempt(1), event(fmt.Sprintf(`{"n":%d}`, i))); err != nil {
					t.Error(err)
				}
			}
			return answered()
		})
		defer r.close()
		began := time.Now()
		res := r.mustPost(streamReq)
		lines := bufio.NewScanner(res.Body)
		var got []string
		for lines.Scan() {
			if lines.Text() != "" {
				got = append(got, fmt.Sprintf("%v %s", time.Since(began), lines.Text()))
			}
		}
		want := `3s data: {"n":0}|6s data: {"n":1}|9s data: {"n":2}|12s data: {"n":3}|15s data: {"n":4}|15s data: [DONE]`
		if g := strings.Join(got, "|"); g != want {
			t.Errorf("got  %s\nwant %s", g, want)
		}
	})
}

func TestKeepAlives(t *testing.T) {
	const ka = ": keep-alive\n\n"
	broken := walk.Result{End: walk.AllTimedOut, Attempts: 1, Failures: []chain.Failure{{Option: "alpha/small", Class: chain.Timeout}}}
	for _, c := range []struct {
		name   string
		silent time.Duration
		event  bool
		end    walk.Result
		status int
		want   string // of a 200; the rest of the body after it is not compared where it ends in …
	}{
		{"none before ten seconds", 9900 * time.Millisecond, true, walk.Result{End: walk.Answered}, 200, "data: {}\n\ndata: [DONE]\n\n"},
		{"one after ten seconds", 11 * time.Second, true, walk.Result{End: walk.Answered}, 200, ka + "data: {}\n\ndata: [DONE]\n\n"},
		{"one each ten seconds", 35 * time.Second, true, walk.Result{End: walk.Answered}, 200, ka + ka + ka + "data: {}\n\ndata: [DONE]\n\n"},
		{"an error before the first keeps its status", 9900 * time.Millisecond, false, broken, 504, ""},
		{"an error after the first is an event", 11 * time.Second, false, broken, 200, ka + `data: {"error":{"attempts":[{"class":"timeout","option":"alpha/small"}],"code":"upstream_timeout","message":"no option answered in time (alpha/small: timeout)","request_id":"r1","type":"upstream_error"}}` + "\n\ndata: [DONE]\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(_ context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
					time.Sleep(c.silent)
					if c.event {
						if err := deliver(attempt(1), event("{}")); err != nil {
							t.Error(err)
						}
					}
					return c.end, nil
				})
				defer r.close()
				res := r.mustPost(streamReq, headerRequestID, "r1")
				got := slurp(t, res.Body)
				if res.StatusCode != c.status {
					t.Fatalf("status %d, want %d: %s", res.StatusCode, c.status, got)
				}
				if c.status == 200 && normal(got) != normal(c.want) {
					t.Errorf("got  %q\nwant %q", got, c.want)
				}
			})
		})
	}
}

// normal makes the order of an error event's members irrelevant.
func normal(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if rest, ok := strings.CutPrefix(l, `data: {"error"`); ok {
			lines[i] = "data: " + sortedMembers(`{"error"`+rest)
		}
	}
	return strings.Join(lines, "\n")
}

func TestBrokenStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
			if err := deliver(attempt(1), event(`{"n":1}`)); err != nil {
				t.Error(err)
			}
			return walk.Result{End: walk.Broken, Option: "alpha/small", Attempts: 1, Delivered: true}, nil
		})
		defer r.close()
		got := slurp(t, r.mustPost(streamReq, headerRequestID, "r1").Body)
		want := "data: {\"n\":1}\n\n" +
			`data: {"error":{"code":"upstream_error","message":"the upstream failed in the middle of its answer","request_id":"r1","type":"upstream_error"}}` +
			"\n\ndata: [DONE]\n\n"
		if normal(got) != normal(want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

func TestCallerLeaves(t *testing.T) {
	for _, c := range []struct {
		name   string
		body   string
		events int
	}{
		{"plain", helloReq, 0},
		{"stream before the first event", streamReq, 0},
		{"stream after the first event", streamReq, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := make(chan time.Time, 1)
				r := newRig(t, func(ctx context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
					for range c.events {
						if err := deliver(attempt(1), event("{}")); err != nil {
							t.Error(err)
						}
					}
					<-ctx.Done()
					left <- time.Now()
					return walk.Result{End: walk.Left}, nil
				})
				defer r.close()
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(7*time.Second, cancel)
				began := time.Now()
				res, err := r.post(ctx, c.body)
				if c.events > 0 {
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadAll(res.Body); !errors.Is(err, context.Canceled) {
						t.Errorf("reading ended with %v", err)
					}
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, %v", res, err)
				}
				if d := (<-left).Sub(began); d != 7*time.Second {
					t.Errorf("the worker learned of it after %s, want 7s", d)
				}
			})
		})
	}
}

// A caller that stops reading is cut when one write has taken 30 s, however
// long the answer took before.
func TestStuckReader(t *testing.T) {
	for _, body := range []string{helloReq, streamReq} {
		synctest.Test(t, func(t *testing.T) {
			result := make(chan error, 1)
			var took time.Duration
			r := newRig(t, func(_ context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
				time.Sleep(9 * time.Second)
				began := time.Now()
				err := deliver(attempt(1), event(`"`+strings.Repeat("x", 100_000)+`"`))
				took = time.Since(began)
				result <- err
				return walk.Result{End: walk.Left}, nil
			})
			defer r.close()
			c := r.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + testKey + "\r\nContent-Type: application/json\r\n" +
				fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
			defer c.Close()
			if err := <-result; err == nil {
				t.Error("the write succeeded")
			}
			if took != 30*time.Second {
				t.Errorf("cut after %s, want 30s", took)
			}
		})
	}
}

// twoWay is a connection whose directions can be closed one by one.
type twoWay struct {
	net.Conn          // in: what is read
	out      net.Conn // what is written
}

func (c twoWay) Write(b []byte) (int, error)         { return c.out.Write(b) }
func (c twoWay) Close() error                        { return errors.Join(c.Conn.Close(), c.out.Close()) }
func (c twoWay) SetWriteDeadline(at time.Time) error { return c.out.SetWriteDeadline(at) }
func (c twoWay) SetDeadline(at time.Time) error {
	return errors.Join(c.Conn.SetReadDeadline(at), c.out.SetWriteDeadline(at))
}

// A caller that closes its half while an answer waits for it to read counts as
// gone at once, not when the write's time is over.
func TestCallerLeavesDuringAWrite(t *testing.T) {
	for _, body := range []string{helloReq, streamReq} {
		synctest.Test(t, func(t *testing.T) {
			result := make(chan error, 1)
			r := newRig(t, func(_ context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
				result <- deliver(attempt(1), event(`"`+strings.Repeat("x", 100_000)+`"`))
				return walk.Result{End: walk.Left}, nil
			})
			defer r.close()
			toServer, serverIn := net.Pipe()
			serverOut, toClient := net.Pipe()
			defer toClient.Close()
			r.net.conns <- twoWay{serverIn, serverOut}
			fmt.Fprintf(toServer, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				testKey, len(body), body)
			synctest.Wait()
			began := time.Now()
			toServer.Close()
			if err := <-result; err == nil || time.Since(began) != 0 {
				t.Errorf("the write ended with %v after %s", err, time.Since(began))
			}
		})
	}
}

// A slow but steady reader gets a large answer whole, though it takes longer
// than one write may.
func TestSlowReaderOfALargeAnswer(t *testing.T) {
	for _, body := range []string{helloReq, streamReq} {
		synctest.Test(t, func(t *testing.T) {
			large := `"` + strings.Repeat("x", 10*writePiece) + `"`
			r := newRig(t, func(_ context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
				if err := deliver(attempt(1), event(large)); err != nil {
					t.Error(err)
				}
				return answered()
			})
			defer r.close()
			began := time.Now()
			res := r.mustPost(body)
			buf, total := make([]byte, writePiece), 0
			for {
				n, err := io.ReadFull(res.Body, buf)
				total += n
				if err != nil {
					break
				}
				time.Sleep(20 * time.Second)
			}
			if d := time.Since(began); total < len(large) || d < 3*time.Minute {
				t.Errorf("%d of %d bytes after %s", total, len(large), d)
			}
		})
	}
}

// After a long silent stream the connection is as good as new: no deadline of
// the last answer cuts the next one.
func TestConnectionAfterALongStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		r := newRig(t, func(_ context.Context, w *Work, deliver walk.Deliver) (walk.Result, error) {
			if w.Stream {
				time.Sleep(50 * time.Second)
			}
			if err := deliver(attempt(1), event("{}")); err != nil {
				t.Error(err)
			}
			return answered()
		})
		defer r.close()
		tr := r.client.Transport.(*http.Transport)
		dial := tr.DialContext
		tr.DialContext = func(ctx context.Context, n, a string) (net.Conn, error) { dials.Add(1); return dial(ctx, n, a) }
		tr.ExpectContinueTimeout = time.Minute
		slurp(t, r.mustPost(streamReq).Body)
		time.Sleep(40 * time.Second)
		res := r.mustPost(helloReq, "Expect", "100-continue")
		if got := slurp(t, res.Body); got != "{}" || dials.Load() != 1 {
			t.Errorf("got %q over %d connections", got, dials.Load())
		}
	})
}

// What is refused before the body is read is answered while the body is still
// at the caller.
// Aborts at random moments, before and after the first event, streamed and
// plain, leave nothing behind: the bubble ends only when every goroutine did.
