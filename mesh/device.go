package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/multiformats/go-multiaddr"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exchange"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// DeviceConfig says what a device node needs. Key, Trust and HubAddrs are
// required. The callbacks are called one at a time from the node's own
// goroutines; they must return soon, may call the node's methods but not Close,
// and may be nil.
type DeviceConfig struct {
	Key      chain.Key
	Trust    chain.Trust // who the hub is: pinned at joining
	HubAddrs []string    // multiaddrs where the hub is looked for, and nowhere else; with or without its peer ID
	Listen   []string    // multiaddrs; none: nobody can dial this device
	Host     HostFactory // nil: this machine's network
	Log      *slog.Logger
	Version  string // of the program

	// AnnounceEvery is the pause between two announcements; 0 is 15 minutes.
	AnnounceEvery time.Duration
	// Executor decides about work that other devices send; nil refuses it all.
	Executor exec.Executor

	// OnInvalidation: slot has a chain with seq and this prefix of the body's
	// address (see [Prefix]). A hint: fetch.
	OnInvalidation func(slot chain.Slot, seq uint64, prefix []byte)
	// OnRevoked: a newer signed revocation list, verified.
	OnRevoked func(list []byte)
	// OnHub: the hub became reachable, or ceased to be.
	OnHub func(up bool)
	// OnWelcome: the hub answered a hello that the node said by itself, after
	// a reconnection. Answers to Hello are not told again.
	OnWelcome func(w wire.Welcome)
	// OnRefused: the hub refused such a hello. The node goes on trying, slowly.
	OnRefused func(r *spoke.Refusal)
	// OnMoved: an address of this machine changed, so that what could not be
	// reached may be now.
	OnMoved func()
	// OnAnnounce: another device of a joined scope announced itself.
	OnAnnounce func(p Presence)

	// Peers are addresses of other devices, with their peer IDs: multiaddrs such
	// as /ip4/192.0.2.7/tcp/7411/p2p/12D3Koo…; names are resolved at each dial.
	Peers []string
	// LAN: devices of the mesh in this network are looked for by multicast. Only
	// for a device that listens beyond this machine.
	LAN bool
	// Metered: idle links are closed after two minutes.
	Metered bool
	// Keep is how many peers the device looks for; 0 is 32. More may find it.
	Keep int
	// Chains is what the device caches and gives to members; nil: nothing.
	Chains exchange.Chains
	// Load says how busy the device is with others' work; nil: nothing to do. It
	// must return at once.
	Load func() wire.Load
	// Checkpoint gives the newest signed checkpoint of the hub's ledger that the device saw, for
	// others to compare; nil: none. It must return at once.
	Checkpoint func() []byte

	// OnContact: a peer was met: its membership was verified over a connection
	// that proved its key, now. Told again with newer measurements.
	OnContact func(c Contact)
	// OnParted: the last connection with a contact is gone, or it was revoked,
	// or a link that was closed for being idle was not renewed for too long.
	OnParted func(p chain.PeerID)
	// OnClone: something that must be unique was seen twice.
	OnClone func(c Clone)
}

// Device is the node of one device. It has one session with the hub at a
// time. Methods may be called from many goroutines, between Start and Close.
type Device struct {
	cfg    DeviceConfig
	hub    peer.ID
	addrs  []multiaddr.Multiaddr
	gater  gater
	meter  meter
	host   host.Host
	gossip *gossip
	exec   *exec.Server // of others' work
	sent   *exec.Sent   // envelopes, with our work
	cancel context.CancelFunc
	group  sync.WaitGroup
	once   sync.Once
	wake   chan struct{} // room for one: the keeper looks again
	opener chan struct{} // one token: whoever has it opens a session

	teller teller
	peers  *peers
	lan    *lan // nil: no multicast

	mu       sync.Mutex
	link     link
	announce *wire.Announce
	number   uint64 // of the last announcement
}

