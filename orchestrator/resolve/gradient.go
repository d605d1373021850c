package resolve

import (
	"cmp"
	"slices"

	"github.com/chordwheel/chordwheel/chain"
)

// axes gives an option's standing on every axis: its value in the axis's own
// unit and a key of which less is better.
func (v values) axes() []axis {
	return []axis{
		{"financial", v.money, v.money},
		{"latency", v.latency, v.latency},
		{"reliability", v.reliability, -v.reliability},
		{"quota", v.quota, v.quota},
		{"geo", indicator(v.outside), indicator(v.outside)},
		{"quality", v.quality, -v.quality},
	}
}

type axis struct {
	name  string
	value float64
	key   float64
}

// AxisOrder is the order that one axis alone would have: the gradient is one of
// these per axis, beside the scalarised order that the chain has.
type AxisOrder struct {
	Axis    string           `json:"axis"`
	Options []chain.OptionID `json:"options"` // the best first; equals by id
}

// gradient gives the order of options per axis at the operating point: with the
// figures that the scalarised order was made of.
func gradient(list []*placed) []AxisOrder {
	if len(list) == 0 {
		return nil
	}
	keys := make(map[*placed][]axis, len(list))
	for _, p := range list {
		keys[p] = p.values.axes()
	}
	var out []AxisOrder
	for i, a := range keys[list[0]] {
		sorted := slices.Clone(list)
		slices.SortFunc(sorted, func(p, q *placed) int {
			return cmp.Or(cmp.Compare(keys[p][i].key, keys[q][i].key), cmp.Compare(p.c.Option.ID, q.c.Option.ID))
		})
		o := AxisOrder{Axis: a.name}
		for _, p := range sorted {
			o.Options = append(o.Options, p.c.Option.ID)
		}
		out = append(out, o)
	}
	return out
}

// ranked gives a verdict for each of the options, which compete with each other,
// with its rank per axis and whether it is on the Pareto front.
func ranked(list []*placed) []Verdict {
	out, keys := make([]Verdict, len(list)), make([][]axis, len(list))
	for i, p := range list {
		keys[i] = p.values.axes()
	}
	for i := range list {
		mine := keys[i]
		ranks := make([]int, len(mine))
		out[i].Pareto = true
		for _, theirs := range keys {
			worse, better := false, false // is i, compared with them
			for a := range theirs {
				switch {
				case theirs[a].key < mine[a].key:
					ranks[a]++
					worse = true
				case theirs[a].key > mine[a].key:
					better = true
				}
			}
			if worse && !better {
				out[i].Pareto = false
			}
		}
		for a := range mine {
			out[i].Axes = append(out[i].Axes, Axis{mine[a].name, mine[a].value, ranks[a] + 1})
		}
	}
	return out
}
