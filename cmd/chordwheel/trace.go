package main

import (
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
)

func (a *app) trace() *cobra.Command {
	return &cobra.Command{
		Use:   "trace [REQUEST_ID]",
		Short: "Show what became of a request: each attempt, who ran it, and how long it took",
		Long: `Show what became of a request on this device, or of the last 256. A request that was
handed on to another device has a trace there too, under the same ID. The ID stands in an
answer's X-Chordwheel-Request-Id header. Traces are kept in memory, and hold nothing of
what was asked or answered.`,
		Example: "  chordwheel trace\n  chordwheel trace req-BTFXGMBWJ447ADVFN66CKMWW6E --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.device(c.Context())
			if err != nil {
				return err
			}
			path := "/api/v1/traces"
			if len(args) == 1 {
				path += "?request=" + url.QueryEscape(args[0])
			}
			var v struct {
				Traces []control.Trace `json:"traces"`
			}
			if err := n.get(c.Context(), path, &v); err != nil {
				return err
			}
			if len(args) == 1 && len(v.Traces) == 0 {
				return fmt.Errorf("no request %q is remembered here; chordwheel trace lists the last ones, chordwheel receipts list all", chain.ClipTo(args[0], 96))
			}
			return a.print(v, func(w io.Writer) { a.writeTraces(w, v.Traces, len(args) == 1) })
		},
	}
}

func (a *app) writeTraces(w io.Writer, traces []control.Trace, whole bool) {
	if len(traces) == 0 {
		fmt.Fprintln(w, "no request has ended since this device started")
		return
	}
	if !whole {
		var lines [][]string
		for _, t := range traces {
			lines = append(lines, []string{t.Began.Local().Format("15:04:05"), t.RequestID, string(t.Primitive), whose(t), a.ended(t.End), string(t.Option), strconv.Itoa(len(t.Attempts)), millis(t.Took)})
		}
		a.rows(w, []string{"began", "request", "primitive", "for", "", "option", "attempts", "took"}, lines)
		return
	}
	for i, t := range traces {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s  %s %s, for %s: %s after %s\n\n", t.RequestID, t.Scope, t.Primitive, whose(t), a.ended(t.End), millis(t.Took))
		switch {
		case t.Why != "":
			fmt.Fprintf(w, "  nothing was tried: %s\n", t.Why)
		case len(t.Attempts) == 0:
			fmt.Fprintln(w, "  nothing was tried; what can be: chordwheel models")
		}
		for _, f := range t.PassedOver {
			why := ""
			if f.Why != "" {
				why = " (" + f.Why + ")"
			}
			fmt.Fprintf(w, "  passed over: %s, %s%s\n", f.Option, f.Class, why)
		}
		var lines [][]string
		for k, x := range t.Attempts {
			by := "this device"
			if x.Peer != "" {
				by = chain.ClipTo(x.Name, 32) + " " + string(x.Peer)
			}
			lines = append(lines, []string{strconv.Itoa(k + 1), string(x.Option), by, string(x.Class), millis(x.FirstOutput), millis(x.Took)})
		}
		a.rows(w, []string{"", "option", "run by", "", "first output", "took"}, lines)
		if t.Transaction != "" { // a device of an older version says none
			fmt.Fprintf(w, "\n  receipt  chordwheel receipts show %s\n", chain.ClipTo(t.Transaction, 96))
		}
	}
}

func whose(t control.Trace) string {
	if t.For == "" {
		return "itself"
	}
	return chain.ClipTo(t.ForName, 32)
}

func (a *app) ended(end string) string {
	if end == "answered" {
		return a.paint(green, end)
	}
	return a.paint(yellow, end)
}
