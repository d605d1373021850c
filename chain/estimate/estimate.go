// Package estimate owns one decayed estimate: what hub and device both make of
// a stream of measurements of one thing, such as the latency of an option. It
// is pure: an estimate is a plain value, time is an argument, and storing or
// combining estimates is the business of others. The formulas and the reasons
// for them stand in docs/ordering.md.
package estimate

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Axis says how one kind of thing is learned.
type Axis struct {
	HalfLife time.Duration // after which an observation counts half
	Log      bool          // learned as a logarithm: values are positive and spread by factors
	Clip     bool          // single wild observations are held back
}

// LatencyAxis is for seconds to the end of an answer and, in an estimate of its
// own, for seconds to a failure. The two are never mixed.
func LatencyAxis() Axis { return Axis{HalfLife: 6 * time.Hour, Log: true, Clip: true} }

// ReliabilityAxis is for shares of success out of exact counts: observe the
// share of a batch with its number of attempts as the weight.
func ReliabilityAxis() Axis { return Axis{HalfLife: 24 * time.Hour} }

// Constants of the formulas.
const (
	PriorWeight = 4  // observations that a prior counts for
	MaxWeight   = 64 // observations that an estimate counts for at most when it is used

	sigma          = 1.2533 // standard deviation of a normal over its mean absolute deviation: sqrt(pi/2)
	startDeviation = 0.4    // with PriorWeight behind it: a first few equal values prove no precision
	leastDeviation = 0.05
	clipAfter      = 8   // samples before anything is clipped
	clipWeight     = 2.0 // weight below which nothing is clipped: the estimate has gone stale
	clipSigmas     = 3.0
	window         = 16 // observations that a shift is looked for in
	unclipped      = 10 // doublings of the clip that amount to none
	maxCorrection  = 4.0
	heaviest       = 1e15 // no observation weighs more: sums of weights stay numbers
)

// Estimate is what is known of one thing. The zero value knows nothing. It is
// comparable, and its JSON form keeps all of it. Mean and Deviation are in the
// axis's own space: natural logarithms where Axis.Log is set.
type Estimate struct {
	Mean            float64       `json:"mean"`
	Deviation       float64       `json:"deviation"`        // decayed mean absolute deviation
	Weight          float64       `json:"weight"`           // decayed number of observations, as of Newest
	DeviationWeight float64       `json:"deviation_weight"` // the same for Deviation, which starts with a value
	Newest          chain.Instant `json:"newest"`           // of the newest observation
	Samples         uint64        `json:"samples"`          // observations ever
	High            uint16        `json:"high,omitempty"`   // of the last 16 observations, newest in bit 0: too high
	Low             uint16        `json:"low,omitempty"`    // the same: too low
	Doublings       uint8         `json:"doublings,omitempty"`
}

// ErrValue is returned for an observation that cannot be: not a number, not
// positive where logarithms are taken, or without a positive weight.
var ErrValue = errors.New("impossible observation")

// Observe gives e after an observation x of the given weight (1, or a number
// of attempts) made at a moment. One that is older than the newest counts less,
// by its age, and moves no clock. On error e is returned as it was. The caller
// refuses moments in the future: they would age everything else.
func (a Axis) Observe(e Estimate, x, weight float64, at time.Time) (Estimate, error) {
	y := a.Space(x)
	if math.IsNaN(y) || math.IsInf(y, 0) || !(weight > 0) || math.IsInf(weight, 0) {
		return e, fmt.Errorf("%w: %g of weight %g", ErrValue, x, weight)
	}
	moment := chain.InstantOf(at)
	if e.Samples == 0 {
		weight = min(weight, heaviest)
		return Estimate{Mean: y, Weight: weight, Deviation: startDeviation, DeviationWeight: PriorWeight, Newest: moment, Samples: 1}, nil
	}
	was := e
	weight = min(weight, heaviest)
	if moment >= e.Newest {
		fade := a.Fade(e.Newest, moment)
		e.Weight *= fade
		e.DeviationWeight *= fade
		e.Newest = moment
	} else if weight *= a.Fade(moment, e.Newest); weight == 0 {
		return e, nil // too old to count at all
	}
	y = a.clip(&e, y)
	away := math.Abs(y - e.Mean)
	e.Weight += weight
	e.Mean += (y - e.Mean) * (weight / e.Weight)
	e.DeviationWeight += weight
	e.Deviation += (away - e.Deviation) * (weight / e.DeviationWeight)
	e.Deviation = max(e.Deviation, leastDeviation)
	e.Samples++
	if !finite(e.Mean, e.Deviation, e.Weight, e.DeviationWeight) {
		return was, fmt.Errorf("%w: %g is too far from what was seen", ErrValue, x)
	}
	return e, nil
}

func finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// Rebase gives e as it is to be used at now: where its newest observation lies
// more than [chain.Leeway] in the future, a clock was wrong, and that observation counts as
// made now. Without it everything measured since would be too late to count,
// for as long as the clock was ahead.
func (e Estimate) Rebase(now time.Time) Estimate {
	if e.Samples > 0 && e.Newest > chain.InstantOf(now.Add(chain.Leeway)) {
		e.Newest = chain.InstantOf(now)
	}
	return e
}

// clip holds y within the bounds of e, and widens them when e seems to have
// lost touch: more than half of the window beyond the plain bounds on one side.
// Then the bounds double with each observation, so that a real shift is
// followed, while a single wild value moves next to nothing.
func (a Axis) clip(e *Estimate, y float64) float64 {
	e.High, e.Low = e.High<<1, e.Low<<1
	if !a.Clip || e.Samples < clipAfter || e.Weight < clipWeight {
		e.Doublings = 0
		return y
	}
	bound := clipSigmas * sigma * e.Deviation
	switch {
	case y > e.Mean+bound:
		e.High |= 1
	case y < e.Mean-bound:
		e.Low |= 1
	}
	if max(bits.OnesCount16(e.High), bits.OnesCount16(e.Low)) <= window/2 {
		e.Doublings = 0
	} else if e.Doublings++; e.Doublings >= unclipped {
		e.Doublings = unclipped
		return y
	}
	bound *= float64(uint(1) << e.Doublings)
	return min(max(y, e.Mean-bound), e.Mean+bound)
}

// Fade is what is left of a weight from one moment to a later one: 0 to 1.
func (a Axis) Fade(from, to chain.Instant) float64 {
	if to <= from {
		return 1
	}
	return math.Exp2((float64(from) - float64(to)) / float64(a.HalfLife.Milliseconds()))
}

// Space takes a natural value into the axis's own space.
func (a Axis) Space(x float64) float64 {
	if a.Log {
		return math.Log(x)
	}
	return x
}

// Natural is the reverse of Space.
func (a Axis) Natural(y float64) float64 {
	if a.Log {
		return math.Exp(y)
	}
	return y
}

// Weight is what e counts for when it is used: at most MaxWeight as of its
// newest observation, and less with each half-life since. The bound comes before
// the fading, so that an unused thing is soon back at its prior and tried again,
// however much was known of it.
func (a Axis) Weight(e Estimate, now time.Time) float64 {
	return min(e.Weight, MaxWeight) * a.Fade(e.Newest, chain.InstantOf(now))
}

// Pull gives the value to use for a mean of some weight beside a prior, all in
// the axis's own space. The weight counts at most MaxWeight.
func Pull(mean, weight, prior float64) float64 {
	weight = min(max(weight, 0), MaxWeight)
	return (weight*mean + PriorWeight*prior) / (weight + PriorWeight)
}

// Value is the natural value to use: e pulled towards a natural prior, which
// must be positive where Axis.Log is set. For latencies that is a typical one (a
// median), not the expected one.
func (a Axis) Value(e Estimate, prior float64, now time.Time) float64 {
	return a.Natural(Pull(e.Mean, a.Weight(e, now), a.Space(prior)))
}

// Expected is the natural value to expect on average. A log axis is skewed: its
// mean lies above its median, the more the wider it spreads.
func (a Axis) Expected(e Estimate, prior float64, now time.Time) float64 {
	value := a.Value(e, prior, now)
	if !a.Log {
		return value
	}
	if e.Samples == 0 {
		e.Deviation = startDeviation
	}
	return value * Correction(e.Deviation)
}

// Correction is the mean of a log-normal value over its median, for a mean
// absolute deviation in log units: exp((1.2533·s)²/2), at most 4.
func Correction(deviation float64) float64 {
	s := sigma * deviation
	return min(math.Exp(s*s/2), maxCorrection)
}

// StartCorrection is the correction of what was never measured.
func StartCorrection() float64 { return Correction(startDeviation) }
