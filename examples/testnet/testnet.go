// Package testnet runs a whole mesh in one test: a hub and its devices, with the code that
// ships (orchestrator, daemon, edge, mesh, and the store on temporary directories), on
// a simulated network in virtual time. It owns what plays the world around them: the
// network, the upstream services, the key rings, crashes. After every step it can check
// what must always hold ([Net.Check]).
//
// It is also a template: copy the folder for tests of your own adapters and policies.
//
//	testnet.Run(t, testnet.Config{Devices: 3}, func(n *testnet.Net) {
//		n.JoinAll()
//		n.Kill("b")
//		n.Ask("a").WantAnswer()
//	})
package testnet

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/sim"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
)

// Hub is the hub's name among the nodes.
const Hub = "hub"

// Config says what mesh to make.
type Config struct {
	Devices   int    // 1 to 26, named a, b, c…
	Catalogue string // YAML; "" is [DefaultCatalogue]
	// Keys are the names of the keys that each device holds, Models the local models that
	// each has. Both nil: b, e, h… have the key alpha, c, f, i… a model.
	Keys, Models map[string][]string
	// Seed of the network, the keys and [Net.Random]; 0: one is picked. The environment
	// variable TESTNET_SEED overrides it, TESTNET_SEEDS says how many to run.
	Seed int64
	// Seeds is how many meshes to run, one after the other, each with a seed of its own;
	// 0 is 1. A run of one seed again runs that one alone.
	Seeds int
}

// DefaultCatalogue has, for chat: whatever local models devices declare, a service that
// needs a key which every third device holds, any live peer, a service that needs no
// key, and one that is revealed on protest only.
const DefaultCatalogue = `
providers:
  - {name: alpha, adapter: openai, endpoint: "http://127.0.0.1:9001/v1", keys: [alpha], models: [{name: small, primitives: [llm.chat], price: {input_per_mtok: 0.1, output_per_mtok: 0.4}}]}
  - {name: beta, adapter: openai, endpoint: "http://127.0.0.1:9002/v1", models: [{name: small, primitives: [llm.chat], price: {input_per_mtok: 9, output_per_mtok: 30}}]}
  - {name: gamma, adapter: openai, endpoint: "http://127.0.0.1:9003/v1", models: [{name: large, primitives: [llm.chat], price: {input_per_mtok: 20, output_per_mtok: 60}}]}
primitives:
  - name: llm.chat
    order: fixed
    default: [local, alpha/small, peer, beta/small]
    peer: {requires: ["execute:llm.chat"], tries: 2}
    withheld: [gamma/large]
`

// Net is a running mesh. Its methods are for the test's own goroutine, inside the
// bubble; only Ask may be called from several.
type Net struct {
	t        testing.TB
	Network  *sim.Net // for losses, delays and what else it can do
	Random   *rand.Rand
	Upstream *Upstream // the services behind every option

	seed    int64
	dir     string
	hub     *hub
	devices []*Device
	cuts    [][2][]int
	logs    *logs
	log     *slog.Logger
	watch   *watch
}

// Run makes a mesh in a time bubble, runs story, checks once more what must hold, and ends
// it. It does so for as many seeds as cfg and the environment say, and prints the seed
// of one that failed.
func Run(t *testing.T, cfg Config, story func(n *Net)) {
	t.Helper()
	seeds := max(cfg.Seeds, 1)
	if v, err := strconv.Atoi(os.Getenv("TESTNET_SEEDS")); err == nil {
		seeds = v
	}
	if v, err := strconv.ParseInt(os.Getenv("TESTNET_SEED"), 10, 64); err == nil {
		cfg.Seed, seeds = v, 1
	}
	for i := range seeds {
		cfg := cfg
		switch {
		case cfg.Seed == 0:
			cfg.Seed = 1 + rand.Int64N(1<<40)
		case i > 0:
			cfg.Seed += int64(i)
		}
		t.Run(fmt.Sprintf("seed=%d", cfg.Seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := New(t, cfg)
				defer n.Close()
				story(n)
				n.Check()
			})
		})
		if t.Failed() {
			t.Logf("to run it again: TESTNET_SEED=%d go test -run '^%s$' .", cfg.Seed, t.Name())
			return
		}
	}
}

