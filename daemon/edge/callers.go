package edge

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// callers are the open connections of one listener, at most so many. Where they are
// more, the one goes that has waited longest without a whole request: who sends one
// byte a second must not keep out who sends a request. Where each is being served, the
// newest goes.
type callers struct {
	mu      sync.Mutex
	limit   int
	open    map[net.Conn]*list.Element // nil while it is served
	waiting *list.List                 // of net.Conn, by how long
}

// callerKey finds a request's connection in its context.
type callerKey struct{}

func newCallers(limit int) *callers {
	return &callers{limit: limit, open: make(map[net.Conn]*list.Element), waiting: list.New()}
}

// Bounded makes a server that was not started yet keep at most so many connections open,
// whoever opens them. Where there are more, the one goes that has waited longest without a
// whole request. It takes the server's ConnContext and ConnState.
func Bounded(srv *http.Server, connections int) {
	open, next := newCallers(connections), srv.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer open.served(r.Context())()
		next.ServeHTTP(w, r)
	})
	srv.ConnContext, srv.ConnState = open.context, open.state
}

// context is the ConnContext of a server.
func (c *callers) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, callerKey{}, conn)
}

// state is the ConnState of a server.
func (c *callers) state(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if over := c.add(conn); over != nil {
			over.Close() // StateClosed follows
		}
	case http.StateClosed, http.StateHijacked:
		c.mu.Lock()
		defer c.mu.Unlock()
		if at := c.open[conn]; at != nil {
			c.waiting.Remove(at)
		}
		delete(c.open, conn)
	}
}

// add takes conn in and gives the connection that has to go for it, if one has.
func (c *callers) add(conn net.Conn) (over net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[conn] = c.waiting.PushBack(conn)
	if len(c.open) <= c.limit {
		return nil
	}
	over = c.waiting.Remove(c.waiting.Front()).(net.Conn)
	delete(c.open, over)
	return over
}

// served says that a request of the connection in ctx has come whole, header at least,
// until the returned function is called.
func (c *callers) served(ctx context.Context) (done func()) {
	conn, ok := ctx.Value(callerKey{}).(net.Conn)
	if !ok {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.open[conn]; at != nil {
		c.waiting.Remove(at)
		c.open[conn] = nil
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if at, open := c.open[conn]; open && at == nil {
			c.open[conn] = c.waiting.PushBack(conn)
		}
	}
}
