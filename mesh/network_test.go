package mesh

import (
	"testing"

	"github.com/multiformats/go-multiaddr"
)

func TestNetworkOf(t *testing.T) {
	for address, want := range map[string]string{
		"/ip4/192.0.2.77/tcp/7411":         "192.0.2.0/24",
		"/ip4/192.0.2.78/udp/9/quic-v1":    "192.0.2.0/24",
		"/ip6/2001:db8:1:2::3/tcp/7411":    "2001:db8:1::/48",
		"/ip6/::ffff:192.0.2.9/tcp/1":      "192.0.2.0/24",
		"/ip6zone/eth0/ip6/fe80::1/tcp/1":  "fe80::/48",
		"/dns4/example.com/tcp/1":          "",
		"/ip4/192.0.2.1/tcp/1/p2p-circuit": "",
		"/ip4/192.0.2.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN/p2p-circuit": "",
		"/unix/x": "",
	} {
		a, err := multiaddr.NewMultiaddr(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := networkOf(a); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
