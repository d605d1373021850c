package mesh

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Presence is an announcement that was found good: its author is a member of
// the scope. It is a hint about where to look, never a proof that the device is
// there now.
type Presence struct {
	Scope        chain.ScopeID
	Membership   member.Membership
	Capabilities []chain.Capability // declared and granted
	BootID       string
	Seq          uint64
	Addresses    []string // where the device says that it can be dialled
}

// Adjacency is what a member of a scope says of its contacts, in place of what
// it said before. A chord counts when both ends claim it: package chord.
type Adjacency struct {
	Scope  chain.ScopeID
	Peer   chain.PeerID
	Chords []wire.Chord
}

// gossip is a node's part in the topics of one mesh. Messages are hints: a
// reader converges by fetching.
type gossip struct {
	ps    *pubsub.PubSub
	run   context.Context // ends with the node
	trust chain.Trust
	hub   peer.ID
	log   *slog.Logger
	drops *drops
	judge *judge

	// deliver is called with what passed its validator, from one goroutine per topic.
	deliver func(topic string, data any)

	mu     sync.Mutex
	topics map[string]*joined
	scopes []keyed // whose topics are joined; for matching invalidations
	group  sync.WaitGroup
}

type joined struct {
	topic *pubsub.Topic
	leave func() // ends the subscription
}

// keyed is a scope under one of its topic keys.
type keyed struct {
	scope chain.ScopeID
	hash  string
}

// Topics. SCOPE is a keyed hash: what a stranger sees of a scope.

func topicRoot(m chain.MeshID) string    { return "/chordwheel/" + string(m) + "/" }
func revokedTopic(m chain.MeshID) string { return topicRoot(m) + "revoked" }
func policyTopic(m chain.MeshID, shard int) string {
	return fmt.Sprintf("%spolicy/%d", topicRoot(m), shard)
}
func announceTopic(m chain.MeshID, scopeHash []byte) string {
	return topicRoot(m) + hex.EncodeToString(scopeHash) + "/announce"
}

func chordsTopic(m chain.MeshID, scopeHash []byte) string {
	return topicRoot(m) + hex.EncodeToString(scopeHash) + "/chords"
}

// star makes the hub forward to all its devices at once: it is the only
// forwarder in a star, and the usual parameters reach 35 of 59 devices.
func star() pubsub.GossipSubParams {
	p := pubsub.DefaultGossipSubParams()
	p.D, p.Dlo, p.Dhi, p.Dscore, p.Dlazy, p.GossipFactor = 64, 32, 256, 8, 64, 1
	return p
}

// Score thresholds. An invalid message costs its sender the square of their
// number, a flood costs as much as package judge says: about seven invalid
// messages in a row, or a few seconds of flood, and a peer is heard no more.
const (
	gossipThreshold   = -10
	publishThreshold  = -25
	graylistThreshold = -50
)

func scoring(of func(peer.ID) float64) pubsub.Option {
	return pubsub.WithPeerScore(&pubsub.PeerScoreParams{
		Topics:            map[string]*pubsub.TopicScoreParams{},
		AppSpecificScore:  of,
		AppSpecificWeight: 1,
		// Colocation stays without weight: LANs, NAT and containers share an address.
		BehaviourPenaltyWeight: -1, BehaviourPenaltyThreshold: 6, BehaviourPenaltyDecay: 0.99,
		DecayInterval: time.Second, DecayToZero: 0.01, RetainScore: 30 * time.Minute,
	}, &pubsub.PeerScoreThresholds{
		GossipThreshold: gossipThreshold, PublishThreshold: publishThreshold, GraylistThreshold: graylistThreshold,
		// Peer exchange would make the node dial whoever a stranger names.
		AcceptPXThreshold: math.MaxFloat64 / 2,
	})
}

func topicScore() *pubsub.TopicScoreParams {
	return &pubsub.TopicScoreParams{SkipAtomicValidation: true, TopicWeight: 1, TimeInMeshQuantum: time.Second,
		InvalidMessageDeliveriesWeight: -1, InvalidMessageDeliveriesDecay: 0.997} // half forgotten in 4 minutes
}

// newGossip makes the pubsub of h. It must be called before h dials or is
// dialled: a node that adds the protocol later announces it by identify push,
// which is limited to ten per /24. ctx ends it.
func newGossip(ctx context.Context, h host.Host, trust chain.Trust, log *slog.Logger, params pubsub.GossipSubParams,
	deliver func(string, any)) (*gossip, error) {
	hub, err := peerID(trust.Orchestrator)
	if err != nil {
		return nil, err
	}
	filter := newTopicFilter(trust.Mesh)
	g := &gossip{run: ctx, trust: trust, hub: hub, log: log, deliver: deliver, drops: newDrops(filter.forget), judge: newJudge(trust, h.ID(), hub), topics: map[string]*joined{}}
	g.ps, err = pubsub.NewGossipSub(ctx, bystander{h},
		pubsub.WithMessageSignaturePolicy(pubsub.StrictSign), pubsub.WithFloodPublish(true), pubsub.WithPeerExchange(false),
		pubsub.WithGossipSubParams(params), scoring(g.judge.score), pubsub.WithMaxMessageSize(wire.MaxGossipMessage),
		pubsub.WithPeerOutboundQueueSize(256), pubsub.WithValidateQueueSize(256),
		pubsub.WithSubscriptionFilter(filter), pubsub.WithRawTracer(g.drops),
		pubsub.WithAppSpecificRpcInspector(g.judge.inspect), pubsub.WithLogger(slog.New(warnings{log.Handler()})))
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	return g, nil
}

