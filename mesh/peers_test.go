package mesh_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// near is what a device was told of its peers.
type near struct {
	*rim
	mu     sync.Mutex
	met    map[chain.PeerID]int
	parted map[chain.PeerID]int
	clones []mesh.Clone
}

func (n *near) has(p chain.PeerID) bool {
	return slices.ContainsFunc(n.Contacts(), func(c mesh.Contact) bool { return c.Peer == p })
}

func (n *near) counts(p chain.PeerID) (met, parted int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.met[p], n.parted[p]
}

// near starts the device at place i, which holds a membership and so can be
// met.
func (w *world) near(i int, change func(*mesh.DeviceConfig)) *near {
	w.t.Helper()
	n := &near{met: map[chain.PeerID]int{}, parted: map[chain.PeerID]int{}}
	n.rim = w.device(i, func(cfg *mesh.DeviceConfig) {
		cfg.OnContact = func(c mesh.Contact) { n.mu.Lock(); defer n.mu.Unlock(); n.met[c.Peer]++ }
		cfg.OnParted = func(p chain.PeerID) { n.mu.Lock(); defer n.mu.Unlock(); n.parted[p]++ }
		cfg.OnClone = func(c mesh.Clone) { n.mu.Lock(); defer n.mu.Unlock(); n.clones = append(n.clones, c) }
		if change != nil {
			change(cfg)
		}
	})
	if err := n.Join(w.desk.topics...); err != nil {
		w.t.Fatal(err)
	}
	n.Announce(w.announcement(n.rim))
	return n
}

// at says where the device at place i is.
func (w *world) at(n *near, i int) wire.PeerAddress {
	return wire.PeerAddress{Peer: n.PeerID(), Addresses: w.net.Addrs(i)}
}

// neighbours starts n devices that know where the others are, and waits until
// each is in contact with all. The hub may be there or not.
func (w *world) neighbours(n int, change func(*mesh.DeviceConfig)) []*near {
	w.t.Helper()
	var all []*near
	var list []wire.PeerAddress
	for i := 1; i <= n; i++ {
		d := w.near(i, change)
		all, list = append(all, d), append(list, w.at(d, i))
	}
	for _, d := range all {
		d.Introduce(list...)
	}
	w.within(time.Minute, "everybody meets everybody", func() bool { return w.acquainted(all) })
	return all
}

func (w *world) acquainted(all []*near) bool {
	for _, d := range all {
		if len(d.Contacts()) != len(all)-1 {
			return false
		}
	}
	return true
}

func closeAll(all []*near) {
	for _, d := range all {
		_ = d.Close()
	}
}

// Devices of one scope meet while the hub is away, tell each other of it, and
// the smaller peer ID alone dialled.
func TestDevicesMeetWithoutTheHub(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		_ = w.hub.Close()
		all := w.neighbours(3, func(c *mesh.DeviceConfig) { c.Checkpoint = func() []byte { return []byte("seen") } })
		defer closeAll(all)
		a := all[0]
		for _, c := range a.Contacts() {
			if string(c.Checkpoint) != "seen" {
				t.Errorf("%s shows %q of the ledger", c.Peer, c.Checkpoint)
			}
			if c.RTT < 10*time.Millisecond || c.RTT > 30*time.Millisecond || c.BootID != "boot" || !slices.Equal(c.Capabilities, []chain.Capability{"execute:llm.chat"}) || len(c.Addresses) == 0 {
				t.Errorf("over a way of 5 ms: %+v", c)
			}
		}
		for _, d := range all {
			for _, id := range d.Stats().Peers {
				if conns := len(d.Conns(id)); conns != 1 {
					t.Errorf("%d connections to one peer", conns)
				}
			}
		}
		w.within(time.Minute, "chords are known to all", func() bool {
			return len(agreed(all[0])) == 3 && len(agreed(all[1])) == 3 && len(agreed(all[2])) == 3
		})
		pong, err := a.Ping(t.Context(), all[1].PeerID())
		if err != nil || pong.Path != "direct" || pong.Transport != "quic-v1" || pong.RTT < 10*time.Millisecond || pong.Address == "" {
			t.Errorf("%+v %v", pong, err)
		}
		if _, err := a.Ping(t.Context(), w.desk.key.PeerID()); err == nil {
			t.Error("the hub was pinged")
		}
	})
}

