package mesh

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	quic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/libp2p/go-libp2p/x/rate"
	"github.com/multiformats/go-multiaddr"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/spoke"
)

// HostFactory makes the host of a node from the options that the node sets:
// identity, gater, limits. The factory adds transports and, where the node has
// no Listen of its own, addresses. nil stands for TCP and QUIC on this machine;
// package sim gives others.
type HostFactory func(opts ...libp2p.Option) (host.Host, error)

// systemHost does not share TCP ports, as the library would: two nodes on one
// port would each get some of the visitors, where the second must say that the
// port is taken.
func systemHost(opts ...libp2p.Option) (host.Host, error) {
	return libp2p.New(append(opts, libp2p.NoListenAddrs,
		libp2p.Transport(tcp.NewTCPTransport, tcp.DisableReuseport()), libp2p.Transport(quic.NewTransport),
		libp2p.Security(noise.ID, noise.New), libp2p.Security(libp2ptls.ID, libp2ptls.New))...)
}

// WireVersion is what nodes tell each other as their protocol version.
const WireVersion = "chordwheel/1"

// limits are the sizes of a node, as its resource manager and connection
// manager are given them.
type limits struct {
	conns, transient    int // inbound; beyond them a dialler is refused without a handshake
	perAddress          int // connections from one address: NAT and containers share theirs
	streams             int
	low, high           int   // of the connection manager
	memory              int64 // accounted by the resource manager, not RSS
	accepts             float64
	acceptBurst         int
	spokes, spokesAPeer int // streams of the spoke, inbound
	execs, execsAPeer   int // of exec, inbound and outbound each
}

// hubLimits hold 1,900 standing connections (about 70 MiB) and a burst of
// visitors. Default limits would refuse connection 65 on a small machine and
// the ninth behind one address on any.
var hubLimits = limits{conns: 2048, transient: 256, perAddress: 2048, streams: 16384, low: 1500, high: 1900, memory: 96 << 20,
	accepts: 500, acceptBurst: 1000, spokes: spoke.Sessions, spokesAPeer: spoke.SessionsPerPeer + 2}

// deviceLimits hold a LAN full of peers and no more.
var deviceLimits = limits{conns: 256, transient: 64, perAddress: 128, streams: 4096, low: 32, high: 96, memory: 128 << 20,
	accepts: 50, acceptBurst: 200, execs: exec.Streams + 32, execsAPeer: exec.StreamsPerPeer + 2}

// streams allows n each way.
func streams(n int) rcmgr.ResourceLimits {
	return rcmgr.ResourceLimits{StreamsInbound: rcmgr.LimitVal(n), StreamsOutbound: rcmgr.LimitVal(n), Streams: rcmgr.LimitVal(2 * n)}
}

func (l limits) resources() (network.ResourceManager, error) {
	base := rcmgr.DefaultLimits
	libp2p.SetDefaultServiceLimits(&base)
	partial := rcmgr.PartialLimitConfig{
		System: rcmgr.ResourceLimits{ConnsInbound: rcmgr.LimitVal(l.conns), Conns: rcmgr.LimitVal(l.conns + l.transient),
			Streams: rcmgr.LimitVal(2 * l.streams), StreamsInbound: rcmgr.LimitVal(l.streams), StreamsOutbound: rcmgr.LimitVal(l.streams),
			Memory: rcmgr.LimitVal64(l.memory), FD: rcmgr.LimitVal(2 * l.conns)},
		Transient: rcmgr.ResourceLimits{ConnsInbound: rcmgr.LimitVal(l.transient), Conns: rcmgr.LimitVal(l.transient + 64),
			Streams: rcmgr.LimitVal(l.streams), StreamsInbound: rcmgr.LimitVal(l.streams / 2), FD: rcmgr.LimitVal(l.transient + 64)},
		// One peer: two transports, both ends dialling at once, and a redial
		// while the dead connection has not been noticed.
		PeerDefault: rcmgr.ResourceLimits{ConnsInbound: 8, Conns: 12, StreamsInbound: 128, StreamsOutbound: 128, Streams: 256},
		Protocol:    map[protocol.ID]rcmgr.ResourceLimits{}, ProtocolPeer: map[protocol.ID]rcmgr.ResourceLimits{},
	}
	if l.spokes > 0 {
		partial.Protocol[spoke.Protocol] = rcmgr.ResourceLimits{StreamsInbound: rcmgr.LimitVal(l.spokes), Streams: rcmgr.LimitVal(l.spokes)}
		partial.ProtocolPeer[spoke.Protocol] = rcmgr.ResourceLimits{StreamsInbound: rcmgr.LimitVal(l.spokesAPeer), Streams: rcmgr.LimitVal(l.spokesAPeer)}
	}
	if l.execs > 0 {
		partial.Protocol[exec.Protocol] = streams(l.execs)
		partial.ProtocolPeer[exec.Protocol] = streams(l.execsAPeer)
	}
	return rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(partial.Build(base.Scale(l.memory, 2*l.conns))),
		rcmgr.WithMetricsDisabled(),
		// These two hold beside every other limit, loopback exempt: without
		// them the ninth device behind one address never gets in.
		rcmgr.WithLimitPerSubnet([]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: l.perAddress}},
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 56, ConnCount: l.perAddress}}),
		rcmgr.WithConnRateLimiters(&rate.Limiter{GlobalLimit: rate.Limit{RPS: l.accepts, Burst: l.acceptBurst}}))
}

