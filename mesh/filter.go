package mesh

import (
	"strconv"
	"strings"
	"sync"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Caps on the topics of one neighbour. A device has two per scope and key, and
// a few shards; a hub has more and says so to nobody who counts.
const (
	topicsPerPeer   = 512
	topicsPerPacket = 512
)

// topicFilter keeps strangers from filling the table of topics: only names of
// this mesh's form are tracked, and so many per neighbour.
type topicFilter struct {
	root string

	mu    sync.Mutex
	peers map[peer.ID]map[string]bool
}

func newTopicFilter(m chain.MeshID) *topicFilter {
	return &topicFilter{root: topicRoot(m), peers: map[peer.ID]map[string]bool{}}
}

// CanSubscribe implements [pubsub.SubscriptionFilter].
func (f *topicFilter) CanSubscribe(topic string) bool {
	rest, ok := strings.CutPrefix(topic, f.root)
	if !ok {
		return false
	}
	if rest == "revoked" {
		return true
	}
	if n, ok := strings.CutPrefix(rest, "policy/"); ok {
		shard, err := strconv.Atoi(n)
		return err == nil && shard >= 0 && shard < wire.PolicyShards && strconv.Itoa(shard) == n
	}
	scope, kind, ok := strings.Cut(rest, "/")
	return ok && len(scope) == 32 && strings.Trim(scope, "0123456789abcdef") == "" && (kind == "announce" || kind == "chords")
}

// FilterIncomingSubscriptions implements [pubsub.SubscriptionFilter].
func (f *topicFilter) FilterIncomingSubscriptions(from peer.ID, subs []*pb.RPC_SubOpts) ([]*pb.RPC_SubOpts, error) {
	if len(subs) > topicsPerPacket {
		return nil, pubsub.ErrTooManySubscriptions
	}
	subs = pubsub.FilterSubscriptions(subs, f.CanSubscribe)
	f.mu.Lock()
	defer f.mu.Unlock()
	has := f.peers[from]
	if has == nil {
		makeRoom(f.peers)
		has = map[string]bool{}
		f.peers[from] = has
	}
	for _, s := range subs {
		topic := s.GetTopicid()
		switch {
		case !s.GetSubscribe():
			delete(has, topic)
		case !has[topic] && len(has) >= topicsPerPeer:
			return nil, pubsub.ErrTooManySubscriptions
		default:
			has[topic] = true
		}
	}
	if len(has) == 0 {
		delete(f.peers, from)
	}
	return subs, nil
}

// forget drops what p said; pubsub does so too when p leaves.
func (f *topicFilter) forget(p peer.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.peers, p)
}