// A peer behind a cut is gone; nothing that is said about it brings it back,
// and the first direct contact does.
func TestPartitionAndHeal(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		all := w.neighbours(3, nil)
		defer closeAll(all)
		a, b, c := all[0], all[1], all[2]
		w.net.Cut([]int{1}, []int{2})
		w.within(2*time.Minute, "both notice", func() bool { return !a.has(b.PeerID()) && !b.has(a.PeerID()) })
		w.within(time.Second, "it is told", func() bool { _, parted := a.counts(b.PeerID()); return parted == 1 })
		met, _ := a.counts(b.PeerID())
		for range 40 { // c still carries what b says of itself
			b.Announce(w.announcement(b.rim))
			a.Introduce(w.at(b, 2))
			time.Sleep(15 * time.Second)
			if a.has(b.PeerID()) || b.has(a.PeerID()) {
				t.Fatal("hearsay revived a peer")
			}
		}
		if now, _ := a.counts(b.PeerID()); now != met {
			t.Error("a contact was told without contact")
		}
		if !a.has(c.PeerID()) || !b.has(c.PeerID()) {
			t.Error("the third was lost")
		}
		w.net.Heal()
		w.within(3*time.Minute, "they meet again", func() bool { return a.has(b.PeerID()) && b.has(a.PeerID()) })
	})
}

// Twenty devices behind one address, as in an office: each meets each.
func TestTwentyBehindOneAddress(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		var all []*near
		var list []wire.PeerAddress
		for i := range 20 {
			d := w.near(3+4*i, nil) // every fourth place is behind the shared address
			defer d.Close()
			all, list = append(all, d), append(list, w.at(d, 3+4*i))
		}
		for _, d := range all {
			d.Introduce(list...)
		}
		w.within(3*time.Minute, "everybody meets everybody", func() bool { return w.acquainted(all) })
	})
}

// An announcement says where its author is: who hears it by way of the hub
// finds it.
func TestGossipIntroduces(t *testing.T) {
	run(t, 3, func(t *testing.T, w *world) {
		for _, r := range w.devices {
			r.Announce(w.announcement(r))
		}
		w.within(time.Minute, "all meet", w.all(func(r *rim) bool { return len(r.Contacts()) == 2 }))
	})
}

// agreed gives the chords that both ends claim.
func agreed(d *near) []mesh.ScopeChord {
	return slices.DeleteFunc(d.Chords(), func(k mesh.ScopeChord) bool { return k.By != "" })
}

// A look at the network dials the hub at each address and names what is wrong
// with it; the session that stands does not notice.
func TestALookAtTheNetwork(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		d := w.devices[0]
		w.within(time.Minute, "a session", d.HubReachable)
		before := d.Stats().Sessions
		n := d.Net(t.Context())
		if len(n.Listen) == 0 || len(n.Hub) == 0 || n.Transports["quic-v1"] == 0 || n.Multicast == "" {
			t.Errorf("%+v", n)
		}
		for _, a := range n.Hub {
			if a.Address == "" || a.Reason != "" {
				t.Errorf("the hub at %+v", a)
			}
		}
		if l, ok := d.Way(w.desk.key.PeerID()); !ok || l.Path != "direct" || l.Transport != "quic-v1" || l.Address == "" {
			t.Errorf("the way to the hub: %+v %v", l, ok)
		}
		if d.Stats().Sessions != before || !d.HubReachable() {
			t.Error("the session did not survive the look")
		}
		_ = w.hub.Close()
		for _, a := range d.Net(t.Context()).Hub {
			if a.Reason == "" {
				t.Errorf("a hub that is gone is there at %s", a.Address)
			}
		}
	})
}
