// Package streams owns how many streams of one protocol a server has open: a cap
// for each peer and one for all of them, and the end of all when the server stops.
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

	mu     sync.Mutex
	closed bool
	open   map[network.Stream]peer.ID
	peers  map[peer.ID]int
	group  sync.WaitGroup // one for each stream
}

// New makes a set that takes up to most streams, and perPeer of one peer.
func New(most, perPeer int) *Set {
	return &Set{most: most, perPeer: perPeer, open: map[network.Stream]peer.ID{}, peers: map[peer.ID]int{}}
}

// Enter takes a stream in, until [Set.Leave]. Another answer than
// network.StreamNoError is what to reset it with: the set is full, or closed.
func (s *Set) Enter(stream network.Stream) network.StreamErrorCode {
	from := stream.Conn().RemotePeer()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return network.StreamShutdown
	case len(s.open) >= s.most || s.peers[from] >= s.perPeer:
		return network.StreamResourceLimitExceeded
	}
	s.open[stream] = from
	s.peers[from]++
	s.group.Add(1)
	return network.StreamNoError
}

// Leave gives the place of a stream back. Call it once, at the end of its handler.
func (s *Set) Leave(stream network.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.open[stream]
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
