package control

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Network is what `chordwheel netcheck` shows: how the device stands in its
// networks, and what is wrong with that.
type Network struct {
	Listen     []string       `json:"listen"`     // where the device listens
	Told       []string       `json:"told"`       // where it tells others that they can dial it
	Transports map[string]int `json:"transports"` // connections that stand, by transport
	Hub        []HubAddress   `json:"hub"`
	Reachable  bool           `json:"hub_reachable"`
	Clock      *float64       `json:"clock_ahead_s,omitempty"` // this device's clock before the hub's; absent: not compared since the start
	Multicast  Multicast      `json:"multicast"`
	Interfaces []Interface    `json:"interfaces"`
	Problems   []Problem      `json:"problems"`

	Joined bool `json:"joined"`
	Within bool `json:"loopback_only"`
}

// HubAddress is one address of the hub, dialled just now.
type HubAddress struct {
	Address string `json:"address"`
	Reason  string `json:"reason,omitempty"` // why it did not answer; absent: it did
}

// Multicast says whether devices of this network are looked for by mDNS.
type Multicast struct {
	On    bool    `json:"on"`
	Why   string  `json:"why,omitempty"` // why not
	Heard []Heard `json:"heard"`
}

// Heard is a peer that spoke by multicast.
type Heard struct {
	PeerID chain.PeerID `json:"peer_id"`
	Name   string       `json:"name,omitempty"` // where it is known
	At     time.Time    `json:"at"`
}

// Interface is a network interface of this machine.
type Interface struct {
	Name      string   `json:"name"`
	Up        bool     `json:"up"`
	Multicast bool     `json:"multicast"`
	Loopback  bool     `json:"loopback"`
	Addresses []string `json:"addresses"`
}

// Problem is something wrong, and what to do about it.
type Problem struct {
	What string `json:"what"`
	Next string `json:"next"`
}

// String gives both on one line.
func (p Problem) String() string { return p.What + ": " + p.Next }

// maxClock is how far two clocks may be apart: signatures bear more, and logs and
// limits become confusing.
const maxClock = 30 * time.Second

// Judge fills in what is wrong with the rest of n.
func (n *Network) Judge() {
	n.Problems = []Problem{}
	add := func(what, next string) { n.Problems = append(n.Problems, Problem{what, next}) }
	if !n.Joined {
		add("this device has joined no mesh", "run: chordwheel join INVITATION")
		return
	}
	n.judgeHub(add)
	if len(n.Listen) == 0 {
		add("this device listens nowhere, so no other device can call it", "name an address under listen: in its config.yaml, such as /ip4/0.0.0.0/tcp/7412, and start it again")
	} else if n.Within {
		add("this device listens on this machine only, so devices elsewhere cannot call it", "for a mesh of several machines set listen: [/ip4/0.0.0.0/tcp/7412, /ip4/0.0.0.0/udp/7412/quic-v1] in its config.yaml, or start up with --lan")
	}
	if !n.Within && !n.Multicast.On {
		next := "name other devices under peers: in config.yaml; the hub tells of them, too"
		if strings.Contains(n.Multicast.Why, "mdns") {
			next = "set mdns: true in config.yaml, or name other devices under peers:"
		}
		add("devices of this network are not looked for by multicast: "+n.Multicast.Why, next)
	}
	if !n.Within && !n.beyond() {
		add("no interface but loopback is up and has an address", "connect this machine to a network")
	}
	if n.quic(n.Listen) && n.hubHasQUIC() && n.Transports["quic-v1"] == 0 && n.Transports["tcp"] > 0 && !n.Within {
		add("connections stand over TCP and none over QUIC", "a firewall may drop UDP; nothing is lost but speed. Let UDP through to the ports above")
	}
	if n.Clock != nil && (*n.Clock > maxClock.Seconds() || *n.Clock < -maxClock.Seconds()) {
		add(fmt.Sprintf("this device's clock is %.0f s off the hub's", *n.Clock), "set both by NTP: signed things are not yet, or no longer, valid where clocks differ")
	}
}

func (n *Network) judgeHub(add func(what, next string)) {
	var bad []string
	for _, h := range n.Hub {
		if h.Reason != "" {
			bad = append(bad, h.Address+" ("+h.Reason+")")
		}
	}
	switch {
	case len(bad) == 0:
	case len(bad) < len(n.Hub):
		add("the hub does not answer at every address: "+strings.Join(bad, ", "), "nothing needs to be done while another answers")
	case strings.Contains(strings.Join(bad, ""), "not the pinned hub"):
		add("another node answers where the hub was: "+strings.Join(bad, ", "), "if the hub was set up anew, join it with a new invitation: chordwheel join INVITATION")
	default:
		add("the hub is out of reach: "+strings.Join(bad, ", "), "see that it runs (chordwheel status there), and that no firewall is between; if it moved, join with a new invitation")
	}
}

// hubHasQUIC reports whether the hub tells an address of QUIC: where it listens
// over TCP alone, nothing is in the way of what was never there.
func (n *Network) hubHasQUIC() bool {
	return slices.ContainsFunc(n.Hub, func(h HubAddress) bool { return n.quic([]string{h.Address}) })
}

func (n *Network) quic(list []string) bool {
	for _, a := range list {
		if strings.Contains(a, "/quic-v1") {
			return true
		}
	}
	return false
}

// beyond reports whether an interface leads out of this machine.
func (n *Network) beyond() bool {
	for _, i := range n.Interfaces {
		for _, a := range i.Addresses {
			if ip, _, err := net.ParseCIDR(a); i.Up && !i.Loopback && err == nil && ip.IsGlobalUnicast() {
				return true
			}
		}
	}
	return len(n.Interfaces) == 0 // nobody looked
}
