package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// jobList is how the device answers about jobs.
type jobList struct {
	Jobs []job.Record `json:"jobs"`
}

func (a *app) jobs() *cobra.Command {
	n := 20
	c := &cobra.Command{
		Use:   "jobs",
		Short: "List the hard questions that the pipeline worked on, and show how",
		Long: `List the requests that the pipeline cut into jobs, the newest first, and what providers
over HTTP did beside those. A device goes through its pipeline where its config.yaml
says so (pipeline: {enabled: true}), for questions that are hard enough. Records hold
no word of what was asked or answered.`,
		Example: "  chordwheel jobs\n  chordwheel jobs show QVTK3VBGQ2NEYLSZAIOW3DXOQT",
		Args:    verb,
		RunE: func(c *cobra.Command, _ []string) error {
			if n < 1 || n > job.MaxRoots {
				return usage("--limit must be 1 to %d, is %d", job.MaxRoots, n)
			}
			v, err := a.askJobs(c.Context(), fmt.Sprintf("/api/v1/jobs?n=%d", n))
			if err != nil {
				return err
			}
			return a.print(v, func(w io.Writer) { a.writeJobs(w, v.Jobs, time.Now()) })
		},
	}
	c.Flags().IntVar(&n, "limit", n, "how many `N` at most")
	c.AddCommand(a.jobsShow(), a.jobsProviders())
	return c
}

func (a *app) jobsShow() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show how one was worked on: stages, waves, attempts, hedges, scores, times and costs",
		Long: `Show the jobs of one request of the pipeline, in the order in which they began. ID is
that of the request's job (the X-Chordwheel-Job header of its answer), of one of its
parts, or a request ID. --svg draws when each ran.`,
		Example:           "  chordwheel jobs show QVTK3VBGQ2NEYLSZAIOW3DXOQT\n  chordwheel jobs show req-BTFXGMBWJ447ADVFN66CKMWW6E --svg timeline.svg",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeJob,
		RunE: func(c *cobra.Command, args []string) error {
			v, err := a.askJobs(c.Context(), "/api/v1/jobs/"+url.PathEscape(args[0]))
			if err != nil {
				return err
			}
			if file == "" {
				return a.print(v, func(w io.Writer) { a.writeTree(w, v.Jobs, time.Now()) })
			}
			var b bytes.Buffer
			drawTimeline(&b, v.Jobs, time.Now())
			if file == "-" {
				_, err := a.out.Write(b.Bytes())
				return err
			}
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				return fmt.Errorf("write the timeline: %w", err)
			}
			return a.print(map[string]string{"svg": file}, func(w io.Writer) { fmt.Fprintf(w, "the timeline is in %s\n", file) })
		},
	}
	c.Flags().StringVar(&file, "svg", "", "draw the timeline into `FILE` (\"-\": standard output)")
	return c
}

// providerList is how the device answers about those who work for it over HTTP.
type providerList struct {
	Providers []job.Provider `json:"providers"`
}

func (a *app) jobsProviders() *cobra.Command {
	c := &cobra.Command{
		Use:   "providers",
		Short: "List who works for this device over HTTP, and end one",
		Long: `List the providers that registered with an invitation: what each can run, whether it is
there, and what it did since the start. drop ends one before its 8 days are over.`,
		Example: "  chordwheel jobs providers\n  chordwheel jobs providers drop mfrggzdfmztwq2lknnwg23tpob",
		Args:    verb,
		RunE: func(c *cobra.Command, _ []string) error {
			v, err := a.askProviders(c.Context())
			if err != nil {
				return err
			}
			return a.print(v, func(w io.Writer) { a.writeProviders(w, v.Providers) })
		},
	}
	c.AddCommand(&cobra.Command{
		Use:               "drop ID",
		Short:             "End a provider, at once: its key is of no use from then on",
		Long:              "End a provider, at once: its key is of no use from then on, and the next one gets what it\nwas at. It comes back with a new invitation only.",
		Example:           "  chordwheel jobs providers drop mfrggzdfmztwq2lknnwg23tpob",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeProvider,
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.device(c.Context())
			if err != nil {
				return err
			}
			if err := n.call(c.Context(), http.MethodDelete, "/api/v1/providers/"+url.PathEscape(args[0]), nil, nil); err != nil {
				return err
			}
			return a.print(map[string]string{"dropped": args[0]}, func(w io.Writer) { fmt.Fprintf(w, "provider %s is dropped\n", args[0]) })
		},
	})
	return c
}

