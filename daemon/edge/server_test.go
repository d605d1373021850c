package edge

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain/walk"
)

func TestRefusedBeforeTheBody(t *testing.T) {
	for _, c := range []struct{ name, head, status, code string }{
		{"wrong key", "Authorization: Bearer nope\r\nContent-Type: application/json\r\n", "401", "unauthorized"},
		{"no key", "Content-Type: application/json\r\n", "401", "unauthorized"},
		{"two keys", "Authorization: Bearer " + testKey + "\r\nAuthorization: Bearer " + testKey + "\r\nContent-Type: application/json\r\n", "401", "unauthorized"},
		{"content type", "Authorization: Bearer " + testKey + "\r\nContent-Type: text/plain\r\n", "415", "unsupported_media_type"},
		{"encoding", "Authorization: Bearer " + testKey + "\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n", "415", "unsupported_media_type"},
		{"foreign host", "X-Host: evil.example\r\n", "400", "invalid_request"},
		{"header", "Authorization: Bearer " + testKey + "\r\nX-Chordwheel-Bugdet: batch\r\n", "400", "invalid_request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(context.Context, *Work, walk.Deliver) (walk.Result, error) {
					t.Error("work was done")
					return answered()
				})
				defer r.close()
				host := "localhost"
				if c.name == "foreign host" {
					host = "evil.example"
				}
				conn := r.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: " + host + "\r\n" + c.head + "Content-Length: 1000\r\n\r\n")
				defer conn.Close()
				began := time.Now()
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || time.Since(began) != 0 {
					t.Fatalf("%v after %s", err, time.Since(began))
				}
				head, _ := httputil.DumpResponse(res, true)
				got := string(head)
				if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(began) > 2*time.Second {
					t.Errorf("the connection is open: %v after %s", err, time.Since(began))
				}
				if !strings.HasPrefix(got, "HTTP/1.1 "+c.status) || !strings.Contains(got, `"code":"`+c.code+`"`) || !strings.Contains(got, "Connection: close\r\n") {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}

func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, func(_ context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
			<-release
			if err := deliver(attempt(1), event("{}")); err != nil {
				t.Error(err)
			}
			return answered()
		}, func(c *Config) { c.Limits.InFlight = 2 })
		defer r.close()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { slurp(t, r.mustPost(helloReq).Body) })
		}
		synctest.Wait()
		conn := r.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + testKey + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
		if got := slurp(t, conn); !strings.HasPrefix(got, "HTTP/1.1 503") || !strings.Contains(got, `"code":"overloaded"`) || !strings.Contains(got, "Retry-After: 1\r\n") {
			t.Errorf("got %q", got)
		}
		conn.Close()
		if res, err := r.client.Get("http://localhost/healthz"); err != nil || res.StatusCode != 200 {
			t.Errorf("healthz under load: %v, %v", res, err)
		} else {
			res.Body.Close()
		}
		close(release)
		wg.Wait()
		if got := slurp(t, r.mustPost(helloReq).Body); got != "{}" {
			t.Errorf("after the load: %q", got)
		}
	})
}

// Bodies that drip keep nobody out: the slowest gives its place to who sends a whole one.
func TestSlowBodiesKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, answering().do, func(c *Config) { c.Limits.InFlight = 2 })
		defer r.close()
		const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + testKey + "\r\nContent-Type: application/json\r\nContent-Length: 63\r\n\r\n"
		slowest := r.raw(head + helloReq[:1])
		time.Sleep(100 * time.Millisecond)
		slow := r.raw(head + helloReq[:2])
		synctest.Wait()
		early, err := r.post(t.Context(), helloReq)
		if err != nil {
			t.Fatal(err)
		}
		if got := slurp(t, early.Body); early.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("before anybody is slow: %d %s", early.StatusCode, got)
		}
		time.Sleep(950 * time.Millisecond)
		if got := slurp(t, r.mustPost(helloReq).Body); got != whole {
			t.Errorf("a whole request gets %q", got)
		}
		if got := slurp(t, slowest); !strings.HasPrefix(got, "HTTP/1.1 503") || !strings.Contains(got, `"code":"overloaded"`) || !strings.Contains(got, "Retry-After: 1\r\n") {
			t.Errorf("the slowest gets %q", got)
		}
		if _, err := io.WriteString(slow, helloReq[2:]); err != nil {
			t.Fatal(err)
		}
		if res, err := http.ReadResponse(bufio.NewReader(slow), nil); err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("the other one: %v, %v", res, err)
		}
		slow.Close()
		synctest.Wait()
		if n := r.edge.places.inside(); n != 0 || r.edge.places.reading.Len() != 0 {
			t.Errorf("%d places still taken, %d bodies still read", n, r.edge.places.reading.Len())
		}
	})
}

func TestSlowCallers(t *testing.T) {
	for _, c := range []struct {
		name, head string
		after      time.Duration
		status     string
	}{
		{"header", "POST /v1/chat/completions HTTP/1.1\r\nHost: loc", 5 * time.Second, ""},
		{"body", "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + testKey + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", 31 * time.Second, "HTTP/1.1 400"},
		{"idle", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", time.Minute, "HTTP/1.1 200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(context.Context, *Work, walk.Deliver) (walk.Result, error) { return answered() })
				defer r.close()
				began := time.Now()
				conn := r.raw(c.head)
				got, _ := io.ReadAll(conn)
				if d := time.Since(began).Truncate(time.Second); d != c.after || !strings.HasPrefix(string(got), c.status) {
					t.Errorf("cut after %s with %q", d, got)
				}
				conn.Close()
			})
		})
	}
}

