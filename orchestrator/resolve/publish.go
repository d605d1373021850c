package resolve

import (
	"math"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
)

func published(list []*placed) []chain.Option {
	if len(list) == 0 {
		return nil
	}
	out := make([]chain.Option, len(list))
	for i, p := range list {
		out[i] = p.published()
	}
	return out
}

// published gives the option as it stands in a body: with the estimates, rounded
// so that noise makes no new body.
func (p *placed) published() chain.Option {
	o, v := p.c.Option, &p.values
	o.Cost.Latency = millis(RoundStep(v.latency))
	o.Cost.FailureLatency = millis(RoundStep(v.failure))
	o.Cost.Reliability = chain.PPMOf(RoundOdds(v.reliability))
	o.Cost.Quality = chain.PPMOf(v.quality)
	o.Cost.Outside = v.outside
	o.Cost.Credit = micros(-p.parts.credit)
	o.Cost.Beside = min(micros(p.parts.money)+micros(p.parts.quota)+micros(p.parts.quality)+micros(p.parts.geo), mostMicros) // what a device cannot measure for itself
	o.Cost.FailureBill = p.c.FailureBill
	if u := p.c.Estimates.Usual; u > 0 {
		o.Cost.Usual = chain.PPMOf(RoundOdds(u))
	}
	o.Cost.LowN = p.c.Estimates.LowN
	o.Cost.Weight = int64(math.Round(min(RoundStep(v.weight), estimate.MaxWeight)))
	return o
}

// mostMicros is the largest number that a body holds: one option with a price beyond
// it must not keep the others from being published.
const mostMicros = 1 << 53

func micros(x float64) chain.MicroUSD {
	if !(x > 0) {
		return 0
	}
	return chain.MicroUSD(math.Round(min(x, mostMicros)))
}

// millis gives seconds as a duration; a millisecond at least, since zero means
// not known.
func millis(seconds float64) chain.Millis { return chain.Millis(max(math.Round(seconds*1000), 1)) }

// RoundStep rounds a positive value to the nearest step of 10 %: a power of
// 1.1. Zero and less stay zero.
func RoundStep(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return math.Pow(1.1, math.Round(math.Log(x)/math.Log(1.1)))
}

// RoundOdds rounds a probability in steps of 10 % of its odds (1−p)/p, so that
// .99 and .999 stay as far apart as they are.
func RoundOdds(p float64) float64 {
	p = min(max(p, minP), maxP)
	odds := RoundStep((1 - p) / p)
	return min(max(1/(1+odds), minP), maxP)
}
