// Package lan says which addresses are this machine's or its LAN's: where plain http may
// go. It owns that one rule. It must not know who dials, or why.
package lan

import "net/netip"

// metadata are addresses that look like a LAN's, and at which clouds hand the machine's
// credentials to whoever asks.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.0/24"),
	netip.MustParsePrefix("169.254.170.0/24"), // of containers
	netip.MustParsePrefix("fd00:ec2::/32"),
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
