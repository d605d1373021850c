package learn

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// Constants of the combination.
const (
	enough      = 5                  // devices; fewer are marked low-n and count beside the prior only
	fullAge     = 7 * 24 * time.Hour // of a membership that counts in full
	leastAge    = 0.05               // what a new one counts for
	mostNetwork = 4.0                // what the devices of one network count for together
	priorFactor = 10.0               // how far from the prior a few devices can bring an estimate
	tried       = 1.0 / 16           // a device whose own weight is less has forgotten
)

// summary is what all devices of one segment come to. It depends on what they
// reported and not on the moment it is asked for: ages and weights are as of the
// newest observation, so that it holds until the next one.
type summary struct {
	latency, failure typical
	reliability      share
	trend            resolve.Trend
	trendAt          chain.Instant // its newest word
}

// best gives the summary of a segment where it has data of its own, else of a wider one.
func (b *Book) best(r *Record, in Segment) *summary {
	for _, s := range []Segment{in, {Geo: in.Geo}, {Class: in.Class}} {
		if s == (Segment{}) {
			continue
		}
		if t := b.summarise(r, s); max(t.latency.devices, t.reliability.devices) >= enough {
			return t
		}
	}
	return b.summarise(r, Segment{})
}

const maxSummaries = 64 // of segments that are remembered for one key

func (b *Book) summarise(r *Record, in Segment) *summary {
	if s := r.summary[in]; s != nil {
		return s
	}
	cells := r.cells
	if in != (Segment{}) {
		cells = nil
		for i := range r.cells {
			if b.within(r.cells[i].segment, in) {
				cells = append(cells, r.cells[i])
			}
		}
	}
	s := &summary{
		latency:     middle(cells, func(c *cell) *compact { return &c.latency }),
		failure:     middle(cells, func(c *cell) *compact { return &c.failure }),
		reliability: pool(cells),
	}
	s.drift(cells)
	if r.summary == nil {
		r.summary = map[Segment]*summary{}
	}
	if len(r.summary) < maxSummaries {
		r.summary[in] = s
	}
	return s
}

// within reports whether a device of segment n is one of in.
func (b *Book) within(n uint16, in Segment) bool {
	s := b.segments[n]
	return (in.Geo == "" || s.Geo == in.Geo) && (in.Class == "" || s.Class == in.Class)
}

// witness is one device's say.
type witness struct {
	id       uint64
	network  uint32
	value    float64
	own      float64 // deviation of a time, failures of a count
	n        float64 // weight behind the value: decayed observations
	standing float64 // what it counts for beside others
}

// standing is what the age of a membership counts for.
func standing(since uint32, at chain.Instant) float64 {
	age := (float64(at)/1000 - float64(since)) / fullAge.Seconds()
	return min(1, max(leastAge, age))
}

// capNetworks lets the devices of one network count for at most 4 together.
func capNetworks(list []witness) {
	sums := map[uint32]float64{}
	for i := range list {
		sums[list[i].network] += list[i].standing
	}
	for i := range list {
		if sum := sums[list[i].network]; list[i].network != 0 && sum > mostNetwork {
			list[i].standing *= mostNetwork / sum
		}
	}
}

// ranked is a witness's place in an order: its figure, and where it stands in the list.
type ranked struct {
	figure float64
	id     uint64
	at     int
}

// order gives the places of witnesses by a figure, then by device, so that sums are added
// up in the same order every time.
func order(list []witness, figure func(*witness) float64) []ranked {
	places := make([]ranked, len(list))
	for i := range list {
		places[i] = ranked{figure(&list[i]), list[i].id, i}
	}
	slices.SortFunc(places, func(a, b ranked) int {
		switch {
		case a.figure < b.figure:
			return -1
		case a.figure > b.figure:
			return 1
		}
		return cmp.Compare(a.id, b.id)
	})
	return places
}

// total is the standing of all, added up in the order of places.
func total(list []witness, places []ranked) (sum float64) {
	for _, p := range places {
		sum += list[p.at].standing
	}
	return sum
}

// median gives the weighted median of a figure. With under half of the weight lying
// it lies within the honest range. Exactly between two it is their mean; lower
// takes the smaller one then.
func median(list []witness, lower bool, figure func(*witness) float64) float64 {
	places := order(list, figure)
	half, sum := total(list, places)/2, 0.0
	for i, p := range places {
		sum += list[p.at].standing
		switch {
		case sum == half && i+1 < len(places) && !lower:
			return (p.figure + places[i+1].figure) / 2
		case sum >= half:
			return p.figure
		}
	}
	return 0
}

// typical is a time over many devices, in log units.
type typical struct {
	mean, deviation float64
	weight          float64 // sum over the devices, as of newest
	devices         int
	newest          chain.Instant
}

// middle is the weighted median of what devices measured.
func middle(cells []cell, of func(*cell) *compact) (t typical) {
	for i := range cells {
		t.newest = max(t.newest, of(&cells[i]).newest)
	}
	axis := estimate.LatencyAxis()
	list := make([]witness, 0, len(cells))
	for i := range cells {
		c, e := &cells[i], of(&cells[i])
		if e.samples == 0 {
			continue
		}
		n := float64(e.weight) * axis.Fade(e.newest, t.newest)
		if n < tried {
			continue
		}
		list = append(list, witness{c.id, c.network, float64(e.mean), float64(e.deviation), n, min(1, n) * standing(c.since, t.newest)})
		t.weight += n
	}
	t.devices = len(list)
	capNetworks(list)
	t.mean = median(list, false, func(w *witness) float64 { return w.value })
	t.deviation = median(list, false, func(w *witness) float64 { return w.own })
	return t
}

// beside gives the time to expect, pulled towards a prior; of few devices it is held near to that.
func (t *typical) beside(prior float64, now time.Time) resolve.Estimate {
	if few := *t; 0 < t.devices && t.devices < enough {
		expected := estimate.LatencyAxis().Space(prior)
		held := min(max(t.mean, expected-math.Log(priorFactor)), expected+math.Log(priorFactor))
		part := float64(t.devices) / enough
		few.mean = float64(part*held) + float64((1-part)*expected)
		return few.alone(prior, now)
	}
	return t.alone(prior, now)
}

// alone gives the value to expect, pulled towards a prior.
func (t *typical) alone(prior float64, now time.Time) resolve.Estimate {
	if t.devices == 0 {
		return resolve.Estimate{}
	}
	axis := estimate.LatencyAxis()
	expected, mean := axis.Space(prior), t.mean
	weight := min(t.weight, estimate.MaxWeight) * axis.Fade(t.newest, chain.InstantOf(now))
	return resolve.Estimate{Value: axis.Natural(estimate.Pull(mean, weight, expected)) * estimate.Correction(t.deviation), Weight: weight}
}

// share is a share of successes over many devices.
type share struct {
	p, weight float64 // weight: attempts, as of newest
	devices   int
	newest    chain.Instant
}

func (s *share) beside(prior float64, now time.Time) resolve.Estimate {
	if s.devices == 0 {
		return resolve.Estimate{}
	}
	weight := min(s.weight, estimate.MaxWeight) * estimate.ReliabilityAxis().Fade(s.newest, chain.InstantOf(now))
	return resolve.Estimate{Value: estimate.Pull(s.p, weight, prior), Weight: weight}
}
