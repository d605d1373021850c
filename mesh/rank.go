package mesh

import (
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// quicDelay is how long QUIC waits for TCP in a near network.
const quicDelay = 250 * time.Millisecond

// rank orders the addresses of one dial. In a near network TCP goes first: when
// a program dies its kernel says so at once, where QUIC would be silent for half a
// minute, and a connection costs two thirds. Beyond, the library's order holds:
// QUIC lives through a change of networks.
func rank(addresses []multiaddr.Multiaddr) []network.AddrDelay {
	var near, far []multiaddr.Multiaddr
	for _, a := range addresses {
		if manet.IsPublicAddr(a) {
			far = append(far, a)
		} else {
			near = append(near, a)
		}
	}
	order := swarm.DefaultDialRanker(far)
	tcp := func(a multiaddr.Multiaddr) bool { _, err := a.ValueForProtocol(multiaddr.P_TCP); return err == nil }
	some := slices.ContainsFunc(near, tcp)
	for _, a := range near {
		d := network.AddrDelay{Addr: a}
		if some && !tcp(a) {
			d.Delay = quicDelay
		}
		order = append(order, d)
	}
	return order
}
