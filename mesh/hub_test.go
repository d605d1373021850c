package mesh_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

func TestDevicesJoinFetchAndHear(t *testing.T) {
	run(t, 3, func(t *testing.T, w *world) {
		w.invalidate(1)
		w.within(time.Second, "all hear it", w.all(func(r *rim) bool { return last(r.seqs(), 1) }))
		for _, r := range w.devices {
			reply, err := r.Fetch(t.Context(), wire.Fetch{Slot: home})
			if err != nil || len(reply.Body) != 300_000 {
				t.Errorf("fetch: %d bytes, %v", len(reply.Body), err)
			}
			_, err = r.Fetch(t.Context(), wire.Fetch{Slot: scoped("workspace:other")})
			if !errors.Is(err, &spoke.Refusal{Code: spoke.CodeNoChain}) {
				t.Errorf("fetch of nothing: %v", err)
			}
			_, err = r.Protest(t.Context(), wire.Protest{Slot: home, Nonce: "n"})
			if !errors.Is(err, &spoke.Refusal{Code: spoke.CodeInternal}) || strings.Contains(err.Error(), "internals") {
				t.Errorf("a failure inside the hub: %v", err)
			}
			if !r.HubReachable() {
				t.Error("hub is not reachable")
			}
		}
		traffic := w.hub.Stats().Traffic[spoke.Protocol]
		if traffic.Out < 900_000 || traffic.In < 300 {
			t.Errorf("the hub's meter counts %+v for the spoke", traffic)
		}
	})
}

// The hub never probes: nothing in it ever so much as asks for a dial.
func TestHubIsNeverAskedToDial(t *testing.T) {
	run(t, 12, func(t *testing.T, w *world) {
		quiet := func(when string) {
			t.Helper()
			if n := w.hub.DialsAsked(); n != 0 {
				t.Fatalf("%s: the hub was asked to dial %d times", when, n)
			}
			for _, c := range w.hub.Host().Network().Conns() {
				if c.Stat().Direction != network.DirInbound {
					t.Fatalf("%s: the hub has an outbound connection", when)
				}
				for _, s := range c.GetStreams() {
					if s.Stat().Direction == network.DirOutbound && strings.HasPrefix(string(s.Protocol()), "/chordwheel/") {
						t.Fatalf("%s: the hub opened %s", when, s.Protocol())
					}
				}
			}
		}
		w.invalidate(1)
		time.Sleep(20 * time.Minute)
		quiet("in normal work")

		w.net.Cut([]int{0}, w.net.Others(0))
		time.Sleep(90 * time.Second)
		quiet("while cut off")
		w.net.Heal()
		w.within(10*time.Minute, "all are back", w.all(func(r *rim) bool { return r.HubReachable() }))
		quiet("after the redial")

		// A neighbour resets the gossip stream and goes, before the library has
		// opened it again.
		for i := 16; i < 20; i++ {
			r := w.rogue(i, 0)
			time.Sleep(3 * time.Second)
			for range 3 { // the first time it is opened again at once, then after pauses
				resets := 0
				for _, c := range r.Network().Conns() {
					for _, s := range c.GetStreams() {
						if s.Stat().Direction == network.DirInbound && strings.HasPrefix(string(s.Protocol()), "/meshsub/") {
							_ = s.Reset()
							resets++
						}
					}
				}
				if resets == 0 {
					t.Fatal("there is no gossip stream to reset")
				}
				time.Sleep(50 * time.Millisecond)
				if gossiping(r) == 0 {
					break // it waits: this is the moment
				}
			}
			_ = r.Network().ClosePeer(w.hub.Host().ID())
			time.Sleep(10 * time.Second)
		}
		quiet("after neighbours broke off gossip and left")

		// A witness that lacks our settings takes the bait, so the bait is good.
		topic := mesh.PolicyTopic(testMesh, home.Scope)
		seen := &witness{}
		naive, err := w.net.HostFactory(13)(libp2p.Identity(key(t, w.net, 13).Private()), libp2p.ConnectionGater(seen), libp2p.DisableMetrics())
		if err != nil {
			t.Fatal(err)
		}
		defer naive.Close()
		ps, err := pubsub.NewGossipSub(t.Context(), naive)
		if err != nil {
			t.Fatal(err)
		}
		joined, err := ps.Join(topic)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := joined.Relay(); err != nil {
			t.Fatal(err)
		}
		stranger := w.rogue(14)
		attacker := w.rogue(15, 0)
		attacker.connect(naive)
		time.Sleep(3 * time.Second)
		attacker.prune(naive.ID(), topic, stranger)
		if seen.asked.Load() == 0 {
			t.Fatal("the hostile PRUNE does not even work on a node without protection")
		}
		attacker.prune(w.hub.Host().ID(), topic, stranger)
		attacker.prune(w.hub.Host().ID(), mesh.RevokedTopic(testMesh), stranger)
		quiet("after a hostile PRUNE with peer exchange")
	})
}

func TestHubRefusesToDialWhenAsked(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		stranger := w.rogue(1)
		err := w.hub.Host().Connect(t.Context(), peer.AddrInfo{ID: stranger.ID(), Addrs: stranger.Addrs()})
		if err == nil || w.hub.DialsAsked() != 1 {
			t.Errorf("asked %d times, the answer was %v", w.hub.DialsAsked(), err)
		}
		if n := len(stranger.Network().Conns()); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
}

