package resolve

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

// rank fills in the gradient of options that compete with each other: the rank
// of each per axis, and the Pareto front.
func rank(options []*placed) {
	for _, p := range options {
		p.Pareto = true
		mine := p.values.axes()
		ranks := make([]int, len(mine))
		for _, q := range options {
			worse, better := false, false // is p, compared with q
			for i, theirs := range q.values.axes() {
				switch {
				case theirs.key < mine[i].key:
					ranks[i]++
					worse = true
				case theirs.key > mine[i].key:
					better = true
				}
			}
			if worse && !better {
				p.Pareto = false
			}
		}
		for i, a := range mine {
			p.Axes = append(p.Axes, Axis{a.name, a.value, ranks[i] + 1})
		}
	}
}
