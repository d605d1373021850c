package testnet

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/spool"
)

// Device is one device: its daemon while it runs, and its data directory, which outlives
// that.
type Device struct {
	*daemon.Daemon // nil while it does not run
	Name           string
	Peer           chain.PeerID
	Joined         bool // it was invited, and not revoked since
	Revoked        bool

	net    *Net
	place  int
	dir    string
	ring   ring
	models []chain.OptionID // local ones
	id     chain.DeviceID

	edge   *edge.Edge
	data   *datadir.Dir
	db     *store.Store
	chains *store.ChainCache
	marks  *datadir.Marks
	spool  *spool.Spool

	mu       sync.Mutex
	asks     int
	finished int // asks that were answered
	lost     int // open requests that crashes ended, as the starts after them counted
}

// Runs reports whether the device runs.
func (d *Device) Runs() bool { return d.Daemon != nil }

// Sees gives what the device makes of another: "live", "parted", "silent" and the like, ""
// if it does not know it.
func (d *Device) Sees(name string) string {
	for _, p := range d.Peers() {
		if p.Name == name {
			return p.State
		}
	}
	return ""
}

// ring is a key ring in memory.
type ring map[string]chain.Secret

func (r ring) Get(name string) (chain.Secret, bool) { s, ok := r[name]; return s, ok }
func (r ring) Names() []string {
	var all []string
	for name := range r {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
func (r ring) Generation(name string) uint64 {
	if _, ok := r[name]; ok {
		return 1
	}
	return 0
}

// start opens the data directory and runs the daemon over it, as the command does.
func (d *Device) start() {
	d.net.t.Helper()
	synctest.Wait() // the watch reads what is changed now
	if err := d.open(); err != nil {
		d.net.t.Fatalf("device %s: %v", d.Name, err)
	}
}

func (d *Device) open() (err error) {
	if d.data, err = datadir.Open(d.dir); err != nil {
		return err
	}
	key, err := d.data.Identity()
	if err != nil {
		return err
	}
	if d.Peer != "" && d.Peer != key.PeerID() {
		return errors.New("its identity changed with a restart")
	}
	d.Peer = key.PeerID()
	if d.id, err = d.data.DeviceID(d.data.Path("device-id")); err != nil {
		return err
	}
	if d.marks, err = d.data.Marks(); err != nil {
		return err
	}
	log := d.net.log.With("device", d.Name)
	if d.db, err = store.Open(d.data, store.Options{Log: log}); err != nil {
		return err
	}
	d.chains = store.NewChainCache(d.db, d.marks)
	if joined, ok, err := daemon.LoadJoined(d.data); err != nil {
		return err
	} else if ok {
		d.chains.Load(joined.Trust, time.Now())
	}
	var locals []wire.LocalOption
	for _, id := range d.models {
		locals = append(locals, wire.LocalOption{Primitives: []chain.Primitive{chain.LLMChat},
			Option: chain.Option{ID: id, Kind: chain.Local, Adapter: "openai", Model: "m", Endpoint: "http://127.0.0.1:9000/v1"}})
	}
	if d.spool, err = spool.Open(spool.Config{Dir: d.dir, Label: daemon.LabelReceipt, Recall: daemon.RecallReceipt, Log: log}); err != nil {
		return err
	}
	d.lost += d.spool.Status().Lost
	seed := [2]uint64{uint64(d.net.seed), uint64(d.place)}
	d.Daemon, err = daemon.New(daemon.Config{Key: key, DeviceID: d.id, Name: d.Name, Version: "testnet", Chains: watchedChains{d.chains, d}, Marks: d.marks, State: d.data,
		Keys: d.ring, Adapters: map[string]adapter.Adapter{"openai": upstreamOf{d.net.Upstream, d}}, Locals: locals, Spool: d.spool, Log: log,
		Random: rand.New(rand.NewPCG(seed[0], seed[1])), Connect: func(ctx context.Context, j daemon.Joined, e daemon.Events) (daemon.Node, error) {
			return d.connect(ctx, key, j, e)
		}})
	if err != nil {
		return err
	}
	if d.edge, err = edge.New(edge.Config{Worker: d.Daemon, Log: log}); err != nil {
		return err
	}
	return d.Daemon.Start(context.Background())
}

// connect makes the node of the device at its place in the simulated network.
func (d *Device) connect(ctx context.Context, key chain.Key, j daemon.Joined, e daemon.Events) (daemon.Node, error) {
	node, err := mesh.NewDevice(mesh.DeviceConfig{Key: key, Trust: j.Trust, HubAddrs: j.Addresses, Host: d.net.Network.HostFactory(d.place),
		Log: d.net.log.With("device", d.Name), Version: "testnet", Chains: e.Chains, Executor: e.Executor, Load: e.Load,
		OnContact: e.Contact, OnParted: e.Parted, OnAnnounce: e.Announced, OnClone: e.Cloned, OnRevoked: e.Revoked, OnHub: e.HubUp, OnMoved: e.Moved,
		OnRefused:      func(no *spoke.Refusal) { e.Refused(no) },
		OnInvalidation: func(s chain.Slot, _ uint64, _ []byte) { e.Invalidated(s) }})
	if err != nil {
		return nil, err
	}
	if err := node.Start(ctx); err != nil {
		return nil, err
	}
	return &watchedNode{Node: node, device: d}, nil
}

// stop ends the device in order.
func (d *Device) stop() {
	if d.Daemon == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := errors.Join(d.edge.Shutdown(ctx))
	d.Drain(ctx)
	err = errors.Join(err, d.Daemon.Close(), d.spool.Close(), d.db.Close(), d.data.Close())
	if err != nil {
		d.net.t.Errorf("device %s ended with %v", d.Name, err)
	}
	d.Daemon = nil
}
