package resolve

import (
	"fmt"
	"math"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
)

// Bounds of what enters the arithmetic.
const (
	minP       = 0.001
	maxP       = 0.999
	maxSeconds = 1e6
)

// values is a candidate's place on every axis, before weights.
type values struct {
	money       float64 // micro-dollars of a typical request, without multipliers
	latency     float64 // seconds, given success
	failure     float64 // seconds, given failure
	reliability float64 // 0.001 to 0.999
	quality     float64 // 0 to 1
	quota       float64 // sum of the multipliers of call ceilings
	scarcity    float64 // sum of the multipliers of money ceilings
	outside     bool
	learned     bool
	weight      float64 // observations behind latency and reliability, the smaller
}

// valuesOf takes what was learned, else what is declared, else the product's own
// prior. A prior latency is a typical one, as a learned median is: both are
// raised to what is to be expected on average.
func valuesOf(in Input, c *Candidate) values {
	prior, e, cost := c.Prior.filled(), c.Estimates, c.Option.Cost
	v := values{
		latency:     pick(e.Latency, prior.Latency*estimate.StartCorrection(), maxSeconds),
		failure:     pick(e.FailureLatency, prior.FailureLatency*estimate.StartCorrection(), maxSeconds),
		reliability: pick(e.Reliability, prior.Reliability, 1),
		quality:     pick(e.Quality, declared(cost.Quality.Share(), 1, defaultQuality), 1),
		learned:     learned(e.Latency) || learned(e.Reliability) || learned(e.FailureLatency) || learned(e.Quality),
		weight:      math.Min(counted(e.Latency), counted(e.Reliability)),
		outside:     outside(in.Geo, c),
	}
	v.reliability = min(max(v.reliability, minP), maxP)
	v.money = float64(float64(cost.InputPerMtok)*in.Profile.InputTokens/1e6) +
		float64(float64(cost.OutputPerMtok)*in.Profile.OutputTokens/1e6) + float64(cost.PerCall)
	for _, l := range c.Ceilings {
		if mu := min(max(l.Multiplier, 0), 10); l.Calls {
			v.quota += mu
		} else {
			v.scarcity += mu
		}
	}
	return v
}

func learned(e Estimate) bool { return counted(e) > 0 }

// counted is an estimate's weight; one that is no number counts for nothing.
func counted(e Estimate) float64 {
	if !(e.Weight > 0) || math.IsNaN(e.Value) || math.IsInf(e.Value, 0) || e.Value < 0 {
		return 0
	}
	return e.Weight
}

// pick takes what was learned, else what is expected without learning.
func pick(e Estimate, prior, most float64) float64 {
	if learned(e) {
		prior = e.Value
	}
	return min(prior, most)
}

// declared is a value if it is one, else the product's own.
func declared(value, most, own float64) float64 {
	if value > 0 && value <= most {
		return value
	}
	return own
}

// filled replaces what is not declared.
func (p Prior) filled() Prior {
	own := DefaultPrior()
	p.Latency = declared(p.Latency, maxSeconds, own.Latency)
	p.FailureLatency = declared(p.FailureLatency, maxSeconds, p.Latency)
	p.Reliability = declared(p.Reliability, 1, own.Reliability)
	return p
}

// outside reports whether a provider is elsewhere than the workspace wants: its
// place is neither one of the workspace's nor within one. A provider that
// declares no place is not known to be inside. Devices are the workspace's own.
func outside(geo []string, c *Candidate) bool {
	if len(geo) == 0 || c.Option.Kind != chain.Provider {
		return false
	}
	for _, g := range geo {
		if c.Geo == g || strings.HasPrefix(c.Geo, g+"-") {
			return false
		}
	}
	return true
}

// price fills in the terms, their sums and the index. Products are rounded
// before they are added (float64(…)), so that no processor fuses them and every
// machine gives the same bytes.
func (p *placed) price(in Input, s seeds) {
	v, w := p.values, in.Weights
	share := s.preference(p.Option)
	p.Success = terms(
		Term{"money", float64(v.money * (1 + v.scarcity)), fmt.Sprintf("%.0f tokens in, %.0f out", in.Profile.InputTokens, in.Profile.OutputTokens)},
		Term{"quota", float64(w.Quota * v.quota), "scarcity of calls"},
		Term{"latency", float64(w.Second * v.latency), fmt.Sprintf("%.3f s", v.latency)},
		Term{"quality", float64(w.Quality * (1 - v.quality)), fmt.Sprintf("quality %.2f", v.quality)},
		Term{"geo", float64(w.Geo * indicator(v.outside)), "outside the workspace's geo"},
		Term{"credit", -float64(w.Preference * share), fmt.Sprintf("preference %.3f", share)},
	)
	p.Failure = terms(
		Term{"latency", float64(w.Second * v.failure), fmt.Sprintf("%.3f s", v.failure)},
		Term{"failure", w.Failure, ""},
		Term{"bill", float64(p.candidate.FailureBill), "what a failure bills"},
	)
	p.P, p.S, p.F = v.reliability, sum(p.Success), sum(p.Failure)
	p.Index = expected(p.P, p.S, p.F) / p.P
	p.Outside, p.LowN, p.Learned = v.outside, p.candidate.Estimates.LowN, v.learned
}

// expected is what one attempt costs on average.
func expected(p, s, f float64) float64 { return float64(p*s) + float64((1-p)*f) }

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// terms keeps those that say something.
func terms(all ...Term) []Term {
	kept := all[:0]
	for _, t := range all {
		if t.Value != 0 {
			kept = append(kept, t)
		}
	}
	return kept
}

func sum(terms []Term) float64 {
	total := 0.0
	for _, t := range terms {
		total += t.Value
	}
	return total
}
