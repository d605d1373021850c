package order

// Approximated is the approximation where the exact order would be found.
func Approximated(options []Option, t Terms) []int {
	var s Solver
	s.sorted = options // sorted by id
	s.m.Terms = t
	s.m.load(options)
	list := make([]int, len(options))
	for i := range list {
		list[i] = i
	}
	s.approximate(list)
	return list
}
