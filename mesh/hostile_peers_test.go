package mesh_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// A member may send work without ever greeting. Once it is revoked, what runs for
// it ends, as it does for a contact.
func TestARevokedPeerThatNeverGreetedIsHungUpOn(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		b := w.near(1, func(c *mesh.DeviceConfig) { c.Executor = newWorker() })
		defer b.Close()
		k := key(t, w.net, 2)
		r := w.rogueWith(k, 2)
		r.connect(b.Host())
		s, err := r.NewStream(t.Context(), b.Host().ID(), exec.Protocol)
		if err != nil {
			t.Fatal(err)
		}
		open := order(t, k, b.PeerID(), silent)
		if err := wire.Write(s, &open); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(silent); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := b.Stats().Foreign; n != 1 || b.has(k.PeerID()) {
			t.Fatalf("%d jobs; a contact: %v", n, b.has(k.PeerID()))
		}
		list, err := (*member.Revocations)(nil).Add(k.PeerID(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		list.Mesh = testMesh
		signed, err := member.Revoke(w.desk.key, list)
		if err != nil {
			t.Fatal(err)
		}
		before := b.Host().Network().ConnsToPeer(r.ID())
		if err := b.SetRevocations(signed); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := b.Stats().Foreign; n != 0 || len(before) == 0 {
			t.Errorf("%d jobs run for a peer that was thrown out, of %d connections", n, len(before))
		}
		for _, c := range before { // it may dial anew, as any stranger
			if !c.IsClosed() {
				t.Errorf("%s was not hung up on", c.ID())
			}
		}
	})
}

// dies ends d as a kill does: nobody is told.
func (w *world) dies(d *near, i int) {
	w.net.Cut([]int{i}, w.net.Others(i))
	_ = d.Close()
	w.net.Heal()
}

// A peer that was killed and comes back greets within seconds, each time; work
// goes to it at once, and not over the connection with the dead.
func TestAKilledPeerIsBackWithinSeconds(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		a := w.near(1, nil)
		defer a.Close()
		start := func(boot string) *near {
			b := w.near(2, func(c *mesh.DeviceConfig) { c.Executor = newWorker() })
			hello := w.announcement(b.rim)
			hello.BootID = boot
			b.Announce(hello)
			return b
		}
		b := start("boot-0")
		a.Introduce(w.at(b, 2))
		b.Introduce(w.at(a, 1))
		w.within(time.Minute, "they meet", func() bool { return a.has(b.PeerID()) && b.has(a.PeerID()) })
		for n, down := range []time.Duration{0, time.Second, 15 * time.Second, 100 * time.Millisecond, time.Minute, 0} {
			w.dies(b, 2)
			time.Sleep(down)
			boot := "boot-" + string(rune('1'+n))
			b = start(boot)
			b.Introduce(w.at(a, 1)) // as the hub's last word, which it kept
			begin := time.Now()
			w.within(time.Minute, "it is met again", func() bool {
				for _, c := range a.Contacts() {
					if c.Peer == b.PeerID() && c.BootID == boot {
						return true
					}
				}
				return false
			})
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("after %s away it took %s", down, took)
			}
			begin = time.Now()
			if got, err := a.order(t.Context(), t, b.PeerID(), []byte("work")); err != nil || !bytes.Equal(got, []byte("work")) {
				t.Errorf("after %s away: %q, %v", down, got, err)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("after %s away its first work took %s", down, took)
			}
		}
		_ = b.Close()
	})
}
