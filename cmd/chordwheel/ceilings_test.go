package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/sim"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
)

const underCeilings = `
providers:
  - {name: alpha, adapter: openai, endpoint: "http://127.0.0.1:9001/v1", keys: [alpha], models: [{name: small, primitives: [llm.chat], price: {per_call: 0.001}, prior: {latency_ms: 300, reliability: 0.99, quality: 0.9}}]}
  - {name: beta, adapter: openai, endpoint: "http://127.0.0.1:9002/v1", models: [{name: small, primitives: [llm.chat], prior: {latency_ms: 60000, reliability: 0.9, quality: 0.1}}]}
primitives:
  - {name: llm.chat, default: [alpha/small, beta/small]}
workspaces:
  - {id: home, ceilings: [{options: "alpha/*", usd_per_month: 0.1}]}
ceilings: [{key: alpha, calls_per_day: 60}]
`

// billed is what a provider would bill: it answers at once, and counts.
type billed struct {
	mu    sync.Mutex
	calls map[string]int // by UTC day
	month int
}

func (b *billed) Run(_ context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
	if c.Attempt.Option.ID == "alpha/small" {
		b.mu.Lock()
		b.calls[time.Now().UTC().Format(time.DateOnly)]++
		b.month++
		b.mu.Unlock()
	}
	if err := emit(walk.Chunk{Data: []byte(c.Attempt.Option.ID), Meaningful: true}); err != nil {
		return walk.Outcome{Class: chain.Canceled}
	}
	return walk.Outcome{Class: chain.OK, Input: 10, Output: 10}
}

func (b *billed) total() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.month
}

// oneKey is a ring with the key alpha.
type oneKey struct{}

func (oneKey) Get(name string) (chain.Secret, bool) { return "sk", name == "alpha" }
func (oneKey) Names() []string                      { return []string{"alpha"} }
func (oneKey) Generation(name string) uint64 {
	if name == "alpha" {
		return 1
	}
	return 0
}

// shop is a hub and devices in a simulated network, with real stores.
type shop struct {
	t        *testing.T
	net      *sim.Net
	hub      *orchestrator.Hub
	provider *billed
	log      *slog.Logger
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) disk() (*datadir.Dir, *store.Store) {
	dir, err := datadir.Open(filepath.Join(s.t.TempDir(), "data"))
	s.must(err)
	db, err := store.Open(dir, store.Options{Log: s.log})
	s.must(err)
	return dir, db
}

// open starts the hub; the function it gives ends it.
func (s *shop) open(text string) func() {
	declared, err := catalog.Parse("catalogue.yaml", []byte(text))
	s.must(err)
	dir, db := s.disk()
	key, err := dir.Identity()
	s.must(err)
	id, err := orchestrator.MeshID(dir)
	s.must(err)
	var link *mesh.Hub
	s.hub, err = orchestrator.New(orchestrator.Config{Key: key, Mesh: id, Catalogue: declared, Log: s.log, Addrs: func() []string { return s.net.Addrs(0) },
		Storage: orchestrator.Storage{Bucket: func(name string) orchestrator.Bucket { return db.Bucket(name) }, Files: dir}})
	s.must(err)
	link, err = mesh.NewHub(mesh.HubConfig{Key: key, Mesh: id, Host: s.net.HostFactory(0), Handler: s.hub, Log: s.log})
	s.must(err)
	s.must(link.Start(s.t.Context()))
	s.must(s.hub.Start(s.t.Context(), link))
	return func() {
		s.must(link.Close())
		s.must(s.hub.Close())
		s.must(db.Close())
		s.must(dir.Close())
	}
}

