package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/exchange"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Hub is the device's spoke: every call is one exchange with the orchestrator
// and fails at once, or within the context, when that is out of reach.
type Hub interface {
	Hello(ctx context.Context, h wire.Hello) (wire.Welcome, error)
	Report(ctx context.Context, r wire.Report) (wire.ReportReply, error)
	Fetch(ctx context.Context, f wire.Fetch) (wire.FetchReply, error)
	Protest(ctx context.Context, p wire.Protest) (wire.ProtestReply, error)
	Lease(ctx context.Context, l wire.Lease) (wire.LeaseReply, error)
	Provider(ctx context.Context, p wire.Provider) (wire.ProviderReply, error)
	HubReachable() bool // a connection stands
}

// Peers is the way to the other devices. Who they are is learned from Events;
// their answers are not verified.
type Peers interface {
	// Exec has a peer run one request; see [mesh.Device.Exec] for what its
	// errors mean.
	Exec(ctx context.Context, to chain.PeerID, open wire.ExecOpen, payload []byte, emit exec.Emit) (wire.ExecTrailer, error)
	Introduce(peers ...wire.PeerAddress) // where peers may be: a hint
	Ping(ctx context.Context, p chain.PeerID) (mesh.Pong, error)
	Way(p chain.PeerID) (w mesh.Way, ok bool) // the connection to p, if one stands
	Chords() []mesh.ScopeChord
	Heads(ctx context.Context, from chain.PeerID, scope chain.ScopeID) ([]wire.Held, error)
	FetchFrom(ctx context.Context, from chain.PeerID, f wire.Fetch) (wire.FetchReply, error)
}

// Node is the device's place in the mesh: its spoke, its peers, and the gossip of
// its scopes. A [mesh.Device] is one.
type Node interface {
	Hub
	Peers
	Join(keys ...wire.TopicKey) error // takes part in the gossip of these scopes, and of no others
	SetRevocations(list []byte) error
	Announce(a wire.Announce)
	Addrs() []string
	Stats() mesh.Stats
	Net(ctx context.Context) mesh.Net // dials the hub at each address: for people who look
	Close() error
}

// Events are what the mesh tells the daemon, and asks of it, from goroutines of
// its own. The functions return at once.
type Events struct {
	Invalidated func(slot chain.Slot) // the hub has a newer chain, or so it is said
	Revoked     func(list []byte)     // a signed revocation list arrived
	Refused     func(err error)       // the hub, reached unasked, said no
	HubUp       func(up bool)         // the connection to the hub came or went
	Moved       func()                // an address of this machine changed

	Contact   func(c mesh.Contact)  // direct contact with a peer, also a refreshed one
	Parted    func(p chain.PeerID)  // its last connection is gone
	Announced func(p mesh.Presence) // a member of a scope announced itself by gossip
	Cloned    func(c mesh.Clone)    // an identity or a device ID was seen twice
	Chains    exchange.Chains       // what members of the device's scopes are given

	Executor exec.Executor    // decides about work that peers send, and runs it
	Load     func() wire.Load // how busy the device is with it

	Checkpoint func() []byte // the newest of the hub's ledger that was seen; nil: none
}

// ErrNotJoined is what a device without a hub answers to everything that
// would need one.
var ErrNotJoined = errors.New("this device has not joined a mesh; run: chordwheel join INVITATION")

// alone stands in for the node of a device that has not joined.
type alone struct{}

func (alone) Hello(context.Context, wire.Hello) (wire.Welcome, error) {
	return wire.Welcome{}, ErrNotJoined
}
func (alone) Report(context.Context, wire.Report) (wire.ReportReply, error) {
	return wire.ReportReply{}, ErrNotJoined
}
func (alone) Fetch(context.Context, wire.Fetch) (wire.FetchReply, error) {
	return wire.FetchReply{}, ErrNotJoined
}
func (alone) Protest(context.Context, wire.Protest) (wire.ProtestReply, error) {
	return wire.ProtestReply{}, ErrNotJoined
}
func (alone) Lease(context.Context, wire.Lease) (wire.LeaseReply, error) {
	return wire.LeaseReply{}, ErrNotJoined
}
func (alone) Provider(context.Context, wire.Provider) (wire.ProviderReply, error) {
	return wire.ProviderReply{}, ErrNotJoined
}
func (alone) Exec(context.Context, chain.PeerID, wire.ExecOpen, []byte, exec.Emit) (wire.ExecTrailer, error) {
	return wire.ExecTrailer{}, mesh.ErrNotConnected
}
func (alone) Ping(context.Context, chain.PeerID) (mesh.Pong, error) {
	return mesh.Pong{}, mesh.ErrNotConnected
}
func (alone) Heads(context.Context, chain.PeerID, chain.ScopeID) ([]wire.Held, error) {
	return nil, mesh.ErrNotConnected
}
func (alone) FetchFrom(context.Context, chain.PeerID, wire.Fetch) (wire.FetchReply, error) {
	return wire.FetchReply{}, mesh.ErrNotConnected
}
func (alone) Way(chain.PeerID) (w mesh.Way, ok bool) { return w, false }
func (alone) Chords() []mesh.ScopeChord              { return nil }
func (alone) Net(context.Context) mesh.Net           { return mesh.Net{Within: true} }
func (alone) Introduce(...wire.PeerAddress)          {}
func (alone) HubReachable() bool                     { return false }
func (alone) Join(...wire.TopicKey) error            { return nil }
func (alone) SetRevocations([]byte) error            { return nil }
func (alone) Announce(wire.Announce)                 {}
func (alone) Addrs() []string                        { return nil }
func (alone) Stats() mesh.Stats                      { return mesh.Stats{} }
func (alone) Close() error                           { return nil }

// Patience with the hub.
const (
	callTimeout  = 10 * time.Second // one exchange
	firstBackoff = time.Second      // after a failed visit, doubled with full jitter
	longestWait  = 5 * time.Minute  // the most that backoff grows to
	newsDelay    = 5 * time.Second  // failures are gathered this long and reported together
	lookEvery    = 2 * time.Second  // between two looks at what this device can do
)
