package lan

import (
	"net/netip"
	"testing"
)

func TestNear(t *testing.T) {
	for ip, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "10.1.2.3": true, "172.16.0.1": true, "192.168.1.20": true, "fd12::1": true, "fe80::1": true, "fe80::1%eth0": true,
		"169.254.7.7": true, "::ffff:192.168.1.1": true,
		"1.1.1.1": false, "172.32.0.1": false, "0.0.0.0": false, "::": false, "2606:4700::1": false, "2001:db8::1": false, "100.64.0.1": false, "224.0.0.1": false, "ff02::1": false, "::ffff:8.8.8.8": false,
		"169.254.169.254": false, "169.254.170.2": false, "169.254.170.23": false, "::ffff:169.254.169.254": false, "fd00:ec2::254": false, "fd00:ec2::23%eth0": false,
		"fd20:ce::254": false, "fd00:c1::a9fe:a9fe": false, "fe80::a9fe:a9fe%eth0": false, "fd00:42::42": false, "fd00:a9fe:a9fe::1": false, "fd00:100::100:200": false,
		"169.254.42.42": false, "169.254.0.23": false, "169.254.10.10": false, "fd20:cf::254": true, "fd00:100::1": true,
	} {
		if got := Near(netip.MustParseAddr(ip)); got != want {
			t.Errorf("%s: %v", ip, got)
		}
	}
	if Near(netip.Addr{}) {
		t.Error("no address at all")
	}
}
