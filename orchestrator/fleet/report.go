package fleet

import (
	"fmt"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Bounds of what can be true of a report.
const (
	maxWindow   = 400 * 24 * time.Hour // a device that was away for a year
	maxAttempt  = 24 * time.Hour       // no attempt takes longer: budgets end far below
	maxAttempts = 1 << 40
	maxTokens   = 1 << 40
	maxCost     = chain.MicroUSD(1e12) // a million dollars for one attempt
)

// CheckReport refuses a batch that cannot be true. One impossible value damns
// the whole batch: who sends one has a defect or a purpose, and the rest is
// worth no more. The error wraps ErrImpossible and names the value.
func CheckReport(r *wire.Report, now time.Time) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrImpossible}, args...)...)
	}
	latest := chain.InstantOf(now.Add(chain.Leeway))
	switch {
	case r.BootID == "" || len(r.BootID) > 64 || r.Seq == 0 || r.Seq > 1<<62:
		return bad("boot id or sequence")
	case r.From < 0 || r.To < r.From:
		return bad("the window ends before it begins")
	case r.To > latest:
		return bad("the window lies in the future")
	case (r.To - r.From) > chain.Instant(maxWindow/time.Millisecond):
		return bad("a window of over %d days", maxWindow/(24*time.Hour))
	case r.Dropped > maxAttempts:
		return bad("dropped")
	}
	for i := range r.Counters {
		if what := impossibleCounter(&r.Counters[i]); what != "" {
			return bad("counter of %s: %s", chain.Clip(r.Counters[i].Option), what)
		}
	}
	for i := range r.Measurements {
		if what := impossibleMeasurement(&r.Measurements[i], r, latest); what != "" {
			return bad("measurement of %s: %s", chain.Clip(r.Measurements[i].Option), what)
		}
	}
	return nil
}

func impossibleCounter(c *wire.Counter) string {
	if c.Attempts > maxAttempts {
		return "attempts"
	}
	var sum uint64
	for class, n := range c.Outcomes {
		if !class.Known() {
			return "unknown class " + chain.Clip(class)
		}
		if n > maxAttempts {
			return "outcomes"
		}
		if class == chain.OK || class.Blames() {
			sum += n
		}
	}
	if sum > c.Attempts {
		return "more outcomes than attempts"
	}
	if c.LastOK && c.Outcomes[chain.OK] == 0 {
		return "the last one succeeded, but none did"
	}
	return ""
}

func impossibleMeasurement(m *wire.Measurement, r *wire.Report, latest chain.Instant) string {
	slack := chain.Instant(chain.Leeway / time.Millisecond)
	switch {
	case !m.Class.Known():
		return "unknown class " + chain.Clip(m.Class)
	case m.Total < 0 || m.Total.Duration() > maxAttempt || m.Total > chain.MillisOf(maxAttempt):
		return "its duration"
	case m.FirstOutput < 0 || m.FirstOutput > m.Total:
		return "its first output"
	case m.At < r.From-slack || m.At > r.To+slack || m.At > latest:
		return "outside the report's window"
	case m.Bytes < 0 || m.Input < 0 || m.Output < 0 || m.Input > maxTokens || m.Output > maxTokens || m.Cost < 0 || m.Cost > maxCost:
		return "a count"
	}
	return ""
}
