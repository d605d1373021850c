package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/apps"
	"github.com/chordwheel/chordwheel/daemon/control"
)

func (a *app) apps() *cobra.Command {
	c := &cobra.Command{
		Use:   "apps",
		Short: "Give applications keys of their own, with limits",
		Long: `Each application gets a key for the edge, and may have a scope, models that it may
use, requests a minute, and a monthly budget. The device keeps a hash of the key
only. The edge's own key has none of these limits.`,
		Example: "  chordwheel apps add notes --model 'groq/*' --rate 30 --budget 5\n  chordwheel apps list",
		Args:    verb,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.appsAdd(),
		&cobra.Command{Use: "list", Short: "List the applications and what they may do", Example: "  chordwheel apps list", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
			return a.appsList(c.Context())
		}},
		&cobra.Command{Use: "rm NAME", Short: "Take an application's key away, at once", Example: "  chordwheel apps rm webui", Args: cobra.ExactArgs(1), RunE: func(c *cobra.Command, args []string) error {
			n, err := a.device(c.Context())
			if err != nil {
				return err
			}
			if err := n.call(c.Context(), http.MethodDelete, "/api/v1/apps/"+url.PathEscape(args[0]), nil, nil); err != nil {
				return err
			}
			return a.print(map[string]string{"removed": args[0]}, func(w io.Writer) { fmt.Fprintf(w, "application %s is removed\n", args[0]) })
		}},
	)
	return c
}

func (a *app) appsAdd() *cobra.Command {
	var question control.App
	var scope string
	var dollars float64
	c := &cobra.Command{
		Use:     "add NAME",
		Short:   "Make a key for an application and print it, this once",
		Example: "  chordwheel apps add notes --model 'groq/*' --model local/ollama/qwen2.5:7b --rate 30 --budget 5",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if !(dollars >= 0 && dollars <= 1e6) {
				return usage("--budget: want 0 to 1000000 dollars a month")
			}
			question.Name, question.Scope, question.Budget = args[0], chain.ScopeID(scope), int64(math.Round(dollars*1e6))
			n, err := a.device(c.Context())
			if err != nil {
				return err
			}
			var made control.App
			if err := n.call(c.Context(), http.MethodPost, "/api/v1/apps", question, &made); err != nil {
				return err
			}
			return a.print(made, func(w io.Writer) {
				fmt.Fprintln(w, made.Key)
				fmt.Fprintln(a.err, "keep it: it is not shown again")
			})
		},
	}
	c.Flags().StringVar(&scope, "scope", "", "`SCOPE` that its work is done for (default: the device's first)")
	c.Flags().StringArrayVar(&question.Models, "model", nil, "`PATTERN` of models it may use, such as groq/*; repeatable (default: all)")
	c.Flags().IntVar(&question.Rate, "rate", 0, "most requests `N` a minute (default: any)")
	c.Flags().Float64Var(&dollars, "budget", 0, "most `DOLLARS` in a calendar month, UTC (default: any)")
	return c
}

func (a *app) appsList(ctx context.Context) error {
	n, err := a.device(ctx)
	if err != nil {
		return err
	}
	var answer struct {
		Apps []control.App `json:"apps"`
	}
	if err := n.get(ctx, "/api/v1/apps", &answer); err != nil {
		return err
	}
	return a.print(answer, func(w io.Writer) {
		var lines [][]string
		for _, v := range answer.Apps {
			budget := "any"
			if v.Budget > 0 {
				budget = dollarsOf(v.Spent) + " of " + dollarsOf(v.Budget)
			}
			lines = append(lines, []string{v.Name, cmp.Or(string(v.Scope), "the device's first"), orAny(strings.Join(v.Models, " ")), orAny(strings.TrimPrefix(strconv.Itoa(v.Rate), "0")), budget})
		}
		a.rows(w, []string{"name", "scope", "models", "requests/min", "this month"}, lines)
		if len(lines) == 0 {
			fmt.Fprintln(w, "there are no applications; add one with: chordwheel apps add NAME")
		}
	})
}

func orAny(s string) string {
	if s == "" {
		return "any"
	}
	return s
}

func dollarsOf(micro int64) string { return fmt.Sprintf("$%.4f", float64(micro)/1e6) }

func (a *app) usage() *cobra.Command {
	days := 30
	c := &cobra.Command{
		Use:     "usage",
		Short:   "Show what applications used: by day, application and model",
		Long:    "Counts, tokens and money of this device's own requests. No content is kept anywhere.",
		Example: "  chordwheel usage --days 7",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			n, err := a.device(c.Context())
			if err != nil {
				return err
			}
			var answer struct {
				Usage []apps.Row `json:"usage"`
			}
			if err := n.get(c.Context(), "/api/v1/usage?days="+strconv.Itoa(days), &answer); err != nil {
				return err
			}
			return a.print(answer, func(w io.Writer) {
				var lines [][]string
				for _, r := range answer.Usage {
					name, model := r.App, r.Model
					if name == "" {
						name = "(edge key)"
					}
					if model == "" {
						model = "(no answer)"
					}
					lines = append(lines, []string{r.Day, name, model, fmt.Sprint(r.Requests), fmt.Sprint(r.Failed), fmt.Sprint(r.Input), fmt.Sprint(r.Output), dollarsOf(r.Money)})
				}
				a.rows(w, []string{"day", "application", "model", "requests", "failed", "tokens in", "out", "money"}, lines)
				if len(lines) == 0 {
					fmt.Fprintln(w, "nothing was used in these days")
				}
			})
		},
	}
	c.Flags().IntVar(&days, "days", days, "how many days `N`, today included; at most 400")
	return c
}
