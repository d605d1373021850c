package estimate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain/estimate"
)

var (
	start   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	latency = estimate.LatencyAxis()
	shares  = estimate.ReliabilityAxis()
	plain   = estimate.Axis{HalfLife: time.Hour} // linear, never clipped: for the bare recurrence
)

// sample is one observation, at minutes after start.
type sample struct{ value, weight, minute float64 }

func at(minute float64) time.Time { return start.Add(time.Duration(minute * float64(time.Minute))) }

func feed(t testing.TB, a estimate.Axis, e estimate.Estimate, samples ...sample) estimate.Estimate {
	t.Helper()
	for _, s := range samples {
		var err error
		if e, err = a.Observe(e, s.value, s.weight, at(s.minute)); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// steady gives n observations a minute apart around a median, spread by a
// deviation in log units, the same in every run.
func steady(n int, from, median, deviation float64) []sample {
	random := rand.New(rand.NewPCG(7, uint64(n)))
	list := make([]sample, n)
	for i := range list {
		list[i] = sample{median * math.Exp(random.NormFloat64()*deviation), 1, from + float64(i)}
	}
	return list
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: got %.6g, want %.6g within %g", what, got, want, tolerance)
	}
}

func TestTheRecurrence(t *testing.T) {
	for _, c := range []struct {
		name         string
		samples      []sample
		mean, weight float64
	}{
		{"the first observation is the mean", []sample{{3, 1, 0}}, 3, 1},
		{"two at once average", []sample{{2, 1, 0}, {4, 1, 0}}, 3, 2},
		{"weights weigh", []sample{{2, 1, 0}, {4, 3, 0}}, 3.5, 4},
		{"after one half-life the old one counts half", []sample{{0, 1, 0}, {3, 1, 60}}, 2, 1.5},
		{"after two a quarter", []sample{{0, 1, 0}, {5, 1, 120}}, 4, 1.25},
		{"a late one counts by its age, and moves no clock", []sample{{5, 1, 120}, {0, 1, 0}}, 4, 1.25},
		{"a very late one does not count", []sample{{5, 1, 1e6}, {0, 1, 0}}, 5, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := feed(t, plain, estimate.Estimate{}, c.samples...)
			near(t, "mean", e.Mean, c.mean, 1e-9)
			near(t, "weight", e.Weight, c.weight, 1e-9)
		})
	}
}

func TestLateOrInTimeIsTheSameMeanWithoutClip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) sample {
			return sample{rapid.Float64Range(-10, 10).Draw(t, "value"), rapid.Float64Range(.1, 10).Draw(t, "weight"),
				float64(rapid.IntRange(0, 300).Draw(t, "minute"))}
		}), 1, 20).Draw(t, "samples")
		feedPlain := func(list []sample) (e estimate.Estimate) {
			for _, s := range list {
				e, _ = plain.Observe(e, s.value, s.weight, at(s.minute))
			}
			return e
		}
		a, b := feedPlain(samples), feedPlain(rapid.Permutation(samples).Draw(t, "order"))
		if math.Abs(a.Mean-b.Mean) > 1e-9 || math.Abs(a.Weight-b.Weight) > 1e-9 || a.Newest != b.Newest {
			t.Fatalf("%+v\nin another order %+v", a, b)
		}
	})
}

func TestMeanStaysWithinWhatWasSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e estimate.Estimate
		low, high := math.Inf(1), math.Inf(-1)
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			x := rapid.Float64Range(1e-3, 1e5).Draw(t, "seconds")
			low, high = min(low, math.Log(x)), max(high, math.Log(x))
			var err error
			e, err = latency.Observe(e, x, rapid.Float64Range(.01, 1000).Draw(t, "weight"),
				start.Add(time.Duration(rapid.Int64Range(0, int64(90*24*time.Hour)).Draw(t, "at"))))
			if err != nil {
				t.Fatal(err)
			}
			if e.Mean < low-1e-9 || e.Mean > high+1e-9 || e.Deviation < .05 || e.Weight <= 0 || math.IsNaN(e.Mean+e.Deviation) {
				t.Fatalf("after %g s: %+v, seen %g to %g", x, e, low, high)
			}
		}
	})
}

