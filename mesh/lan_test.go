package mesh_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/meshtest"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// multicast is a service that may fail to start.
type multicast struct {
	mu      sync.Mutex
	starts  []time.Time
	open    int
	failing bool
}

func (m *multicast) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starts, m.open = append(m.starts, time.Now()), m.open+1
	if m.failing {
		return errors.New("no supported interface")
	}
	return nil
}

func (m *multicast) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open--
	return nil
}

func (m *multicast) set(failing bool) { m.mu.Lock(); defer m.mu.Unlock(); m.failing = failing }

// The service is made anew when addresses changed, once for several changes of
// one moment, and again each minute while no interface can do it.
func TestMulticastIsKeptUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &multicast{failing: true}
		begin := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		moved, done := mesh.KeepLAN(ctx, m, slog.New(slog.DiscardHandler))
		time.Sleep(90 * time.Second)
		m.set(false)
		time.Sleep(90 * time.Second)
		for range 5 {
			moved()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		cancel()
		<-done
		var at []time.Duration
		for _, s := range m.starts {
			at = append(at, s.Sub(begin))
		}
		if want := []time.Duration{0, time.Minute, 2 * time.Minute, 182 * time.Second}; fmt.Sprint(at) != fmt.Sprint(want) || m.open != 0 {
			t.Errorf("started at %v, want %v; %d open", at, want, m.open)
		}
	})
}

// The test below runs itself in two network namespaces.
const (
	childSeed  = "MESH_TEST_LAN_SEED"
	childPeers = "MESH_TEST_LAN_PEERS"
)

func seeded(t *testing.T, seed int64) chain.Key {
	t.Helper()
	k, err := chain.NewKey(rand.New(rand.NewSource(seed)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestLANChild is one device of TestNetworkNamespaces: it says whom it met until
// its standard input ends.
func TestLANChild(t *testing.T) {
	if os.Getenv(childSeed) == "" {
		t.Skip("it is run by TestNetworkNamespaces")
	}
	var seed int64
	if _, err := fmt.Sscan(os.Getenv(childSeed), &seed); err != nil {
		t.Fatal(err)
	}
	hub, key := seeded(t, 1000), seeded(t, seed)
	envelope, err := member.Issue(hub, member.Membership{Mesh: testMesh, DeviceID: chain.DeviceID(os.Getenv(childSeed)), Peer: key.PeerID(), Name: "child",
		Scopes: []chain.ScopeID{chain.DefaultScope}, Issued: chain.InstantOf(time.Now()), Serial: 1})
	if err != nil {
		t.Fatal(err)
	}
	cfg := mesh.DeviceConfig{Key: key, Trust: chain.Trust{Mesh: testMesh, Orchestrator: hub.PeerID()}, HubAddrs: []string{"/ip4/10.77.0.250/tcp/7411"},
		Listen: []string{"/ip4/0.0.0.0/tcp/7412", "/ip4/0.0.0.0/udp/7412/quic-v1"}, LAN: true,
		OnContact: func(c mesh.Contact) { fmt.Println("met", c.Peer) }}
	if peers := os.Getenv(childPeers); peers != "" {
		cfg.LAN, cfg.Peers = false, strings.Split(peers, ",")
	}
	d, err := mesh.NewDevice(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.Announce(wire.Announce{Membership: envelope, BootID: "boot"})
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// Two machines on one network, as namespaces on one bridge, with a hub that
// neither reaches: they find each other by multicast, and by configured addresses
// where that is off.
func TestNetworkNamespaces(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for real multicast")
	}
	lan := meshtest.NewLAN(t, 2)
	one, two := seeded(t, 1), seeded(t, 2)
	for _, c := range []struct {
		name         string
		peers, other string
	}{
		{"multicast", "", ""},
		{"configured", "/ip4/10.77.0.2/udp/7412/quic-v1/p2p/" + string(two.PeerID()), "/ip4/10.77.0.1/tcp/7412/p2p/" + string(one.PeerID())},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, second := child(t, lan.Machines[0], 1, c.peers), child(t, lan.Machines[1], 2, c.other)
			expect(t, first, "met "+string(two.PeerID()))
			expect(t, second, "met "+string(one.PeerID()))
		})
	}
}

// child runs a device in a namespace until the test ends, and gives what it
// says.
func child(t *testing.T, machine *meshtest.Machine, seed int, peers string) <-chan string {
	t.Helper()
	c := machine.Command(exec.Command(os.Args[0], "-test.run", "^TestLANChild$", "-test.v"))
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", childSeed, seed), childPeers+"="+peers)
	c.Stderr = t.Output()
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1024)
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case lines <- s.Text():
			default:
			}
		}
	}()
	limit := time.AfterFunc(5*time.Minute, func() { _ = c.Process.Kill() })
	t.Cleanup(func() {
		_ = in.Close()
		<-read
		_ = c.Wait()
		limit.Stop()
	})
	return lines
}

func expect(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	for line := range lines {
		if strings.Contains(line, want) {
			return
		}
	}
	t.Fatalf("a device ended without saying %q", want)
}
