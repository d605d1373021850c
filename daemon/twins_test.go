package daemon_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/mesh"
)

// What was seen twice in the mesh stands among the problems of the status, with
// what the owner can do, and does not grow without end.
func TestTwinsAreAProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		time.Sleep(time.Second)
		said := func() string { return strings.Join(b.Status().Problems, "\n") }
		before := len(b.Status().Problems)
		b.hub.events.Cloned(mesh.Clone{Kind: mesh.SameDeviceID, Peer: "second", Other: "first", ID: "the-id", Name: "laptop"})
		b.hub.events.Cloned(mesh.Clone{Kind: mesh.SameIdentity, Peer: "copied", Name: "nas"})
		for _, part := range []string{"device ID the-id", "laptop (second)", "first", "CHORDWHEEL_DEVICE_ID_FILE", "device nas (copied)", "data directory was copied"} {
			if !strings.Contains(said(), part) {
				t.Errorf("status lacks %q: %s", part, said())
			}
		}
		for range 100 {
			b.hub.events.Cloned(mesh.Clone{Kind: mesh.SameIdentity, Peer: "copied"})
		}
		if n := len(b.Status().Problems) - before; n > 8 {
			t.Errorf("%d problems", n)
		}
	})
}

// What keeps a device from its whole work stands among its problems.
func TestTroublesAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := beside(t, withSlot)
		expect := func(step, want string) {
			t.Helper()
			all := strings.Join(b.Status().Problems, "\n")
			if want == "" && all != "" || !strings.Contains(all, want) {
				t.Errorf("%s: %q, want %q", step, all, want)
			}
		}
		expect("all is well", "")
		if err := b.Pause(time.Time{}); err != nil {
			t.Fatal(err)
		}
		expect("paused", "sharing is paused; go on with: chordwheel resume")
		if err := b.Resume(); err != nil {
			t.Fatal(err)
		}
		expect("resumed", "")
		b.hub.set(true)
		expect("the hub is away", "chordwheel netcheck says where it was looked for")
		time.Sleep(2 * time.Hour)
		expect("for two hours", "is older than it should be; it stays in force until")
	})
}
