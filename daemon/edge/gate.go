package edge

import (
	"container/list"
	"sync"
	"time"
)

// slowBody is how long a request may have its place while its body arrives and nobody
// else is kept out by that.
const slowBody = time.Second

// gate counts the requests in work and holds them to a limit. Where all places are taken,
// the one is given on whose body has been arriving longest: callers that send a byte a second
// keep nobody out.
type gate struct {
	mu      sync.Mutex
	limit   int
	n       int
	reading list.List // of *place whose body has not arrived yet, by how long
	closed  bool
	ending  chan struct{} // closed by close: what waits without a place ends
	empty   chan struct{} // made by close; closed when the last request left
}

// place is one request in work.
type place struct {
	gate  *gate
	at    *list.Element // in reading; nil once the body arrived
	began time.Time
	cut   func() // ends the reading of the body; it does not wait
	lost  bool   // it was given to another
}

// enter takes a place for a request whose body is still to come, nil when there is none.
func (g *gate) enter(now time.Time, cut func()) *place {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	p := &place{gate: g, began: now, cut: cut}
	if g.n < g.limit {
		g.n++
	} else if !g.evict(now) {
		return nil
	}
	p.at = g.reading.PushBack(p)
	return p
}

// evict frees the place of the slowest body, if there is one.
func (g *gate) evict(now time.Time) bool {
	front := g.reading.Front()
	if front == nil {
		return false
	}
	slowest := front.Value.(*place)
	if now.Sub(slowest.began) < slowBody {
		return false
	}
	g.reading.Remove(front)
	slowest.at, slowest.lost = nil, true
	slowest.cut()
	return true
}

// arrived says that the body is there; false where the place was lost meanwhile.
func (p *place) arrived() bool {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	if p.at != nil {
		p.gate.reading.Remove(p.at)
		p.at = nil
	}
	return !p.lost
}

// leave gives a place back.
func (p *place) leave() {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.at != nil {
		g.reading.Remove(p.at)
		p.at = nil
	}
	if p.lost {
		return
	}
	if g.n--; g.n == 0 && g.closed {
		close(g.empty)
	}
}

// close lets nobody in any more.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed, g.empty = true, make(chan struct{})
	close(g.ending)
	if g.n == 0 {
		close(g.empty)
	}
}

// idle is closed once a closed gate is empty.
func (g *gate) idle() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.empty
}

func (g *gate) closing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *gate) inside() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}
