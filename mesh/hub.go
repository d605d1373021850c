package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// HubConfig says what a hub node needs. Key, Mesh and Handler are required.
type HubConfig struct {
	Key     chain.Key
	Mesh    chain.MeshID
	Listen  []string    // multiaddrs; TCP costs two thirds of QUIC's memory per connection
	Host    HostFactory // nil: this machine's network
	Handler spoke.Handler
	Log     *slog.Logger // nil: nothing is logged
	Version string       // of the program

	// OnAnnounce is told what devices announce in the scopes that were
	// joined. It is called from many goroutines and must return soon. nil: nobody
	// is told.
	OnAnnounce func(Presence)
	// OnChords is told, likewise, what devices say of their contacts.
	OnChords func(Adjacency)
	// OnGone is told that the last connection of a peer has ended. It is called from one
	// goroutine. nil: nobody is told.
	OnGone func(chain.PeerID)
}

// Hub is the node that devices visit. It never dials and never opens a
// /chordwheel/ stream. Methods may be called from many goroutines, between Start
// and Close.
type Hub struct {
	cfg    HubConfig
	trust  chain.Trust
	gater  gater
	meter  meter
	host   host.Host
	gossip *gossip
	server *spoke.Server
	cancel context.CancelFunc
	group  sync.WaitGroup
	once   sync.Once
}

// NewHub checks cfg and makes a hub that is not started.
func NewHub(cfg HubConfig) (*Hub, error) {
	if cfg.Mesh == "" || cfg.Handler == nil || cfg.Key == (chain.Key{}) {
		return nil, errors.New("mesh hub: key, mesh and handler are required")
	}
	if cfg.Host == nil && len(cfg.Listen) == 0 {
		return nil, errors.New("mesh hub: no address to listen on, such as /ip4/0.0.0.0/tcp/7411")
	}
	if _, err := parse(cfg.Listen); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Hub{cfg: cfg, trust: chain.Trust{Mesh: cfg.Mesh, Orchestrator: cfg.Key.PeerID()}, gater: gater{may: nobody},
		server: spoke.NewServer(cfg.Handler, cfg.Log)}, nil
}

// Start makes the host, then everything that a device could ask for, and only
// then listens. ctx is for the start alone; the hub runs until Close. After an
// error nothing runs.
func (h *Hub) Start(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	h.host, err = build(h.cfg.Key, h.cfg.Version, hubLimits, &h.gater, &h.meter, h.cfg.Host, libp2p.ForceReachabilityPublic())
	if err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	defer func() {
		if err != nil {
			_ = h.Close()
		}
	}()
	if h.gossip, err = newGossip(run, h.host, h.trust, h.cfg.Log, star(), h.heard); err != nil {
		return err
	}
	h.host.SetStreamHandler(spoke.Protocol, h.server.Serve)
	topics := []string{revokedTopic(h.cfg.Mesh)}
	for shard := range wire.PolicyShards {
		topics = append(topics, policyTopic(h.cfg.Mesh, shard))
	}
	for i, topic := range topics {
		check := h.gossip.judge.policy()
		if i == 0 {
			check = h.gossip.judge.revocations()
		}
		if err = h.gossip.join(topic, check, false); err != nil {
			return err
		}
	}
	gone, err := h.host.EventBus().Subscribe(new(event.EvtPeerConnectednessChanged), eventbus.BufSize(256))
	if err != nil {
		return fmt.Errorf("mesh hub: %w", err)
	}
	h.group.Add(1)
	go h.forget(run, gone)
	return listen(h.host, h.cfg.Listen)
}

// Close ends sessions, gossip and connections, and waits for all of it. It may
// be called twice.
func (h *Hub) Close() error {
	var err error
	h.once.Do(func() {
		if h.host == nil {
			return
		}
		h.host.RemoveStreamHandler(spoke.Protocol)
		h.server.Close()
		h.cancel()
		err = h.host.Close()
		if h.gossip != nil {
			h.gossip.group.Wait()
		}
		h.group.Wait()
	})
	return err
}

