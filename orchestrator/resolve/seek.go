package resolve

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/chordwheel/chordwheel/chain"
)

// Trend is how what the newest witnesses of an option say differs from its estimate.
// A doubt is a standard error; zero: nothing is known.
type Trend struct {
	Latency, LatencyDoubt         float64 // in log units
	Reliability, ReliabilityDoubt float64 // a share
	Devices                       int     // newest witnesses
}

// Constants of seeking.
const (
	certain     = 1.6  // standard errors from which a difference is worth more samples: a wrong guess costs a few
	soughtDaily = 1000 // samples a day of an option with one
	plenty      = 48   // observations from which it is not for want of samples that an estimate lags
	conserved   = 0.8  // share of a ceiling from which an option under it is never explored
)

// seek looks for options of which the fleet should learn more now: those whose newest
// witnesses disagree with what is believed, so that their place would be another if these are right.
// An estimate follows by itself what is used; of what is not, a few samples a day have to
// turn a whole night's around, and more of them turn it sooner.
func (w *work) seek() (list []chain.Sought) {
	if w.in.Mode == Fixed || w.in.NoExploration {
		return nil
	}
	for i, p := range w.open {
		if i == 0 || p.c.Option.Kind == chain.Peer || p.values.weight >= plenty || p.conserved() || !w.in.explores(p.c.Option.ID) { // requests measure what is in front, and peers
			continue
		}
		if t := p.trend(w.in); t != nil && w.moves(p, t) {
			p.sought = soughtDaily
			list = append(list, chain.Sought{Option: p.c.Option.ID, Daily: soughtDaily})
		}
		if len(list) == chain.MaxSought { // the nearest to the front
			break
		}
	}
	slices.SortFunc(list, func(a, b chain.Sought) int { return cmp.Compare(a.Option, b.Option) })
	return list
}

// explores reports whether devices may probe an option.
func (in *Input) explores(id chain.OptionID) bool {
	return len(in.Explore) == 0 || slices.ContainsFunc(in.Explore, func(pattern string) bool { return Match(pattern, id) })
}

func (p *placed) conserved() bool {
	return slices.ContainsFunc(p.c.Ceilings, func(l Ceiling) bool { return l.Used > conserved })
}

// trend gives p as it would be if its newest witnesses are right; nil if they say nothing new.
func (p *placed) trend(in *Input) *placed {
	t := &p.c.Trend
	slower, surer := drifts(t.Latency, t.LatencyDoubt), drifts(t.Reliability, t.ReliabilityDoubt)
	if !slower && !surer {
		return nil
	}
	now := *p
	if slower {
		now.values.latency = min(p.values.latency*math.Exp(t.Latency), maxSeconds)
	}
	if surer {
		now.values.reliability = min(max(p.values.reliability+t.Reliability, minP), maxP)
	}
	now.price(in)
	return &now
}

func drifts(by, doubt float64) bool { return doubt > 0 && math.Abs(by) > certain*doubt }

// moves reports whether p's place by index would be another if it were as now says.
func (w *work) moves(p, now *placed) bool {
	was, is := p.option().Index(), now.option().Index()
	low, high := min(was, is), max(was, is)
	return slices.ContainsFunc(w.open, func(o *placed) bool {
		x := o.option().Index()
		return o != p && low < x && x < high
	})
}

// words say what the newest witnesses of an option see, for people.
func (t *Trend) words() string {
	s := ""
	if drifts(t.Latency, t.LatencyDoubt) {
		s = fmt.Sprintf("%.2g times the time", math.Exp(t.Latency))
	}
	if drifts(t.Reliability, t.ReliabilityDoubt) {
		if s != "" {
			s += ", "
		}
		s += fmt.Sprintf("%+.0f points of reliability", 100*t.Reliability)
	}
	if s == "" {
		return ""
	}
	return fmt.Sprintf("the newest %d devices see %s", t.Devices, s)
}
