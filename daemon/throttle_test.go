package daemon_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/edge"
)

// What an option takes at a time is held here: who finds it full goes to the next.
func TestAnOptionsPlacesAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.takes["alpha/big"], u.takes["alpha/small"] = 10*time.Second, time.Second
		b := behind(t, u, newMemory(), chaintest.NewHub().BodyWith(t, "alpha/big keys=alpha concurrency=2 | alpha/small keys=alpha", chain.Rules{Fixed: true}), nil)
		var all sync.WaitGroup
		var mu sync.Mutex
		by := map[chain.OptionID]int{}
		for range 5 {
			all.Go(func() {
				_, result, err := b.ask(edge.Work{})
				if err != nil || result.End != walk.Answered || len(result.Failures) > 0 {
					t.Errorf("%+v, %v", result, err)
				}
				mu.Lock()
				defer mu.Unlock()
				by[result.Option]++
			})
		}
		time.Sleep(500 * time.Millisecond)
		if v, err := b.Chain(slot); err != nil || v.Options[0].Why != chain.Busy || !v.Options[1].Usable {
			t.Errorf("the chain as it stands: %+v", v)
		}
		if _, result, _ := b.ask(edge.Work{Model: "alpha/big"}); result.End != walk.AllCooling || result.RetryAfter != time.Second || result.Attempts != 0 {
			t.Errorf("the full option alone: %+v", result)
		}
		all.Wait()
		if by["alpha/big"] != 2 || by["alpha/small"] != 3 {
			t.Errorf("answered by %v", by)
		}
		if text, _, err := b.ask(edge.Work{}); err != nil || text != "answer of alpha/big" { // nothing was held against it
			t.Errorf("%q, %v", text, err)
		}
	})
}

// A primitive with a rate by nature is asked no oftener on this device, whatever
// option would run it.
func TestCallsOfAPrimitiveAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := chain.Rules{Fixed: true, CallsPerMinute: chain.PPMOf(3), NoExploration: true}
		b := behind(t, newUpstream(), newMemory(), chaintest.NewHub().BodyWith(t, "alpha/big keys=alpha | alpha/small keys=alpha", rules), nil)
		for range 3 {
			if text, _, err := b.ask(edge.Work{}); err != nil || text != "answer of alpha/big" {
				t.Fatalf("%q, %v", text, err)
			}
			time.Sleep(5 * time.Second)
		}
		_, result, _ := b.ask(edge.Work{})
		if result.End != walk.AllCooling || result.RetryAfter != 45*time.Second || result.Attempts != 0 {
			t.Errorf("the fourth: %+v", result)
		}
		if _, protests, _ := b.hub.take(); len(protests) > 0 {
			t.Error("the hub was asked for more options, of which none would run either")
		}
		time.Sleep(result.RetryAfter)
		if text, _, err := b.ask(edge.Work{}); err != nil || text != "answer of alpha/big" {
			t.Errorf("a minute after the first: %q, %v", text, err)
		}
	})
}
