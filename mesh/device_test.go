package mesh_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

func TestDevicesReturnSpreadOut(t *testing.T) {
	const fleet = 40
	run(t, fleet, func(t *testing.T, w *world) {
		w.restartHub(20 * time.Second)
		start := time.Now()
		w.within(5*time.Minute, "all are back", w.all(func(r *rim) bool { return r.HubReachable() }))
		time.Sleep(time.Second) // and were told so
		var back []time.Duration
		for _, r := range w.devices {
			r.mu.Lock()
			if !slices.Equal(r.ups, []bool{true, false, true}) {
				t.Errorf("a device was told %v", r.ups)
			}
			back = append(back, r.at[len(r.at)-1].Sub(start))
			if r.welcomes != 1 {
				t.Errorf("a device got %d welcomes by itself, want 1", r.welcomes)
			}
			r.mu.Unlock()
		}
		slices.Sort(back)
		most := 0
		for i, from := range back {
			n := 0
			for _, b := range back[i:] {
				if b < from+time.Second {
					n++
				}
			}
			most = max(most, n)
		}
		t.Logf("back between %s and %s, at most %d of %d in one second", back[0], back[fleet-1], most, fleet)
		if most > fleet*9/10 { // without the random pauses it is all of them
			t.Errorf("%d of %d devices returned within one second", most, fleet)
		}
		w.invalidate(1)
		w.within(time.Second, "all hear again", w.all(func(r *rim) bool { return last(r.seqs(), 1) }))
	})
}

// The same where the hub is back before anybody could miss it: nobody's dial
// fails, and they must not come all at once either.
func TestDevicesReturnSpreadOutAfterAQuickRestart(t *testing.T) {
	const fleet = 24
	run(t, fleet, func(t *testing.T, w *world) {
		w.restartHub(100 * time.Millisecond)
		var counts []int
		for range 9 {
			time.Sleep(time.Second)
			counts = append(counts, len(w.hub.Stats().Peers))
		}
		time.Sleep(time.Second)
		if n := len(w.hub.Stats().Peers); n != fleet {
			t.Errorf("%d of %d are back", n, fleet)
		}
		if counts[1] > fleet*3/4 || counts[3] < fleet/8 {
			t.Errorf("back after each second: %v", counts)
		}
	})
}

// Hours without a hub: no storm, calls fail at once, and the return is quick
// enough.
func TestHubAwayForHours(t *testing.T) {
	run(t, 3, func(t *testing.T, w *world) {
		before := w.devices[0].DialsAsked()
		w.net.Cut([]int{0}, w.net.Others(0))
		time.Sleep(6 * time.Hour)
		dials := w.devices[0].DialsAsked() - before
		if dials < 30 || dials > 250 {
			t.Errorf("%d dials in 6 hours, want a steady few: pauses are random up to 5 minutes", dials)
		}
		start := time.Now()
		protest := wire.Protest{Slot: home, Nonce: "n"}
		_, err := w.devices[0].Protest(t.Context(), protest) // it may join a dial that is under way
		var gone *mesh.Unreachable
		if !errors.As(err, &gone) || time.Since(start) > 31*time.Second {
			t.Errorf("a protest took %s and ended with %v", time.Since(start), err)
		}
		start = time.Now()
		_, err = w.devices[0].Protest(t.Context(), protest)
		if !errors.As(err, &gone) || gone.Retry <= 0 || len(gone.Attempts) == 0 || time.Since(start) > 0 {
			t.Errorf("the next one took %s and ended with %v", time.Since(start), err)
		}
		w.net.Heal()
		w.within(6*time.Minute, "all are back", w.all(func(r *rim) bool { return r.HubReachable() }))
	})
}

func TestPausesAreFullyJittered(t *testing.T) {
	for n, limit := range map[int]time.Duration{0: 2 * time.Second, 3: 16 * time.Second, 20: 5 * time.Minute, 1000: 5 * time.Minute} {
		low, high := limit, time.Duration(0)
		for range 2000 {
			p := mesh.Pause(n)
			low, high = min(low, p), max(high, p)
		}
		if low > limit/50 || high > limit+time.Millisecond || high < limit*9/10 {
			t.Errorf("attempt %d: pauses between %s and %s, want 0 to %s", n, low, high, limit)
		}
	}
}