// join starts device i.
func (s *shop) join(i int) (*daemon.Daemon, func()) {
	dir, db := s.disk()
	key, err := dir.Identity()
	s.must(err)
	marks, err := dir.Marks()
	s.must(err)
	d, err := daemon.New(daemon.Config{
		Key: key, DeviceID: chain.DeviceID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)), Name: fmt.Sprint("d", i), Version: "test",
		Chains: store.NewChainCache(db, marks), Marks: marks, State: dir, Keys: oneKey{}, Adapters: map[string]adapter.Adapter{"openai": s.provider},
		Connect: func(ctx context.Context, j daemon.Joined, events daemon.Events) (daemon.Node, error) {
			node, err := mesh.NewDevice(mesh.DeviceConfig{Key: key, Trust: j.Trust, HubAddrs: j.Addresses, Host: s.net.HostFactory(i), Log: s.log,
				OnInvalidation: func(slot chain.Slot, _ uint64, _ []byte) { events.Invalidated(slot) }, OnRevoked: events.Revoked,
				OnRefused: func(no *spoke.Refusal) { events.Refused(no) }, OnHub: events.HubUp, OnMoved: events.Moved})
			if err != nil {
				return nil, err
			}
			return node, node.Start(ctx)
		},
		Log: s.log, Random: rand.New(rand.NewPCG(uint64(i), 1)),
	})
	s.must(err)
	s.must(d.Start(s.t.Context()))
	made, err := s.hub.Invite(s.t.Context(), orchestrator.Invite{Uses: 1})
	s.must(err)
	s.must(d.Join(s.t.Context(), made.Text))
	return d, func() {
		s.must(d.Close())
		s.must(db.Close())
		s.must(dir.Close())
	}
}

// TestTwoDevicesUnderOneCeiling: a fleet-wide ceiling of calls on a shared key and a
// workspace's of money hold over a day's end, with the hub away for two intervals, and are
// used nearly to the full.
func TestTwoDevicesUnderOneCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(22*time.Hour + 30*time.Minute) // the clock of a bubble begins at midnight
		s := &shop{t: t, net: sim.New(sim.Config{Nodes: 3}), provider: &billed{calls: map[string]int{}}, log: slog.New(slog.DiscardHandler)}
		defer s.net.Close()
		defer s.open(underCeilings)()
		var devices []*daemon.Daemon
		for i := 1; i <= 2; i++ {
			d, end := s.join(i)
			defer end()
			devices = append(devices, d)
		}
		time.Sleep(time.Minute)
		random := rand.New(rand.NewPCG(1, 2))
		ask := func(d *daemon.Daemon) string {
			w := edge.Work{ID: "r", Primitive: chain.LLMChat, Model: edge.Auto, Body: []byte(`{}`)}
			r, err := d.Do(t.Context(), &w, func(walk.Attempt, [][]byte) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			return string(r.Option)
		}
		if got := ask(devices[0]) + ask(devices[1]); got != "alpha/smallalpha/small" {
			t.Fatalf("%s: want both under a lease from the first visit on", got)
		}
		day := time.Now().UTC().Format(time.DateOnly)
		check := func(when string) {
			s.provider.mu.Lock()
			defer s.provider.mu.Unlock()
			for day, n := range s.provider.calls {
				if n > 60 {
					t.Fatalf("%s: %d of 60 calls on %s", when, n, day)
				}
			}
			if s.provider.month > 100 {
				t.Fatalf("%s: $%.3f of $0.1", when, float64(s.provider.month)/1000)
			}
		}
		run := func(when string, requests int) {
			for range requests {
				time.Sleep(time.Duration(random.Int64N(int64(40 * time.Second))))
				ask(devices[random.IntN(2)])
				check(when)
			}
		}
		run("all is well", 60)
		s.net.Cut([]int{0}, []int{1, 2})
		run("without the hub", 130) // over two intervals
		before := s.provider.total()
		if ask(devices[0]) != "beta/small" || s.provider.total() != before {
			t.Error("a block outlived two intervals without the hub")
		}
		s.net.Heal()
		run("the hub is back", 280) // beyond midnight
		s.provider.mu.Lock()
		first, month := s.provider.calls[day], s.provider.month
		s.provider.mu.Unlock()
		if first < 40 || month < 85 || month == first {
			t.Errorf("%d of 60 calls on the first day, %d of 100 in the month: ceilings keep too much back", first, month)
		}
		status, err := s.hub.Status(t.Context())
		if err != nil || len(status.Ceilings) != 2 {
			t.Fatalf("%+v, %v", status.Ceilings, err)
		}
		t.Logf("%d calls on the first day, %d in the month; %+v", first, month, status.Ceilings)
	})
}
