package resolve

import (
	"fmt"
	"math"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
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

// valuesOf takes what was learned, else what is declared, else the product's
// own prior.
func valuesOf(in Input, c *Candidate) values {
	prior, own, e, cost := c.Prior, DefaultPrior(), c.Estimates, c.Option.Cost
	v := values{
		latency:     pick(e.Latency, maxSeconds, prior.Latency, own.Latency),
		reliability: pick(e.Reliability, 1, prior.Reliability, own.Reliability),
		quality:     pick(e.Quality, 1, cost.Quality.Share(), defaultQuality),
		learned:     learned(e.Latency) || learned(e.Reliability) || learned(e.FailureLatency) || learned(e.Quality),
		weight:      math.Min(counted(e.Latency), counted(e.Reliability)),
		outside:     outside(in.Geo, c),
	}
	v.failure = pick(e.FailureLatency, maxSeconds, prior.FailureLatency, v.latency)
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

func pick(e Estimate, most, declared, own float64) float64 {
	value := own
	if declared > 0 && declared <= most {
		value = declared
	}
	if learned(e) {
		value = e.Value
	}
	return min(value, most)
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
