package reach

import (
	"net/netip"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// Source says who named an address. Later ones are believed more.
type Source int

// Sources.
const (
	Stranger Source = iota // nobody vouches for it, as for an answer of a DHT
	Gossip                 // an announcement whose author is a member: about itself
	Peer                   // a member's own greeting
	Hub                    // the hub, about members of a shared scope
	LAN                    // multicast on this network
	Owner                  // this device's configuration
	sources
)

// all gives the addresses of an entry, the most believed first, each once.
func (e *entry) all() []multiaddr.Multiaddr {
	var all []multiaddr.Multiaddr
	seen := map[string]bool{}
	for s := sources - 1; s >= Stranger; s-- {
		for _, a := range e.addresses[s] {
			if key := string(a.Bytes()); !seen[key] {
				seen[key] = true
				all = append(all, a)
			}
		}
	}
	return all
}

// usable keeps what may be dialled on source's word, without the peer ID at
// the end.
func (b *Book) usable(p peer.ID, addresses []multiaddr.Multiaddr, source Source) []multiaddr.Multiaddr {
	var good []multiaddr.Multiaddr
	for _, a := range addresses {
		at, named := peer.SplitAddr(a)
		if at == nil || named != "" && named != p || !b.may(at, source) {
			continue
		}
		if good = append(good, at); len(good) == maxAddresses {
			break
		}
	}
	return good
}

// may is the table of docs/mesh.md: which kinds of address count on whose
// word.
func (b *Book) may(a multiaddr.Multiaddr, source Source) bool {
	if _, err := a.ValueForProtocol(multiaddr.P_CIRCUIT); err == nil {
		return false // a relayed link is made by whoever runs the relay
	}
	ip, ok := address(a)
	switch {
	case !ok: // a name may resolve to anything
		return source == Owner
	case ip.IsUnspecified(), ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return false
	case ip.IsLoopback():
		return source == Owner || source > Stranger && b.cfg.Loopback
	case ip.IsLinkLocalUnicast():
		return source >= LAN
	case !manet.IsPublicAddr(a): // means a place that depends on where one stands
		return source > Stranger
	}
	return true
}

// address gives the IP that a begins with.
func address(a multiaddr.Multiaddr) (netip.Addr, bool) {
	ip, err := manet.ToIP(a)
	if err != nil {
		return netip.Addr{}, false
	}
	at, ok := netip.AddrFromSlice(ip)
	return at.Unmap(), ok
}

// target names the door that a leads to: IP and port; and the house.
func target(a multiaddr.Multiaddr) (door, house string) {
	ip, ok := address(a)
	if !ok {
		return a.String(), a.String()
	}
	for _, code := range []int{multiaddr.P_TCP, multiaddr.P_UDP} {
		if port, err := a.ValueForProtocol(code); err == nil {
			return ip.String() + "/" + port, ip.String()
		}
	}
	return ip.String(), ip.String()
}

// choose gives the addresses of p whose targets were not tried too often in
// this minute.
func (b *Book) choose(p peer.ID, e *entry, now time.Time) Dial {
	d := Dial{Peer: p}
	doors := map[string]bool{} // TCP and QUIC of one port are one visit
	for _, a := range e.all() {
		if len(d.Addresses) == perDial {
			break
		}
		door, house := target(a)
		if !doors[door] {
			if !b.window(door).has(now, perTarget) || !b.window("host "+house).has(now, perHost) {
				continue
			}
			b.window(door).take(now, perTarget)
			b.window("host "+house).take(now, perHost)
			doors[door] = true
		}
		if _, ok := address(a); !ok {
			d.Named = true
		}
		d.Addresses = append(d.Addresses, a)
	}
	return d
}

func (b *Book) window(name string) *window {
	w := b.targets[name]
	if w == nil {
		if len(b.targets) >= maxTargets { // a minute's worth; half of it is old
			for k := range b.targets {
				if delete(b.targets, k); len(b.targets) <= maxTargets/2 {
					break
				}
			}
		}
		w = new(window)
		b.targets[name] = w
	}
	return w
}

// window counts what happened in the current minute.
type window struct {
	from time.Time
	n    int
}

func (w *window) has(now time.Time, most int) bool {
	return now.Sub(w.from) >= time.Minute || w.n < most
}

func (w *window) take(now time.Time, most int) bool {
	if now.Sub(w.from) >= time.Minute {
		w.from, w.n = now, 0
	}
	if w.n >= most {
		return false
	}
	w.n++
	return true
}