// join takes part in topic. With listen, what passes its validator is handed
// to deliver; without, it is only passed on to others. Joining twice is once.
func (g *gossip) join(topic string, check validator, listen bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.topics[topic] != nil {
		return nil
	}
	if err := g.ps.RegisterTopicValidator(topic, check.pubsub()); err != nil {
		return fmt.Errorf("gossip topic: %w", err)
	}
	t, err := g.ps.Join(topic)
	if err != nil {
		return errors.Join(fmt.Errorf("gossip topic: %w", err), g.ps.UnregisterTopicValidator(topic))
	}
	err = t.SetScoreParams(topicScore())
	var leave func()
	switch {
	case err != nil:
	case listen:
		var sub *pubsub.Subscription
		if sub, err = t.Subscribe(pubsub.WithBufferSize(256)); err == nil {
			leave = sub.Cancel
			g.group.Add(1)
			go g.read(topic, sub)
		}
	default:
		var cancel pubsub.RelayCancelFunc
		cancel, err = t.Relay()
		leave = func() { cancel() }
	}
	if err != nil {
		return errors.Join(fmt.Errorf("gossip topic: %w", err), t.Close(), g.ps.UnregisterTopicValidator(topic))
	}
	g.topics[topic] = &joined{topic: t, leave: leave}
	return nil
}

// read hands messages on until the subscription or the pubsub ends.
func (g *gossip) read(topic string, sub *pubsub.Subscription) {
	defer g.group.Done()
	for {
		m, err := sub.Next(g.run)
		if err != nil {
			return
		}
		g.deliver(topic, m.ValidatorData)
	}
}

func (g *gossip) leave(topic string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	j := g.topics[topic]
	if j == nil {
		return
	}
	delete(g.topics, topic)
	j.leave()
	if err := errors.Join(j.topic.Close(), g.ps.UnregisterTopicValidator(topic)); err != nil {
		g.log.Debug("leaving a gossip topic", "error", err)
	}
}

// publish sends data on a topic that was joined. It is no promise that anybody
// gets it.
func (g *gossip) publish(ctx context.Context, topic string, data []byte) error {
	if len(data) > wire.MaxGossip {
		return fmt.Errorf("publish: %w: %d bytes, at most %d", wire.ErrTooLarge, len(data), wire.MaxGossip)
	}
	g.mu.Lock()
	j := g.topics[topic]
	g.mu.Unlock()
	if j == nil {
		return errors.New("publish: not joined to that topic")
	}
	if err := j.topic.Publish(ctx, data); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// setScopes makes keys the scopes whose announcements are heard: topics of
// keys that are no longer there are left.
func (g *gossip) setScopes(keys []wire.TopicKey, shards bool) error {
	for i := range keys {
		if err := keys[i].Validate(); err != nil {
			return fmt.Errorf("join scope: %w", err)
		}
	}
	want := map[string]bool{}
	var scopes []keyed
	var errs []error
	for _, k := range keys {
		hash := wire.ScopeHash(k.Key, k.Scope)
		scopes = append(scopes, keyed{k.Scope, string(hash)})
		topic := announceTopic(g.trust.Mesh, hash)
		want[topic] = true
		errs = append(errs, g.join(topic, g.judge.announce(k.Scope), true))
		topic = chordsTopic(g.trust.Mesh, hash)
		want[topic] = true
		errs = append(errs, g.join(topic, g.judge.chords(k.Scope), true))
		if shards {
			topic := policyTopic(g.trust.Mesh, wire.PolicyShard(k.Scope))
			want[topic] = true
			errs = append(errs, g.join(topic, g.judge.policy(), true))
		}
	}
	g.mu.Lock()
	g.scopes = scopes
	var gone []string
	for topic := range g.topics {
		if !want[topic] && (shards && topic != revokedTopic(g.trust.Mesh) || !shards && !isPolicy(g.trust.Mesh, topic)) {
			gone = append(gone, topic)
		}
	}
	g.mu.Unlock()
	for _, topic := range gone {
		g.leave(topic)
	}
	return errors.Join(errs...)
}

// isPolicy reports whether topic belongs to the mesh and not to a scope.
func isPolicy(m chain.MeshID, topic string) bool {
	if topic == revokedTopic(m) {
		return true
	}
	for shard := range wire.PolicyShards {
		if topic == policyTopic(m, shard) {
			return true
		}
	}
	return false
}

// scopeOf finds the scope that a hash stands for among the joined ones.
func (g *gossip) scopeOf(hash []byte) (chain.ScopeID, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range g.scopes {
		if k.hash == string(hash) {
			return k.scope, true
		}
	}
	return "", false
}

// hashes gives the names that scope goes by: one per valid key.
func (g *gossip) hashes(scope chain.ScopeID) [][]byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all [][]byte
	for _, k := range g.scopes {
		if k.scope == scope {
			all = append(all, []byte(k.hash))
		}
	}
	return all
}

// setRevoked takes a list over that did not come by gossip.
func (g *gossip) setRevoked(list []byte) error {
	_, err := g.judge.revoke(list, time.Now())
	return err
}

// joinedScopes gives the joined scopes, each once for each of its keys.
func (g *gossip) joinedScopes() []keyed {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.scopes // replaced as a whole, never changed
}
