package learn

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// Constants of the look for trends.
const (
	newestWords = 6             // devices whose newest word is looked at
	leastWords  = 4             // less is chance
	youngest    = 3 * time.Hour // and none older than this: it may be of another time than the estimate
	ofMedian    = 1.2533        // standard error of a median over that of a mean; and a deviation over a mean absolute one
	ofPlaces    = 0.3           // by how much devices differ from each other, in log units
)

// Trend gives how the newest word of devices on k differs from what the fleet's estimate
// says, for a segment as in [Book.Estimates]. It is zero where nobody said anything of late.
func (b *Book) Trend(k Key, in Segment, now time.Time) resolve.Trend {
	r := b.records[k]
	if r == nil {
		return resolve.Trend{}
	}
	s := b.best(r, in)
	if now.Sub(s.trendAt.Time()) > youngest {
		return resolve.Trend{}
	}
	return s.trend
}

// word is one device's newest observation of a kind.
type word struct {
	at    chain.Instant
	id    uint64
	value float64
}

// words gives the newest of some since a moment, nil where they are too few.
func words(list []word, since chain.Instant) []word {
	slices.SortFunc(list, func(a, b word) int { return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(a.id, b.id)) })
	list = list[:min(len(list), newestWords)]
	for len(list) > 0 && list[len(list)-1].at < since {
		list = list[:len(list)-1]
	}
	if len(list) < leastWords {
		return nil
	}
	return list
}

// drift compares the newest word of the devices that spoke last, one each, with what all
// of them come to. An estimate is slow on purpose: a device that once used an option
// much outweighs for a day those that look at it now and then. The newest words alone
// are too few for an estimate, and enough to say where it is worth looking again.
func (s *summary) drift(cells []cell) {
	times, ends := make([]word, 0, len(cells)), make([]word, 0, len(cells))
	for i := range cells {
		c := &cells[i]
		if c.heard {
			times = append(times, word{c.latency.newest, c.id, float64(c.took)})
		}
		if c.last > 0 {
			ends = append(ends, word{c.last, c.id, indicator(c.lastOK)})
		}
	}
	for _, w := range times {
		s.trendAt = max(s.trendAt, w.at)
	}
	for _, w := range ends {
		s.trendAt = max(s.trendAt, w.at)
	}
	t, since := &s.trend, s.trendAt-chain.Instant(youngest/time.Millisecond)
	if times = words(times, since); times != nil && s.latency.devices > 0 {
		slices.SortFunc(times, func(a, b word) int { return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.id, b.id)) })
		n := len(times)
		t.Latency = (times[(n-1)/2].value+times[n/2].value)/2 - s.latency.mean
		t.LatencyDoubt = ofMedian * math.Hypot(ofMedian*s.latency.deviation, ofPlaces) / math.Sqrt(float64(n))
		t.Devices = n
	}
	if ends = words(ends, since); ends != nil && s.reliability.devices > 0 {
		sum, n := 0.0, float64(len(ends))
		for _, w := range ends {
			sum += w.value
		}
		t.Reliability = sum/n - s.reliability.p
		p := (sum/n + s.reliability.p) / 2 // between the two: of few, one failure proves little
		t.ReliabilityDoubt = math.Sqrt(max(p*(1-p), 0)/n) + 1e-3
		t.Devices = max(t.Devices, len(ends))
	}
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
