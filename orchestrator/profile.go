package orchestrator

import (
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator/learn"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// Keys of the book of sizes, beside the primitive: tokens in and out.
const (
	sizeIn  = "input"
	sizeOut = "output"
)

// size takes in the tokens of a report's measurements. Each report is one
// observation of its device, the mean of its sampled successes, and each device one
// voice, so that none outweighs the others by asking more.
func (h *Hub) size(by learn.Reporter, list []wire.Measurement, ours func(chain.Slot, chain.OptionID) bool, now time.Time) {
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
	batch := h.sizes.Batch(by, now)
	for p, s := range sums {
		batch.Value(learn.Key{Primitive: p, Option: sizeIn}, s.input/s.n, s.at.Time())
		batch.Value(learn.Key{Primitive: p, Option: sizeOut}, s.output/s.n, s.at.Time())
	}
}

// measured gives the size of p's requests, pulled towards what the catalogue
// declares, once anything was measured.
func (h *Hub) measured(p chain.Primitive, declared resolve.Profile, now time.Time) resolve.Measured {
	if declared == (resolve.Profile{}) {
		declared = resolve.DefaultProfile()
	}
	of := func(what chain.OptionID, prior float64) resolve.Estimate {
		return h.sizes.Typical(learn.Key{Primitive: p, Option: what}, max(prior, 1), now)
	}
	return resolve.Measured{InputTokens: of(sizeIn, declared.InputTokens), OutputTokens: of(sizeOut, declared.OutputTokens)}
}