func TestImpossibleObservationsChangeNothing(t *testing.T) {
	e := feed(t, latency, estimate.Estimate{}, steady(5, 0, 2, .3)...)
	for _, c := range []struct{ value, weight float64 }{
		{0, 1}, {-1, 1}, {math.NaN(), 1}, {math.Inf(1), 1}, {1, 0}, {1, -1}, {1, math.NaN()}, {1, math.Inf(1)},
	} {
		got, err := latency.Observe(e, c.value, c.weight, at(60))
		if !errors.Is(err, estimate.ErrValue) || got != e {
			t.Errorf("%g of weight %g: %v, %+v", c.value, c.weight, err, got)
		}
	}
}

func TestSumsStayNumbers(t *testing.T) {
	var e estimate.Estimate
	for _, x := range []float64{1e308, -1e308, 1e308} {
		before := e
		next, err := plain.Observe(e, x, math.MaxFloat64, at(0))
		if err != nil && (next != before || !errors.Is(err, estimate.ErrValue)) {
			t.Fatalf("refused, but %+v became %+v: %v", before, next, err)
		}
		if e = next; math.IsInf(e.Mean+e.Deviation+e.Weight, 0) || math.IsNaN(e.Mean+e.Deviation+e.Weight) {
			t.Fatalf("after %g: %+v", x, e)
		}
	}
	e = feed(t, latency, estimate.Estimate{}, sample{2, 1, 0})
	for _, moment := range []time.Time{{}, time.UnixMilli(math.MinInt64), time.UnixMilli(math.MaxInt64), at(0)} {
		next, err := latency.Observe(e, 3, 1, moment)
		if v := latency.Expected(next, 1, at(0)); err != nil || !(v > 0.9 && v < 4) {
			t.Errorf("at %v: %g, %+v %v", moment, v, next, err)
		}
	}
}

func TestAClockThatWasAheadIsForgiven(t *testing.T) {
	ahead := feed(t, latency, estimate.Estimate{}, sample{50, 1, 1e7})
	if e := feed(t, latency, ahead, sample{2, 1, 0}); e.Weight > 1 {
		t.Fatal("the test needs an observation that is too late to count")
	}
	e := ahead.Rebase(at(0))
	for i := range 50 {
		e = feed(t, latency, e, sample{2, 1, float64(i)})
	}
	near(t, "value", latency.Value(e, 2, at(50)), 2.2, .3)
	if now := feed(t, latency, estimate.Estimate{}, sample{2, 1, .9}); now.Rebase(at(0)) != now {
		t.Error("less than a minute ahead is no wrong clock")
	}
}

func TestDeviationStartsWideAndHasAFloor(t *testing.T) {
	e := feed(t, latency, estimate.Estimate{}, sample{2, 1, 0})
	near(t, "after one sample", e.Deviation, .4, 1e-12)
	near(t, "its weight", e.DeviationWeight, 4, 1e-12)
	e = feed(t, latency, e, sample{2, 1, 0})
	near(t, "after two equal ones", e.Deviation, .4*4/5, 1e-12)
	for range 500 {
		e = feed(t, latency, e, sample{2, 1, 0})
	}
	near(t, "after many equal ones", e.Deviation, .05, 1e-12)
}

func TestDeviationDecaysLikeTheMean(t *testing.T) {
	e := feed(t, plain, estimate.Estimate{}, sample{2, 1, 0}, sample{3, 1, 60})
	near(t, "weight: half of the 4 it started with, and one", e.DeviationWeight, 3, 1e-9)
	near(t, "deviation", e.Deviation, (2*.4+1*1)/3, 1e-9)
}

func TestDeviationFindsTheSpread(t *testing.T) {
	e := feed(t, latency, estimate.Estimate{}, steady(300, 0, 2, .3)...)
	near(t, "mean absolute deviation of a normal of .3", e.Deviation, .3/1.2533, .05)
}

