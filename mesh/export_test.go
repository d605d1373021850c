package mesh

import (
	"context"
	"log/slog"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exchange"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// The tests look behind the nodes with these, and make hostile neighbours that
// know the names of topics.

func (h *Hub) Host() host.Host    { return h.host }
func (d *Device) Host() host.Host { return d.host }

func PolicyTopic(m chain.MeshID, s chain.ScopeID) string { return policyTopic(m, wire.PolicyShard(s)) }
func RevokedTopic(m chain.MeshID) string                 { return revokedTopic(m) }
func AnnounceTopic(m chain.MeshID, k wire.TopicKey) string {
	return announceTopic(m, wire.ScopeHash(k.Key, k.Scope))
}

func (d *Device) DialsAsked() uint64 { return d.gater.asked.Load() }

var Pause = pause

func (d *Device) Conns(p chain.PeerID) []network.Conn {
	id, _ := peerID(p)
	return d.host.Network().ConnsToPeer(id)
}

// Link makes a connection to another device without an introduction.
func (d *Device) Link(ctx context.Context, to *Device) error {
	d.peers.mu.Lock()
	d.peers.grants[to.host.ID()] = &grant{named: true, done: make(chan struct{})}
	d.peers.mu.Unlock()
	defer func() {
		d.peers.mu.Lock()
		defer d.peers.mu.Unlock()
		delete(d.peers.grants, to.host.ID())
	}()
	return d.host.Connect(ctx, peer.AddrInfo{ID: to.host.ID(), Addrs: to.host.Addrs()})
}

// KeepLAN keeps s up as a device does with its multicast service.
func KeepLAN(run context.Context, s mdns.Service, log *slog.Logger) (moved func(), done <-chan struct{}) {
	l := &lan{name: "test", log: log, changed: make(chan struct{}, 1), make: func(host.Host, string, mdns.Notifee) mdns.Service { return s }}
	ended := make(chan struct{})
	go func() { defer close(ended); l.loop(run) }()
	return l.moved, ended
}

func ChordsTopic(m chain.MeshID, k wire.TopicKey) string {
	return chordsTopic(m, wire.ScopeHash(k.Key, k.Scope))
}

// UsesLAN reports whether the device looks for others by multicast.
func (d *Device) UsesLAN() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.lan != nil }

// BodyFrom asks a member of scope for the body with an address. Devices answer it and
// have no need to ask: they fetch chains.
func (d *Device) BodyFrom(ctx context.Context, from chain.PeerID, scope chain.ScopeID, body chain.CID) (b []byte, err error) {
	err = d.with(ctx, from, func(s *exchange.Session) (err error) { b, err = s.Body(ctx, scope, body); return err })
	return b, err
}
