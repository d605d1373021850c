package throttle

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestPlacesOfAnOption(t *testing.T) {
	th := New()
	first, ok := th.Enter("alpha/small", 2)
	_, also := th.Enter("alpha/small", 2)
	if !ok || !also || !th.Full("alpha/small", 2) {
		t.Fatal("two of two places were not given")
	}
	if _, ok := th.Enter("alpha/small", 2); ok {
		t.Error("a third of two places was given")
	}
	if _, ok := th.Enter("alpha/large", 2); !ok {
		t.Error("another option's places were taken along")
	}
	if _, ok := th.Enter("alpha/small", 0); !ok {
		t.Error("an option without a limit had no place")
	}
	first()
	first() // gives back once
	if !th.Full("alpha/small", 2) {
		t.Error("a place was given back twice")
	}
	if th.Full("alpha/small", 3) || th.Full("alpha/small", 0) {
		t.Error("full below its limit")
	}
}

func TestCallsInAMinute(t *testing.T) {
	th, now := New(), epoch
	take := func(perMinute float64, want bool, free time.Duration) {
		t.Helper()
		at, ok := th.Call("fetch.plain", perMinute, now)
		if ok != want || !ok && !at.Equal(now.Add(free)) {
			t.Errorf("after %s: ok %t, free in %s; want %t, %s", now.Sub(epoch), ok, at.Sub(now), want, free)
		}
	}
	take(2, true, 0)
	now = now.Add(20 * time.Second)
	take(2, true, 0)
	take(2, false, 40*time.Second)
	now = now.Add(40 * time.Second)
	take(2, true, 0)
	take(2, false, 20*time.Second) // one left the window, one came
	take(3, true, 0)               // a higher limit counts what was taken
	take(3, false, 20*time.Second)
	take(1, false, time.Minute) // and a lower one, too
	take(0, true, 0)            // none

	if _, ok := th.Call("fetch.rendered", 1, now); !ok {
		t.Error("another primitive's calls were taken along")
	}
	now = epoch.Add(-time.Hour) // the clock was an hour ahead
	take(1, true, 0)
}

func TestARateBelowOne(t *testing.T) {
	th := New()
	if _, ok := th.Call("render.pdf", 0.25, epoch); !ok {
		t.Fatal("the first call was refused")
	}
	if free, ok := th.Call("render.pdf", 0.25, epoch.Add(time.Minute)); ok || !free.Equal(epoch.Add(4*time.Minute)) {
		t.Errorf("a quarter of a call a minute: ok %t, free after %s", ok, free.Sub(epoch))
	}
	if _, ok := th.Call("tiny", 1e-300, epoch); !ok {
		t.Error("the first call of next to none was refused")
	}
}

// In no window of a minute are more calls than the limit says, and a caller that
// comes when it was told to is let in.
func TestNoMinuteHoldsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		th, now := New(), epoch
		most := rapid.IntRange(1, 20).Draw(t, "most")
		var taken []time.Time
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(15*time.Second)).Draw(t, "gap")))
			free, ok := th.Call("p", float64(most), now)
			if !ok && rapid.Bool().Draw(t, "wait") {
				now = free
				if _, ok = th.Call("p", float64(most), now); !ok {
					t.Fatal("who came when it was told to was sent away")
				}
			}
			if ok {
				taken = append(taken, now)
			}
			if n := len(taken); n > most && taken[n-1].Sub(taken[n-1-most]) < time.Minute {
				t.Fatalf("%d calls within a minute; the limit is %d", most+1, most)
			}
		}
	})
}

func TestAHighRateKeepsLittle(t *testing.T) {
	th := New()
	for range 3 * maxCalls {
		th.Call("p", 1e6, epoch)
	}
	if n := len(th.calls["p"].at); n != maxCalls {
		t.Errorf("%d moments are kept", n)
	}
	for i := range 2 * maxPrimitives {
		th.Call(namesOf(i), 1, epoch)
	}
	if len(th.calls) > maxPrimitives {
		t.Errorf("%d primitives are kept", len(th.calls))
	}
}

func namesOf(i int) chain.Primitive { return chain.Primitive("p" + strconv.Itoa(i)) }
