package mesh

import (
	"context"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multiaddr"
)

// gater lets every visitor in and lets only those dials out that may says
// yes to; it is asked with the address where that is known, else with nil. The
// hub's may is always no.
type gater struct {
	may   func(peer.ID, multiaddr.Multiaddr) bool
	asked atomic.Uint64 // dials it was asked about
}

var _ connmgr.ConnectionGater = (*gater)(nil)

func nobody(peer.ID, multiaddr.Multiaddr) bool { return false }

func (g *gater) InterceptPeerDial(p peer.ID) bool {
	g.asked.Add(1)
	return g.may(p, nil)
}

// InterceptAddrDial is asked after InterceptPeerDial, once for each address.
func (g *gater) InterceptAddrDial(p peer.ID, a multiaddr.Multiaddr) bool { return g.may(p, a) }

func (g *gater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

// InterceptSecured is the last line: an outbound connection that came about in
// another way than by a dial through the swarm.
func (g *gater) InterceptSecured(d network.Direction, p peer.ID, _ network.ConnMultiaddrs) bool {
	return d != network.DirOutbound || g.may(p, nil)
}

func (g *gater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

// bystander is a host for gossip: it talks over connections that stand, and
// makes none. Pubsub opens a lost stream again after a pause, and where the
// connection went in that pause it would dial; on a hub that would be a dial
// nobody may ask for, on a device one that passes by its own pauses.
type bystander struct{ host.Host }

func (b bystander) NewStream(ctx context.Context, p peer.ID, protocols ...protocol.ID) (network.Stream, error) {
	return b.Host.NewStream(network.WithNoDial(ctx, "gossip"), p, protocols...)
}
