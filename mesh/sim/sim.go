// Package sim owns a simulated network for tests: real hosts, QUIC, TLS and
// gossip over packets that a seeded router delays, loses and cuts. It is meant
// for a time bubble (testing/synctest), where an hour of it takes a moment; it
// does not import package testing and knows nothing of hubs and devices.
//
// Its nodes are placed where real fleets have trouble and loopback shows none:
// all in one /24, and every fourth behind one shared address with a port of its
// own, as behind NAT.
//
//	net := sim.New(sim.Config{Seed: 1, Nodes: 4})
//	defer net.Close() // last, after the nodes
//	hub, _ := mesh.NewHub(mesh.HubConfig{…, Host: net.HostFactory(0)})
//	device, _ := mesh.NewDevice(mesh.DeviceConfig{…, HubAddrs: net.Addrs(0), Host: net.HostFactory(1)})
//	net.Cut([]int{0}, net.Others(0))
//	net.Heal()
package sim

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand"
	"net"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/marcopolo/simnet"
	"github.com/quic-go/quic-go"
	"go.uber.org/fx"
)

// Config says what network to make.
type Config struct {
	Seed  int64         // 0: one is picked; print Net.Seed when a test fails
	Nodes int           // 1 to 1000
	Delay time.Duration // one way; 0 is 5 ms
	Mbps  int           // of each node, both ways; 0 is 100
	Tap   Tap           // sees what streams carry; nil: nobody does
}

// Net is a simulated network. Its methods may be called from many goroutines
// of one bubble.
type Net struct {
	cfg  Config
	net  *simnet.Simnet
	link simnet.NodeBiDiLinkSettings

	mu     sync.Mutex
	random *rand.Rand
	nodes  map[string]int // by "ip:port"
	loss   float64
	delay  time.Duration
	delays map[[2]int]time.Duration
	cut    map[[2]int]bool
}

// New makes a network and starts its router. Call it inside the bubble.
func New(cfg Config) *Net {
	if cfg.Seed == 0 {
		cfg.Seed = rand.Int63()
	}
	if cfg.Delay == 0 {
		cfg.Delay = 5 * time.Millisecond
	}
	if cfg.Mbps == 0 {
		cfg.Mbps = 100
	}
	speed := simnet.LinkSettings{BitsPerSecond: cfg.Mbps * 1_000_000}
	n := &Net{cfg: cfg, link: simnet.NodeBiDiLinkSettings{Downlink: speed, Uplink: speed}, random: rand.New(rand.NewSource(cfg.Seed)),
		nodes: map[string]int{}, delay: cfg.Delay, delays: map[[2]int]time.Duration{}, cut: map[[2]int]bool{}}
	for i := range cfg.Nodes {
		n.nodes[n.udp(i).String()] = i
	}
	n.net = &simnet.Simnet{LatencyFunc: n.latency, Logger: slog.New(slog.DiscardHandler)}
	n.net.Start()
	return n
}

// Seed gives the seed, for the line that a failing test prints.
func (n *Net) Seed() int64 { return n.cfg.Seed }

// Random gives a source of its own for node i, for keys and the like. The
// same seed gives the same sequence.
func (n *Net) Random(i int) io.Reader {
	return rand.New(rand.NewSource(n.cfg.Seed*1009 + int64(i) + 1))
}

// Shared reports whether node i sits behind the shared address.
func (n *Net) Shared(i int) bool { return i%4 == 3 || i >= 240 }

// udp is where node i listens: 1.0.0.1 and up, or the shared 1.0.0.254. The
// addresses are public in form, so that no limit makes an exception for them.
func (n *Net) udp(i int) *net.UDPAddr {
	if n.Shared(i) {
		return &net.UDPAddr{IP: net.IPv4(1, 0, 0, 254).To4(), Port: 10000 + i}
	}
	return &net.UDPAddr{IP: net.IPv4(1, 0, 0, byte(i+1)).To4(), Port: 7411}
}

// Addrs gives the multiaddrs of node i, for those who dial it.
func (n *Net) Addrs(i int) []string {
	a := n.udp(i)
	return []string{fmt.Sprintf("/ip4/%s/udp/%d/quic-v1", a.IP, a.Port)}
}