func TestNewAddressesEndThePause(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		r := w.devices[0]
		w.net.Cut([]int{0}, []int{1})
		time.Sleep(2 * time.Hour)
		w.net.Heal()
		moved, err := r.Host().EventBus().Emitter(new(event.EvtLocalAddressesUpdated))
		if err != nil {
			t.Fatal(err)
		}
		defer moved.Close()
		if r.HubReachable() {
			t.Fatal("it is back already; nothing to show")
		}
		// A dial into the void may be under way; it ends within 15 s.
		for range 16 {
			if err := moved.Emit(event.EvtLocalAddressesUpdated{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if !r.HubReachable() {
			t.Error("a change of address did not bring it back")
		}
		if n := r.moves.Load(); n < 16 { // the start is one more
			t.Errorf("it told of %d changes, want 16 at least", n)
		}
	})
}

func TestAnotherNodeThanThePinnedHubAnswers(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		other := someKey(t).PeerID()
		r := w.device(1, func(c *mesh.DeviceConfig) { c.Trust.Orchestrator = other })
		defer r.Close()
		_, err := r.Hello(t.Context(), w.hello())
		if !errors.Is(err, mesh.ErrWrongPeer) {
			t.Fatalf("got %v", err)
		}
		text := err.Error()
		for _, want := range []string{string(other), w.net.Addrs(0)[0], string(w.desk.key.PeerID()), "invitation"} {
			if !strings.Contains(text, want) {
				t.Errorf("the error does not name %s: %s", want, text)
			}
		}
		if strings.Contains(text, "\n") {
			t.Errorf("more than one line: %q", text)
		}
	})
}

func TestAFailedJoinListsEveryAddress(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		addrs := []string{"/ip4/1.0.0.77/udp/7411/quic-v1", "/ip4/1.0.0.78/udp/7411/quic-v1", "/ip4/1.0.0.1/tcp/7411"}
		r := w.device(1, func(c *mesh.DeviceConfig) { c.HubAddrs = addrs })
		defer r.Close()
		_, err := r.Hello(t.Context(), w.hello())
		var gone *mesh.Unreachable
		if !errors.As(err, &gone) {
			t.Fatalf("got %v", err)
		}
		for i, a := range addrs {
			if i >= len(gone.Attempts) || gone.Attempts[i].Address != a || gone.Attempts[i].Reason == "" {
				t.Errorf("nothing about %s in %+v", a, gone.Attempts)
			}
		}
		if strings.Contains(err.Error(), "\n") || gone.Retry <= 0 {
			t.Errorf("%q, retry %s", err, gone.Retry)
		}
		t.Log(err)
		// An invitation that did not get through is not tried behind the caller's back.
		dials := r.DialsAsked()
		time.Sleep(time.Hour)
		if r.DialsAsked() != dials {
			t.Error("the node went on trying to join")
		}
	})
}

func TestVisitorsHangUp(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		r := w.devices[0]
		w.desk.set(func(d *desk) { d.stay = false })
		w.restartHub(time.Second)
		w.within(5*time.Minute, "back", r.HubReachable)
		time.Sleep(3 * time.Minute)
		if s := w.hub.Stats(); len(s.Peers) != 0 || s.Sessions != 0 {
			t.Errorf("an idle visitor keeps its links: %+v", s)
		}
		if !r.HubReachable() {
			t.Error("hanging up made the hub unreachable")
		}
		if _, err := r.Report(t.Context(), wire.Report{BootID: "b", Seq: 1}); err != nil {
			t.Errorf("the next visit: %v", err)
		}
		time.Sleep(time.Minute)
		if n := len(w.hub.Stats().Peers); n != 1 {
			t.Errorf("hung up after a minute")
		}
	})
}

// The hub ends a session that is idle for long; the next call does not notice.
func TestIdleSessionsAreReplaced(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		time.Sleep(25 * time.Minute)
		if n := w.hub.Stats().Sessions; n != 0 {
			t.Fatalf("%d sessions after 25 idle minutes", n)
		}
		if _, err := w.devices[0].Report(t.Context(), wire.Report{BootID: "b", Seq: 1}); err != nil {
			t.Errorf("report: %v", err)
		}
		if n := w.hub.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions", n)
		}
		w.desk.mu.Lock()
		defer w.desk.mu.Unlock()
		if n := len(w.desk.reports); n != 1 {
			t.Errorf("%d reports", n)
		}
	})
}

func TestCallsOfOneDeviceShareASession(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if _, err := w.devices[0].Fetch(t.Context(), wire.Fetch{Slot: home}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := w.hub.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions", n)
		}
	})
}

