// Package providertest is a scripted OpenAI-compatible provider for tests. It
// speaks HTTP on a raw TCP connection, so that it can also refuse, reset, cut,
// stall and trickle. [Faults] names every way in which a provider is known to go
// wrong, each with what must come of it; the tests of the adapter, the daemon
// and the whole program play the same list.
//
// The package must not be imported by code that ships. It knows nothing of the
// adapter that calls it.
package providertest

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Play answers one request. It runs on a goroutine of the connection and must
// return soon after [Exchange.Gone] is closed.
type Play func(x *Exchange)

// Request is what the provider saw of one request for work.
type Request struct {
	N      int // from 1, in order of arrival
	At     time.Time
	Path   string
	Header http.Header
	Body   []byte
	Model  string
	Stream bool
	Usage  bool // the usage event was asked for
}

// Provider is a running provider. It is closed with its test.
type Provider struct {
	t        testing.TB
	listener net.Listener
	addr     string

	mu       sync.Mutex
	changed  chan struct{} // closed and made anew whenever something below changed
	script   []Play
	models   []string
	requests []Request
	closed   map[int]time.Time // when the client closed its connection during request N
	conns    map[net.Conn]bool
	over     bool

	stop chan struct{}
	done sync.WaitGroup
}

// patience bounds every wait of a test for its provider.
const patience = 2 * time.Minute

// New starts a provider on a free port of 127.0.0.1. The first request for work
// is answered by the first play, and so on; the last play answers all others.
// Without a play it is healthy.
func New(t testing.TB, script ...Play) *Provider {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{t: t, listener: l, addr: l.Addr().String(), changed: make(chan struct{}), models: []string{"small"},
		closed: map[int]time.Time{}, conns: map[net.Conn]bool{}, stop: make(chan struct{})}
	p.Script(script...)
	p.done.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Refusing gives a provider that nobody listens for, on a port that nobody else
// gets while the test runs.
func Refusing(t testing.TB) *Provider {
	t.Helper()
	p := New(t)
	p.Close()
	p.addr = deafAddress(t)
	return p
}

// Endpoint is the base URL for a catalogue or an option.
func (p *Provider) Endpoint() string { return "http://" + p.addr + "/v1" }

// Script replaces the script: the next request is answered by its first play.
func (p *Provider) Script(script ...Play) {
	if len(script) == 0 {
		script = []Play{Healthy("The answer.")}
	}
	p.change(func() { p.script = script })
}

// SetModels sets the model list, which is served beside the script.
func (p *Provider) SetModels(ids ...string) { p.change(func() { p.models = ids }) }

// Requests gives what was seen so far.
func (p *Provider) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Request(nil), p.requests...)
}

// Wait gives the n-th request, from 1, when it has come.
func (p *Provider) Wait(n int) Request {
	p.t.Helper()
	p.until("request", func() bool { return len(p.requests) >= n })
	return p.Requests()[n-1]
}

// WaitClosed gives the moment at which the client closed its connection while
// the n-th request was being answered.
func (p *Provider) WaitClosed(n int) time.Time {
	p.t.Helper()
	p.until("close of a request", func() bool { return !p.closed[n].IsZero() })
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed[n]
}

// Close ends the provider and every connection to it.
func (p *Provider) Close() {
	p.mu.Lock()
	over := p.over
	p.over = true
	if !over {
		close(p.stop)
		_ = p.listener.Close()
		for c := range p.conns {
			_ = c.Close()
		}
	}
	p.mu.Unlock()
	p.done.Wait()
}

func (p *Provider) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Provider) until(what string, ok func() bool) {
	p.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		p.mu.Lock()
		changed, is := p.changed, ok()
		p.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			p.t.Fatalf("provider %s: no %s within %v", p.addr, what, patience)
		}
	}
}

func (p *Provider) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.over {
			_ = c.Close()
		} else {
			p.conns[c] = true
			p.done.Go(func() { p.serve(c) })
		}
		p.mu.Unlock()
	}
}

// serve answers the requests of one connection until one of them ended it.
func (p *Provider) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		x := &Exchange{provider: p, conn: c, in: in, gone: make(chan struct{})}
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/models") {
			x.Respond(http.StatusOK, "application/json", p.modelList())
		} else {
			p.play(x, r, body)
		}
		if x.broken.Load() {
			return
		}
	}
}

// play notes a request and answers it by the script.
func (p *Provider) play(x *Exchange, r *http.Request, body []byte) {
	var asked struct {
		Model   string `json:"model"`
		Stream  bool   `json:"stream"`
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.Unmarshal(body, &asked) // tests look at the body itself
	x.Request = Request{At: time.Now(), Path: r.URL.RequestURI(), Header: r.Header, Body: body, Model: asked.Model, Stream: asked.Stream, Usage: asked.Options.Usage}
	var play Play
	p.change(func() {
		x.Request.N = len(p.requests) + 1
		p.requests = append(p.requests, x.Request)
		if play = p.script[0]; len(p.script) > 1 {
			p.script = p.script[1:]
		}
	})
	x.watch()
	play(x)
	x.unwatch()
}

func (p *Provider) modelList() string {
	type model struct {
		ID     string `json:"id"`
		Object string `json:"object"`
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	list := []model{}
	for _, id := range p.models {
		list = append(list, model{id, "model"})
	}
	b, err := json.Marshal(map[string]any{"object": "list", "data": list})
	if err != nil {
		p.t.Error(err)
	}
	return string(b)
}
