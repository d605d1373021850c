package pipeline

import (
	"context"
	"sync"
)

// sink is where the answer goes.
type sink struct {
	text func(string) error
	gone func() // ends all that is under way

	mu    sync.Mutex
	out   bool // something of the answer is out
	ended bool // all of it is
	err   error
}

// put gives a piece to the caller.
func (s *sink) put(piece string) error {
	if s.err != nil {
		return s.err
	}
	s.out = true
	if s.err = s.text(piece); s.err != nil {
		s.gone()
	}
	return s.err
}

// give gives a whole answer.
func (s *sink) give(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return s.put(text)
}

func (s *sink) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out
}

func (s *sink) done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

func (s *sink) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// pieces is one task's way to the sink. Blank text is held back until more comes:
// an answer of nothing else is none, and another task may still give one.
type pieces struct {
	sink   *sink
	first  func() bool // asked before the first piece that says something: false if the task was given up
	held   string
	begun  bool
	closed bool
}

func (s *sink) open(first func() bool) *pieces { return &pieces{sink: s, first: first} }

func (p *pieces) deliver(text string) error {
	p.sink.mu.Lock()
	defer p.sink.mu.Unlock()
	if p.closed {
		return context.Canceled
	}
	if !p.begun {
		if p.held += text; blank(p.held) {
			p.held = tail(p.held, maxID)
			return nil
		}
		if !p.first() {
			return context.Canceled // given up just now
		}
		p.begun = true
		text, p.held = p.held, ""
	}
	return p.sink.put(text)
}

// close ends the way: a copy that goes on regardless delivers nothing more.
func (p *pieces) close() {
	p.sink.mu.Lock()
	defer p.sink.mu.Unlock()
	p.closed = true
}
