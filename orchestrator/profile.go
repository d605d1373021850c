package orchestrator

import (
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// usage is what requests of a primitive turned out to be: tokens in and out. Each
// report is one observation, the mean of its sampled successes, however many they
// are, so that no device outweighs the others by asking more.
type usage struct{ input, output estimate.Estimate }

// usageAxis: sizes spread by factors, and change over days.
func usageAxis() estimate.Axis {
	return estimate.Axis{HalfLife: 24 * time.Hour, Log: true, Clip: true}
}

// size takes in the tokens of a report's measurements.
func (h *Hub) size(list []wire.Measurement, ours func(chain.Slot, chain.OptionID) bool) {
	type sum struct {
		input, output, n float64
		at               chain.Instant
	}
	sums := map[chain.Primitive]*sum{}
	for i := range list {
		m := &list[i]
		if m.Class != chain.OK || m.Input <= 0 || m.Output <= 0 || !ours(m.Slot, m.Option) {
			continue
		}
		s := sums[m.Slot.Primitive]
		if s == nil {
			s = &sum{}
			sums[m.Slot.Primitive] = s
		}
		s.input, s.output, s.n, s.at = s.input+float64(m.Input), s.output+float64(m.Output), s.n+1, max(s.at, m.At)
	}
	for p, s := range sums {
		u := h.usage[p]
		if u == nil {
			u = &usage{}
			h.usage[p] = u
		}
		for _, one := range []struct {
			to *estimate.Estimate
			x  float64
		}{{&u.input, s.input / s.n}, {&u.output, s.output / s.n}} {
			if next, err := usageAxis().Observe(*one.to, one.x, 1, s.at.Time()); err == nil {
				*one.to = next
			}
		}
	}
}

// measured gives the size of p's requests, pulled towards what the catalogue
// declares, once anything was measured.
func (h *Hub) measured(p chain.Primitive, declared resolve.Profile, now time.Time) resolve.Measured {
	u := h.usage[p]
	if u == nil {
		return resolve.Measured{}
	}
	if declared == (resolve.Profile{}) {
		declared = resolve.DefaultProfile()
	}
	of := func(e estimate.Estimate, prior float64) resolve.Estimate {
		prior = max(prior, 1)
		axis := usageAxis()
		return resolve.Estimate{Value: axis.Expected(e, prior, now), Weight: axis.Weight(e, now)}
	}
	return resolve.Measured{InputTokens: of(u.input, declared.InputTokens), OutputTokens: of(u.output, declared.OutputTokens)}
}
