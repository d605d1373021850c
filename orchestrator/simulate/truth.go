package simulate

import (
	"cmp"
	"math"
	"slices"

	"github.com/chordwheel/chordwheel/chain/order"
)

// priced gives an option as the arithmetic of orders sees it, with true values for
// one device; slow is the device's factor on its latency. outages says whether those
// under way are known.
func (w *world) priced(i int, slow float64, outages bool) order.Option {
	o, t := &w.options[i], &w.s.Weights
	limit := w.s.Limit.Seconds()
	in := within(limit/(o.latency*slow), o.spread)
	x := order.Option{ID: o.id, P: o.reliability * in, Domain: o.domain,
		S: o.money + t.Quality*(1-o.quality) + t.Second*o.latency*slow*math.Exp(o.spread*o.spread/2),
		F: t.Failure + t.Second*o.failure*slow*math.Exp(0.125)}
	if in < 1 { // some failures are answers that came too late
		late := o.reliability * (1 - in) / (1 - x.P)
		x.F += float64(t.Second * late * (limit - (x.F-t.Failure)/math.Max(t.Second, 1e-9)))
	}
	switch {
	case !outages || o.down == 0:
	case o.hangs > 0:
		x.P, x.F = order.MinP, t.Failure+t.Second*limit
	default:
		x.P, x.F = order.MinP, t.Failure+t.Second*refusal
	}
	return x
}

// within is the share of a log-normal latency that is at most x times its median.
func within(x, spread float64) float64 {
	if spread <= 0 {
		if x < 1 {
			return 0
		}
		return 1
	}
	return 0.5 * math.Erfc(-math.Log(x)/(spread*math.Sqrt2))
}

// open gives the places of the options that a chain may hold now.
func (w *world) open() []int {
	var list []int
	for i := range w.options {
		if w.options[i].there && !w.options[i].withheld {
			list = append(list, i)
		}
	}
	return list
}

// knowing gives the places of the open options in the best order for a device of one
// who knows everything, or everything but outages under way. Who knows the outages
// has nothing left that fails together.
func (w *world) knowing(p *place, outages bool, attempts int, s *order.Solver) []int {
	open := w.open()
	list := make([]order.Option, len(open))
	for k, i := range open {
		list[k] = w.priced(i, p.slowness[i], outages)
	}
	sorted := make([]int, len(open))
	if outages {
		for k := range sorted {
			sorted[k] = k
		}
		slices.SortFunc(sorted, func(a, b int) int {
			return cmp.Or(cmp.Compare(list[a].Index(), list[b].Index()), cmp.Compare(list[a].ID, list[b].ID))
		})
	} else {
		places, _ := s.Best(list, order.Terms{Cap: attempts, Exhausted: w.s.Weights.Exhausted})
		copy(sorted, places)
	}
	for k, at := range sorted {
		sorted[k] = open[at]
	}
	return sorted
}

// cost is what an order of options costs on average in truth, outages aside, for a
// device that is as far from everything as the middle of the fleet.
func (w *world) cost(list []int, attempts int) float64 {
	options := make([]order.Option, len(list))
	for k, i := range list {
		options[k] = w.priced(i, 1, false)
		options[k].Domain = ""
	}
	return order.Cost(options, order.Terms{Cap: attempts, Exhausted: w.s.Weights.Exhausted})
}

// knowingMiddle is the best order for that device, outages aside.
func (w *world) knowingMiddle() []int {
	open := w.open()
	slices.SortFunc(open, func(a, b int) int {
		x, y := w.priced(a, 1, false), w.priced(b, 1, false)
		return cmp.Or(cmp.Compare(x.Index(), y.Index()), cmp.Compare(x.ID, y.ID))
	})
	return open
}