// forget drops what the host remembers of visitors that left: two kilobytes
// each, which 50,000 of them would make a hundred megabytes.
func (h *Hub) forget(run context.Context, gone event.Subscription) {
	defer h.group.Done()
	defer gone.Close()
	for {
		select {
		case <-run.Done():
			return
		case e, ok := <-gone.Out():
			if !ok {
				return
			}
			if c := e.(event.EvtPeerConnectednessChanged); c.Connectedness == network.NotConnected && h.host.Network().Connectedness(c.Peer) == network.NotConnected {
				h.host.Peerstore().RemovePeer(c.Peer)
				h.host.Peerstore().ClearAddrs(c.Peer)
				if h.cfg.OnGone != nil {
					h.cfg.OnGone(chain.PeerID(c.Peer.String()))
				}
			}
		}
	}
}

func (h *Hub) heard(_ string, data any) {
	switch v := data.(type) {
	case Presence:
		if h.cfg.OnAnnounce != nil {
			h.cfg.OnAnnounce(v)
		}
	case Adjacency:
		if h.cfg.OnChords != nil {
			h.cfg.OnChords(v)
		}
	}
}

// PeerID is the hub's identity.
func (h *Hub) PeerID() chain.PeerID { return h.trust.Orchestrator }

// Addrs gives the addresses that the hub listens on, unspecified ones
// resolved to those of the machine, without the peer ID.
func (h *Hub) Addrs() []string { return listening(h.host) }

// DialsAsked counts how often anything in the process wanted the hub to dial.
// It was refused each time. Anything above 0 is a defect.
func (h *Hub) DialsAsked() uint64 { return h.gater.asked.Load() }

// Join makes keys the scopes whose device topics the hub takes part in, and
// under whose names it publishes invalidations; it replaces what was joined
// before. All keys that devices may hold belong here: of a scope with an old
// and a new one, both.
func (h *Hub) Join(keys ...wire.TopicKey) error { return h.gossip.setScopes(keys, false) }

// Invalidate tells the devices of a scope, and those that carry messages for
// them, that slot has a newer chain. It fails for a scope that was not joined,
// and with chain.ErrRollback for a sequence number that is not above the last.
// Nil means that it was sent to whoever is connected, and no more.
func (h *Hub) Invalidate(ctx context.Context, slot chain.Slot, seq uint64, body chain.CID) error {
	hashes := h.gossip.hashes(slot.Scope)
	if len(hashes) == 0 {
		return fmt.Errorf("invalidate %s: no topic key of that scope was joined", slot)
	}
	topic := policyTopic(h.cfg.Mesh, wire.PolicyShard(slot.Scope))
	for _, hash := range hashes {
		data, err := wire.Encode(&wire.Invalidation{Scope: hash, Primitive: slot.Primitive, Seq: seq, Prefix: Prefix(body)})
		if err != nil {
			return fmt.Errorf("invalidate %s: %w", slot, err)
		}
		if err := h.gossip.publish(ctx, topic, data); err != nil {
			if errors.As(err, new(pubsub.ValidationError)) {
				err = fmt.Errorf("%w: sequence %d", chain.ErrRollback, seq)
			}
			return fmt.Errorf("invalidate %s: %w", slot, err)
		}
	}
	return nil
}

// prefixBytes is how much of a digest an invalidation carries.
const prefixBytes = 8

// Prefix is the part of a body's address that an invalidation carries: the
// first 8 bytes of its digest.
func Prefix(body chain.CID) []byte {
	if len(body) < 32 {
		return nil
	}
	return []byte(body[len(body)-32:][:prefixBytes])
}

// Revoked publishes a signed revocation list, and from then on refuses the
// announcements of those it names. A list older than the one held is an error.
func (h *Hub) Revoked(ctx context.Context, list []byte) error {
	if err := h.gossip.setRevoked(list); err != nil {
		return err
	}
	return h.gossip.publish(ctx, revokedTopic(h.cfg.Mesh), list)
}

// Drop closes the connections of a peer, for example of one that was revoked.
func (h *Hub) Drop(p chain.PeerID) error {
	id, err := peerID(p)
	if err != nil {
		return err
	}
	return h.host.Network().ClosePeer(id)
}

// Stats says what the hub's links do.
func (h *Hub) Stats() Stats {
	s := Stats{Traffic: h.meter.traffic(), Gossip: h.gossip.stats()}
	s.Sessions, s.Refused = h.server.Open()
	for _, p := range h.host.Network().Peers() {
		s.Peers = append(s.Peers, chain.PeerID(p.String()))
	}
	return s
}
