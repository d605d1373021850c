package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
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
	HubReachable() bool // a connection stands
}

// Node is the device's place in the mesh: its spoke, and the gossip of its
// scopes. A [mesh.Device] is one.
type Node interface {
	Hub
	Join(keys ...wire.TopicKey) error // takes part in the gossip of these scopes, and of no others
	SetRevocations(list []byte) error
	Announce(a wire.Announce)
	Addrs() []string
	Stats() mesh.Stats
	Close() error
}

// Events are what the mesh tells the daemon, from goroutines of its own. The
// functions return at once.
type Events struct {
	Invalidated func(slot chain.Slot) // the hub has a newer chain, or so it is said
	Revoked     func(list []byte)     // a signed revocation list arrived
	Refused     func(err error)       // the hub, reached unasked, said no
	HubUp       func(up bool)         // the connection to the hub came or went
	Moved       func()                // an address of this machine changed
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
func (alone) HubReachable() bool          { return false }
func (alone) Join(...wire.TopicKey) error { return nil }
func (alone) SetRevocations([]byte) error { return nil }
func (alone) Announce(wire.Announce)      {}
func (alone) Addrs() []string             { return nil }
func (alone) Stats() mesh.Stats           { return mesh.Stats{} }
func (alone) Close() error                { return nil }

// Patience with the hub.
const (
	callTimeout  = 10 * time.Second // one exchange
	firstBackoff = time.Second      // after a failed visit, doubled with full jitter
	longestWait  = 5 * time.Minute  // the most that backoff grows to
	newsDelay    = 5 * time.Second  // failures are gathered this long and reported together
	lookEvery    = 2 * time.Second  // between two looks at what this device can do
)
