package order

import (
	"cmp"
	"math/bits"
	"slices"
)

// Method says how an order was found.
type Method string

// Methods. All but Approximate are optimal.
const (
	ByIndex     Method = "index"       // independent options, no cap that bites: ascending index
	Exact       Method = "exact"       // dynamic program over subsets
	Approximate Method = "approximate" // greedy by posterior, improved by insertion
)

// Solver finds best orders. The zero value is ready; it keeps its room between
// calls and is not safe for concurrent use.
type Solver struct {
	m      model
	sorted []Option
	from   []int // where sorted came from
	fail   []float64
	value  []float64
	choice []uint8
	scratch
}

// Best gives the order with the least expected cost, as places in options.
// Options past the cap follow by index. Ties go to the lower id, so that the
// result does not depend on the order of options; ids are unique. The result is
// valid until the next call.
func (s *Solver) Best(options []Option, t Terms) ([]int, Method) {
	s.from = s.from[:0]
	for i := range options {
		s.from = append(s.from, i)
	}
	slices.SortFunc(s.from, func(a, b int) int { return cmp.Compare(options[a].ID, options[b].ID) })
	s.sorted = s.sorted[:0]
	for _, i := range s.from {
		s.sorted = append(s.sorted, options[i])
	}
	s.m.Terms = t
	s.m.load(s.sorted)
	list, method := s.solve()
	for i, at := range list {
		list[i] = s.from[at]
	}
	return list, method
}

func (s *Solver) solve() ([]int, Method) {
	n := len(s.sorted)
	list := s.list[:0]
	for i := range n {
		list = append(list, i)
	}
	s.list = list
	switch {
	case !s.m.shared && s.m.cap == n:
		s.sortByIndex(list)
		return list, ByIndex
	case n <= MaxExact:
		s.exact(list)
		return list, Exact
	}
	s.approximate(list)
	return list, Approximate
}

// sortByIndex sorts places in s.sorted.
func (s *Solver) sortByIndex(list []int) {
	slices.SortFunc(list, func(a, b int) int { return byIndex(&s.sorted[a], &s.sorted[b]) })
}

// tie is the relative difference below which two orders cost the same: what is
// left of equal sums after rounding.
const tie = 1e-12

// exact is the dynamic program. fail[S] is the probability that all of the set S
// fails; it does not depend on the order within S, which is why subsets are
// enough. value[S] is what is still to be paid after S was tried, weighed by
// fail[S]: the least over the next option o of
// (fail[S] − fail[S+o])·S_o + fail[S+o]·F_o + value[S+o].
func (s *Solver) exact(list []int) {
	n, m := len(list), &s.m
	size := 1 << n
	s.fail, s.value, s.choice = room(s.fail, size), room(s.value, size), room(s.choice, size)
	s.failures(n)
	for set := size - 1; set >= 0; set-- {
		tried := bits.OnesCount(uint(set))
		if tried > m.cap {
			continue
		}
		if tried == m.cap {
			s.value[set] = float64(s.fail[set] * m.Exhausted)
			continue
		}
		first := true
		for o := range n {
			with := set | 1<<o
			if with == set {
				continue
			}
			g, v := s.fail[with], 0.0
			v = float64((s.fail[set]-g)*s.sorted[o].S) + float64(g*s.sorted[o].F) + s.value[with]
			if first || v < s.value[set]-float64(tie*abs(s.value[set])) {
				s.value[set], s.choice[set], first = v, uint8(o), false
			}
		}
	}
	set := 0
	for i := range m.cap {
		list[i] = int(s.choice[set])
		set |= 1 << list[i]
	}
	rest := list[m.cap:m.cap]
	for o := range n {
		if set&(1<<o) == 0 {
			rest = append(rest, o)
		}
	}
	s.sortByIndex(rest)
}

// failures fills s.fail for the subsets of n options.
func (s *Solver) failures(n int) {
	m := &s.m
	s.fail[0] = 1
	for set := 1; set < 1<<n; set++ {
		d := m.domain[bits.TrailingZeros(uint(set))]
		own := 0
		for rest := set; rest != 0; rest &= rest - 1 {
			if o := bits.TrailingZeros(uint(rest)); m.domain[o] == d {
				own |= 1 << o
			}
		}
		if own != set { // both are smaller numbers, so known
			s.fail[set] = s.fail[own] * s.fail[set&^own]
			continue
		}
		product := 1.0
		for rest := own; rest != 0; rest &= rest - 1 {
			product *= 1 - m.r[bits.TrailingZeros(uint(rest))]
		}
		s.fail[set] = m.down(d, product)
	}
}

func room[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func abs(x float64) float64 {
	if x < 0 {
		return -x
	}
	return x
}
