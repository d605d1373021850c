package resolve

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
	"github.com/chordwheel/chordwheel/chain/order"
)

// Bounds of what enters the arithmetic.
const (
	minP       = order.MinP
	maxP       = order.MaxP
	maxSeconds = 1e6
	maxTokens  = 1e9
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
func valuesOf(in *Input, c *Candidate) values {
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

// parts are the summands of s and f, in micro-dollars.
type parts struct {
	money, quota, latency, quality, geo, credit float64 // of s
	waiting, failure, bill                      float64 // of f
}

// price fills in the parts, their sums and the index. Products are rounded
// before they are added (float64(…)), so that no processor fuses them and every
// machine gives the same bytes.
func (p *placed) price(in *Input) {
	v, w := &p.values, &in.Weights
	t := &p.parts
	t.money = float64(v.money * (1 + v.scarcity))
	t.quota = float64(w.Quota * v.quota)
	t.latency = float64(w.Second * v.latency)
	t.quality = float64(w.Quality * (1 - v.quality))
	t.geo = float64(w.Geo * indicator(v.outside))
	t.credit = -float64(w.Preference * p.share)
	t.waiting = float64(w.Second * v.failure)
	t.failure = w.Failure
	t.bill = float64(p.c.FailureBill)
	p.s = t.money + t.quota + t.latency + t.quality + t.geo + t.credit
	p.f = t.waiting + t.failure + t.bill
}

// option gives p as the arithmetic of orders sees it. Peers and local options are
// runners of their own on each device: only a declared domain binds them.
func (p *placed) option() order.Option {
	return order.Option{ID: p.c.Option.ID, P: p.values.reliability, S: p.s, F: p.f, Domain: p.c.Option.Domain}
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// success and failed give the summands that say something, for people.
func (p *placed) success(in *Input) []Term {
	t, v := &p.parts, &p.values
	return said(
		Term{"money", t.money, fmt.Sprintf("%.0f tokens in, %.0f out", in.Profile.InputTokens, in.Profile.OutputTokens)},
		Term{"quota", t.quota, "scarcity of calls"},
		Term{"latency", t.latency, fmt.Sprintf("%.3f s", v.latency)},
		Term{"quality", t.quality, fmt.Sprintf("quality %.2f", v.quality)},
		Term{"geo", t.geo, "outside the workspace's geo"},
		Term{"credit", t.credit, fmt.Sprintf("preference %.3f", p.share)},
	)
}

func (p *placed) failed() []Term {
	t := &p.parts
	return said(
		Term{"latency", t.waiting, fmt.Sprintf("%.3f s", p.values.failure)},
		Term{"failure", t.failure, ""},
		Term{"bill", t.bill, "what a failure bills"},
	)
}

func said(all ...Term) []Term {
	return slices.DeleteFunc(all, func(t Term) bool { return t.Value == 0 })
}