func (a *app) askProviders(ctx context.Context) (v providerList, err error) {
	n, err := a.device(ctx)
	if err != nil {
		return v, err
	}
	return v, n.get(ctx, "/api/v1/providers", &v)
}

// completeProvider offers the providers to a shell.
func (a *app) completeProvider(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		v, _ := a.askProviders(c.Context()) // nothing to offer, then
		for _, p := range v.Providers {
			names = append(names, p.ID+"\t"+string(p.Class)+", since "+p.Since.Local().Format("2 Jan 15:04"))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) writeProviders(w io.Writer, list []job.Provider) {
	if len(list) == 0 {
		fmt.Fprintln(w, "nobody works for this device over HTTP; docs/jobs.md says how a provider registers")
		return
	}
	var lines [][]string
	for _, p := range list {
		there := a.paint(yellow, "away")
		if p.Online {
			there = a.paint(green, "online")
		}
		var can []string
		for _, c := range p.Capabilities {
			if primitive, ok := c.Executes(); ok {
				can = append(can, string(primitive))
			}
		}
		lines = append(lines, []string{p.ID, string(p.Class), there, chain.ClipTo(strings.Join(can, ", "), 48), p.Since.Local().Format("2 Jan 15:04"), fmt.Sprint(p.Running), fmt.Sprint(p.Done), fmt.Sprint(p.Failed)})
	}
	a.rows(w, []string{"provider", "class", "", "runs", "since", "running", "done", "failed"}, lines)
}

// askJobs asks the running device.
func (a *app) askJobs(ctx context.Context, path string) (v jobList, err error) {
	n, err := a.device(ctx)
	if err != nil {
		return v, err
	}
	return v, n.get(ctx, path, &v)
}

// completeJob offers the last jobs to a shell.
func (a *app) completeJob(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		v, _ := a.askJobs(c.Context(), "/api/v1/jobs?n=50") // nothing to offer, then
		for _, r := range v.Jobs {
			names = append(names, r.ID+"\t"+classOf(&r)+", "+r.Created.Local().Format("15:04:05"))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) writeJobs(w io.Writer, list []job.Record, now time.Time) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no question went through the pipeline here yet; docs/pipeline.md says how to switch it on")
		return
	}
	var lines [][]string
	for _, r := range list {
		lines = append(lines, []string{r.Created.Local().Format("15:04:05"), r.ID, classOf(&r), a.jobState(&r), scores(&r), took(&r, now), fmt.Sprint(r.Attempts), costs(&r)})
	}
	a.rows(w, []string{"began", "job", "class", "", "score", "took", "attempts", "cost"}, lines)
}

// writeTree shows a request and its jobs, the root first.
func (a *app) writeTree(w io.Writer, tree []job.Record, now time.Time) {
	root := &tree[0]
	state := a.jobState(root)
	if root.Reason != "" {
		state += " (" + chain.ClipTo(root.Reason, 48) + ")"
	}
	fmt.Fprintf(w, "%s  request %s  %s after %s\n\n", root.ID, root.RequestID, state, took(root, now))
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %-12s %s\n", name, value)
		}
	}
	field("class", strings.TrimSuffix(root.Class+": "+strings.Join(root.Reasons, ", "), ": "))
	field("notes", strings.Join(root.Notes, ", "))
	field("score", scores(root))
	field("tokens", tokens(root))
	field("cost", costs(root))
	field("receipts", root.Transaction)
	fmt.Fprintln(w)
	longest := lastEnd(tree, now)
	var lines [][]string
	for _, r := range partsOf(tree) {
		lines = append(lines, []string{label(r), whom(r), a.jobState(r) + because(r), fmt.Sprint(r.Attempts), bar(r, root.Created, longest, now), took(r, now), tokens(r), costs(r)})
	}
	a.rows(w, []string{"job", "run by", "", "attempts", "when", "took", "tokens", "cost"}, lines)
}

// partsOf gives the parts of a tree as they began, each copy under its first. Work of a
// provider is a part also where it is all there is.
func partsOf(tree []job.Record) (out []*job.Record) {
	for i := range tree {
		r := &tree[i]
		if r.ID == r.Root && r.Role != job.Provided || r.CopyOf != "" {
			continue
		}
		out = append(out, r)
		for k := range tree {
			if tree[k].CopyOf == r.ID {
				out = append(out, &tree[k])
			}
		}
	}
	return out
}

