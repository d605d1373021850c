package mesh

import (
	"net/netip"

	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/chordwheel/chordwheel/chain"
)

// Network names the network that a peer is connected from: the /24 of an IPv4, the /48 of
// an IPv6 address, as in "192.0.2.0/24". It is "" for a peer that is not connected, or
// only through a relay. It may be called from any goroutine, between Start and Close.
func (h *Hub) Network(p chain.PeerID) string {
	id, err := peerID(p)
	if err != nil {
		return ""
	}
	for _, conn := range h.host.Network().ConnsToPeer(id) {
		if name := networkOf(conn.RemoteMultiaddr()); name != "" {
			return name
		}
	}
	return ""
}

func networkOf(a multiaddr.Multiaddr) string {
	if _, err := a.ValueForProtocol(multiaddr.P_CIRCUIT); err == nil {
		return ""
	}
	raw, err := manet.ToIP(a)
	if err != nil {
		return ""
	}
	ip, ok := netip.AddrFromSlice(raw)
	if !ok {
		return ""
	}
	bits := 48
	if ip = ip.Unmap(); ip.Is4() {
		bits = 24
	}
	prefix, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		return ""
	}
	return prefix.String()
}
