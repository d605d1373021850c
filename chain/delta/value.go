package delta

import (
	"math"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
	"github.com/chordwheel/chordwheel/chain/order"
)

// What is believed of an option of which the hub says nothing.
const (
	defaultLatency     = 2.0
	defaultReliability = 0.95
	sigma              = 1.2533 // standard deviation over mean absolute deviation
	startDeviation     = 0.4    // in log units, of what was never measured here
)

// value is an option as this device sees it.
type value struct {
	p, latency, failure float64
	deviation           float64 // of the latency, in log units
	weightP, weightL    float64 // observations behind p and the latency, the prior's among them
	hubL, ownL          float64 // the fleet's and this device's own, of the latency
	own                 bool    // some of it is this device's
	ignored             bool    // a suspect mark that own success outweighs
}

// known reports whether this device has a view of its own.
func (v *value) known() bool { return v.own || v.ignored }

// hub is what the chain says of an option.
func hub(c *chain.Cost) value {
	v := value{hubL: float64(c.Weight), p: c.Reliability.Share(), latency: c.Latency.Duration().Seconds(), failure: c.FailureLatency.Duration().Seconds(),
		deviation: startDeviation, weightP: float64(c.Weight) + estimate.PriorWeight, weightL: float64(c.Weight) + estimate.PriorWeight}
	if v.p == 0 {
		v.p = defaultReliability
	}
	if v.latency == 0 {
		v.latency = defaultLatency * estimate.StartCorrection()
	}
	if v.failure == 0 {
		v.failure = v.latency
	}
	return v
}

// deviation is that of a time, also of one that was never measured.
func deviation(e *estimate.Estimate) float64 {
	if e.Samples == 0 {
		return startDeviation
	}
	return e.Deviation
}

// ignores reports whether r outweighs a suspect mark at now: this device's own
// last attempt is young and went well.
func (r *Record) ignores(now time.Time) bool {
	age := now.Sub(r.Last.Time())
	return r.Last != 0 && r.LastOK && age >= 0 && age < Fresh
}

// value puts own values, where there are enough samples, in place of the hub's,
// which are their priors. A mark that stands is believed whatever was measured
// before it.
func (r *Record) value(c *chain.Cost, now time.Time) value {
	v := hub(c)
	marked := c.Suspect()
	if marked && r.ignores(now) {
		v.p, v.ignored, marked = c.Usual.Share(), true, false
	}
	reliability, latency := estimate.ReliabilityAxis(), estimate.LatencyAxis()
	if r.Reliability.Samples >= Enough && !marked {
		own, all := reliability.Weight(r.Reliability, now), math.Max(v.weightP/2, estimate.PriorWeight)
		v.p = (own*r.Reliability.Mean + all*v.p) / (own + all)
		v.weightP, v.own = own+all, true
	}
	expected := func(e estimate.Estimate, prior float64) float64 {
		return latency.Expected(e, prior/estimate.Correction(e.Deviation), now)
	}
	v.ownL = distanceAxis.Weight(r.Distance, now)
	if r.Latency.Samples >= Enough {
		// What was not measured for long is expected to be as far from the hub's value
		// as it always was.
		v.latency *= math.Exp(distanceAxis.Value(r.Distance, 0, now))
		v.latency = expected(r.Latency, v.latency)
		v.deviation, v.own = r.Latency.Deviation, true
		v.weightL = math.Max(v.ownL, latency.Weight(r.Latency, now)) + estimate.PriorWeight
	}
	if r.Failure.Samples >= Enough {
		v.failure, v.own = expected(r.Failure, v.failure), true
	}
	v.p = min(max(v.p, order.MinP), order.MaxP)
	return v
}

// priced is an option with its cost, as this device sees it.
type priced struct {
	order.Option
	value
	credit float64
	index  float64
	spread float64 // standard error of the index
	doubt  float64 // the same, with what this device cannot know of an option that others measured
	usable bool
}

// price weighs v as the hub would.
func price(o *chain.Option, v value, w chain.Weights) priced {
	second, credit := float64(w.Second), float64(o.Cost.Credit)
	x := priced{value: v, credit: credit, Option: order.Option{ID: o.ID, P: v.p, Domain: o.Domain,
		S: float64(o.Cost.Beside) + second*v.latency - credit,
		F: float64(w.Failure) + second*v.failure + float64(o.Cost.FailureBill)}}
	x.index = x.Index()
	ofLatency := second * v.latency * sigma * v.deviation / math.Sqrt(v.weightL)
	ofP := x.F / (v.p * v.p) * math.Sqrt(v.p*(1-v.p)/v.weightP)
	x.spread = math.Hypot(ofLatency, ofP)
	// What the fleet knows well is still a guess for a device that never tried it: it
	// may be nearer to it, or farther.
	ofDistance := second * v.latency * sigma * v.deviation * math.Sqrt(1/(v.ownL+estimate.PriorWeight)+1/(v.hubL+estimate.PriorWeight))
	x.doubt = math.Hypot(ofDistance, ofP)
	return x
}

// margin is what a gain by index of b over a, which stands in front, must exceed.
func margin(a, b *priced, r *chain.Rules) float64 {
	return math.Max(r.Reorder.Share()*(a.index+a.credit), math.Hypot(a.spread, b.spread))
}
