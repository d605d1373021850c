package mesh_test

import (
	"bytes"
	"context"
	"errors"

	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/sim"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

const testMesh chain.MeshID = "mesh-of-the-test"

var home = chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}

// desk is a hub's handler of a few lines: it lets in whoever holds the secret
// or a membership.
type desk struct {
	key    chain.Key
	secret []byte
	topics []wire.TopicKey

	mu      sync.Mutex
	stay    bool
	serial  uint64
	hellos  map[chain.PeerID]int
	reports []wire.Report
	revoked []byte
	stall   chan struct{} // Fetch waits for it, where set
}

func newDesk(key chain.Key) *desk {
	return &desk{key: key, secret: bytes.Repeat([]byte{7}, 32), stay: true, hellos: map[chain.PeerID]int{},
		topics: []wire.TopicKey{{Scope: chain.DefaultScope, Key: bytes.Repeat([]byte{9}, 32)}}}
}

func (d *desk) trust() chain.Trust {
	return chain.Trust{Mesh: testMesh, Orchestrator: d.key.PeerID()}
}

func (d *desk) Hello(_ context.Context, from chain.PeerID, h wire.Hello) (wire.Welcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	w := wire.Welcome{Topics: d.topics, Now: chain.InstantOf(now), Stay: d.stay, Revocations: d.revoked}
	switch {
	case h.Invitation != nil:
		if !bytes.Equal(h.Invitation.Secret, d.secret) {
			return w, spoke.Refuse(spoke.CodeInvitation, "the invitation is unknown, used up or over")
		}
		envelope, err := d.issue(from, now)
		if err != nil {
			return w, err
		}
		w.Membership = envelope
	default:
		m, err := member.Verify(d.trust(), h.Membership, now)
		if err == nil {
			err = m.Check(from, chain.DefaultScope, nil)
		}
		if err != nil {
			return w, spoke.Refuse(spoke.CodeNotMember, "%v", err)
		}
	}
	d.hellos[from]++
	return w, nil
}

func (d *desk) issue(peer chain.PeerID, at time.Time) ([]byte, error) {
	d.serial++
	return member.Issue(d.key, member.Membership{Mesh: testMesh, DeviceID: "id-" + chain.DeviceID(peer), Peer: peer, Name: "device", Scopes: []chain.ScopeID{chain.DefaultScope},
		Issued: chain.InstantOf(at), Serial: d.serial})
}

func (d *desk) Report(_ context.Context, _ chain.PeerID, r wire.Report) (wire.ReportReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reports = append(d.reports, r)
	return wire.ReportReply{Accepted: true}, nil
}

// set changes d while the hub may ask it.
func (d *desk) set(change func(*desk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// stalls holds every Fetch up from now on, until goOn is called. Call it where the
// test's bubble is.
func (d *desk) stalls() (goOn func()) {
	stall := make(chan struct{})
	d.set(func(d *desk) { d.stall = stall })
	return func() { close(stall) }
}

func (d *desk) Fetch(ctx context.Context, _ chain.PeerID, f wire.Fetch) (wire.FetchReply, error) {
	d.mu.Lock()
	stall := d.stall
	d.mu.Unlock()
	if stall != nil {
		select {
		case <-stall:
		case <-ctx.Done():
			return wire.FetchReply{}, ctx.Err()
		}
	}
	if f.Slot != home {
		return wire.FetchReply{}, spoke.Refuse(spoke.CodeNoChain, "nothing is published for %s", f.Slot)
	}
	return wire.FetchReply{Head: []byte("head"), Body: bytes.Repeat([]byte("b"), 300_000)}, nil
}

func (d *desk) Provider(context.Context, chain.PeerID, wire.Provider) (wire.ProviderReply, error) {
	return wire.ProviderReply{}, nil
}

func (d *desk) Lease(context.Context, chain.PeerID, wire.Lease) (wire.LeaseReply, error) {
	return wire.LeaseReply{}, nil
}

func (d *desk) Protest(context.Context, chain.PeerID, wire.Protest) (wire.ProtestReply, error) {
	return wire.ProtestReply{}, errors.New("a failure with internals that no device may see")
}

// world is a hub and devices on a simulated network.
type world struct {
	t       *testing.T
	net     *sim.Net
	desk    *desk
	hub     *mesh.Hub
	devices []*rim
	heard   chan mesh.Presence // announcements at the hub
}

// rim is a device and what it was told.
type rim struct {
	*mesh.Device
	key chain.Key

	moves       atomic.Int64
	mu          sync.Mutex
	hear        func(mesh.Presence) // set it with hears
	invalidated []uint64
	ups         []bool
	welcomes    int
	lists       int
	at          []time.Time // of each change in reachability
}

// hears has what r hears from now on be given to hear.
func (r *rim) hears(hear func(mesh.Presence)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hear = hear
}

func (r *rim) seqs() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]uint64(nil), r.invalidated...)
}

// told gives what it heard of the hub's coming and going, and how many welcomes
// it got without asking.
func (r *rim) told() (ups []bool, welcomes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]bool(nil), r.ups...), r.welcomes
}

