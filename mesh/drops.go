package mesh

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// drops counts the gossip that came to nothing. The library drops without a
// word; queues are finite and a message is only a hint, but somebody must see
// it.
type drops struct {
	left      func(peer.ID) // called when a neighbour left
	delivered atomic.Uint64
	sent      atomic.Uint64 // packets that a full queue to a neighbour lost
	unread    atomic.Uint64 // messages that a full subscription lost

	mu       sync.Mutex
	rejected map[string]uint64 // by the library's reason
}

var _ pubsub.RawTracer = (*drops)(nil)

func newDrops(left func(peer.ID)) *drops { return &drops{left: left, rejected: map[string]uint64{}} }

func (d *drops) OnClosedOutboundStream(p peer.ID)     { d.left(p) }
func (d *drops) DeliverMessage(*pubsub.Message)       { d.delivered.Add(1) }
func (d *drops) DropRPC(*pubsub.RPC, peer.ID)         { d.sent.Add(1) }
func (d *drops) UndeliverableMessage(*pubsub.Message) { d.unread.Add(1) }

func (d *drops) RejectMessage(_ *pubsub.Message, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rejected[reason]++ // the library's reasons are constants: a dozen
}

func (d *drops) reasons() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.rejected)
}

func (d *drops) OnNewOutboundStream(peer.ID, protocol.ID)             {}
func (d *drops) Join(string)                                          {}
func (d *drops) Leave(string)                                         {}
func (d *drops) Graft(peer.ID, string)                                {}
func (d *drops) Prune(peer.ID, string)                                {}
func (d *drops) ValidateMessage(*pubsub.Message)                      {}
func (d *drops) DuplicateMessage(*pubsub.Message)                     {}
func (d *drops) ThrottlePeer(peer.ID)                                 {}
func (d *drops) RecvRPC(*pubsub.RPC)                                  {}
func (d *drops) SendRPC(*pubsub.RPC, peer.ID)                         {}
func (d *drops) SendRPCCompleted(*pubsub.RPC, peer.ID, time.Duration) {}
