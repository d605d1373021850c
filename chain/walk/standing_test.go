package walk

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"pgregory.net/rapid"
)

func rules() *chain.CoolDown { c := chain.DefaultRules().CoolDown; return &c }

func TestBackoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewStanding(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		o, now := &options("alpha")[0], epoch
		for i, d := range []time.Duration{60, 120, 240, 480, 960, 1920, 3600, 3600, 3600} {
			d *= time.Second
			until := s.coolOption(o, failure{class: chain.Status, started: now}, rules(), now.Add(time.Second))
			low, high := max(time.Minute, d*3/4), min(time.Hour, d*5/4)
			if got := until.Sub(now.Add(time.Second)); got < low || got > high {
				t.Fatalf("failure %d: cools for %v, want %v to %v", i+1, got, low, high)
			}
			now = until.Add(time.Second)
		}
		for i := range 20 {
			until := s.coolPeer("p", failure{class: chain.Status, started: now}, rules(), now)
			if got := until.Sub(now); got < time.Second || got > 5*time.Minute || i == 19 && got < 3*time.Minute {
				t.Fatalf("peer cools for %v after failure %d", got, i+1)
			}
			now = until.Add(time.Millisecond)
		}
	})
}

func TestBackoffForgets(t *testing.T) {
	s, o, now := standing(), &options("alpha")[0], epoch
	for _, c := range []struct{ quiet, least, most time.Duration }{{0, 60, 75}, {5 * time.Hour, 90, 150}, {7 * time.Hour, 60, 75}} {
		now = now.Add(c.quiet)
		until := s.coolOption(o, failure{class: chain.Status, started: now}, rules(), now)
		if got := until.Sub(now); got < c.least*time.Second || got > c.most*time.Second {
			t.Errorf("after %v of quiet: cools for %v", c.quiet, got)
		}
		now = until
	}
}

// A peer that returned starts without a past, whatever was asked for it.
func TestAReturnedPeerIsFreeAtOnce(t *testing.T) {
	s := standing()
	for _, f := range []failure{{class: chain.Unreachable, started: epoch}, {class: chain.Status, started: epoch, asked: true, retry: time.Minute}} {
		s.coolPeer("p", f, rules(), epoch)
	}
	if !s.PeerCooling("p", epoch) || s.PeerCooling("q", epoch) {
		t.Fatal("p failed, and q did not")
	}
	s.PeerReturned("p")
	if own, asked := s.peerRest("p", epoch); own || asked || s.PeerCooling("p", epoch) {
		t.Error("p returned, and still cools")
	}
}

// A hundred requests under way when an option breaks are one failure.
func TestOneOutageIsOneStep(t *testing.T) {
	s, o := standing(), &options("alpha")[0]
	for range 100 {
		s.coolOption(o, failure{class: chain.Status, started: epoch}, rules(), epoch.Add(time.Second))
	}
	if got := s.options["alpha"].failures; got != 1 {
		t.Errorf("counted %d failures", got)
	}
	s.coolOption(o, failure{class: chain.Status, started: epoch.Add(2 * time.Second)}, rules(), epoch.Add(3*time.Second))
	if got := s.options["alpha"].failures; got != 2 {
		t.Errorf("counted %d failures", got)
	}
}

func TestLaterDeadlineWins(t *testing.T) {
	s, o := standing(), &options("alpha")[0]
	ask := func(d time.Duration) time.Time {
		return s.coolOption(o, failure{class: chain.RateLimited, retry: d, asked: true, started: epoch}, rules(), epoch)
	}
	for i, c := range []struct{ ask, until time.Duration }{{10 * time.Second, 10 * time.Second}, {5 * time.Second, 10 * time.Second},
		{-time.Hour, 10 * time.Second}, {20 * time.Second, 20 * time.Second}, {1 << 62, time.Hour}} {
		if got := ask(c.ask).Sub(epoch); got != c.until {
			t.Errorf("%d: until %v, want %v", i, got, c.until)
		}
	}
	s.succeeded(&Attempt{Option: *o}, "")
	if _, asked := s.optionRest(o, epoch); asked.IsZero() {
		t.Error("a success overrides what the upstream asked for")
	}
}