// NewDevice checks cfg and makes a device that is not started.
func NewDevice(cfg DeviceConfig) (*Device, error) {
	if cfg.Key == (chain.Key{}) || cfg.Trust.Mesh == "" {
		return nil, errors.New("mesh device: key and trust are required")
	}
	hub, err := peerID(cfg.Trust.Orchestrator)
	if err != nil {
		return nil, fmt.Errorf("mesh device: the pinned hub: %w", err)
	}
	if len(cfg.HubAddrs) == 0 {
		return nil, errors.New("mesh device: no address of the hub is known; join with an invitation")
	}
	addrs, err := parse(cfg.HubAddrs)
	if err != nil {
		return nil, err
	}
	cfg.HubAddrs = nil // as they are dialled, for errors
	for i, a := range addrs {
		at, named := peer.SplitAddr(a)
		if at == nil || named != "" && named != hub {
			return nil, fmt.Errorf("mesh device: %s names no address of the pinned hub %s", chain.ClipTo(a.String(), 96), hub)
		}
		addrs[i] = at
		cfg.HubAddrs = append(cfg.HubAddrs, at.String())
	}
	if _, err := parse(cfg.Listen); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.AnnounceEvery == 0 {
		cfg.AnnounceEvery = 15 * time.Minute
	}
	d := &Device{cfg: cfg, hub: hub, addrs: addrs, exec: exec.NewServer(cfg.Executor, cfg.Log), sent: exec.NewSent(), wake: make(chan struct{}, 1), opener: make(chan struct{}, 1)}
	if d.peers, err = newPeers(d); err != nil {
		return nil, err
	}
	// The pinned hub, and whom the device has just decided to meet, where it
	// has decided to.
	d.gater.may = func(p peer.ID, at multiaddr.Multiaddr) bool { return p == hub || d.peers.granted(p, at) }
	d.opener <- struct{}{}
	d.teller.init()
	return d, nil
}

// Start makes the host and everything that a peer could ask for, then listens,
// and begins to keep the connection once a Hello was given. It does not dial
// before that. ctx is for the start alone; the device runs until Close. After an
// error nothing runs.
func (d *Device) Start(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.host, err = build(d.cfg.Key, d.cfg.Version, deviceLimits, &d.gater, &d.meter, d.cfg.Host, libp2p.ForceReachabilityPrivate())
	if err != nil {
		return err
	}
	d.host.SetStreamHandler(exec.Protocol, d.exec.Serve)
	run, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	defer func() {
		if err != nil {
			_ = d.Close()
		}
	}()
	if d.gossip, err = newGossip(run, d.host, d.cfg.Trust, d.cfg.Log, pubsub.DefaultGossipSubParams(), d.heard); err != nil {
		return err
	}
	if err = d.gossip.join(revokedTopic(d.cfg.Trust.Mesh), d.gossip.judge.revocations(), true); err != nil {
		return err
	}
	d.host.ConnManager().Protect(d.hub, "hub")
	d.host.SetStreamHandler(exchange.Protocol, d.peers.server.Serve)
	events, err := d.host.EventBus().Subscribe([]any{new(event.EvtPeerConnectednessChanged), new(event.EvtLocalAddressesUpdated)}, eventbus.BufSize(64))
	if err != nil {
		return fmt.Errorf("mesh device: %w", err)
	}
	d.group.Add(4)
	go d.peers.loop(run)
	go d.watch(run, events)
	go func() { defer d.group.Done(); d.teller.loop(run) }()
	go d.keep(run)
	if err = listen(d.host, d.cfg.Listen); err != nil || !d.cfg.LAN || d.peers.within {
		return err
	}
	found := newLAN(d)
	d.mu.Lock()
	d.lan = found
	d.mu.Unlock()
	d.group.Go(func() { found.loop(run) })
	return nil
}

