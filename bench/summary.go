package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// summary is all that one wants to know of the edge, in one table.
type summary struct {
	shapes  []shape
	rounds  [][][]figure // of each shape
	streams int          // sent to see whether one is cut; 0: none
	cut     int
	walk    *attempt // nil where it was not measured
	exec    []execFigures

	duties      string // the proxy that the edge was compared with, "" for none
	inlet       [][][]figure
	inletShapes []shape
	outlet      []outletFigure
}

func (s *summary) add(of shape, rounds [][]figure) {
	s.shapes, s.rounds = append(s.shapes, of), append(s.rounds, rounds)
}

// print writes the table. As everywhere, a ratio is taken within a round, and
// the median of the rounds is shown.
func (s *summary) print(out io.Writer) {
	fmt.Fprintln(out, "the edge, all in one")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tp50 /straight\t/lean\t/reverse\tadded/lean\tcpu s/10k\tcpu/lean")
	for i, rounds := range s.rounds {
		over := func(of int) string {
			return ratio(median(rounds, func(r []figure) float64 { return r[edge].p50 / r[of].p50 }))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.shapes[i], over(straight), over(leanest), over(reverse),
			ratio(median(rounds, func(r []figure) float64 { return addedOverLean(r, edge) })),
			number(median(rounds, func(r []figure) float64 { return r[edge].cpu })),
			ratio(median(rounds, func(r []figure) float64 { return r[edge].cpu / r[leanest].cpu })))
	}
	w.Flush()
	fmt.Fprintln(out, "through a peer: one device's edge, another device's work")
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tp50 /straight\t/edge\tcpu/edge")
	for i, rounds := range s.rounds {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.shapes[i],
			ratio(median(rounds, func(r []figure) float64 { return r[peer].p50 / r[straight].p50 })),
			ratio(median(rounds, func(r []figure) float64 { return r[peer].p50 / r[edge].p50 })),
			ratio(median(rounds, func(r []figure) float64 { return r[peer].cpu / r[edge].cpu })))
	}
	w.Flush()
	s.printDuties(out)
	for _, e := range s.exec {
		fmt.Fprintln(out, e)
	}
	if s.streams > 0 {
		fmt.Fprintf(out, "streams cut, of %d through the edge: %d\n", s.streams, s.cut)
	}
	if s.walk != nil {
		fmt.Fprintf(out, "the walk, for each attempt: %.0f ns, %d allocations\n", s.walk.nanoseconds, s.walk.allocations)
	}
}

// addedOverLean compares what target i adds to the straight way with what the
// lean proxy adds, both in the same round.
func addedOverLean(r []figure, i int) float64 {
	return added(r, i) / added(r, leanest)
}
