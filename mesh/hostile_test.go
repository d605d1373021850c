package mesh_test

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/record"
	"github.com/multiformats/go-multiaddr"
	"google.golang.org/protobuf/proto"

	"github.com/chordwheel/chordwheel/chain"
)

// rogue is a node of another make: it speaks the protocols and keeps no rule.
type rogue struct {
	host.Host
	t  *testing.T
	ps *pubsub.PubSub

	topics map[string]*pubsub.Topic
	subs   map[string]*pubsub.Subscription
}

// rogue starts one at place i, connected to the nodes at places to.
func (w *world) rogue(i int, to ...int) *rogue {
	w.t.Helper()
	return w.rogueWith(key(w.t, w.net, i), i, to...)
}

func (w *world) rogueWith(k chain.Key, i int, to ...int) *rogue {
	w.t.Helper()
	h, err := w.net.HostFactory(i)(libp2p.Identity(k.Private()), libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics())
	if err != nil {
		w.t.Fatal(err)
	}
	ps, err := pubsub.NewGossipSub(w.t.Context(), h, pubsub.WithPeerExchange(false))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { h.Close() })
	r := &rogue{Host: h, t: w.t, ps: ps, topics: map[string]*pubsub.Topic{}, subs: map[string]*pubsub.Subscription{}}
	for _, k := range to {
		target := w.hub.Host()
		if k > 0 {
			target = w.devices[k-1].Host()
		}
		r.connect(target)
	}
	return r
}

func (r *rogue) connect(to host.Host) {
	r.t.Helper()
	if err := r.Connect(r.t.Context(), peer.AddrInfo{ID: to.ID(), Addrs: to.Addrs()}); err != nil {
		r.t.Fatal(err)
	}
}

// topic joins topic once and lets the neighbours take r into their mesh.
func (r *rogue) topic(name string) *pubsub.Topic {
	r.t.Helper()
	if t := r.topics[name]; t != nil {
		return t
	}
	t, err := r.ps.Join(name)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.subs[name], err = t.Subscribe(pubsub.WithBufferSize(1 << 12)); err != nil {
		r.t.Fatal(err)
	}
	r.topics[name] = t
	time.Sleep(3 * time.Second)
	return t
}

// publish says data on topic and waits until it is wherever it gets to.
func (r *rogue) publish(topic string, data []byte) {
	r.t.Helper()
	if err := r.topic(topic).Publish(r.t.Context(), data); err != nil {
		r.t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
}

// send writes one packet of gossip to a neighbour, as it is.
func (r *rogue) send(to peer.ID, rpc *pb.RPC) {
	r.t.Helper()
	b, err := proto.Marshal(rpc)
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := r.NewStream(r.t.Context(), to, pubsub.GossipSubID_v11)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := s.Write(append(binary.AppendUvarint(nil, uint64(len(b))), b...)); err != nil {
		r.t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
}

// prune sends a PRUNE for topic that offers strangers to dial.
func (r *rogue) prune(to peer.ID, topic string, strangers ...host.Host) {
	r.t.Helper()
	prune := &pb.ControlPrune{TopicID: &topic}
	for _, s := range strangers {
		rec := peer.PeerRecordFromAddrInfo(peer.AddrInfo{ID: s.ID(), Addrs: s.Addrs()})
		envelope, err := record.Seal(rec, s.Peerstore().PrivKey(s.ID()))
		if err != nil {
			r.t.Fatal(err)
		}
		signed, err := envelope.Marshal()
		if err != nil {
			r.t.Fatal(err)
		}
		prune.Peers = append(prune.Peers, &pb.PeerInfo{PeerID: []byte(s.ID()), SignedPeerRecord: signed})
	}
	r.send(to, &pb.RPC{Control: &pb.ControlMessage{Prune: []*pb.ControlPrune{prune}}})
}

// witness is a gater that counts and allows.
type witness struct{ asked atomic.Int64 }

var _ connmgr.ConnectionGater = (*witness)(nil)

func (w *witness) InterceptPeerDial(peer.ID) bool                      { w.asked.Add(1); return true }
func (w *witness) InterceptAddrDial(peer.ID, multiaddr.Multiaddr) bool { return true }
func (w *witness) InterceptAccept(network.ConnMultiaddrs) bool         { return true }
func (w *witness) InterceptSecured(network.Direction, peer.ID, network.ConnMultiaddrs) bool {
	return true
}
func (w *witness) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }
