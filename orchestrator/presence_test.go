package orchestrator_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// TestWhoSpeaksTooOften is told when to come back, and keeps nobody else from speaking.
func TestWhoSpeaksTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		loud, quiet := r.joined("loud", "key:alpha"), r.joined("quiet", "key:alpha")
		report := func(d *device, seq uint64) error {
			now := chain.InstantOf(time.Now())
			_, err := r.Report(t.Context(), d.key.PeerID(), wire.Report{BootID: "boot", Seq: seq, From: now - 1, To: now})
			return err
		}
		refused := func(what string, err error) {
			t.Helper()
			var no *spoke.Refusal
			if !errors.As(err, &no) || no.Code != spoke.CodeTooMany || no.ComeBack <= 0 || no.ComeBack > time.Minute {
				t.Errorf("%s: %v", what, err)
			}
		}
		var err error
		for n := uint64(1); n <= 600 && err == nil; n++ {
			err = report(loud, n)
		}
		if err != nil {
			t.Fatal("what a device may say was refused: ", err)
		}
		refused("the 601st report", report(loud, 601))
		for range 60 {
			if _, err = loud.visit(); err != nil {
				break
			}
		}
		refused("the 61st visit", err)
		if err := report(quiet, 1); err != nil {
			t.Error("another device: ", err)
		}
		time.Sleep(time.Minute)
		if err := report(loud, 601); err != nil {
			t.Error("a minute later: ", err)
		}
	})
}

// TestWhoIsOnline: a device that was to stay is offline as soon as its connection is gone,
// one that visits when it is silent for two intervals.
func TestWhoIsOnline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		d := r.joined("a", "key:alpha")
		state := func() string {
			s, err := r.Status(t.Context())
			if err != nil || len(s.Devices) != 1 {
				t.Fatal(s.Devices, err)
			}
			return s.Devices[0].State
		}
		time.Sleep(time.Minute)
		want(t, "after its visit", state(), "online")
		r.Gone(d.key.PeerID())
		want(t, "without its connection", state(), "offline")
		r.Gone("somebody")
		time.Sleep(time.Second)
		if _, err := d.visit(); err != nil {
			t.Fatal(err)
		}
		want(t, "back", state(), "online")
		time.Sleep(31 * time.Minute)
		want(t, "silent for two intervals", state(), "offline")
	})
}

// TestChainsPageByPage gives every chain once, in whatever portions.
func TestChainsPageByPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		for i := range 7 {
			if _, err := r.device(fmt.Sprint(i), "key:alpha").enrol(r.invite(orchestrator.Invite{Scope: chain.ScopeID(fmt.Sprint("workspace:w", i))})); err != nil {
				t.Fatal(err)
			}
		}
		for _, most := range []int{1, 3, 7, 100} {
			seen, after := map[chain.ScopeID]bool{}, chain.Slot{}
			for range 10 {
				list, more, err := r.ChainsAfter(t.Context(), after, most)
				if err != nil || len(list) > most || more && len(list) == 0 {
					t.Fatal(len(list), more, err)
				}
				for _, c := range list {
					if seen[c.Scope] {
						t.Errorf("%s came twice", c.Scope)
					}
					seen[c.Scope] = true
					after = chain.Slot{Scope: c.Scope, Primitive: c.Primitive}
				}
				if !more {
					break
				}
			}
			if len(seen) != 7 {
				t.Errorf("%d of 7 chains, %d a page", len(seen), most)
			}
		}
	})
}
