package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// figure is what one target did in one round.
type figure struct {
	asked  int
	failed int
	last   error
	p50    float64 // milliseconds
	rate   float64 // answers a second
	cpu    float64 // processor seconds per 10,000 answers; NaN where unknown
	memory float64 // MiB that the process held at the end; NaN where unknown
}

// compare drives all targets in turn, round after round, and returns the
// figures as [round][target]. Every second round has the order reversed, so
// that none always comes after the same other.
func compare(ctx context.Context, targets []target, s shape, rounds int, slice time.Duration) ([][]figure, error) {
	crowds := make([]*crowd, len(targets))
	for i, t := range targets {
		crowds[i] = newCrowd(t, s)
		defer crowds[i].close()
		if warm := crowds[i].drive(ctx, during(slice/4)); len(warm.took) == 0 && warm.last != nil {
			return nil, fmt.Errorf("%s answers nothing: %w", t.name, warm.last)
		}
	}
	figures := make([][]figure, rounds)
	for r := range rounds {
		figures[r] = make([]figure, len(targets))
		order := make([]int, len(targets))
		for i := range order {
			order[i] = i
		}
		if r%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			figures[r][i] = measure(ctx, targets[i], crowds[i], slice)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return figures, nil
}

func measure(ctx context.Context, t target, c *crowd, slice time.Duration) figure {
	before, start := processorTime(t.pid), time.Now()
	got := c.drive(ctx, during(slice))
	elapsed, used := time.Since(start), processorTime(t.pid)-before
	f := figure{asked: len(got.took) + got.failed, failed: got.failed, last: got.last, cpu: math.NaN(), memory: memoryOf(t.pid)}
	if n := len(got.took); n > 0 {
		f.p50 = float64(got.took[n/2]) / float64(time.Millisecond)
		f.rate = float64(n) / elapsed.Seconds()
		f.cpu = used / float64(n) * 10_000
	}
	return f
}

// faults names every target that failed a request.
func faults(targets []target, figures [][]figure) error {
	var out error
	for i, t := range targets {
		failed, asked := 0, 0
		var last error
		for _, round := range figures {
			failed += round[i].failed
			asked += round[i].asked
			if round[i].last != nil {
				last = round[i].last
			}
		}
		if failed > 0 {
			words := ""
			if t.words != nil {
				words = "; its log ends with: " + t.words()
			}
			out = errors.Join(out, fmt.Errorf("%s failed %d of %d requests, one of them: %w%s", t.name, failed, asked, last, words))
		}
	}
	return out
}

// median of the rounds' values, without those that are unknown.
func median(rounds [][]figure, value func(round []figure) float64) float64 {
	var v []float64
	for _, round := range rounds {
		if x := value(round); !math.IsNaN(x) && !math.IsInf(x, 0) {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Places of the targets that ratios refer to.
const (
	straight = 0
	leanest  = 1
	reverse  = 2
	edge     = 3
	peer     = 4 // the edge of a device, whose work another does
	duties   = 5 // a proxy with the duties of the edge, where one was named
)

// printTable prints one line per target. A ratio is taken within a round and
// the median of the rounds shown: rounds differ more than targets do.
func printTable(out io.Writer, s shape, targets []target, rounds [][]figure) {
	fmt.Fprintf(out, "%s (median of %d rounds)\n", s, len(rounds))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tp50 ms\t/straight\t/lean\t/reverse\tadded ms\tadded/lean\tanswers/s\tcpu s/10k\tcpu/lean\tMiB\t")
	for i, t := range targets {
		p50 := func(over int) float64 {
			return median(rounds, func(r []figure) float64 { return r[i].p50 / r[over].p50 })
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", t.name,
			number(median(rounds, func(r []figure) float64 { return r[i].p50 })),
			ratio(p50(straight)), ratio(p50(leanest)), ratio(p50(reverse)),
			number(median(rounds, func(r []figure) float64 { return added(r, i) })),
			ratio(median(rounds, func(r []figure) float64 { return share(added(r, i), added(r, leanest)) })),
			number(median(rounds, func(r []figure) float64 { return r[i].rate })),
			number(median(rounds, func(r []figure) float64 { return r[i].cpu })),
			ratio(median(rounds, func(r []figure) float64 { return r[i].cpu / r[leanest].cpu })),
			number(median(rounds, func(r []figure) float64 { return r[i].memory })))
	}
	w.Flush()
	fmt.Fprintln(out)
}

// added is what target i adds to the straight way, in one round.
func added(r []figure, i int) float64 { return r[i].p50 - r[straight].p50 }

// share is a over b, and unknown where noise ate b: a round in which the lean
// proxy seems to be no slower than no proxy says nothing.
func share(a, b float64) float64 {
	if b <= 0 {
		return math.NaN()
	}
	return a / b
}

func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func ratio(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.2fx", v)
}
