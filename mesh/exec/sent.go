package exec

import (
	"hash/maphash"
	"sync"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Caps of what is remembered. What is forgotten is sent again.
const (
	sentPeers     = 256
	sentEnvelopes = 64 // of one peer: memberships, heads and bodies
)

// Sent remembers which memberships, heads and bodies an executor was given and
// took, so that they are not sent with every request. Extensions hold for minutes and
// always are. It may be wrong, after a restart or an eviction at the other end: then
// the executor refuses with wire.ExecNeed. Methods may be called from many
// goroutines.
type Sent struct {
	seed maphash.Seed

	mu    sync.Mutex
	peers map[chain.PeerID]map[uint64]struct{}
}

// NewSent makes an empty memory.
func NewSent() *Sent {
	return &Sent{seed: maphash.MakeSeed(), peers: map[chain.PeerID]map[uint64]struct{}{}}
}

// Lean gives open without what the peer has.
func (s *Sent) Lean(to chain.PeerID, open wire.ExecOpen) wire.ExecOpen {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.peers[to]
	if has == nil {
		return open
	}
	for _, b := range []*[]byte{&open.Membership, &open.Head, &open.Body} {
		if _, ok := has[maphash.Bytes(s.seed, *b)]; ok {
			*b = nil
		}
	}
	return open
}

// Took notes that the peer accepted all of open.
func (s *Sent) Took(to chain.PeerID, open wire.ExecOpen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.peers[to]
	if has == nil {
		makeRoom(s.peers, sentPeers)
		has = map[uint64]struct{}{}
		s.peers[to] = has
	}
	for _, b := range [][]byte{open.Membership, open.Head, open.Body} {
		if len(b) > 0 {
			makeRoom(has, sentEnvelopes)
			has[maphash.Bytes(s.seed, b)] = struct{}{}
		}
	}
}

// Forget drops what is known of a peer.
func (s *Sent) Forget(to chain.PeerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, to)
}

// makeRoom drops any entry of a full map.
func makeRoom[K comparable, V any](m map[K]V, most int) {
	for k := range m {
		if len(m) < most {
			return
		}
		delete(m, k)
	}
}
