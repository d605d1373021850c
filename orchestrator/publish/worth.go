package publish

import (
	"math"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

const (
	estimateInterval = time.Minute      // changes caused by estimates, per chain
	trendInterval    = 10 * time.Minute // since the last change of any kind, for what is sought alone
	worthwhile       = 0.003            // share of the expected cost that a new order must save
	steps            = 2                // of 10 % that an estimate must move
)

// Due is when estimates may change a slot's chain again; before that, offers that
// only differ by estimates are in vain.
func (p *Press) Due(slot chain.Slot, now time.Time) time.Time {
	e := p.issues[slot]
	if e != nil && e.estimated > 0 && e.estimated <= chain.InstantOf(now.Add(chain.Leeway)) { // else our clock was ahead then
		return e.estimated.Time().Add(estimateInterval)
	}
	return time.Time{}
}

// since gives the time from at to now; all the time in the world where our clock was
// ahead at at.
func since(at chain.Instant, now time.Time) time.Duration {
	if at > chain.InstantOf(now.Add(chain.Leeway)) {
		return math.MaxInt64
	}
	return now.Sub(at.Time())
}

// worth applies the rules for changes that come from estimates alone.
func (p *Press) worth(e *issue, offer *Prepared, now time.Time) (Reason, bool) {
	r, published := &offer.resolution, p.bodies[e.Body].body.Options
	order := make([]chain.OptionID, len(published))
	for i := range published {
		order[i] = published[i].ID
	}
	cost, err := r.ExpectedCost(order)
	if err != nil {
		return Input, true // another set of options: estimates alone do not do that
	}
	if cost-r.Expected > worthwhile*math.Abs(cost) {
		return Order, true
	}
	for i := range r.Options {
		at := slices.IndexFunc(published, func(o chain.Option) bool { return o.ID == r.Options[i].ID })
		if at < 0 {
			return Input, true
		}
		if moved(published[at].Cost, r.Options[i].Cost) {
			return Estimate, true
		}
	}
	if more(p.bodies[e.Body].body.Rules.Sought, offer.sought) && since(e.At, now) >= trendInterval {
		return Trend, true
	}
	return "", false
}

// more reports whether an option is sought that was not. That one is sought no longer
// waits for the next change of another kind: samples too many are no harm.
func more(was, is []chain.Sought) bool {
	return slices.ContainsFunc(is, func(s chain.Sought) bool {
		return !slices.ContainsFunc(was, func(o chain.Sought) bool { return o.Option == s.Option && o.Daily >= s.Daily })
	})
}

// moved reports whether an estimate lies two steps from what was published.
func moved(was, is chain.Cost) bool {
	return apart(float64(was.Latency), float64(is.Latency)) ||
		apart(float64(was.FailureLatency), float64(is.FailureLatency)) ||
		apart(odds(was.Reliability), odds(is.Reliability))
}

func apart(a, b float64) bool {
	if a <= 0 || b <= 0 {
		return (a > 0) != (b > 0)
	}
	return math.Abs(math.Log(a/b))/math.Log(1.1) > steps-0.5
}

func odds(p chain.PPM) float64 {
	share := min(max(p.Share(), 0.001), 0.999)
	return (1 - share) / share
}