func TestSuccessClears(t *testing.T) {
	s, o := standing(), &options("alpha")[0]
	f := failure{class: chain.Status, started: epoch}
	s.coolOption(o, f, rules(), epoch)
	s.coolPeer("p", f, rules(), epoch)
	s.restKey("k", 1, f, rules(), epoch)
	s.succeeded(&Attempt{Option: *o, Key: "k"}, "")
	s.succeeded(&Attempt{Option: options("slot")[0]}, "p")
	if len(s.options)+len(s.peers)+len(s.keys) != 0 {
		t.Errorf("left over: %v %v %v", s.options, s.peers, s.keys)
	}
}

// An option that moved to another endpoint has the old one's failures no longer.
func TestAnotherServiceOfTheSameName(t *testing.T) {
	s, o := standing(), options("alpha")[0]
	s.coolOption(&o, failure{class: chain.Status, started: epoch}, rules(), epoch)
	o.Endpoint = "http://elsewhere"
	if own, _ := s.optionRest(&o, epoch); !own.IsZero() {
		t.Error("it cools down")
	}
}

func TestBounded(t *testing.T) {
	s := standing()
	const given = maxRests + 100
	for i := range given {
		f := failure{class: chain.Status, started: epoch}
		s.coolOption(&chain.Option{ID: chain.OptionID(fmt.Sprint(i)), Kind: chain.Provider}, f, rules(), epoch.Add(time.Duration(i)*time.Hour))
	}
	if len(s.options) != maxRests || s.options[fmt.Sprint(given-1)] == nil || s.options["0"] != nil {
		t.Errorf("%d marks kept", len(s.options))
	}
	now := epoch.Add(given * time.Hour)
	if x := s.Snapshot(now); len(x.Options) > 8 || len(s.options) != len(x.Options) {
		t.Errorf("%d marks in the snapshot, %d kept", len(x.Options), len(s.options))
	}
}

func TestSnapshot(t *testing.T) {
	s, o := standing(), &options("alpha")[0]
	s.coolOption(o, failure{class: chain.Status, started: epoch}, rules(), epoch)
	s.coolOption(o, failure{class: chain.RateLimited, started: epoch, retry: time.Minute, asked: true}, rules(), epoch)
	s.coolPeer("p", failure{class: chain.Timeout, started: epoch}, rules(), epoch)
	s.restKey("k", 7, failure{class: chain.Credentials, started: epoch}, rules(), epoch)
	s.setOffline(true, epoch)
	x := s.Snapshot(epoch)

	if len(x.Options) != 1 || len(x.Peers) != 1 || len(x.Keys) != 1 || x.Offline == 0 {
		t.Fatalf("%+v", x)
	}
	if !x.Options[0].Cooling(epoch) || x.Options[0].Cooling(epoch.Add(2*time.Minute)) {
		t.Errorf("%+v cools at the wrong time", x.Options[0])
	}
}

func TestConcurrentUse(t *testing.T) {
	s := standing()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			p := Plan{Options: options("alpha", "beta", "slot")}
			p.Options[0].Keys = []string{"k"}
			p.Hooks.Bind = binder("p1", "p2")
			now := epoch
			for j := range 100 {
				sc := script{"alpha": fails(chain.Credentials), "slot": fails(chain.Status), "beta": fails(chain.Unreachable)}
				if (i+j)%3 == 0 {
					sc["beta"] = answer("b")
				}
				drive(p, s, sc, &now, nil)
				s.Snapshot(now)
				if j == 50 {
					s.AddressChanged()
				}
			}
		})
	}
	wg.Wait()
}
