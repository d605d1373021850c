// Package lan says which addresses are this machine's or its LAN's: where plain http may
// go. It owns that one rule. It must not know who dials, or why.
package lan

import "net/netip"

// metadata are addresses that look like a LAN's, and at which clouds hand the machine's
// credentials to whoever asks.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.0/24"),      // most of them
	netip.MustParsePrefix("169.254.170.0/24"),      // Amazon, of containers
	netip.MustParsePrefix("fd00:ec2::/32"),         // Amazon
	netip.MustParsePrefix("fd20:ce::/32"),          // Google, of machines without IPv4
	netip.MustParsePrefix("fd00:c1::/32"),          // Oracle
	netip.MustParsePrefix("fd00:100::100:200/128"), // Alibaba
	netip.MustParsePrefix("169.254.0.23/32"),       // Tencent
	netip.MustParsePrefix("169.254.10.10/32"),      // Tencent
	netip.MustParsePrefix("169.254.42.42/32"),      // Scaleway
	netip.MustParsePrefix("fd00:42::42/128"),       // Scaleway
	netip.MustParsePrefix("fd00:a9fe:a9fe::/48"),   // Linode
	netip.MustParsePrefix("fe80::a9fe:a9fe/128"),   // OpenStack, on each link
}

// Near reports whether ip is a loopback address, a private one or one of this link, but none of a
// cloud's metadata service.
func Near(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	for _, p := range metadata {
		if p.Contains(ip) {
			return false
		}
	}
	return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()
}
