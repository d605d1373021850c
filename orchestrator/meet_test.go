package orchestrator_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/sim"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// peersOf visits as a device that listens at address, and gives whom the hub
// introduces.
func peersOf(t *testing.T, d *device, address string) (all []chain.PeerID) {
	t.Helper()
	q := d.hello()
	if address != "" {
		q.Addresses = []string{address}
	}
	w, err := d.welcome(q)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range w.Peers {
		all = append(all, p.Peer)
	}
	slices.Sort(all)
	return all
}

func sorted(devices ...*device) (all []chain.PeerID) {
	for _, d := range devices {
		all = append(all, d.key.PeerID())
	}
	slices.Sort(all)
	return all
}

// The hub introduces the members of a device's scopes to it, those that said
// where they are, and nobody else.
func TestIntroductions(t *testing.T) {
	r := start(t, newDisk(), parsed(t, declared))
	a, b, c := r.joined("a"), r.joined("b"), r.joined("c")
	lab := r.device("lab")
	if _, err := lab.enrol(r.invite(orchestrator.Invite{Scope: "workspace:lab"})); err != nil {
		t.Fatal(err)
	}
	peersOf(t, lab, "/ip4/192.0.2.9/tcp/1")
	if got := peersOf(t, a, "/ip4/192.0.2.1/tcp/1"); len(got) != 0 {
		t.Errorf("nobody said where it is, but for one of another scope: %v", got)
	}
	if got := peersOf(t, b, ""); !slices.Equal(got, sorted(a)) {
		t.Errorf("one did: %v", got)
	}
	if got := peersOf(t, c, "/ip4/192.0.2.3/tcp/1"); !slices.Equal(got, sorted(a)) {
		t.Errorf("%v", got)
	}
	if got := peersOf(t, b, ""); !slices.Equal(got, sorted(a, c)) {
		t.Errorf("two: %v", got)
	}
	if _, err := r.Revoke(t.Context(), string(a.key.PeerID())); err != nil {
		t.Fatal(err)
	}
	if got := peersOf(t, b, ""); !slices.Equal(got, sorted(c)) {
		t.Errorf("after the revocation of one: %v", got)
	}
	for i := range 70 {
		peersOf(t, r.joined(fmt.Sprintf("d%02d", i)), "/ip4/192.0.2.3/tcp/1")
	}
	if got := peersOf(t, b, ""); len(got) != 48 {
		t.Errorf("%d of a crowd", len(got))
	}
}

// A chord is shown when both of its ends reported it.
func TestChordsAtTheHub(t *testing.T) {
	r := start(t, newDisk(), parsed(t, declared))
	a, b, c := r.joined("a"), r.joined("b"), r.joined("c")
	told := func(d *device, to ...*device) {
		t.Helper()
		d.seq++
		batch := wire.Report{BootID: d.boot, Seq: d.seq, From: chain.InstantOf(time.Now()), To: chain.InstantOf(time.Now()), Chords: []wire.Chord{}}
		for _, o := range to {
			batch.Chords = append(batch.Chords, wire.Chord{Peer: o.key.PeerID(), RTT: 1500})
		}
		if reply, err := r.Report(t.Context(), d.key.PeerID(), batch); err != nil || !reply.Accepted {
			t.Fatalf("%+v %v", reply, err)
		}
	}
	shown := func() []orchestrator.ChordView {
		t.Helper()
		s, err := r.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Chords
	}
	told(a, b, c)
	if got := shown(); len(got) != 0 {
		t.Errorf("one end: %+v", got)
	}
	told(b, a)
	if got := shown(); len(got) != 1 || got[0].RTT != 1.5 || got[0].NameA+got[0].NameB != "ab" && got[0].NameA+got[0].NameB != "ba" {
		t.Errorf("both ends: %+v", got)
	}
	// What a told one scope says nothing of the others.
	r.Adjacent(mesh.Adjacency{Scope: "workspace:lab", Peer: a.key.PeerID()})
	if got := shown(); len(got) != 1 {
		t.Errorf("a scope that it is not in: %+v", got)
	}
	r.Adjacent(mesh.Adjacency{Scope: chain.DefaultScope, Peer: a.key.PeerID()})
	if got := shown(); len(got) != 0 {
		t.Errorf("one end is gone: %+v", got)
	}
	told(a, b)
	if _, err := r.Revoke(t.Context(), string(b.key.PeerID())); err != nil {
		t.Fatal(err)
	}
	if got := shown(); len(got) != 0 {
		t.Errorf("with a revoked device: %+v", got)
	}
}

// Two programs with one identity are seen by their runs, which alternate; a
// device that starts again is none.
func TestCopiedDataDirectory(t *testing.T) {
	r := start(t, newDisk(), parsed(t, declared))
	d := r.joined("d")
	alarms := func() int {
		s, err := r.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Alarms)
	}
	for _, boot := range []string{"one", "one", "two", "two", "three"} {
		d.boot = boot
		peersOf(t, d, "")
	}
	if n := alarms(); n != 0 {
		t.Errorf("%d alarms after restarts", n)
	}
	d.boot = "two"
	peersOf(t, d, "")
	if n := alarms(); n != 1 {
		t.Errorf("%d alarms after an old run came back", n)
	}
}

// Devices that only know the hub find each other through it, and the hub shows
// what they tell; it never dials.
func TestDevicesMeetThroughTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const devices = 3
		net := sim.New(sim.Config{Nodes: devices + 1})
		defer net.Close()
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		hub, link, _ := startHub(t, net, log)
		defer link.Close()
		defer hub.Close()
		made, err := hub.Invite(t.Context(), orchestrator.Invite{Uses: devices})
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= devices; i++ {
			n := join(t, net, i, made.Text, log)
			defer n.Close()
			n.Announce(wire.Announce{Membership: n.membership, Capabilities: []chain.Capability{"execute:llm.chat"}, BootID: fmt.Sprintf("boot-%d", i)})
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
			s, err := hub.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Chords) == devices*(devices-1)/2 && !slices.ContainsFunc(s.Chords, func(c orchestrator.ChordView) bool { return c.RTT < 10 }) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("chords after a minute: %+v", s.Chords)
			}
		}
		if n := link.DialsAsked(); n != 0 {
			t.Errorf("the hub was asked to dial %d times", n)
		}
	})
}

// In a mesh of very many scopes telling all topics is work: it waits its turn, and
// is not forgotten.
func TestTopicsAreToldInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		told := func() int {
			synctest.Wait()
			r.said.mu.Lock()
			defer r.said.mu.Unlock()
			return len(r.said.keys)
		}
		r.joined("a")
		if n := told(); n != 1 {
			t.Fatalf("%d topics are told, want 1", n)
		}
		r.HoldJoins(10 * time.Second)
		for i := range 5 {
			if _, err := r.device(fmt.Sprint("d", i)).enrol(r.invite(orchestrator.Invite{Scope: chain.ScopeID(fmt.Sprint("workspace:w", i))})); err != nil {
				t.Fatal(err)
			}
		}
		if n := told(); n != 1 {
			t.Errorf("%d topics are told at once", n)
		}
		time.Sleep(11 * time.Second)
		if n := told(); n != 6 {
			t.Errorf("%d topics are told, want 6", n)
		}
	})
}
