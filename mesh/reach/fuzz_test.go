package reach_test

import (
	"strings"
	"testing"

	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/chordwheel/chordwheel/mesh/reach"
)

// Whatever address a member names as its own, what is dialled is an IP address
// that does not point inward.
func FuzzNote(f *testing.F) {
	for _, s := range []string{"/ip4/8.8.8.8/tcp/1", "/ip4/127.0.0.1/tcp/1", "/ip6/::ffff:127.0.0.1/tcp/1", "/ip6zone/lo/ip6/fe80::1/tcp/1", "/dns/x/tcp/1",
		"/ip4/8.8.8.8/ipcidr/8/tcp/1", "/ip6/64:ff9b::7f00:1/tcp/1", "/ip4/1.1.1.1/tcp/1/ip4/127.0.0.1/tcp/2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := multiaddr.NewMultiaddr(s)
		if err != nil {
			return
		}
		b := book(nil)
		b.Note(large, []multiaddr.Multiaddr{a}, reach.Gossip, start)
		b.Due(start, 1)
		for _, k := range b.Known(large) {
			ip, err := manet.ToIP(k)
			if err != nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast() || strings.Contains(k.String(), "p2p-circuit") {
				t.Fatalf("%s", k)
			}
		}
	})
}
