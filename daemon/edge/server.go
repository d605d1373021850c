package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// ErrNoKey refuses a listener that others can reach while there is no key.
var ErrNoKey = errors.New("edge: no key: set ORCH_API_KEY, or listen on a loopback address")

// closeGrace is how long Shutdown waits for work that was cut.
const closeGrace = 5 * time.Second

// servers are the listeners being served.
type servers struct {
	mu     sync.Mutex
	closed bool
	list   []*http.Server
	cancel []context.CancelFunc
}

// Serve answers requests on l until Shutdown, which makes it return nil. It
// closes l. It may be called for several listeners at once.
func (e *Edge) Serve(l net.Listener) error {
	loopback := isLoopback(l.Addr())
	if !e.keys.set {
		if !loopback {
			return errors.Join(ErrNoKey, l.Close())
		}
		e.log.Warn("no key is set: every program on this machine may use the edge", "address", l.Addr().String())
	}
	ctx, cancel := context.WithCancel(context.Background())
	srv := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.serve(w, r, loopback) }),
		ReadHeaderTimeout: e.limits.Header,
		IdleTimeout:       e.limits.Idle,
		MaxHeaderBytes:    e.limits.HeaderBytes,
		// Each request begins with this deadline, each write moves it: without it
		// one of an earlier request would still hold, and cut a "100 Continue".
		WriteTimeout:                 e.limits.Write,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(e.log.Handler(), slog.LevelWarn),
		BaseContext:                  func(net.Listener) context.Context { return ctx },
	}
	Bounded(srv, e.limits.Conns)
	if !e.servers.add(srv, cancel) {
		cancel()
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
	err := srv.Serve(shaped{l})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	cancel()
	return fmt.Errorf("edge: serve %s: %w", l.Addr(), err)
}

func (s *servers) add(srv *http.Server, cancel context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.list, s.cancel = append(s.list, srv), append(s.cancel, cancel)
	return true
}

// Shutdown stops accepting, answers new requests on open connections with 503,
// and waits for those in work. When ctx ends first, it cuts them: their contexts
// end, and it waits 5 s more. Calling it again is harmless.
func (e *Edge) Shutdown(ctx context.Context) error {
	e.places.close()
	e.servers.mu.Lock()
	e.servers.closed = true
	list, cancel := e.servers.list, e.servers.cancel
	e.servers.mu.Unlock()
	var wg sync.WaitGroup
	for _, srv := range list {
		wg.Go(func() {
			if srv.Shutdown(ctx) != nil {
				srv.Close()
			}
		})
	}
	wg.Wait()
	select {
	case <-e.places.idle():
	case <-ctx.Done():
	}
	for _, c := range cancel {
		c()
	}
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-e.places.idle():
		return nil
	case <-timer.C:
		return fmt.Errorf("edge: %d requests did not end within %s of being cut", e.places.inside(), closeGrace)
	}
}