// Close ends the session, gossip and connections, and waits for all of it. It
// may be called twice.
func (d *Device) Close() error {
	var err error
	d.once.Do(func() {
		if d.host == nil {
			return
		}
		d.endSession()
		d.host.RemoveStreamHandler(exchange.Protocol)
		d.cancel()
		d.exec.Close() // its submitters are told why
		d.peers.close()
		err = d.host.Close()
		if d.gossip != nil {
			d.gossip.group.Wait()
		}
		d.group.Wait()
	})
	return err
}

// PeerID is the device's identity.
func (d *Device) PeerID() chain.PeerID { return d.cfg.Key.PeerID() }

// Addrs gives the addresses that the device listens on.
func (d *Device) Addrs() []string { return listening(d.host) }

// Join makes keys the scopes whose topics the device takes part in; it
// replaces what was joined before. The keys of each Welcome are joined by the
// node; a device that starts without its hub joins those that it stored.
func (d *Device) Join(keys ...wire.TopicKey) error { return d.gossip.setScopes(keys, true) }

// SetRevocations takes over a signed revocation list from the disk. Those of
// welcomes and gossip are taken by the node. The error wraps a refusal of package
// chain.
func (d *Device) SetRevocations(list []byte) error {
	err := d.gossip.setRevoked(list)
	d.peers.endRevoked()
	return err
}

// Announce makes a what the device says of itself in its scopes: now (or some
// seconds after the hello), after each reconnection, and every AnnounceEvery. Seq
// is set by the node. An empty membership ends it.
func (d *Device) Announce(a wire.Announce) {
	d.mu.Lock()
	d.announce = &a
	if len(a.Membership) == 0 {
		d.announce = nil
	}
	d.link.announceAt = d.link.settled
	d.mu.Unlock()
	d.poke()
	d.peers.poke()
}

// publishAnnounce says it in every joined scope.
func (d *Device) publishAnnounce(ctx context.Context) {
	d.mu.Lock()
	if d.announce == nil {
		d.mu.Unlock()
		return
	}
	d.number++
	a := *d.announce
	a.Seq = d.number
	d.mu.Unlock()
	a.Addresses = d.reachable()
	data, err := wire.Encode(&a)
	if err != nil {
		d.cfg.Log.Warn("announcement not sent", "error", err)
		return
	}
	for _, k := range d.gossip.joinedScopes() {
		if err := d.gossip.publish(ctx, announceTopic(d.cfg.Trust.Mesh, []byte(k.hash)), data); err != nil {
			// A scope that the membership does not cover, or ours has run out.
			d.cfg.Log.Debug("announcement not sent", "error", err)
		}
	}
}

// heard passes on what came by gossip.
func (d *Device) heard(_ string, data any) {
	switch v := data.(type) {
	case wire.Invalidation:
		if scope, ok := d.gossip.scopeOf(v.Scope); ok && d.cfg.OnInvalidation != nil {
			d.teller.hint(func() { d.cfg.OnInvalidation(chain.Slot{Scope: scope, Primitive: v.Primitive}, v.Seq, v.Prefix) })
		}
	case Presence:
		if v.Membership.Peer == d.PeerID() {
			return
		}
		d.peers.announced(v)
		if d.cfg.OnAnnounce != nil {
			d.teller.hint(func() { d.cfg.OnAnnounce(v) })
		}
	case Adjacency:
		d.peers.adjacent(v)
	case []byte:
		d.peers.endRevoked()
		if d.cfg.OnRevoked != nil {
			d.teller.tell(func() { d.cfg.OnRevoked(v) })
		}
	}
}

// Stats says what the device's links do.
func (d *Device) Stats() Stats {
	s := Stats{Traffic: d.meter.traffic(), Gossip: d.gossip.stats()}
	s.Foreign, s.Refused = d.exec.Open()
	for _, p := range d.host.Network().Peers() {
		s.Peers = append(s.Peers, chain.PeerID(p.String()))
	}
	d.mu.Lock()
	if d.link.session != nil {
		s.Sessions = 1
	}
	d.mu.Unlock()
	return s
}
