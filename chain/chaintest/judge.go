package chaintest

import "slices"

// Orders calls visit with every order of n things, in lexical order, until visit
// returns false. The slice is reused.
func Orders(n int, visit func(order []int) bool) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	for visit(order) && next(order) {
	}
}

// next makes the following permutation; false after the last one.
func next(order []int) bool {
	i := len(order) - 2
	for i >= 0 && order[i] >= order[i+1] {
		i--
	}
	if i < 0 {
		return false
	}
	j := len(order) - 1
	for order[j] <= order[i] {
		j--
	}
	order[i], order[j] = order[j], order[i]
	slices.Reverse(order[i+1:])
	return true
}

// Best gives the order of n things with the least cost, the first of equals, by
// looking at all of them. Use it up to n = 8.
func Best(n int, cost func(order []int) float64) (best []int, least float64) {
	Orders(n, func(order []int) bool {
		if c := cost(order); best == nil || c < least {
			best, least = slices.Clone(order), c
		}
		return true
	})
	return best, least
}