// Others gives all nodes but i.
func (n *Net) Others(i int) []int {
	var all []int
	for k := range n.cfg.Nodes {
		if k != i {
			all = append(all, k)
		}
	}
	return all
}

// HostFactory makes the host of node i, with its transport and its address; it
// fits mesh.HostFactory. It may be called again once the host was closed: the
// node then restarts at its old address.
func (n *Net) HostFactory(i int) func(...libp2p.Option) (host.Host, error) {
	if i < 0 || i >= n.cfg.Nodes {
		panic(fmt.Sprintf("BUG: node %d of a network of %d", i, n.cfg.Nodes))
	}
	return func(opts ...libp2p.Option) (host.Host, error) {
		h, err := libp2p.New(append(opts, libp2p.ListenAddrStrings(n.Addrs(i)...), libp2p.Transport(libp2pquic.NewTransport),
			// It waits for packets in a way that stops a bubble's clock.
			libp2p.DisableIdentifyAddressDiscovery(),
			n.quic(i))...)
		if err != nil || n.cfg.Tap == nil {
			return h, err
		}
		return &tapped{Host: h, node: i, tap: n.cfg.Tap}, nil
	}
}

// source names the one address that a node's packets come from.
type source net.IP

func (s source) PreferredSourceIPForDestination(*net.UDPAddr) (net.IP, error) { return net.IP(s), nil }

// quic lets the QUIC transport of node i send through the simulated router.
func (n *Net) quic(i int) libp2p.Option {
	at := n.udp(i)
	return libp2p.QUICReuse(
		func(l fx.Lifecycle, reset quic.StatelessResetKey, token quic.TokenGeneratorKey, opts ...quicreuse.Option) (*quicreuse.ConnManager, error) {
			m, err := quicreuse.NewConnManager(reset, token, opts...)
			if err != nil {
				return nil, err
			}
			l.Append(fx.StopHook(m.Close)) // the host does not close a manager that it did not make
			return m, nil
		},
		quicreuse.OverrideSourceIPSelector(func() (quicreuse.SourceIPSelector, error) { return source(at.IP), nil }),
		quicreuse.OverrideListenUDP(func(_ string, a *net.UDPAddr) (net.PacketConn, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			return &conn{SimConn: n.net.NewEndpoint(a, n.link), net: n, from: i}, nil
		}))
}

// conn drops what is cut or lost before the router sees it.
type conn struct {
	*simnet.SimConn
	net  *Net
	from int
}

func (c *conn) WriteTo(b []byte, to net.Addr) (int, error) {
	if c.net.drop(c.from, to) {
		return len(b), nil
	}
	return c.SimConn.WriteTo(b, to)
}

func (n *Net) drop(from int, addr net.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	to, known := n.nodes[addr.String()]
	return !known || n.cut[[2]int{from, to}] || n.loss > 0 && n.random.Float64() < n.loss
}

func (n *Net) latency(p *simnet.Packet) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d, ok := n.delays[[2]int{n.nodes[p.From.String()], n.nodes[p.To.String()]}]; ok {
		return d
	}
	return n.delay
}

// Cut loses every packet between nodes of a and nodes of b, both ways. Packets
// on their way still arrive.
func (n *Net) Cut(a, b []int) {
	n.pairs(a, b, func(pair [2]int) { n.cut[pair] = true })
}

// Heal ends every cut.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
}

// Delay sets the one-way delay between nodes of a and nodes of b.
func (n *Net) Delay(d time.Duration, a, b []int) {
	n.pairs(a, b, func(pair [2]int) { n.delays[pair] = d })
}

// Loss sets the share of packets, 0 to 1, that every link loses.
func (n *Net) Loss(share float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss = share
}

func (n *Net) pairs(a, b []int, do func([2]int)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range a {
		for _, k := range b {
			if i != k {
				do([2]int{i, k})
				do([2]int{k, i})
			}
		}
	}
}

// Close stops the router; the nodes must be closed before. It then sleeps for
// a minute of the bubble's time, in which timers of closed hosts run out that
// would otherwise count as leaked goroutines. Do not call it outside a bubble.
func (n *Net) Close() {
	n.net.Close()
	time.Sleep(time.Minute)
}