// build makes the host of a node. It does not listen yet unless the factory
// has addresses of its own.
func build(key chain.Key, version string, l limits, g *gater, m *meter, factory HostFactory, more ...libp2p.Option) (host.Host, error) {
	resources, err := l.resources()
	if err != nil {
		return nil, fmt.Errorf("mesh limits: %w", err)
	}
	conns, err := connmgr.NewConnManager(l.low, l.high, connmgr.WithGracePeriod(20*time.Second))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mesh connection manager: %w", err), resources.Close())
	}
	if factory == nil {
		factory = systemHost
	}
	h, err := factory(append(more,
		libp2p.Identity(key.Private()), libp2p.ConnectionGater(g), libp2p.ResourceManager(resources), libp2p.ConnectionManager(conns),
		libp2p.BandwidthReporter(m), libp2p.DisableMetrics(), libp2p.DisableRelay(), libp2p.Ping(false), libp2p.SwarmOpts(swarm.WithDialRanker(rank)),
		// After a hundred dials into an outage these would let one in a
		// hundred through: a device would miss its hub's return by hours.
		libp2p.UDPBlackHoleSuccessCounter(nil), libp2p.IPv6BlackHoleSuccessCounter(nil),
		libp2p.UserAgent("chordwheel/"+version), libp2p.ProtocolVersion(WireVersion))...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mesh host: %w", err), conns.Close(), resources.Close())
	}
	return h, nil
}

// listen opens the addresses, all or none.
func listen(h host.Host, addresses []string) error {
	parsed, err := parse(addresses)
	if err != nil {
		return err
	}
	for i, a := range parsed {
		if err := h.Network().Listen(a); err != nil {
			return fmt.Errorf("listen on %s: %s", addresses[i], flat(err))
		}
	}
	return nil
}

// CheckAddresses refuses what is no multiaddr, so that a configuration can say so
// before anything listens.
func CheckAddresses(addresses []string) error {
	_, err := parse(addresses)
	return err
}

// parse reads addresses and names the first that is none.
func parse(addresses []string) ([]multiaddr.Multiaddr, error) {
	var all []multiaddr.Multiaddr
	for _, s := range addresses {
		a, err := multiaddr.NewMultiaddr(s)
		if err != nil {
			return nil, fmt.Errorf("mesh address %q: want a form such as /ip4/192.0.2.1/tcp/7411: %s", chain.ClipTo(s, 96), flat(err))
		}
		all = append(all, a)
	}
	return all, nil
}

// listening gives where h can be dialled, unspecified addresses resolved.
func listening(h host.Host) []string {
	if h == nil {
		return nil // not started
	}
	all, err := h.Network().InterfaceListenAddresses()
	if err != nil {
		all = h.Network().ListenAddresses()
	}
	var s []string
	for _, a := range all {
		s = append(s, a.String())
	}
	return s
}

// peerID reads what chain holds in text form.
func peerID(p chain.PeerID) (peer.ID, error) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return "", fmt.Errorf("peer ID %q: %w", chain.Clip(p), err)
	}
	return id, nil
}

// flat puts an error of the library, which may have a line per address, on
// one line and bounds it.
func flat(err error) string {
	return chain.ClipTo(strings.Join(strings.Fields(err.Error()), " "), 512)
}
