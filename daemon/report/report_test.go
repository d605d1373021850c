package report_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/report"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

var (
	slot  = chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}
	start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
)

func collector() *report.Collector {
	return report.New("boot", rand.New(rand.NewPCG(1, 2)), start)
}

func seen(option chain.OptionID, class chain.Class) walk.Measurement {
	return walk.Measurement{Option: option, Class: class, At: start, Total: 300 * time.Millisecond}
}

func TestCountersAreExactAndDetailsAreASample(t *testing.T) {
	c := collector()
	for range 1000 {
		c.Observe(slot, seen("alpha/small", chain.OK), chain.PPMOf(0.1))
	}
	for range 30 {
		c.Observe(slot, seen("alpha/small", chain.Timeout), chain.PPMOf(0.1))
	}
	r, ok := c.Next(start.Add(time.Minute))
	if !ok || len(r.Counters) != 1 {
		t.Fatalf("one option was used, the report has %d counters", len(r.Counters))
	}
	got := r.Counters[0]
	if got.Attempts != 1030 || got.Outcomes[chain.OK] != 1000 || got.Outcomes[chain.Timeout] != 30 || got.LastOK {
		t.Errorf("counter %+v: want 1030 attempts, 1000 ok, 30 timeouts, the last one failed", got)
	}
	var failures, successes int
	for _, m := range r.Measurements {
		if m.Class == chain.OK {
			successes++
		} else {
			failures++
		}
	}
	if failures != 30 {
		t.Errorf("%d failures in detail: all 30 are reported", failures)
	}
	if successes < 60 || successes > 140 {
		t.Errorf("%d of 1000 successes in detail: want about a tenth", successes)
	}
}

func TestABatchIsGivenAgainUntilItIsAcknowledged(t *testing.T) {
	c := collector()
	c.Observe(slot, seen("a", chain.OK), 0)
	first, _ := c.Next(start)
	c.Observe(slot, seen("b", chain.OK), 0)
	again, _ := c.Next(start.Add(time.Hour))
	if again.Seq != first.Seq || len(again.Counters) != 1 || again.Counters[0].Option != "a" || again.To != first.To {
		t.Fatalf("an unacknowledged batch changed: %+v, then %+v", first, again)
	}
	c.Acknowledge(first.Seq + 7)
	if r, _ := c.Next(start); r.Seq != first.Seq {
		t.Fatal("the acknowledgement of another batch released this one")
	}
	c.Acknowledge(first.Seq)
	second, ok := c.Next(start.Add(time.Hour))
	if !ok || second.Seq != first.Seq+1 || second.Counters[0].Option != "b" {
		t.Fatalf("after the acknowledgement: %+v", second)
	}
	c.Acknowledge(second.Seq)
	if _, ok := c.Next(start); ok {
		t.Fatal("there was nothing left to say")
	}
}

func TestNeutralOutcomesSayNothingAboutAnOption(t *testing.T) {
	c := collector()
	m := seen("a", chain.Canceled)
	m.Neutral = true
	c.Observe(slot, m, chain.PPMOf(1))
	if r, ok := c.Next(start); ok {
		t.Errorf("a caller who left made a report: %+v", r)
	}
}

func TestOnlyFailuresAreNews(t *testing.T) {
	c := collector()
	c.Observe(slot, seen("a", chain.OK), chain.PPMOf(1))
	if c.News() {
		t.Error("a success is no news")
	}
	c.Observe(slot, seen("a", chain.Status), 0)
	if !c.News() {
		t.Error("a failure is news")
	}
	c.Next(start)
	if c.News() {
		t.Error("what is in a batch is no news any more")
	}
}

func TestMemoryIsBoundedAndLossIsReported(t *testing.T) {
	c := collector()
	for i := range 5000 {
		c.Observe(slot, seen(chain.OptionID(rune('a'+i%2000)), chain.Status), 0)
	}
	r, _ := c.Next(start)
	if len(r.Counters) != 1024 || len(r.Measurements) != 512 {
		t.Errorf("%d counters, %d measurements: want 1024 and 512", len(r.Counters), len(r.Measurements))
	}
	var counted uint64
	for _, k := range r.Counters {
		counted += k.Attempts
	}
	overflow := 5000 - counted
	if r.Dropped != overflow+(counted-512) {
		t.Errorf("dropped %d: want every one that is neither counted (%d) nor kept in detail (%d)", r.Dropped, overflow, counted-512)
	}
	if c.Acknowledge(r.Seq); c.Dropped() != r.Dropped {
		t.Errorf("%d dropped since the start, want %d", c.Dropped(), r.Dropped)
	}
}

func TestAProtestThatNobodyWaitsForGoesWithTheNextBatchOnce(t *testing.T) {
	c := collector()
	p := wire.Protest{Slot: slot, Failed: []chain.Failure{{Option: "a", Class: chain.Credentials}}}
	for i := range 3 {
		p.Nonce = string(rune('a' + i))
		c.Queue(p)
	}
	if !c.News() || !c.Waiting() {
		t.Error("a refused key is news")
	}
	r, ok := c.Next(start)
	if !ok || len(r.Protests) != 1 || r.Protests[0].Nonce != "a" {
		t.Fatalf("report %+v", r)
	}
	for i := range 100 {
		p.Failed = []chain.Failure{{Option: chain.OptionID(rune('a' + i)), Class: chain.Credentials}}
		c.Queue(p)
	}
	c.Acknowledge(r.Seq)
	if r, _ := c.Next(start); len(r.Protests) != 16 {
		t.Errorf("%d protests wait: want 16 at most", len(r.Protests))
	}
}
