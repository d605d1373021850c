package fetch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/did"
)

// How long an answer is remembered, and how much of all.
const (
	keepAnswer = time.Minute
	keepError  = 10 * time.Second
	maxKept    = 1024
	maxBytes   = 16 << 20
)

// Cache remembers what was fetched for a minute, and that a fetch failed for ten
// seconds, so that a signer of many things costs its host, and whoever waits for it,
// one fetch. Of several who want the same at once one fetches. Whoever reads an answer
// may say that it is good for less: [Cache.Keep]. Its methods may be called at once from
// several goroutines.
type Cache struct {
	next did.Fetcher

	mu    sync.Mutex
	kept  map[string]*answer
	bytes int
}

var _ did.Keeper = (*Cache)(nil)

// answer is what a fetch gave, or will give.
type answer struct {
	done  chan struct{} // closed once the rest may be read
	b     []byte
	err   error
	at    time.Time // when it came
	until time.Time // zero while it is under way
	limit int64
}

// NewCache remembers what next fetches.
func NewCache(next did.Fetcher) *Cache { return &Cache{next: next, kept: map[string]*answer{}} }

// Fetch implements [did.Fetcher]. What it gives must not be changed.
func (c *Cache) Fetch(ctx context.Context, url string, limit int64) ([]byte, error) {
	for {
		a, mine := c.claim(url, limit, time.Now())
		if mine {
			return c.fetch(ctx, url, a)
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		// Who fetched may have left; that says nothing of the address.
		if errors.Is(a.err, context.Canceled) && ctx.Err() == nil {
			continue
		}
		return a.b, a.err
	}
}

// claim gives the answer that is there or on its way, or a new one to fill.
func (c *Cache) claim(url string, limit int64, now time.Time) (a *answer, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.kept[url]; a != nil && a.limit == limit && (a.until.IsZero() || now.Before(a.until)) {
		return a, false
	}
	c.forget(url)
	a = &answer{done: make(chan struct{}), limit: limit}
	c.kept[url] = a
	return a, true
}

func (c *Cache) fetch(ctx context.Context, url string, a *answer) ([]byte, error) {
	a.b, a.err = c.next.Fetch(ctx, url, a.limit)
	now := time.Now()
	c.mu.Lock()
	a.at, a.until = now, now.Add(keepAnswer)
	if a.err != nil {
		a.until = now.Add(keepError)
	}
	if c.kept[url] == a {
		c.bytes += len(a.b)
		if errors.Is(a.err, context.Canceled) {
			c.forget(url)
		}
		c.shrink(now)
	}
	c.mu.Unlock()
	close(a.done)
	return a.b, a.err
}

// Keep implements [did.Keeper]: the answers are remembered for atMost at most, and all of
// them until the same instant, so that a new one is not read beside an old one.
func (c *Cache) Keep(atMost time.Duration, urls ...string) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	var until time.Time
	for _, url := range urls {
		if a := c.kept[url]; a != nil && !a.until.IsZero() {
			end := a.at.Add(min(atMost, a.until.Sub(a.at)))
			if until.IsZero() || end.Before(until) {
				until = end
			}
		}
	}
	for _, url := range urls {
		if a := c.kept[url]; a == nil || a.until.IsZero() {
			continue
		}
		if !now.Before(until) {
			c.forget(url)
			continue
		}
		c.kept[url].until = until
	}
}

// shrink drops what is old, and then whatever comes first while there is too much. It
// holds mu.
func (c *Cache) shrink(now time.Time) {
	if len(c.kept) <= maxKept && c.bytes <= maxBytes {
		return
	}
	for url, a := range c.kept {
		if !a.until.IsZero() && !now.Before(a.until) {
			c.forget(url)
		}
	}
	for url, a := range c.kept {
		if len(c.kept) <= maxKept && c.bytes <= maxBytes {
			return
		}
		if !a.until.IsZero() {
			c.forget(url)
		}
	}
}

// forget holds mu.
func (c *Cache) forget(url string) {
	if a := c.kept[url]; a != nil {
		if !a.until.IsZero() {
			c.bytes -= len(a.b)
		}
		delete(c.kept, url)
	}
}
