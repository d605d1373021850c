package mesh_test

import (
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/member"
)

func (n *near) saw(k mesh.CloneKind, p chain.PeerID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.clones {
		if c.Kind == k && c.Peer == p {
			return true
		}
	}
	return false
}

// as lets n speak as another run, with another device ID.
func (w *world) as(n *near, boot string, id chain.DeviceID) {
	w.t.Helper()
	a := w.announcement(n.rim)
	a.BootID = boot
	if id != "" {
		var err error
		a.Membership, err = member.Issue(w.desk.key, member.Membership{Mesh: testMesh, DeviceID: id, Peer: n.PeerID(), Name: "copy",
			Scopes: []chain.ScopeID{chain.DefaultScope}, Issued: chain.InstantOf(time.Now()), Serial: 99})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	n.Announce(a)
}

// A second member with a device ID that is taken is told by everybody who meets
// both, and by the one that had it.
func TestOneDeviceIDTwice(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		all := w.neighbours(3, nil)
		defer closeAll(all)
		a, b, c := all[0], all[1], all[2]
		w.as(b, "boot", chain.DeviceID("id-"+a.PeerID()))
		w.within(13*time.Minute, "the holder and the third tell", func() bool {
			return a.saw(mesh.SameDeviceID, b.PeerID()) && c.saw(mesh.SameDeviceID, b.PeerID())
		})
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.clones) != 1 || a.clones[0].ID != chain.DeviceID("id-"+a.PeerID()) || a.clones[0].Other != a.PeerID() {
			t.Errorf("told once, with both names: %+v", a.clones)
		}
	})
}

// Runs that alternate are two programs; a device that starts again is one.
func TestOneIdentityTwice(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		all := w.neighbours(2, nil)
		defer closeAll(all)
		a, b := all[0], all[1]
		say := func(boot string) {
			w.as(b, boot, "")
			if _, err := b.Ping(t.Context(), a.PeerID()); err != nil {
				t.Fatal(err)
			}
		}
		for _, boot := range []string{"one", "two", "two", "three"} {
			say(boot)
		}
		time.Sleep(time.Second)
		if a.saw(mesh.SameIdentity, b.PeerID()) {
			t.Error("a restart was taken for a copy")
		}
		say("two")
		w.within(time.Second, "it is told", func() bool { return a.saw(mesh.SameIdentity, b.PeerID()) })
	})
}

// A copy of a device's data directory elsewhere in the mesh: whoever hears both
// speak with one key tells.
func TestACopyIsHeard(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.net.Cut([]int{1}, []int{3})
		all := w.neighbours(2, nil)
		defer closeAll(all)
		a, b, c := all[0], all[1], w.near(3, nil)
		defer c.Close()
		c.Introduce(w.at(b, 2))
		w.within(time.Minute, "the third meets the second", func() bool { return c.has(b.PeerID()) && b.has(c.PeerID()) })
		time.Sleep(5 * time.Second)
		copied := w.rogueWith(a.key, 40) // at the far end of the mesh
		copied.connect(c.Host())
		announcement := w.announcement(a.rim)
		announcement.BootID, announcement.Seq = "another run", 1
		copied.publish(mesh.AnnounceTopic(testMesh, w.desk.topics[0]), encode(t, &announcement))
		if b.saw(mesh.SameIdentity, a.PeerID()) {
			t.Error("it may have started anew")
		}
		if _, err := a.Ping(t.Context(), b.PeerID()); err != nil {
			t.Fatal(err)
		}
		w.within(time.Minute, "it is told", func() bool { return b.saw(mesh.SameIdentity, a.PeerID()) })
	})
}
