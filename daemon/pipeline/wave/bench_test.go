package wave

import (
	"testing"
	"testing/synctest"
)

// simulate runs f on simulated time once per iteration, with the same seed each time: the
// figures are its, not the machine's. A bubble belongs to a test, so one is made for it.
func simulate(b *testing.B, f func(seed uint64)) {
	b.Helper()
	const seed = 1
	b.Logf("seed %d", seed)
	for b.Loop() {
		all := func(_, _ string) (bool, error) { return true, nil }
		if !testing.RunTests(all, []testing.InternalTest{{Name: b.Name(), F: func(t *testing.T) {
			synctest.Test(t, func(*testing.T) { f(seed) })
		}}}) {
			b.Fatal("the simulation failed")
		}
	}
}

// BenchmarkHedge gives what the hedge takes off a wave's p99, and the jobs it costs.
func BenchmarkHedge(b *testing.B) {
	var off, on, extra float64
	simulate(b, func(seed uint64) {
		none := Default()
		none.HedgeAfter = 0
		before, _ := tail(none, seed, 1500, 4)
		after, jobs := tail(Default(), seed, 1500, 4)
		off, on, extra = before.Seconds(), after.Seconds(), 100*jobs
	})
	b.ReportMetric(off, "s-p99-alone")
	b.ReportMetric(on, "s-p99-hedged")
	b.ReportMetric(100*(1-on/off), "%-off-p99")
	b.ReportMetric(extra, "%-extra-jobs")
}

// BenchmarkSpread gives the longest queue over four providers, and at one.
func BenchmarkSpread(b *testing.B) {
	var one, four int
	simulate(b, func(seed uint64) { one, four = spread(seed, 1, 8, 3), spread(seed, 4, 8, 3) })
	b.ReportMetric(float64(one), "queue-of-one")
	b.ReportMetric(float64(four), "queue-of-four")
}

// BenchmarkRace gives what losers of a race of two spend for each dollar of its winner,
// and the time it takes for each second of one copy.
func BenchmarkRace(b *testing.B) {
	var extra, time float64
	simulate(b, func(seed uint64) {
		lost, sold, faster := race(seed, 2, 400)
		extra, time = float64(lost)/float64(sold-lost), faster
	})
	b.ReportMetric(extra, "x-cost-of-losers")
	b.ReportMetric(time, "x-time")
}

// BenchmarkOverload gives the jobs for each task while half as many more come in than
// can be done; and those where the budget is all jobs, so that only who is slow is spared.
func BenchmarkOverload(b *testing.B) {
	var jobs, answered, unbound float64
	simulate(b, func(seed uint64) {
		jobs, answered = overload(Default(), seed)
		free := Default()
		free.HedgeBudget = 1
		unbound, _ = overload(free, seed)
	})
	b.ReportMetric(jobs, "jobs/task")
	b.ReportMetric(unbound, "jobs/task-without-budget")
	b.ReportMetric(100*answered, "%-answered")
}
