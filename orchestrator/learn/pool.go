package learn

import (
	"math"

	"github.com/chordwheel/chordwheel/chain/estimate"
)

// pool adds up the counts of devices, each bounded by what the others say: none
// counts for more attempts than the median device that tried the option, and its
// failures only as far as chance explains them.
func pool(cells []cell) (s share) {
	for i := range cells {
		s.newest = max(s.newest, cells[i].counted)
	}
	list := counts(cells, s)
	if len(list) == 0 {
		return s
	}
	// Of two in the middle the smaller: the larger one may be the liar's.
	most := median(list, true, func(w *witness) float64 { return w.n })
	for i := range list {
		if w := &list[i]; w.n > most {
			w.own *= most / w.n
			w.n = most
		}
	}
	cut(list)
	good, bad := 0.0, 0.0
	for i := range list {
		w := &list[i]
		good += float64(w.standing * (w.n - w.own))
		bad += float64(w.standing * w.own)
	}
	s.devices, s.weight, s.p = len(list), good+bad, good/(good+bad)
	return s
}

// counts gives the devices that tried the option. Their standing is taken
// relative to the highest, for counts are added up: in a young fleet, or one that lives
// in one house, an attempt is still an attempt.
func counts(cells []cell, s share) []witness {
	axis := estimate.ReliabilityAxis()
	list := make([]witness, 0, len(cells))
	for i := range cells {
		c := &cells[i]
		fade := axis.Fade(c.counted, s.newest)
		if n := (c.good + c.bad) * fade; n >= tried {
			list = append(list, witness{c.id, c.network, c.bad / (c.good + c.bad), c.bad * fade, n, standing(c.since, s.newest)})
		}
	}
	capNetworks(list)
	highest := 0.0
	for i := range list {
		highest = max(highest, list[i].standing)
	}
	for i := range list {
		list[i].standing /= highest
	}
	return list
}

// cut takes away failures that chance does not explain, if p is what the devices in
// the middle see, and not while more than half of the devices, by standing, see as many: then it is p
// that is behind.
func cut(list []witness) {
	p := 1 - middleFifth(list)
	over, all := 0.0, 0.0
	for i := range list {
		w := &list[i]
		all += w.standing
		if w.own > plausible(w.n, p) {
			over += w.standing
		}
	}
	if 2*over > all {
		return
	}
	for i := range list {
		w := &list[i]
		if most := plausible(w.n, p); w.own > most {
			w.n -= w.own - most
			w.own = most
		}
	}
}

// plausible is how many of n attempts may fail by chance.
func plausible(n, p float64) float64 {
	return max(1, float64(n*(1-p))+3*math.Sqrt(n*p*(1-p)))
}

// middleFifth is the pooled share of failures of the devices whose own share is in
// the middle, from 40 to 60 % of the standing. Slanderers and flatterers stand at the ends.
func middleFifth(list []witness) float64 {
	places := order(list, func(w *witness) float64 { return w.value })
	all := total(list, places)
	sum, bad, n := 0.0, 0.0, 0.0
	for _, p := range places {
		w := &list[p.at]
		from, to := max(sum, 0.4*all), min(sum+w.standing, 0.6*all)
		sum += w.standing
		if part := to - from; part > 0 {
			bad += float64(part / w.standing * w.own)
			n += float64(part / w.standing * w.n)
		}
	}
	if n == 0 {
		return 0 // nobody
	}
	return min(max(bad/n, 0), 1)
}