// A caller who leaves ends its own call; the session is made anew for others.
func TestACallThatIsGivenUp(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		r := w.devices[0]
		goOn := w.desk.stalls()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Fetch(ctx, wire.Fetch{Slot: home}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		goOn()
		if _, err := r.Fetch(t.Context(), wire.Fetch{Slot: home}); err != nil {
			t.Errorf("the next call: %v", err)
		}
		if ups, _ := r.told(); !slices.Equal(ups, []bool{true}) {
			t.Errorf("an impatient caller made the hub unreachable: %v", ups)
		}
	})
}

// A hub that accepts and then says nothing is hung up on after half a minute.
func TestASilentHub(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		goOn := w.desk.stalls()
		start := time.Now()
		_, err := w.devices[0].Fetch(t.Context(), wire.Fetch{Slot: home})
		if err == nil || time.Since(start) > 2*time.Minute {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		goOn()
		w.within(time.Minute, "a call gets through", func() bool {
			_, err := w.devices[0].Fetch(t.Context(), wire.Fetch{Slot: home})
			return err == nil
		})
	})
}

func TestRefusedHellos(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		stranger := w.device(2, nil)
		defer stranger.Close()
		h := w.hello()
		h.Invitation.Secret = make([]byte, 32)
		_, err := stranger.Hello(t.Context(), h)
		if !errors.Is(err, &spoke.Refusal{Code: spoke.CodeInvitation}) {
			t.Errorf("a wrong secret: %v", err)
		}
		if _, err := stranger.Fetch(t.Context(), wire.Fetch{Slot: home}); err == nil {
			t.Error("a stranger fetched")
		}

		// A membership of somebody else is refused, again and again, but slowly.
		h = w.hello()
		h.Invitation, h.Membership = nil, w.announcement(w.devices[0]).Membership
		if _, err = stranger.Hello(t.Context(), h); !errors.Is(err, &spoke.Refusal{Code: spoke.CodeNotMember}) {
			t.Errorf("a foreign membership: %v", err)
		}
		before := w.hub.Stats().Traffic[spoke.Protocol].In
		time.Sleep(time.Hour)
		if n := (w.hub.Stats().Traffic[spoke.Protocol].In - before) / int64(len(h.Membership)); n < 5 || n > 60 { // pauses are random, some 20 on average; without them it is hundreds
			t.Errorf("said about %d hellos in an hour", n)
		}
	})
}

// A device that starts while the hub is away works its gossip from the keys it
// stored, and brings its hello through by itself later.
func TestStartWithoutHub(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		membership := w.announcement(w.devices[0]).Membership
		if err := w.devices[0].Close(); err != nil {
			t.Fatal(err)
		}
		w.net.Cut([]int{0}, w.net.Others(0))
		r := w.device(1, nil)
		defer r.Close()
		if err := r.Join(w.desk.topics...); err != nil {
			t.Fatal(err)
		}
		h := w.hello()
		h.Invitation, h.Membership = nil, membership
		if _, err := r.Hello(t.Context(), h); err == nil {
			t.Fatal("said hello to nobody")
		}
		time.Sleep(10 * time.Minute)
		w.net.Heal()
		w.within(6*time.Minute, "the hello is through", r.HubReachable)
		time.Sleep(time.Second)
		if _, welcomes := r.told(); welcomes != 1 {
			t.Errorf("%d welcomes", welcomes)
		}
	})
}