// Behind NAT or in containers many devices share an address; the library's
// defaults let eight in.
func TestTwentyDevicesBehindOneAddress(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		for i := 1; len(w.devices) < 20; i++ {
			if w.net.Shared(i) {
				r := w.device(i, nil)
				defer r.Close()
				w.devices = append(w.devices, r)
			}
		}
		var joined sync.WaitGroup
		for _, r := range w.devices {
			joined.Go(func() { w.join(r) })
		}
		joined.Wait()
		if n := len(w.hub.Stats().Peers); n != 20 {
			t.Fatalf("%d of 20 are in", n)
		}
		time.Sleep(5 * time.Second)
		w.invalidate(1)
		w.within(time.Second, "all 20 hear the hub", w.all(func(r *rim) bool { return last(r.seqs(), 1) }))
	})
}

func TestSixtyDevicesHearTheHubAndEachOther(t *testing.T) {
	run(t, 60, func(t *testing.T, w *world) {
		heard := make(chan mesh.Presence, 1000)
		for _, r := range w.devices {
			r.hears(func(p mesh.Presence) { heard <- p })
		}
		start := time.Now()
		w.invalidate(1)
		w.within(time.Second, "all hear the hub", w.all(func(r *rim) bool { return last(r.seqs(), 1) }))
		t.Logf("60 devices heard an invalidation within %s of simulated time", time.Since(start))

		start = time.Now()
		w.devices[0].Announce(w.announcement(w.devices[0]))
		w.within(time.Second, "the 59 others hear a device", func() bool { return len(heard) == 59 })
		t.Logf("59 devices heard an announcement within %s", time.Since(start))
		if p := <-w.heard; p.Membership.Peer != w.devices[0].PeerID() || len(p.Capabilities) != 1 {
			t.Errorf("the hub heard %+v", p)
		}
		if s := w.hub.Stats().Gossip; s.LostSent+s.LostRead != 0 || len(s.Rejected) != 0 {
			t.Errorf("dropped or rejected: %+v", s)
		}
	})
}

// The rest of a departed visitor's entry is a kilobyte that fifty thousand
// visitors would make fifty megabytes.
func TestHubForgetsVisitors(t *testing.T) {
	run(t, 2, func(t *testing.T, w *world) {
		gone, there := w.devices[0], w.devices[1]
		gone.Leave()
		time.Sleep(time.Second)
		store := w.hub.Host().Peerstore()
		if p, err := store.GetProtocols(gone.Host().ID()); err != nil || len(p) > 0 || len(store.Addrs(gone.Host().ID())) > 0 {
			t.Errorf("still known: %v %v", p, store.Addrs(gone.Host().ID()))
		}
		if p, err := store.GetProtocols(there.Host().ID()); err != nil || len(p) == 0 {
			t.Errorf("forgot one that is still there: %v", err)
		}
		if !gone.HubReachable() {
			t.Error("a visit that ended well made the hub unreachable")
		}
		if _, err := gone.Fetch(t.Context(), wire.Fetch{Slot: home}); err != nil {
			t.Errorf("the next visit: %v", err)
		}
	})
}

func TestHubClosesWhileDevicesTalk(t *testing.T) {
	run(t, 2, func(t *testing.T, w *world) {
		_ = w.desk.stalls()
		ended := make(chan error, 1)
		go func() {
			_, err := w.devices[0].Fetch(t.Context(), wire.Fetch{Slot: home})
			ended <- err
		}()
		time.Sleep(time.Second)
		if err := w.hub.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err == nil {
			t.Error("a fetch that the hub never answered succeeded")
		}
		if err := w.hub.Close(); err != nil {
			t.Errorf("closing twice: %v", err)
		}
	})
}

func TestHubConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]mesh.HubConfig{
		"nothing":     {},
		"no address":  {Key: someKey(t), Mesh: testMesh, Handler: newDesk(someKey(t))},
		"bad address": {Key: someKey(t), Mesh: testMesh, Handler: newDesk(someKey(t)), Listen: []string{"127.0.0.1:7411"}},
	} {
		if _, err := mesh.NewHub(cfg); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	hub, err := mesh.NewHub(mesh.HubConfig{Key: someKey(t), Mesh: testMesh, Handler: newDesk(someKey(t)), Listen: []string{"/ip4/127.0.0.1/tcp/0"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Close(); err != nil {
		t.Errorf("closing what never started: %v", err)
	}
}

func TestNodesSayWhatTheyAre(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		r := w.rogue(1, 0)
		store := r.Peerstore()
		w.within(time.Second, "identify", func() bool { _, err := store.Get(w.hub.Host().ID(), "AgentVersion"); return err == nil })
		agent, _ := store.Get(w.hub.Host().ID(), "AgentVersion")
		version, _ := store.Get(w.hub.Host().ID(), "ProtocolVersion")
		if agent != "chordwheel/test" || version != mesh.WireVersion {
			t.Errorf("agent %v, protocol version %v", agent, version)
		}
	})
}

func TestDroppedPeers(t *testing.T) {
	run(t, 2, func(t *testing.T, w *world) {
		if err := w.hub.Drop(w.devices[0].PeerID()); err != nil {
			t.Fatal(err)
		}
		if p := w.hub.Stats().Peers; len(p) != 1 || p[0] != w.devices[1].PeerID() {
			t.Errorf("connected: %v", p)
		}
		if err := w.hub.Drop("nobody"); err == nil {
			t.Error("dropped nobody")
		}
		w.within(time.Minute, "it comes back, and the handler decides", w.devices[0].HubReachable)
	})
}

// gossiping counts the gossip streams that neighbours opened to r.
func gossiping(r *rogue) (n int) {
	for _, c := range r.Network().Conns() {
		for _, s := range c.GetStreams() {
			if s.Stat().Direction == network.DirInbound && strings.HasPrefix(string(s.Protocol()), "/meshsub/") {
				n++
			}
		}
	}
	return n
}
