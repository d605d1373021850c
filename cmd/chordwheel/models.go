package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
)

// modelRow is one option of a chain that the device holds.
type modelRow struct {
	Model     chain.OptionID  `json:"model"` // what an application asks for
	Kind      chain.Kind      `json:"kind"`
	Scope     chain.ScopeID   `json:"scope"`
	Primitive chain.Primitive `json:"primitive"`
	Place     int             `json:"place"`                    // in the order in which the device would try them now, from 1
	Input     chain.MicroUSD  `json:"input_per_mtok,omitempty"` // micro-dollars
	Output    chain.MicroUSD  `json:"output_per_mtok,omitempty"`
	Call      chain.MicroUSD  `json:"per_call,omitempty"`
	Context   int             `json:"context_tokens,omitempty"`
	Latency   chain.Millis    `json:"latency_ms,omitempty"`
	Usable    bool            `json:"usable"`
	Why       chain.Class     `json:"why,omitempty"`  // why not
	Keys      []string        `json:"keys,omitempty"` // their names
	Until     *time.Time      `json:"until,omitempty"`
}

func (a *app) models() *cobra.Command {
	return &cobra.Command{
		Use:   "models",
		Short: "List what this device can answer with, and at what price",
		Long: `List the options of the chains that the running device holds, in the order in which it
would try them now. An application that asks for the model auto gets the first that
does; it may also name one. What cannot be used now says why. Prices are in US dollars.`,
		Example: "  chordwheel models\n  chordwheel models --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			n, err := a.device(c.Context())
			if err != nil {
				return err
			}
			_, views, err := n.chains(c.Context())
			if err != nil {
				return err
			}
			rows := modelRows(views)
			return a.print(map[string][]modelRow{"models": rows}, func(w io.Writer) { a.writeModels(w, rows) })
		},
	}
}

// chains reads the status of a running device and each chain that it holds.
func (n *node) chains(ctx context.Context) (s control.Status, views []control.ChainView, err error) {
	if err := n.get(ctx, "/api/v1/status", &s); err != nil {
		return s, nil, err
	}
	for _, summary := range s.Chains {
		var v control.ChainView
		if err := n.get(ctx, query("/api/v1/chain", chain.Slot{Scope: summary.Scope, Primitive: summary.Primitive}), &v); err != nil {
			return s, nil, err
		}
		views = append(views, v)
	}
	return s, views, nil
}

func modelRows(views []control.ChainView) []modelRow {
	rows := []modelRow{}
	for _, v := range views {
		for i, o := range v.Options {
			rows = append(rows, modelRow{Model: o.ID, Kind: o.Kind, Scope: v.Head.Scope, Primitive: v.Head.Primitive, Place: i + 1, Input: o.Cost.InputPerMtok, Output: o.Cost.OutputPerMtok, Call: o.Cost.PerCall,
				Context: o.Limits.Context, Latency: o.Cost.Latency, Usable: o.Usable, Why: o.Why, Keys: o.Keys, Until: o.Until})
		}
	}
	return rows
}

func (a *app) writeModels(w io.Writer, rows []modelRow) {
	var lines [][]string
	for _, r := range rows {
		can := a.paint(green, "usable")
		if !r.Usable {
			can = string(r.Why)
			switch r.Why {
			case chain.KeyMissing:
				can += ": chordwheel keys set " + strings.Join(r.Keys, " or ")
			case chain.Denied:
				can += ": its agent is not active in the registry"
			}
			can = a.paint(yellow, can)
		}
		lines = append(lines, []string{string(r.Scope), string(r.Primitive), string(r.Model), r.price(), can})
	}
	a.rows(w, []string{"scope", "primitive", "model", "price in, out per Mtok", ""}, lines)
	if len(lines) == 0 {
		fmt.Fprintln(w, "this device holds no chain yet; chordwheel doctor says what is missing")
	}
}

// price is what a row costs, for people.
func (r *modelRow) price() string {
	switch {
	case r.Kind == chain.Peer:
		return "the peer's"
	case r.Input == 0 && r.Output == 0 && r.Call == 0 && r.Kind == chain.Local:
		return "none"
	case r.Input == 0 && r.Output == 0 && r.Call == 0:
		return "none declared"
	}
	text := fmt.Sprintf("$%.2f, $%.2f", float64(r.Input)/1e6, float64(r.Output)/1e6)
	if r.Call > 0 {
		text += " and " + dollarsOf(int64(r.Call)) + " a call"
	}
	return text
}