// New makes a mesh whose hub runs and whose devices run but have not joined. Call it
// inside a bubble, and Close at the end of that; [Run] does both.
func New(t testing.TB, cfg Config) *Net {
	t.Helper()
	if cfg.Devices < 1 || cfg.Devices > 26 {
		t.Fatalf("testnet: %d devices, want 1 to 26", cfg.Devices)
	}
	if cfg.Catalogue == "" {
		cfg.Catalogue = DefaultCatalogue
	}
	n := &Net{t: t, seed: cfg.Seed, dir: t.TempDir(), logs: &logs{}, Random: rand.New(rand.NewPCG(uint64(cfg.Seed), 1))}
	n.log = slog.New(slog.NewTextHandler(n.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	n.watch = newWatch(n)
	n.Network = sim.New(sim.Config{Seed: cfg.Seed, Nodes: cfg.Devices + 1, Tap: n.watch.tap})
	n.Upstream = newUpstream(n)
	n.hub = &hub{net: n, dir: filepath.Join(n.dir, Hub), catalogue: n.parse(cfg.Catalogue)}
	n.StartHub()
	for i := range cfg.Devices {
		d := &Device{net: n, Name: string(rune('a' + i)), place: i + 1, ring: ring{}}
		d.dir = filepath.Join(n.dir, d.Name)
		keys, models := cfg.Keys[d.Name], cfg.Models[d.Name]
		if cfg.Keys == nil && cfg.Models == nil {
			keys, models = [][]string{nil, {"alpha"}, nil}[i%3], [][]string{nil, nil, {"m"}}[i%3]
		}
		for _, k := range keys {
			d.ring[k] = chain.Secret(fmt.Sprintf("%s%s-%s-%d", keyCanary, d.Name, k, cfg.Seed))
		}
		for _, m := range models {
			d.models = append(d.models, chain.OptionID("local/"+d.Name+"/"+m))
		}
		n.devices = append(n.devices, d)
		d.start()
	}
	return n
}

// Close ends everything that runs. A test that failed gets the end of the log.
func (n *Net) Close() {
	for _, d := range n.devices {
		d.stop()
	}
	n.hub.stop()
	n.Network.Close()
	if n.t.Failed() {
		n.t.Logf("seed %d; the end of the log:\n%s", n.seed, n.logs.tail(30_000))
	}
}

// Seed gives the seed, for one's own messages.
func (n *Net) Seed() int64 { return n.seed }

// Device gives the device of that name.
func (n *Net) Device(name string) *Device {
	n.t.Helper()
	for _, d := range n.devices {
		if d.Name == name {
			return d
		}
	}
	n.t.Fatalf("testnet: there is no device %q", name)
	return nil
}

// Carried gives how many bytes were seen on the streams of a protocol, at both ends.
func (n *Net) Carried(protocol string) int {
	n.watch.mu.Lock()
	defer n.watch.mu.Unlock()
	return n.watch.bytes[protocol]
}

// Names gives the names of all devices.
func (n *Net) Names() []string {
	var all []string
	for _, d := range n.devices {
		all = append(all, d.Name)
	}
	return all
}

// Wait lets so much of the bubble's time pass.
func (n *Net) Wait(d time.Duration) { time.Sleep(d) }

// Until waits at most d of the bubble's time for ok, and fails the test if it does not
// come true.
func (n *Net) Until(d time.Duration, what string, ok func() bool) {
	n.t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("not within %s: %s", d, what)
		}
	}
}

func (n *Net) parse(text string) catalog.Catalog {
	n.t.Helper()
	c, err := catalog.Parse("catalogue.yaml", []byte(text))
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// logs keeps what all nodes log.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// since gives what was logged after the first at bytes, and where that ends.
func (l *logs) since(at int) ([]byte, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes()[at:]), l.b.Len()
}

func (l *logs) tail(most int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes()[max(0, l.b.Len()-most):])
}
