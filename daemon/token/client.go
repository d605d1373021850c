package token

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/gate"
)

// Bounds.
const (
	mintTimeout = 10 * time.Second       // challenge and token together
	observeWait = 100 * time.Millisecond // of work that may go on without a token, from when its mint began
	enforceWait = 3 * time.Second        // of work that may not
	maxTokens   = 1024                   // in the cache
	maxMints    = 8                      // at once, for all keys
	minBackoff  = time.Second
	maxBackoff  = 5 * time.Second // of a failing key: who waits for a server that is back waits no longer
	maxAskedFor = time.Minute     // the most that Retry-After can ask for
)

// ErrClosed is returned once the client was closed.
var ErrClosed = errors.New("the token client is closed")

// Server is the trust server, as [authority.Client] reaches it.
type Server interface {
	Do(ctx context.Context, method, path string, header http.Header, body []byte, limit int64) (authority.Answer, error)
	Origin() string
}

var _ Server = (*authority.Client)(nil)

// Config of a [Client].
type Config struct {
	Server Server
	Key    chain.Key             // proves control; tokens are bound to it
	DID    string                // who asks; "": the did:key of Key
	Issuer func(iss string) bool // as of a [gate.Verifier]; nil: any
	Skew   time.Duration         // REFRESH_SKEW: how long before its expiry a token is replaced; 0: 60 s
	Log    *slog.Logger          // nil: none
}

// Token is one that was verified. Value goes to the agent and nowhere else.
type Token struct {
	Value   chain.Secret
	ID      string // jti; "" for no token
	Expires time.Time
}

// Client keeps tokens. Its methods may be called at once from several goroutines.
// Close it to end its goroutines.
type Client struct {
	cfg  Config
	keys *keys
	ctx  context.Context // of mints, which no caller's leaving ends; here because Close ends it
	stop context.CancelFunc
	slot chan struct{} // a place for each mint at once; blocks

	mu      sync.Mutex
	closed  bool
	entries map[want]*entry
	running sync.WaitGroup
}

// want is what a token is for.
type want struct{ capability, agent string }

// entry is what is known for one of them.
type entry struct {
	token    Token
	flight   *flight // nil: nobody is minting
	failures int
	err      error     // of the last mint, nil after a success
	retry    time.Time // no mint before
}

// flight is one mint under way; its results may be read when done is closed.
type flight struct {
	done  chan struct{}
	began time.Time
	token Token
	err   error
}

// New makes a client. It asks for nothing yet.
func New(cfg Config) (*Client, error) {
	if cfg.DID == "" {
		cfg.DID = cfg.Key.DID()
	}
	if cfg.Server == nil || cfg.DID == "" {
		return nil, errors.New("tokens: want a trust server and an identity key")
	}
	if cfg.Skew <= 0 {
		cfg.Skew = time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Client{cfg: cfg, ctx: ctx, stop: stop, slot: make(chan struct{}, maxMints), entries: map[want]*entry{}}
	c.keys = newKeys(cfg.Server, c.spawn)
	return c, nil
}

// spawn runs f in a goroutine that Close ends and waits for; false once closed.
func (c *Client) spawn(f func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spawnLocked(f)
}

func (c *Client) spawnLocked(f func(context.Context)) bool {
	if c.closed {
		return false
	}
	c.running.Go(func() { f(c.ctx) })
	return true
}

// Close ends mints under way, waits for them, and forgets every token.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.running.Wait()
	c.mu.Lock()
	clear(c.entries)
	c.mu.Unlock()
}

// Token gives a token for an agent and a capability: the kept one, or a new one.
// One that is about to expire is given at once while another is minted behind it. A
// caller who leaves ends no mint. After a failure, the error is given again without
// asking until the back-off is over; a kept token is given as long as it lives. Errors
// are [*Error], ctx's, or [ErrClosed].
func (c *Client) Token(ctx context.Context, agent, capability string) (Token, error) {
	return c.within(ctx, agent, capability, mintTimeout+time.Second) // the mint itself says that its time is over
}

