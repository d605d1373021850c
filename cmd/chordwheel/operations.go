package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator"
)

func (a *app) operations() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "operations",
		Short: "Show what passed between the hub and its devices lately",
		Long: `Show the hub's operations log, the oldest first: hellos, reports, fetches, protests,
and what became of each, refusals too. It lives in memory and holds no content.`,
		Example: "  chordwheel operations\n  chordwheel operations --limit 1000 --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 || limit > 1000 {
				return usage("--limit must be 1 to 1000, is %d", limit)
			}
			n, err := a.hubNode(c.Context())
			if err != nil {
				return err
			}
			var v struct {
				Operations []orchestrator.Operation `json:"operations"`
			}
			if err := n.get(c.Context(), "/api/v1/operations?limit="+strconv.Itoa(limit), &v); err != nil {
				return err
			}
			return a.print(v, func(w io.Writer) {
				if len(v.Operations) == 0 {
					fmt.Fprintln(w, "nothing has passed since the hub started")
				}
				var lines [][]string
				for _, o := range v.Operations {
					outcome := a.paint(green, o.Outcome)
					if o.Outcome != "ok" {
						outcome = a.paint(yellow, o.Outcome)
					}
					way := map[string]string{"in": "←", "out": "→"}[o.Direction]
					lines = append(lines, []string{o.At.Time().Format("15:04:05.000"), way, nameOr(o.Device, o.Peer), o.Kind, o.Slot, strconv.Itoa(o.Bytes), outcome, chain.ClipTo(o.Detail, 160)})
				}
				a.rows(w, []string{"time (UTC)", "", "device", "what", "slot", "bytes", "outcome", "detail"}, lines)
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", 100, "how many `N` at most")
	return c
}
