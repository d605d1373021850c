package resolve_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/learn"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// TestATrendIsNoticed: a backup that nobody uses is sampled by the devices of a fleet in
// turn, and becomes three times slower or faster every other day. Where the hub looks for trends, and
// samples what is calm a little less, its estimate is right again sooner, out of no more samples.
func TestATrendIsNoticed(t *testing.T) {
	const devices, days = 100, 60
	run := func(seed uint64, daily float64, looking bool) (wrong time.Duration, samples int) {
		random := rand.New(rand.NewPCG(seed, 7))
		book, epoch := learn.NewBook(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		k := learn.Key{Primitive: chain.LLMChat, Option: "beta/m"}
		old := chain.InstantOf(epoch.Add(-30 * 24 * time.Hour))
		far := make([]float64, devices)
		for i := range far {
			far[i] = 0.25 * random.NormFloat64()
		}
		candidate := func(id chain.OptionID, seconds float64) resolve.Candidate {
			return resolve.Candidate{Option: chain.Option{ID: id, Kind: chain.Provider, Adapter: "openai", Model: "m", Endpoint: "https://x.example/v1"},
				Prior: resolve.Prior{Latency: seconds, FailureLatency: seconds, Reliability: 0.99}}
		}
		at, slow, rate, next := epoch, false, daily, 0
		shift := epoch.Add(48 * time.Hour)
		for at.Before(epoch.Add(days * 24 * time.Hour)) {
			if at.After(shift) {
				slow, shift = !slow, shift.Add(48*time.Hour)
			}
			truth := 3.0
			if slow {
				truth = 9
			}
			in := resolve.Input{Slot: chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}, Default: []chain.OptionID{"alpha/m", "beta/m", "gamma/m"},
				Candidates: []resolve.Candidate{candidate("alpha/m", 1), candidate("beta/m", 3), candidate("gamma/m", 5)}}
			beta := &in.Candidates[1]
			beta.Estimates = book.Estimates(k, learn.Segment{}, beta.Prior, at)
			if looking {
				beta.Trend = book.Trend(k, learn.Segment{}, at)
			}
			rate = daily
			for _, s := range resolve.Order(in).Sought {
				rate = float64(s.Daily)
			}
			wait := time.Duration(random.ExpFloat64() / rate * 24 * float64(time.Hour))
			if math.Abs(math.Log(beta.Estimates.Latency.Value/(truth*1.13))) > 0.5 {
				wrong += wait
			}
			at = at.Add(wait)
			d := next % devices
			next++
			batch := book.Batch(learn.Reporter{Peer: chain.PeerID(rune('a' + d)), Since: old}, at)
			batch.Time(k, time.Duration(truth*math.Exp(far[d]+0.4*random.NormFloat64())*float64(time.Second)), true, at)
			batch.Count(k, 1, 0, at)
			batch.Last(k, true, at)
			samples++
		}
		return wrong / (days / 2), samples
	}
	var blind, looking time.Duration
	for seed := uint64(1); seed <= 3; seed++ {
		without, used := run(seed, 48, false)
		with, less := run(seed, 44, true)
		t.Logf("seed %d: wrong for %s after a shift without a look for trends (%d samples a day), for %s with one (%d)", seed, without.Round(time.Minute), used/days, with.Round(time.Minute), less/days)
		if with >= without || less > used {
			t.Errorf("seed %d: it does not pay", seed)
		}
		blind, looking = blind+without, looking+with
	}
	if looking > blind*85/100 {
		t.Errorf("wrong for %s in all with a look for trends, for %s without", looking, blind)
	}
}
