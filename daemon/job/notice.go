package job

import (
	"slices"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Kind is what a notice says.
type Kind string

// The kinds of notices.
const (
	Offered   Kind = "job"       // there is work to take
	Withdrawn Kind = "withdrawn" // it is not this provider's any more: stop
)

// Notice is what a provider is told between its calls. It holds no content.
type Notice struct {
	Kind      Kind            `json:"-"`
	Job       string          `json:"id"`
	Primitive chain.Primitive `json:"primitive"`
}

// Bounds of streams of notices.
const (
	maxStreams = 2  // of one provider; the oldest gives way
	maxNotices = 64 // that wait for a slow reader; then its stream ends
)

// Stream is an open stream of notices to one provider, which keeps it online.
type Stream struct {
	board    *Board
	provider *provider
	notices  chan Notice
	closing  sync.Once
}

// Notices gives what there is to tell. It is closed when the stream ends: another
// one took its place, or its reader was too slow.
func (s *Stream) Notices() <-chan Notice { return s.notices }

// Watch opens a stream. Jobs that wait already are told first. The caller closes it.
func (b *Board) Watch(id string) (*Stream, error) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.providers[id]
	if p == nil || p.over(now) {
		return nil, ErrProvider
	}
	for len(p.streams) >= maxStreams {
		b.cut(p.streams[0])
	}
	s := &Stream{board: b, provider: p, notices: make(chan Notice, maxNotices)}
	p.streams = append(p.streams, s)
	p.heard = now
	for _, o := range b.offers {
		if o.taker == nil && !o.tried[id] && p.can(o.work, now) && len(s.notices) < maxNotices/2 {
			s.notices <- Notice{Kind: Offered, Job: o.id, Primitive: o.work.Primitive}
		}
	}
	return s, nil
}

// Close ends the stream.
func (s *Stream) Close() {
	s.board.mu.Lock()
	defer s.board.mu.Unlock()
	open := len(s.provider.streams)
	s.board.cut(s)
	if open == 1 && len(s.provider.streams) == 0 { // a tab that was closed, mostly
		s.provider.heard = time.Now().Add(reconnects - onlineFor)
	}
}

// cut ends a stream. The caller holds mu.
func (b *Board) cut(s *Stream) {
	s.provider.streams = slices.DeleteFunc(s.provider.streams, func(x *Stream) bool { return x == s })
	s.closing.Do(func() { close(s.notices) })
}

// tell sends a notice to each stream of p. The caller holds the board's mu.
func (p *provider) tell(n Notice) {
	for _, s := range slices.Clone(p.streams) {
		select {
		case s.notices <- n:
		default:
			s.board.cut(s)
		}
	}
}
