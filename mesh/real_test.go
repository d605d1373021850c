package mesh_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// The one test on real sockets: what the simulation lacks is TCP, Noise, and
// ports that are taken or closed.
func TestRealLoopback(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	d := newDesk(someKey(t))
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	hub, err := mesh.NewHub(mesh.HubConfig{Key: d.key, Mesh: testMesh, Handler: d, Log: log,
		Listen: []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	if err := hub.Join(d.topics...); err != nil {
		t.Fatal(err)
	}
	addrs := hub.Addrs()
	if len(addrs) != 2 || strings.Contains(strings.Join(addrs, " "), "/0") {
		t.Fatalf("listening on %v", addrs)
	}

	again, err := mesh.NewHub(mesh.HubConfig{Key: someKey(t), Mesh: testMesh, Handler: d, Listen: addrs})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Start(ctx); err == nil || !strings.Contains(err.Error(), addrs[0]) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a taken port: %v", err)
	}

	for _, addr := range addrs {
		t.Run(strings.Split(addr, "/")[3], func(t *testing.T) {
			heard := make(chan uint64, 16)
			device, err := mesh.NewDevice(mesh.DeviceConfig{Key: someKey(t), Trust: d.trust(), HubAddrs: []string{addr}, Log: log,
				Listen:         []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"},
				OnInvalidation: func(_ chain.Slot, seq uint64, _ []byte) { heard <- seq }})
			if err != nil {
				t.Fatal(err)
			}
			if err := device.Start(ctx); err != nil {
				t.Fatal(err)
			}
			defer device.Close()
			if len(device.Addrs()) != 2 {
				t.Errorf("listening on %v", device.Addrs())
			}
			hello := wire.Hello{DeviceID: "d", BootID: "b", Invitation: &wire.Redeem{Secret: d.secret, Scope: chain.DefaultScope}}
			if _, err := device.Hello(ctx, hello); err != nil {
				t.Fatal(err)
			}
			if reply, err := device.Fetch(ctx, wire.Fetch{Slot: home}); err != nil || len(reply.Body) != 300_000 {
				t.Errorf("fetch: %d bytes, %v", len(reply.Body), err)
			}
			// Gossip promises nothing; said again, it arrives.
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for seq := uint64(time.Now().UnixNano()); ; seq++ {
				if err := hub.Invalidate(ctx, home, seq, chain.CIDOf(nil)); err != nil {
					t.Fatal(err)
				}
				select {
				case <-heard:
					return
				case <-tick.C:
				case <-ctx.Done():
					t.Fatal("no invalidation arrived")
				}
			}
		})
	}
	if n := hub.DialsAsked(); n != 0 {
		t.Errorf("the hub was asked to dial %d times", n)
	}

	// Another key answers at one address, nobody at the other: no program is given its port.
	wrong := d.trust()
	wrong.Orchestrator = someKey(t).PeerID()
	lost, err := mesh.NewDevice(mesh.DeviceConfig{Key: someKey(t), Trust: wrong, HubAddrs: []string{"/ip4/127.0.0.1/tcp/1", addrs[0]}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := lost.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer lost.Close()
	_, err = lost.Hello(ctx, wire.Hello{DeviceID: "d", BootID: "b", Membership: []byte("m")})
	var gone *mesh.Unreachable
	if !errors.Is(err, mesh.ErrWrongPeer) || !errors.As(err, &gone) || len(gone.Attempts) != 2 || !strings.Contains(gone.Attempts[0].Reason, "refused") {
		t.Errorf("got %v", err)
	}
	t.Log(err)
}

// Run it with -benchtime 150x: more visits a second than a device's own limit of
// connections allows (burst 200) are not what is to be measured.
func BenchmarkVisit(b *testing.B) {
	d := newDesk(benchKey(b))
	hub, err := mesh.NewHub(mesh.HubConfig{Key: d.key, Mesh: testMesh, Handler: d, Listen: []string{"/ip4/127.0.0.1/tcp/0"}})
	if err != nil {
		b.Fatal(err)
	}
	if err := hub.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer hub.Close()
	device, err := mesh.NewDevice(mesh.DeviceConfig{Key: benchKey(b), Trust: d.trust(), HubAddrs: hub.Addrs()})
	if err != nil {
		b.Fatal(err)
	}
	if err := device.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer device.Close()
	hello := wire.Hello{DeviceID: "d", BootID: "b", Invitation: &wire.Redeem{Secret: d.secret, Scope: chain.DefaultScope}}
	if _, err := device.Hello(b.Context(), hello); err != nil {
		b.Fatal(err)
	}
	b.Run("report_in_a_session", func(b *testing.B) {
		for b.Loop() {
			if _, err := device.Report(b.Context(), wire.Report{BootID: "b"}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("dial_hello_report_hang_up", func(b *testing.B) {
		for b.Loop() {
			if _, err := device.Report(b.Context(), wire.Report{BootID: "b"}); err != nil {
				b.Fatal(err)
			}
			device.Leave()
		}
	})
}

func benchKey(b *testing.B) chain.Key {
	k, err := chain.NewKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	return k
}

// Devices on real sockets: one knows the other by a name, from its owner. TCP is
// what they speak, and when one is gone the other is told.
func TestRealPeers(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	d := newDesk(someKey(t))
	start := func(name string, change func(*mesh.DeviceConfig)) (*mesh.Device, chan mesh.Contact, chan chain.PeerID) {
		t.Helper()
		met, parted := make(chan mesh.Contact, 64), make(chan chain.PeerID, 64)
		cfg := mesh.DeviceConfig{Key: someKey(t), Trust: d.trust(), HubAddrs: []string{"/ip4/127.0.0.1/tcp/9"},
			Listen:    []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"},
			LAN:       true, // not for a device that nobody can reach from there
			OnContact: func(c mesh.Contact) { met <- c }, OnParted: func(p chain.PeerID) { parted <- p }}
		if change != nil {
			change(&cfg)
		}
		device, err := mesh.NewDevice(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := device.Start(ctx); err != nil {
			t.Fatal(err)
		}
		envelope, err := d.issue(device.PeerID(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		device.Announce(wire.Announce{Membership: envelope, BootID: name})
		return device, met, parted
	}
	b, metA, _ := start("b", nil)
	defer b.Close()
	addrs := b.Addrs() // in no order
	port := strings.Split(addrs[slices.IndexFunc(addrs, func(s string) bool { return strings.Contains(s, "/tcp/") })], "/")[4]
	a, metB, partedB := start("a", func(cfg *mesh.DeviceConfig) {
		cfg.Peers = []string{"/dns4/localhost/tcp/" + port + "/p2p/" + string(b.PeerID())}
	})
	defer a.Close()
	if a.UsesLAN() || b.UsesLAN() {
		t.Error("a device on loopback looks for others by multicast")
	}
	for _, c := range []struct {
		met  chan mesh.Contact
		want chain.PeerID
	}{{metA, a.PeerID()}, {metB, b.PeerID()}} {
		select {
		case got := <-c.met:
			if got.Peer != c.want {
				t.Errorf("met %s", got.Peer)
			}
		case <-ctx.Done():
			t.Fatal("not met")
		}
	}
	pong, err := a.Ping(ctx, b.PeerID())
	if err != nil || pong.Transport != "tcp" || pong.Path != "direct" || pong.RTT <= 0 {
		t.Errorf("%+v %v", pong, err)
	}
	_ = b.Close()
	select {
	case p := <-partedB:
		if p != b.PeerID() {
			t.Errorf("parted from %s", p)
		}
	case <-ctx.Done():
		t.Fatal("the parting is not told")
	}
}
