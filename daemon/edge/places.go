package edge

import (
	"container/list"
	"sync"
	"time"
)

// slowBody is how long a request may have its place while its body arrives and nobody
// else is kept out by that.
const slowBody = time.Second

// places are what requests in work have, at most so many at once. Where all are taken, that
// of the request whose body has been arriving longest is given on: callers that send a byte
// a second keep nobody out.
type places struct {
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
	of    *places
	at    *list.Element // in reading; nil once the body arrived
	began time.Time
	cut   func() // ends the reading of the body; it does not wait
	lost  bool   // it was given to another
}

// enter takes a place for a request whose body is still to come, nil when there is none.
func (s *places) enter(now time.Time, cut func()) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	p := &place{of: s, began: now, cut: cut}
	if s.n < s.limit {
		s.n++
	} else if !s.evict(now) {
		return nil
	}
	p.at = s.reading.PushBack(p)
	return p
}

// evict frees the place of the slowest body, if there is one.
func (s *places) evict(now time.Time) bool {
	front := s.reading.Front()
	if front == nil {
		return false
	}
	slowest := front.Value.(*place)
	if now.Sub(slowest.began) < slowBody {
		return false
	}
	s.reading.Remove(front)
	slowest.at, slowest.lost = nil, true
	slowest.cut()
	return true
}

// arrived says that the body is there; false where the place was lost meanwhile.
func (p *place) arrived() bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.at != nil {
		p.of.reading.Remove(p.at)
		p.at = nil
	}
	return !p.lost
}

// leave gives a place back.
func (p *place) leave() {
	s := p.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.at != nil {
		s.reading.Remove(p.at)
		p.at = nil
	}
	if p.lost {
		return
	}
	if s.n--; s.n == 0 && s.closed {
		close(s.empty)
	}
}

// close lets nobody in any more.
func (s *places) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed, s.empty = true, make(chan struct{})
	close(s.ending)
	if s.n == 0 {
		close(s.empty)
	}
}

// idle is closed once the last request left, after close.
func (s *places) idle() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.empty
}

func (s *places) closing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *places) inside() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}
