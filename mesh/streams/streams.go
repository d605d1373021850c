// Package streams owns how many streams of one protocol a server has open: a cap
// for each peer and one for all of them, which of them is given up for another, and
// the end of all when the server stops.
// It must not know what is said on a stream.
package streams

import (
	"sync"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

// Set is the open streams of one server. Its methods may be called from many
// goroutines.
type Set struct {
	most, perPeer int

	mu      sync.Mutex
	closed  bool
	open    map[network.Stream]*place
	peers   map[peer.ID]int
	number  uint64 // of the last place
	givenUp uint64
	group   sync.WaitGroup // one for each stream
}

// place is a stream's.
type place struct {
	number uint64
	idle   bool
}

// New makes a set that takes up to most streams, and perPeer of one peer.
func New(most, perPeer int) *Set {
	return &Set{most: most, perPeer: perPeer, open: map[network.Stream]*place{}, peers: map[peer.ID]int{}}
}

// Enter takes a stream in, until [Set.Leave]. Another answer than
// network.StreamNoError is what to reset it with: the set is full, also of streams
// that are not idle, or closed.
func (s *Set) Enter(stream network.Stream) network.StreamErrorCode {
	from := stream.Conn().RemotePeer()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return network.StreamShutdown
	case s.peers[from] >= s.perPeer || len(s.open) >= s.most && !s.giveUp():
		return network.StreamResourceLimitExceeded
	}
	s.number++
	s.open[stream] = &place{number: s.number}
	s.peers[from]++
	s.group.Add(1)
	return network.StreamNoError
}

// giveUp resets the oldest idle stream. An honest one is idle for as long as what it
// brings is on the way; who fills a server with streams that bring nothing has the
// oldest. It holds mu.
func (s *Set) giveUp() bool {
	var oldest network.Stream
	for stream, at := range s.open {
		if at.idle && (oldest == nil || at.number < s.open[oldest].number) {
			oldest = stream
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.open, oldest)
	s.givenUp++
	_ = oldest.ResetWithError(network.StreamResourceLimitExceeded)
	return true
}

// Idle says whether a stream may be given up for a new one where there is no room for
// both. At first it may not.
func (s *Set) Idle(stream network.Stream, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.open[stream]; at != nil {
		at.idle = yes
	}
}

// Leave gives the place of a stream back. Call it once, at the end of its handler.
func (s *Set) Leave(stream network.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := stream.Conn().RemotePeer()
	delete(s.open, stream)
	if s.peers[from]--; s.peers[from] == 0 {
		delete(s.peers, from)
	}
	s.group.Done()
}

// Len gives the number of open streams.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// GivenUp gives the number of streams that were given up for others since the start.
func (s *Set) GivenUp() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.givenUp
}

// Close resets every stream, takes no more, and waits until all have left.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	for stream := range s.open {
		_ = stream.ResetWithError(network.StreamShutdown)
	}
	s.mu.Unlock()
	s.group.Wait()
}
