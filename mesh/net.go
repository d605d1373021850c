package mesh

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/multiformats/go-multiaddr"

	"github.com/chordwheel/chordwheel/chain"
)

// Net is how a device stands in its networks: what a person needs to see why
// devices do not find each other.
type Net struct {
	Listen     []string       // where it listens
	Told       []string       // where it tells others that they can dial it
	Within     bool           // it listens on this machine only, or nowhere
	Transports map[string]int // connections that stand, by transport
	Multicast  string         // why devices of this network are not looked for; "" they are
	Heard      []Heard        // by multicast, the latest first
	Hub        []Attempt      // each address of the hub; Reason "" where it answered
}

// Heard is a peer that spoke by multicast.
type Heard struct {
	Peer chain.PeerID
	At   time.Time
}

// probeTimeout bounds one dial of a look at the network.
const probeTimeout = 5 * time.Second

// Net looks at the device's networks. It dials the hub at each of its addresses,
// beside the connection that may stand, and hangs up at once.
func (d *Device) Net(ctx context.Context) Net {
	n := Net{Listen: listening(d.host), Told: d.reachable(), Within: d.peers.within || len(d.cfg.Listen) == 0, Transports: map[string]int{}, Hub: make([]Attempt, len(d.addrs))}
	for _, c := range d.host.Network().Conns() {
		n.Transports[c.ConnState().Transport]++
	}
	n.Multicast = d.multicast()
	d.peers.mu.Lock()
	for id, at := range d.peers.onLAN {
		n.Heard = append(n.Heard, Heard{chain.PeerID(id.String()), at})
	}
	d.peers.mu.Unlock()
	slices.SortFunc(n.Heard, func(a, b Heard) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Peer, b.Peer)) })
	var group sync.WaitGroup
	for i, at := range d.addrs {
		group.Go(func() {
			n.Hub[i] = Attempt{Address: at.String()}
			if err := d.probe(ctx, at); err != nil {
				u := &Unreachable{}
				reasons := map[string]string{}
				u.note(reasons, "", err)
				n.Hub[i].Reason = reasons[""]
			}
		})
	}
	group.Wait()
	return n
}

// multicast says why the devices of this network are not looked for.
func (d *Device) multicast() string {
	d.mu.Lock()
	l := d.lan
	d.mu.Unlock()
	switch {
	case l != nil:
		if why := l.failed.Load(); why != nil {
			return *why
		}
		return ""
	case !d.cfg.LAN:
		return "it is off in the configuration (mdns: false)"
	}
	return "this device listens on this machine only"
}

// probe makes a connection to the hub at one address, and ends it.
func (d *Device) probe(ctx context.Context, at multiaddr.Multiaddr) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	at, err := resolved(ctx, at)
	if err != nil {
		return err
	}
	s, ok := d.host.Network().(*swarm.Swarm)
	if !ok {
		return fmt.Errorf("this host cannot dial one address")
	}
	t := s.TransportForDialing(at)
	if t == nil {
		return fmt.Errorf("this device speaks no such transport")
	}
	c, err := t.Dial(ctx, at, d.hub)
	if err != nil {
		return err
	}
	return c.Close()
}

// resolved puts an address in the place of a name.
func resolved(ctx context.Context, at multiaddr.Multiaddr) (multiaddr.Multiaddr, error) {
	first, rest := multiaddr.SplitFirst(at)
	if first == nil {
		return at, nil
	}
	network, ok := map[int]string{multiaddr.P_DNS: "ip", multiaddr.P_DNS4: "ip4", multiaddr.P_DNS6: "ip6"}[first.Protocol().Code]
	if !ok {
		return at, nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, network, first.Value())
	if err != nil {
		return nil, err
	}
	family := "ip4"
	ip := found[0].Unmap()
	if ip.Is6() {
		family = "ip6"
	}
	c, err := multiaddr.NewComponent(family, ip.String())
	if err != nil {
		return nil, err
	}
	return c.Multiaddr().Encapsulate(rest), nil
}
