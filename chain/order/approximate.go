package order

import "slices"

// passes bounds the improvement: each goes once over all options. It ends
// earlier when a pass finds nothing, which it nearly always does after two or three.
const passes = 16

// scratch is the room of the approximation, by place in an order.
type scratch struct {
	list    []int
	product []float64
	without []float64 // fail of the first k of the others
	with    []float64 // the same and the option that is moved
	before  []float64 // cost of the first k of the others
	after   []float64 // cost of the others from k on, once the option was tried
	others  []int     // places of the others
	kept    []int     // the first result
}

// approximate starts from two greedy orders and improves each: one by the
// posterior index, one by what an option would cost if it were the last (which
// is what counts when the cap is short). The cheaper result stands, the first
// one in a tie.
func (s *Solver) approximate(list []int) {
	first := s.improved(list, (*Solver).indexNow)
	s.kept = append(s.kept[:0], list...)
	second := s.improved(list, (*Solver).lastNow)
	if !(second < first-float64(tie*abs(first))) {
		copy(list, s.kept)
	}
}

// indexNow is the index of an option that succeeds with probability p now.
func (s *Solver) indexNow(o int, p float64) float64 {
	p = max(p, MinP*MinP)
	return (float64(p*s.sorted[o].S) + float64((1-p)*s.sorted[o].F)) / p
}

// lastNow is its expected cost with nothing after it.
func (s *Solver) lastNow(o int, p float64) float64 {
	return float64(p*s.sorted[o].S) + float64((1-p)*(s.sorted[o].F+s.m.Exhausted))
}

// improved orders list greedily by the least key, then moves one option at a time
// to where it lowers the expected cost most, until none does. It returns the
// expected cost.
func (s *Solver) improved(list []int, key func(s *Solver, o int, p float64) float64) float64 {
	m := &s.m
	w := m.startIn(&s.product)
	for at := range m.cap {
		pick, least := at, 0.0
		for j := at; j < len(list); j++ {
			o := list[j]
			k := key(s, o, w.posterior(o))
			if j == at || k < least || k == least && o < list[pick] {
				pick, least = j, k
			}
		}
		list[at], list[pick] = list[pick], list[at]
		w.take(list[at])
	}
	s.sortByIndex(list[m.cap:])
	for range passes {
		moved := false
		for o := range list {
			moved = s.insert(list, o) || moved
		}
		s.sortByIndex(list[m.cap:])
		if !moved {
			break
		}
	}
	total := 0.0
	w = m.startIn(&s.product)
	for _, o := range list[:m.cap] {
		total += w.take(o).Cost
	}
	return total + float64(w.reach*m.Exhausted)
}

// insert moves option o to the place where the order costs least, and reports
// whether that is another place. That all of a set fails does not depend on the
// order within it, so the costs of all places come out of two sums.
func (s *Solver) insert(list []int, o int) bool {
	m, n := &s.m, len(list)
	at := slices.Index(list, o)
	others := append(append(s.others[:0], list[:at]...), list[at+1:]...)
	s.others = others
	s.without, s.with = room(s.without, m.cap+1), room(s.with, m.cap+1)
	s.before, s.after = room(s.before, m.cap+1), room(s.after, m.cap+1)
	s.sums(others, o)

	S, F := s.sorted[o].S, s.sorted[o].F
	cost := func(k int) float64 {
		if k >= m.cap { // not tried
			return s.before[m.cap] + float64(s.without[m.cap]*m.Exhausted)
		}
		return s.before[k] + float64((s.without[k]-s.with[k])*S) + float64(s.with[k]*F) + s.after[k]
	}
	to := min(at, m.cap)
	least := cost(to)
	for k := 0; k <= min(m.cap, n-1); k++ {
		if c := cost(k); c < least-float64(tie*abs(least)) {
			to, least = k, c
		}
	}
	if to == min(at, m.cap) {
		return false
	}
	copy(list, others[:to])
	list[to] = o
	copy(list[to+1:], others[to:])
	return true
}

// sums fills the sums of the others for option o.
func (s *Solver) sums(others []int, o int) {
	m := &s.m
	w := m.startIn(&s.product)
	s.before[0] = 0
	last := min(m.cap, len(others)) // of the others, this many can be tried without o
	for k := 0; ; k++ {
		s.without[k] = w.reach
		s.with[k] = float64(w.reach * (1 - w.posterior(o)))
		if k == last {
			break
		}
		s.before[k+1] = s.before[k] + w.take(others[k]).Cost
	}
	tried := m.cap - 1 // with o
	s.after[tried] = float64(s.with[tried] * m.Exhausted)
	for k := tried - 1; k >= 0; k-- {
		x := &s.sorted[others[k]]
		s.after[k] = s.after[k+1] + float64((s.with[k]-s.with[k+1])*x.S) + float64(s.with[k+1]*x.F)
	}
}

// startIn is start with the caller's room.
func (m *model) startIn(product *[]float64) walk {
	*product = room(*product, len(m.q))
	for d := range *product {
		(*product)[d] = 1
	}
	return walk{m: m, reach: 1, product: *product}
}