func key(t *testing.T, n *sim.Net, i int) chain.Key {
	t.Helper()
	k, err := chain.NewKey(n.Random(i))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// run builds a world of n devices in a bubble, starts the hub, joins all
// devices and runs story.
func run(t *testing.T, n int, story func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: sim.New(sim.Config{Nodes: 100}), heard: make(chan mesh.Presence, 4096)}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("seed %d", w.net.Seed())
			}
		})
		defer w.net.Close()
		w.desk = newDesk(key(t, w.net, 0))
		w.startHub()
		defer func() { w.hub.Close() }()
		for i := 1; i <= n; i++ {
			r := w.device(i, nil)
			defer r.Close()
			w.devices = append(w.devices, r)
		}
		var joined sync.WaitGroup
		for _, r := range w.devices {
			joined.Go(func() { w.join(r) })
		}
		joined.Wait()
		if t.Failed() {
			return
		}
		time.Sleep(5 * time.Second) // topics are known, meshes formed
		story(t, w)
	})
}

func (w *world) startHub() {
	w.t.Helper()
	hub, err := mesh.NewHub(mesh.HubConfig{Key: w.desk.key, Mesh: testMesh, Host: w.net.HostFactory(0), Handler: w.desk, Version: "test",
		Log: slog.New(slog.NewTextHandler(w.t.Output(), nil)), OnAnnounce: func(p mesh.Presence) { w.heard <- p }})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := hub.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if err := hub.Join(w.desk.topics...); err != nil {
		w.t.Fatal(err)
	}
	w.hub = hub
}

// device starts the node at place i of the network; change may alter its
// configuration.
func (w *world) device(i int, change func(*mesh.DeviceConfig)) *rim {
	w.t.Helper()
	r := &rim{key: key(w.t, w.net, i)}
	cfg := mesh.DeviceConfig{Key: r.key, Trust: w.desk.trust(), HubAddrs: w.net.Addrs(0), Host: w.net.HostFactory(i), Version: "test",
		Log: slog.New(slog.NewTextHandler(w.t.Output(), nil)),
		OnInvalidation: func(slot chain.Slot, seq uint64, _ []byte) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if slot != home {
				w.t.Errorf("invalidation of %s", slot)
			}
			r.invalidated = append(r.invalidated, seq)
		},
		OnMoved:   func() { r.moves.Add(1) },
		OnRevoked: func([]byte) { r.mu.Lock(); defer r.mu.Unlock(); r.lists++ },
		OnWelcome: func(wire.Welcome) { r.mu.Lock(); defer r.mu.Unlock(); r.welcomes++ },
		OnAnnounce: func(p mesh.Presence) {
			r.mu.Lock()
			hear := r.hear
			r.mu.Unlock()
			if hear != nil {
				hear(p)
			}
		},
		OnHub: func(up bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ups, r.at = append(r.ups, up), append(r.at, time.Now())
		}}
	if change != nil {
		change(&cfg)
	}
	d, err := mesh.NewDevice(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := d.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	r.Device = d
	return r
}

func (w *world) join(r *rim) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if _, err := r.Hello(ctx, w.hello()); err != nil {
		w.t.Errorf("join: %v", err)
	}
}

func (w *world) hello() wire.Hello {
	return wire.Hello{Version: "test", DeviceID: "d", Name: "device", BootID: "boot", Invitation: &wire.Redeem{Secret: w.desk.secret, Scope: chain.DefaultScope}}
}

func (w *world) invalidate(seq uint64) {
	w.t.Helper()
	if err := w.hub.Invalidate(w.t.Context(), home, seq, chain.CIDOf([]byte{byte(seq)})); err != nil {
		w.t.Fatal(err)
	}
}

// within waits up to d of the bubble's time for ok.
func (w *world) within(d time.Duration, what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not within %s: %s", d, what)
		}
	}
}

// all reports how many of the devices ok holds for.
func (w *world) all(ok func(*rim) bool) func() bool {
	return func() bool {
		for _, r := range w.devices {
			if !ok(r) {
				return false
			}
		}
		return true
	}
}

func last[T comparable](list []T, want T) bool { return len(list) > 0 && list[len(list)-1] == want }

func scoped(s chain.ScopeID) chain.Slot { return chain.Slot{Scope: s, Primitive: chain.LLMChat} }

func someKey(t *testing.T) chain.Key {
	t.Helper()
	k, err := chain.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// announcement is what r says of itself, with a membership of its own.
func (w *world) announcement(r *rim) wire.Announce {
	w.t.Helper()
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	envelope, err := w.desk.issue(r.PeerID(), time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return wire.Announce{Membership: envelope, Capabilities: []chain.Capability{"execute:llm.chat"}, BootID: "boot"}
}

// restartHub closes the hub and starts it again at its place after a while.
func (w *world) restartHub(after time.Duration) {
	w.t.Helper()
	if err := w.hub.Close(); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(after)
	w.startHub()
}
