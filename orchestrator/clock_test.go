package orchestrator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// useAll does with a device what devices do, and fails where the hub does not learn from
// it, publish or answer.
func useAll(t *testing.T, r *rig, d *device) {
	t.Helper()
	first := d.order(home)[0]
	other := chain.OptionID("beta/small")
	if first == other {
		other = "alpha/small"
	}
	for range 3 {
		d.report(first, chain.Unreachable, 20, time.Second)
		d.report(other, chain.OK, 20, time.Second)
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	want(t, "first option after its failures", d.order(home)[0], other)
	s, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range s.Devices {
		if x.Name == d.name && x.State != "online" {
			t.Errorf("%s is %s", x.Name, x.State)
		}
	}
	if err := r.Reload(t.Context(), parsed(t, declared)); err != nil {
		t.Error(err)
	}
}

// TestAHubWhoseClockJumpsByYears goes on: ahead while it runs, and back over a restart, with
// everything that it kept from a time to come.
func TestAHubWhoseClockJumpsByYears(t *testing.T) {
	disk := newDisk()
	const years = 20 * 365 * 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		r := start(t, disk, parsed(t, declared))
		a := r.joined("a", "key:alpha", "key:beta")
		useAll(t, r, a)
		r.stop() // years of ticks take too long
		time.Sleep(years)
		r = start(t, disk, parsed(t, declared))
		a.rig = r
		useAll(t, r, r.joined("b", "key:alpha", "key:beta"))
		c, err := a.enrol(r.invite(orchestrator.Invite{}))
		if err != nil || c.Membership == nil {
			t.Errorf("whose membership ended meanwhile: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // twenty years earlier
		r := start(t, disk, parsed(t, declared))
		d := r.joined("c", "key:alpha", "key:beta")
		time.Sleep(8 * 24 * time.Hour) // the two from the time to come have faded, as if they had spoken now
		if _, err := d.visit(); err != nil {
			t.Fatal(err)
		}
		useAll(t, r, d)
		s, err := r.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range s.Devices {
			if x.Name != "c" && x.State == "online" {
				t.Errorf("%s is online, last seen in twenty years", x.Name)
			}
		}
	})
}
