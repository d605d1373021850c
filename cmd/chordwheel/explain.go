package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// writeExplanation says why a chain is as it is: the order, each option's part in
// it and who put it there, the orders that single axes would have, and what a
// protest would bring.
func (a *app) writeExplanation(w io.Writer, e orchestrator.Explanation) {
	fmt.Fprintf(w, "%s %s  (order: %s, %s)\n", e.Slot.Scope, e.Slot.Primitive, orderOf(e), count(e.Members, "device"))
	fmt.Fprintf(w, "  expected cost of an answer: %.0f micro-dollars, for %.0f tokens in and %.0f out\n", e.Expected, e.Profile.InputTokens, e.Profile.OutputTokens)
	if e.NoChain != "" {
		fmt.Fprintln(w, a.paint(yellow, "  nothing is published: "+e.NoChain))
	}
	fmt.Fprintln(w)
	var lines [][]string
	for _, v := range e.Why {
		place := "—"
		if v.Position > 0 {
			place = strconv.Itoa(v.Position)
		}
		status := string(v.Status)
		if v.Status != resolve.In {
			status = a.paint(yellow, status)
		}
		lines = append(lines, []string{place, string(v.Option), status, fmt.Sprintf("%.3f", v.P), fmt.Sprintf("%.0f", v.S), fmt.Sprintf("%.0f", v.F), fmt.Sprintf("%.0f", v.Index), strings.Join(v.Reasons, "; ")})
	}
	a.rows(w, []string{"", "option", "", "p", "s", "f", "index", "because"}, lines)
	for _, v := range e.Why {
		writeVerdict(w, v)
	}
	if len(e.Gradient) > 0 {
		fmt.Fprintln(w)
		var axes [][]string
		for _, g := range e.Gradient {
			axes = append(axes, []string{g.Axis, join(g.Options)})
		}
		a.rows(w, []string{"axis", "order by it alone"}, axes)
	}
	a.writeEscalation(w, e)
}

// orderOf names the mode, and how a learned order was found.
func orderOf(e orchestrator.Explanation) string {
	if e.Method == "" {
		return string(e.Mode)
	}
	return string(e.Mode) + ", " + map[string]string{"index": "exact by index", "exact": "exact", "approximate": "approximate"}[string(e.Method)]
}

// writeVerdict gives every number behind one option's place.
func writeVerdict(w io.Writer, v resolve.Verdict) {
	fmt.Fprintf(w, "\n%s\n", v.Option)
	for _, part := range []struct {
		name  string
		terms []resolve.Term
	}{{"s", v.Success}, {"f", v.Failure}} {
		for _, t := range part.terms {
			fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %s  %-10s %8.0f  %s", part.name, t.Name, t.Value, t.Of), " "))
		}
	}
	for _, s := range v.Seeds {
		fmt.Fprintf(w, "  listed on tier %s by %s: place %d of %d\n", s.Tier, s.Source, s.Place, s.Of)
	}
	if v.Trend != "" {
		line := "  trend: " + v.Trend
		if v.Sought > 0 {
			line += fmt.Sprintf("; its place would change, so up to %d probes a day are sought of the devices", v.Sought)
		}
		fmt.Fprintln(w, line)
	}
	if v.Status == resolve.In {
		switch {
		case v.Reach == 0:
			fmt.Fprintln(w, "  past the attempt cap")
		case v.Posterior < v.P-1e-9:
			fmt.Fprintf(w, "  tried by %.4g %% of requests, then succeeds with %.3f: %s has failed before\n", v.Reach*100, v.Posterior, v.Domain)
		default:
			fmt.Fprintf(w, "  tried by %.4g %% of requests\n", v.Reach*100)
		}
	}
	var ranks []string
	for _, x := range v.Axes {
		ranks = append(ranks, fmt.Sprintf("%s %d", x.Name, x.Rank))
	}
	if len(ranks) > 0 {
		front := ""
		if v.Pareto {
			front = "; on the Pareto front"
		}
		fmt.Fprintf(w, "  rank: %s%s\n", strings.Join(ranks, ", "), front)
	}
}

// writeEscalation says what protests bring, and how often they come.
func (a *app) writeEscalation(w io.Writer, e orchestrator.Explanation) {
	if len(e.Escalation.Next) > 0 {
		fmt.Fprintf(w, "\na protest brings %s  (%d answers computed ahead, depth %d)\n", join(e.Escalation.Next), e.Escalation.Nodes, e.Escalation.Depth)
	}
	if p := e.Published; p != nil && p.Protests.Requests > 0 {
		line := fmt.Sprintf("%s %% of about %.0f requests protested, target %s %%", figures(p.Protests.Rate.Share()*100, 2), p.Protests.Requests, figures(p.Protests.Target.Share()*100, 2))
		if p.Protests.Above {
			line = a.paint(yellow, line+": above it")
		}
		fmt.Fprintln(w, line)
	}
}