func TestASingleWildValueMovesLittle(t *testing.T) {
	before := feed(t, latency, estimate.Estimate{}, steady(50, 0, 2, .1)...)
	after := feed(t, latency, before, sample{2000, 1, 51})
	bound := 3 * 1.2533 * before.Deviation
	near(t, "step of the mean", after.Mean-before.Mean, bound/after.Weight, .01)
	if after.Deviation > before.Deviation*1.2 {
		t.Errorf("the deviation went from %g to %g: it was learned from the raw value", before.Deviation, after.Deviation)
	}
}

func TestNothingIsClippedEarlyOrWhenStale(t *testing.T) {
	seven := feed(t, latency, estimate.Estimate{}, steady(7, 0, 2, .01)...)
	eight := feed(t, latency, seven, sample{2, 1, 7})
	wild := sample{2000, 1, 8}
	if e := feed(t, latency, seven, wild); e.Mean-seven.Mean < .8 {
		t.Errorf("the eighth sample was clipped: mean %g to %g", seven.Mean, e.Mean)
	}
	if e := feed(t, latency, eight, wild); e.Mean-eight.Mean > .2 {
		t.Errorf("the ninth sample was not clipped: mean %g to %g", eight.Mean, e.Mean)
	}
	// 8 samples weigh about 8; three half-lives later less than 2.
	stale := wild
	stale.minute = 8 + 3*6*60
	if e := feed(t, latency, eight, stale); e.Mean-eight.Mean < 3 {
		t.Errorf("a stale estimate clipped: mean %g to %g", eight.Mean, e.Mean)
	}
}

// A real shift is followed: the clip opens after nine samples on one side, and
// closes once the estimate has caught up.
func TestAShiftIsFollowed(t *testing.T) {
	for _, c := range []struct {
		name   string
		factor float64
	}{{"ten times slower", 10}, {"ten times faster", .1}} {
		t.Run(c.name, func(t *testing.T) {
			e := feed(t, latency, estimate.Estimate{}, steady(100, 0, 2, .1)...)
			shifted := steady(400, 100, 2*c.factor, .1)
			opened := 0
			for i, s := range shifted {
				e = feed(t, latency, e, s)
				if e.Doublings > 0 && opened == 0 {
					opened = i + 1
				}
				if i == 7 {
					near(t, "after eight it still holds back", math.Exp(e.Mean), 2, 1)
				}
			}
			if opened != 9 {
				t.Errorf("the clip opened with sample %d of the shift, want 9", opened)
			}
			near(t, "at the end", e.Mean, math.Log(2*c.factor), .7)
			if e.Doublings != 0 {
				t.Errorf("the clip is still open: %+v", e)
			}
		})
	}
}

func TestTheClipDoublesUpToUnclipped(t *testing.T) {
	e := feed(t, latency, estimate.Estimate{}, steady(100, 0, 2, .05)...)
	e.Weight, e.DeviationWeight = 1e6, 1e6 // so heavy that nothing can follow
	bound := 3 * 1.2533 * e.Deviation
	far := e.Mean + 1e6*bound
	for i := range 30 {
		before := e
		e = feed(t, latency, e, sample{math.Exp(min(far, 700)), 1, 100})
		want := bound * math.Exp2(float64(max(0, i-7)))
		if i >= 17 {
			want = min(far, 700) - before.Mean // not clipped at all
		}
		near(t, fmt.Sprintf("step after %d beyond the bounds", i+1), (e.Mean-before.Mean)*e.Weight, want, .01*want)
	}
}

func TestWildValuesOnBothSidesDoNotOpenTheClip(t *testing.T) {
	e := feed(t, latency, estimate.Estimate{}, steady(100, 0, 2, .1)...)
	for i := range 40 {
		x := 2e3
		if i%2 == 0 {
			x = 2e-3
		}
		if e = feed(t, latency, e, sample{x, 1, 100 + float64(i)}); e.Doublings > 0 {
			t.Fatalf("opened after %d", i+1)
		}
	}
}