// Callbacks may call the node, also where that leads to another callback.
func TestCallbacksMayCallTheNode(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		var r *rim
		fetched := make(chan error, 10)
		r = w.device(1, func(c *mesh.DeviceConfig) {
			c.OnHub = func(up bool) {
				if up {
					_, err := r.Fetch(t.Context(), wire.Fetch{Slot: home})
					fetched <- err
					_, err = r.Hello(t.Context(), w.hello())
					fetched <- err
				}
			}
		})
		defer r.Close()
		w.join(r)
		for range 2 {
			if err := <-fetched; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestDeviceConfigIsChecked(t *testing.T) {
	good := mesh.DeviceConfig{Key: someKey(t), Trust: newDesk(someKey(t)).trust(), HubAddrs: []string{"/ip4/192.0.2.1/tcp/7411"}}
	for name, change := range map[string]func(*mesh.DeviceConfig){
		"no key":         func(c *mesh.DeviceConfig) { *c = mesh.DeviceConfig{} },
		"no address":     func(c *mesh.DeviceConfig) { c.HubAddrs = nil },
		"bad address":    func(c *mesh.DeviceConfig) { c.HubAddrs = []string{"192.0.2.1:7411"} },
		"another peer":   func(c *mesh.DeviceConfig) { c.HubAddrs[0] += "/p2p/" + string(someKey(t).PeerID()) },
		"no address but": func(c *mesh.DeviceConfig) { c.HubAddrs = []string{"/p2p/" + string(c.Trust.Orchestrator)} },
		"bad listen":     func(c *mesh.DeviceConfig) { c.Listen = []string{"/ip4/nowhere"} },
		"bad pinned hub": func(c *mesh.DeviceConfig) { c.Trust.Orchestrator = "hub" },
	} {
		cfg := good
		cfg.HubAddrs = slices.Clone(good.HubAddrs)
		change(&cfg)
		if _, err := mesh.NewDevice(cfg); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	good.HubAddrs = append(good.HubAddrs, good.HubAddrs[0]+"/p2p/"+string(good.Trust.Orchestrator))
	if _, err := mesh.NewDevice(good); err != nil {
		t.Error(err)
	}
}

// A device dials its pinned hub and nobody else, whoever names them.
func TestDevicesDialOnlyTheirHub(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		stranger := w.rogue(2)
		if err := w.devices[0].Host().Connect(t.Context(), peer.AddrInfo{ID: stranger.ID(), Addrs: stranger.Addrs()}); err == nil {
			t.Error("dialled a stranger")
		}
		before := w.devices[0].DialsAsked()
		attacker := w.rogue(3, 1)
		time.Sleep(3 * time.Second)
		attacker.prune(w.devices[0].Host().ID(), mesh.PolicyTopic(testMesh, home.Scope), stranger)
		if n := w.devices[0].DialsAsked() - before; n != 0 || len(stranger.Network().Conns()) != 0 {
			t.Errorf("a hostile PRUNE made it ask for %d dials", n)
		}
	})
}

// A tenth of all packets lost makes things slower and nothing else.
func TestLossyNetwork(t *testing.T) {
	run(t, 5, func(t *testing.T, w *world) {
		w.net.Loss(0.1)
		for i := range 10 {
			for _, r := range w.devices {
				if _, err := r.Report(t.Context(), wire.Report{BootID: "b", Seq: uint64(i)}); err != nil {
					t.Error(err)
				}
			}
			w.invalidate(uint64(i + 1))
			time.Sleep(time.Minute)
		}
		for _, r := range w.devices {
			if ups, _ := r.told(); !last(r.seqs(), 10) || !slices.Equal(ups, []bool{true}) {
				t.Errorf("heard %v, up %v", r.seqs(), ups)
			}
		}
		if n := w.hub.DialsAsked(); n != 0 {
			t.Errorf("the hub was asked to dial %d times", n)
		}
	})
}

// The hub's place is cut off from some devices while others stay: each side
// knows where it stands, and both hear the same afterwards.
func TestPartitionHeals(t *testing.T) {
	run(t, 6, func(t *testing.T, w *world) {
		away, here := []int{4, 5, 6}, w.devices[:3]
		w.net.Cut([]int{0, 1, 2, 3}, away)
		time.Sleep(2 * time.Minute)
		for i, r := range w.devices {
			if r.HubReachable() != (i < 3) {
				t.Errorf("device %d: reachable is %v", i+1, r.HubReachable())
			}
		}
		w.invalidate(1)
		time.Sleep(time.Minute)
		for _, r := range here {
			if !last(r.seqs(), 1) {
				t.Error("a device that was not cut off did not hear")
			}
		}
		w.net.Heal()
		w.within(6*time.Minute, "all are back", w.all(func(r *rim) bool { return r.HubReachable() }))
		time.Sleep(5 * time.Second)
		w.invalidate(2)
		w.within(time.Second, "all hear", w.all(func(r *rim) bool { return last(r.seqs(), 2) }))
	})
}

// What a device costs that keeps its connection and has nothing to say but
// that it is there.
func TestAnIdleDeviceIsQuiet(t *testing.T) {
	run(t, 3, func(t *testing.T, w *world) {
		w.devices[0].Announce(w.announcement(w.devices[0]))
		sum := func() (n int64) {
			for _, t := range w.devices[0].Stats().Traffic {
				n += t.In + t.Out
			}
			return n
		}
		before := sum()
		time.Sleep(6 * time.Hour)
		n := sum() - before
		t.Logf("%d bytes in its streams in 6 hours, %d announcements", n, len(w.heard))
		if n > 50_000 || len(w.heard) < 24 {
			t.Errorf("%d bytes, %d announcements", n, len(w.heard))
		}
	})
}