// within is Token for a caller who waits until a mint is so old, whoever began it.
func (c *Client) within(ctx context.Context, agent, capability string, patience time.Duration) (Token, error) {
	now, w := time.Now(), want{capability, agent}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return Token{}, ErrClosed
	}
	e := c.entry(w, now)
	alive := now.Before(e.token.Expires)
	if alive && now.Before(e.token.Expires.Add(-c.cfg.Skew)) {
		defer c.mu.Unlock()
		return e.token, nil
	}
	if e.flight == nil && !now.Before(e.retry) {
		f := &flight{done: make(chan struct{}), began: now}
		e.flight = f
		c.spawnLocked(func(ctx context.Context) { c.fly(ctx, w, e, f) })
	}
	f, token, err := e.flight, e.token, e.err
	c.mu.Unlock()
	switch {
	case alive:
		return token, nil
	case f == nil:
		return Token{}, err
	}
	timer := time.NewTimer(patience - now.Sub(f.began))
	defer timer.Stop()
	select {
	case <-f.done:
		return f.token, f.err
	case <-ctx.Done():
		return Token{}, fmt.Errorf("token for %s: %w", chain.Clip(agent), ctx.Err())
	case <-timer.C:
		return Token{}, failure("upstream_timeout", "the trust server takes its time")
	}
}

// TokenFor is Token for work at a gate of that mode, which is not kept waiting: where
// nothing is enforced, it has its token within a tenth of a second or goes on without
// one, and the mint goes on behind it; else within 3 seconds. Both count from when the
// mint began, so that a server that hangs delays one request and not all.
func (c *Client) TokenFor(ctx context.Context, mode gate.Mode, agent, capability string) (Token, error) {
	patience := observeWait
	if mode == gate.Enforce {
		patience = enforceWait
	}
	return c.within(ctx, agent, capability, patience)
}

// entry finds or makes an entry; when there are too many, the one that expires
// first goes.
func (c *Client) entry(w want, now time.Time) *entry {
	if e, ok := c.entries[w]; ok {
		return e
	}
	for len(c.entries) >= maxTokens {
		var first want
		var e *entry
		for w, other := range c.entries {
			if other.flight == nil && (e == nil || other.token.Expires.Before(e.token.Expires)) {
				first, e = w, other
			}
		}
		if e == nil {
			break // all of them are minting
		}
		delete(c.entries, first)
	}
	e := &entry{}
	c.entries[w] = e
	return e
}

// fly mints, and tells everybody who waits.
func (c *Client) fly(ctx context.Context, w want, e *entry, f *flight) {
	ctx, cancel := context.WithTimeout(ctx, mintTimeout)
	defer cancel()
	select {
	case c.slot <- struct{}{}:
		f.token, f.err = c.mint(ctx, w)
		<-c.slot
	case <-ctx.Done():
		f.err = failure("upstream_timeout", "too many tokens are being minted")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.flight, e.err = nil, f.err
	if f.err == nil {
		e.token, e.failures, e.retry = f.token, 0, time.Time{}
	} else {
		if e.failures == 0 && !errors.Is(ctx.Err(), context.Canceled) { // once, not with each request
			c.cfg.Log.Warn("no token", "agent_did", chain.Clip(w.agent), "capability", chain.Clip(w.capability), "error", f.err)
		}
		e.retry = time.Now().Add(backoff(e.failures, f.err))
		e.failures++
	}
	close(f.done)
}

// backoff is how long to leave a failing mint alone: doubling with jitter, or what
// the server asked for.
func backoff(failures int, err error) time.Duration {
	d := min(minBackoff<<min(failures, 10), maxBackoff)
	d = d/2 + rand.N(d/2+1)
	var e *Error
	if errors.As(err, &e) && e.retryAfter > d {
		d = min(e.retryAfter, maxAskedFor)
	}
	return d
}

// Keys gives the trust server's keys: it is what a [gate.Verifier] asks.
func (c *Client) Keys(ctx context.Context, kid string) ([]ed25519.PublicKey, error) {
	return c.keys.Keys(ctx, kid)
}

var _ gate.Keys = (*Client)(nil)