// Two thousand callers who never send a whole header are in nobody's way: the one that
// waited longest goes for each that comes.
func TestSlowCallersKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, answering().do)
		defer r.close()
		gone := 0
		var slow []net.Conn
		for range 2000 {
			c, err := r.net.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			slow = append(slow, c)
			go io.WriteString(c, "P")
			synctest.Wait()
		}
		began := time.Now()
		if got := slurp(t, r.mustPost(helloReq).Body); got != whole {
			t.Errorf("a whole request gets %q", got)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("it waited %s", d)
		}
		for _, c := range slow { // those that are left have 5 s for a header
			_ = c.SetReadDeadline(time.Now())
			if _, err := c.Read(make([]byte, 1)); err == io.EOF {
				gone++
			}
			c.Close()
		}
		if least := 2000 - defaultLimits.Conns; gone < least || gone > least+1 {
			t.Errorf("%d of 2000 had to go, want %d", gone, least)
		}
	})
}

// Other listeners of a node have the same bound.
func TestABoundedServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "yes") })}
	Bounded(srv, 3)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	var idle []net.Conn
	for range 6 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	for i, c := range idle[:3] {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("connection %d is answered", i)
		}
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if got := slurp(t, response.Body); got != "yes" {
		t.Errorf("a request gets %q", got)
	}
	srv.Close()
	<-served
}

func TestConnectionCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, func(_ context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
			<-release
			_ = deliver(attempt(1), event("{}"))
			return answered()
		}, func(c *Config) { c.Limits.Conns = 2 })
		defer r.close()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { slurp(t, r.mustPost(helloReq).Body) })
		}
		synctest.Wait()
		over, err := r.net.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n, err := over.Read(make([]byte, 1)); err == nil {
			t.Errorf("a connection over the cap got %d bytes", n)
		}
		close(release)
		wg.Wait()
		for range 3 { // the kept ones wait, and give way
			synctest.Wait()
			conn := r.raw("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
			defer conn.Close()
			if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("a freed place is not given again: %v", err)
			}
		}
	})
}

func TestShutdownLetsWorkEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
			for range 20 {
				time.Sleep(time.Second)
				if err := deliver(attempt(1), event("{}")); err != nil {
					t.Error(err)
				}
			}
			return answered()
		})
		got := make(chan string, 1)
		go func() { got <- slurp(t, r.mustPost(streamReq).Body) }()
		time.Sleep(5500 * time.Millisecond)
		began := time.Now()
		r.close()
		if d := time.Since(began); d < 14*time.Second || d > 16*time.Second {
			t.Errorf("shutdown took %s, the work had 14.5s left", d)
		}
		if s := <-got; strings.Count(s, "data: {}") != 20 || !strings.HasSuffix(s, "data: [DONE]\n\n") {
			t.Errorf("the stream in work got %q", s)
		}
		if err := r.edge.Shutdown(context.Background()); err != nil {
			t.Errorf("a second shutdown: %v", err)
		}
		if err := r.edge.Serve(newPipes()); err != nil {
			t.Errorf("serve after shutdown: %v", err)
		}
	})
}

func TestShutdownCutsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(ctx context.Context, _ *Work, _ walk.Deliver) (walk.Result, error) {
			<-ctx.Done()
			return walk.Result{End: walk.Left}, nil
		})
		done := make(chan error, 1)
		go func() {
			res, err := r.post(context.Background(), helloReq)
			if err == nil {
				res.Body.Close()
			}
			done <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if err := r.edge.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("shutdown took %s, want 3s", d)
		}
		<-done
		<-r.served
		r.client.CloseIdleConnections()
	})
}

func TestThousandAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside atomic.Int32
		r := newRig(t, func(ctx context.Context, w *Work, deliver walk.Deliver) (walk.Result, error) {
			inside.Add(1)
			defer inside.Add(-1)
			for {
				select {
				case <-ctx.Done():
					return walk.Result{End: walk.Left}, nil
				case <-time.After(7 * time.Second):
				}
				if w.Stream && deliver(attempt(1), event("{}")) != nil {
					return walk.Result{End: walk.Left}, nil
				}
			}
		}, func(c *Config) { c.Limits.InFlight = 1000 })
		rng := rand.New(rand.NewPCG(1, 2))
		var wg sync.WaitGroup
		for i := range 1000 {
			after := time.Duration(rng.Int64N(int64(60 * time.Second)))
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				body := helloReq
				if i%3 > 0 {
					body = streamReq
				}
				res, err := r.post(ctx, body)
				if err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if n := inside.Load(); n != 0 {
			t.Errorf("%d workers still run", n)
		}
		r.edge.places.mu.Lock()
		if r.edge.places.n != 0 {
			t.Errorf("%d places still taken", r.edge.places.n)
		}
		r.edge.places.mu.Unlock()
		r.close()
	})
}

// An edge that was shut down before it served takes no listener, and that is no error, also
// where somebody closed it already.
func TestServeAfterShutdown(t *testing.T) {
	for _, closed := range []bool{false, true} {
		e := newEdge(t, answering())
		if err := e.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if closed {
			l.Close()
		}
		if err := e.Serve(l); err != nil {
			t.Errorf("closed %t: %v", closed, err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed %t: the listener is open: %v", closed, err)
		}
	}
}
