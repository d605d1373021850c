package control_test

import (
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/daemon/control"
)

// Each thing that is wrong with a device's networks is named with what to do.
func TestJudge(t *testing.T) {
	ahead, level := 90.0, -0.2
	whole := control.Network{Joined: true, Reachable: true, Listen: []string{"/ip4/192.0.2.7/udp/7411/quic-v1"}, Transports: map[string]int{"quic-v1": 2}, Clock: &level,
		Hub: []control.HubAddress{{Address: "/ip4/192.0.2.1/tcp/7411"}}, Multicast: control.Multicast{On: true},
		Interfaces: []control.Interface{{Name: "lo", Up: true, Loopback: true, Addresses: []string{"127.0.0.1/8"}}, {Name: "eth0", Up: true, Addresses: []string{"192.0.2.7/24"}}}}
	for name, c := range map[string]struct {
		change func(*control.Network)
		want   string // "" nothing
	}{
		"whole":         {func(*control.Network) {}, ""},
		"not joined":    {func(n *control.Network) { n.Joined = false }, "chordwheel join"},
		"nowhere":       {func(n *control.Network) { n.Listen = nil }, "listens nowhere"},
		"loopback only": {func(n *control.Network) { n.Within = true }, "this machine only"},
		"no mdns by will": {func(n *control.Network) {
			n.Multicast = control.Multicast{Why: "it is off in the configuration (mdns: false)"}
		}, "set mdns: true"},
		"no mdns by machine": {func(n *control.Network) { n.Multicast = control.Multicast{Why: "no such interface"} }, "no such interface: name other devices under peers"},
		"unplugged":          {func(n *control.Network) { n.Interfaces = n.Interfaces[:1] }, "connect this machine"},
		"unplugged, but up":  {func(n *control.Network) { n.Interfaces[1].Addresses = []string{"fe80::1/64"} }, "connect this machine"},
		"udp dropped": {func(n *control.Network) {
			n.Transports = map[string]int{"tcp": 1}
			n.Hub = append(n.Hub, control.HubAddress{Address: "/ip4/192.0.2.1/udp/7411/quic-v1"})
		}, "drop UDP"},
		"a hub of TCP alone": {func(n *control.Network) { n.Transports = map[string]int{"tcp": 1} }, ""},
		"clock":              {func(n *control.Network) { n.Clock = &ahead }, "90 s off the hub's: set both by NTP"},
		"hub away":           {func(n *control.Network) { n.Hub[0].Reason = "connection refused" }, "out of reach: /ip4/192.0.2.1/tcp/7411 (connection refused)"},
		"hub half away": {func(n *control.Network) {
			n.Hub = append(n.Hub, control.HubAddress{Address: "x", Reason: "no answer in time"})
		}, "not answer at every address: x"},
		"another in its stead": {func(n *control.Network) { n.Hub[0].Reason = "another node answers there, not the pinned hub" }, "new invitation"},
	} {
		n := whole
		n.Hub = append([]control.HubAddress{}, whole.Hub...)
		n.Interfaces = append([]control.Interface{}, whole.Interfaces...)
		c.change(&n)
		n.Judge()
		switch {
		case c.want == "" && len(n.Problems) > 0:
			t.Errorf("%s: %v", name, n.Problems)
		case c.want == "":
		case len(n.Problems) != 1 || !strings.Contains(n.Problems[0].String(), c.want) || n.Problems[0].Next == "":
			t.Errorf("%s: %v, want one with %q", name, n.Problems, c.want)
		}
	}
}
