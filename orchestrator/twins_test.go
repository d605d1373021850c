package orchestrator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// What two programs say with one identity is nobody's word: while their hellos alternate,
// and for a day after, their measurements count for nothing. They go on with chains, and
// when one of them has stopped, the other counts again. A device that starts again is one.
func TestMeasurementsOfTwinsDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		d := r.joined("a", "key:alpha", "key:beta")
		say := func(boot string, twin bool) {
			t.Helper()
			d.boot = boot
			if w, err := d.visit(); err != nil || w.Twin != twin {
				t.Fatalf("%s: %+v, %v", boot, w, err)
			}
			time.Sleep(time.Minute)
		}
		counts := func(what string, should bool) {
			t.Helper()
			p := success(t, r, "beta/small")
			d.report("beta/small", chain.Timeout, 20, time.Second)
			if (success(t, r, "beta/small") < p) != should {
				t.Errorf("%s: %v, then %v", what, p, success(t, r, "beta/small"))
			}
			time.Sleep(time.Minute)
		}
		say("one", false)
		say("two", false)
		counts("after a restart", true)
		say("one", true)
		counts("of the first", false)
		say("two", true)
		counts("of the second", false)
		if len(d.order(home)) == 0 {
			t.Error("no chain")
		}
		time.Sleep(23 * time.Hour)
		counts("within the day", false)
		time.Sleep(time.Hour)
		counts("after a day with one of them", true)
	})
}