func TestThePriorPulls(t *testing.T) {
	var none estimate.Estimate
	near(t, "nothing known: the prior", latency.Value(none, 3, start), 3, 1e-9)
	four := feed(t, shares, none, sample{1, 4, 0})
	near(t, "four observations: half way", shares.Value(four, .5, start), .75, 1e-9)
	fourFast := feed(t, latency, none, sample{1, 4, 0})
	near(t, "half way in log space is the geometric mean", latency.Value(fourFast, 4, start), 2, 1e-9)
}

func TestAnUnusedThingIsBackAtItsPrior(t *testing.T) {
	// However much was seen, after four half-lives it weighs as much as the prior.
	for _, seen := range []float64{64, 1e3, 1e9} {
		e := feed(t, shares, estimate.Estimate{}, sample{.2, seen, 0})
		near(t, "weight now", shares.Weight(e, start), 64, 1e-9)
		later := start.Add(4 * 24 * time.Hour)
		near(t, "weight later", shares.Weight(e, later), 4, 1e-9)
		near(t, "value later", shares.Value(e, 1, later), .6, 1e-9)
	}
}

func TestTheValueLiesBetweenMeanAndPrior(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mean, prior := rapid.Float64Range(-20, 20).Draw(t, "mean"), rapid.Float64Range(-20, 20).Draw(t, "prior")
		got := estimate.Pull(mean, rapid.Float64Range(-1, 1e9).Draw(t, "weight"), prior)
		if got < min(mean, prior)-1e-9 || got > max(mean, prior)+1e-9 {
			t.Fatalf("%g is not between %g and %g", got, mean, prior)
		}
	})
}

func TestTheExpectedLatencyIsAboveTheTypical(t *testing.T) {
	for _, c := range []struct{ deviation, want float64 }{
		{.05, 1.00197}, {.4, 1.13389}, {1, 2.19326}, {1.32, 3.92924}, {1.4, 4}, {50, 4},
	} {
		near(t, "correction", estimate.Correction(c.deviation), c.want, .001)
	}
	near(t, "never measured", latency.Expected(estimate.Estimate{}, 3, start), 3*estimate.StartCorrection(), 1e-9)
	near(t, "a share is not skewed", shares.Expected(estimate.Estimate{}, .9, start), .9, 1e-9)

	// Against the samples themselves: a log-normal of .5 has a mean 13 % above its median.
	samples := steady(4000, 0, 2, .5)
	wide := estimate.Axis{HalfLife: 1e6 * time.Hour, Log: true, Clip: true}
	e := feed(t, wide, estimate.Estimate{}, samples...)
	e.Weight = 1e9
	sum := 0.0
	for _, s := range samples {
		sum += s.value
	}
	near(t, "mean", wide.Expected(e, 2, at(4000)), sum/4000, .1)
}

func TestABatchOfCountsIsItsAttempts(t *testing.T) {
	batch := feed(t, shares, estimate.Estimate{}, sample{.5, 4, 0}, sample{.75, 4, 600})
	single := feed(t, shares, estimate.Estimate{}, sample{1, 1, 0}, sample{0, 1, 0}, sample{1, 1, 0}, sample{0, 1, 0},
		sample{1, 1, 600}, sample{1, 1, 600}, sample{0, 1, 600}, sample{1, 1, 600})
	near(t, "mean", batch.Mean, single.Mean, 1e-9)
	near(t, "weight", batch.Weight, single.Weight, 1e-9)
}

func TestAnEstimateSurvivesStorage(t *testing.T) {
	e := feed(t, latency, estimate.Estimate{}, steady(60, 0, 2, .5)...)
	e = feed(t, latency, e, sample{900, 1, 60}, sample{.001, 1, 61})
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var again estimate.Estimate
	if err := json.Unmarshal(b, &again); err != nil || again != e {
		t.Errorf("%v\n%+v\n%+v", err, again, e)
	}
}

func BenchmarkObserve(b *testing.B) {
	e := feed(b, latency, estimate.Estimate{}, steady(50, 0, 2, .3)...)
	b.ReportAllocs()
	for i := range b.N {
		e, _ = latency.Observe(e, 2+float64(i%7)/10, 1, at(50+float64(i)/1000))
	}
}