// label names what a job is for.
func label(r *job.Record) string {
	name := string(r.Role)
	if r.Role == job.Subtask {
		name = fmt.Sprintf("wave %d  %s", r.Wave, chain.ClipTo(r.Task, 32))
		if len(r.After) > 0 {
			name += " after " + chain.ClipTo(strings.Join(r.After, ", "), 48)
		}
	}
	if r.Iteration > 0 {
		name += fmt.Sprintf(" %d", r.Iteration)
	}
	switch {
	case r.CopyOf == "":
		return name
	case r.Rung > 0:
		return fmt.Sprintf("  └ hedge, rung %d", r.Rung)
	}
	return "  └ in the race"
}

// whom names who ran a job: the option, and the device where it is another.
func whom(r *job.Record) string {
	if r.Option == "" {
		return "—"
	}
	by := chain.ClipTo(string(r.Option), 40)
	switch {
	case r.Device != "":
		by += " on " + chain.ClipTo(r.Device, 24)
	case r.Peer != "":
		by += " on …" + string(r.Peer[max(0, len(r.Peer)-6):])
	case r.Provider != "":
		by += " by " + chain.ClipTo(r.Provider, 24)
	}
	return by
}

func (a *app) jobState(r *job.Record) string {
	text := string(r.State)
	if r.Hedge != "" {
		text += " (" + string(r.Hedge) + ")"
	}
	if r.State == job.Done {
		return a.paint(green, text)
	}
	return a.paint(yellow, text)
}

// because says more than the state does.
func because(r *job.Record) string {
	var parts []string
	if r.Reason != "" && r.State != job.Superseded {
		parts = append(parts, chain.ClipTo(r.Reason, 48))
	}
	if s := scores(r); s != "" {
		parts = append(parts, s)
	}
	if r.Role == job.Score && r.Issues > 0 {
		parts = append(parts, count(r.Issues, "issue"))
	}
	if r.Fixed > 0 || r.NewIssues > 0 {
		parts = append(parts, fmt.Sprintf("%d fixed, %d new", r.Fixed, r.NewIssues))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

func scores(r *job.Record) string {
	if r.Score == nil {
		return ""
	}
	text := fmt.Sprintf("%.2f", *r.Score)
	if r.First != nil && r.Iteration > 0 {
		text = fmt.Sprintf("%.2f → %s, %s", *r.First, text, count(r.Iteration, "rewrite"))
	}
	if r.Unscored {
		text += " (not read)"
	}
	return text
}

func tokens(r *job.Record) string {
	if r.Input+r.Output == 0 {
		return "—"
	}
	return fmt.Sprintf("%s%d → %d", leastOf(r), r.Input, r.Output)
}

func costs(r *job.Record) string {
	if r.Cost == 0 && !r.AtLeast {
		return "—"
	}
	return fmt.Sprintf("%s$%.6f", leastOf(r), float64(r.Cost)/1e6)
}

func leastOf(r *job.Record) string {
	if r.AtLeast {
		return "at least "
	}
	return ""
}

func endOf(r *job.Record, now time.Time) time.Time {
	if r.Ended.IsZero() {
		return now
	}
	return r.Ended
}

// lastEnd is when the last job of a tree ended, now while one runs.
func lastEnd(tree []job.Record, now time.Time) time.Time {
	last := tree[0].Created
	for i := range tree {
		if end := endOf(&tree[i], now); end.After(last) {
			last = end
		}
	}
	return last
}

// classOf is what a request was found to be: of one that no pipeline looked at, its
// role.
func classOf(r *job.Record) string { return cmp.Or(r.Class, string(r.Role)) }

func took(r *job.Record, now time.Time) string {
	return fmt.Sprintf("%.2f s", max(0, endOf(r, now).Sub(r.Created)).Seconds())
}

// barWidth is how many columns a request takes on the time line.
const barWidth = 30

// bar draws when a job waited (·) and ran (━) between from and to.
func bar(r *job.Record, from, to time.Time, now time.Time) string {
	whole := max(1, to.Sub(from))
	at := func(t time.Time) int { return min(barWidth, max(0, int(barWidth*t.Sub(from)/whole))) }
	begin, end, run := at(r.Created), at(endOf(r, now)), at(endOf(r, now))
	if !r.Accepted.IsZero() {
		run = at(r.Accepted)
	}
	begin = min(begin, barWidth-1)
	end = max(end, begin+1)
	line := strings.Repeat(" ", begin) + strings.Repeat("·", max(0, min(run, end-1)-begin))
	return line + strings.Repeat("━", end-max(begin, min(run, end-1)))
}
