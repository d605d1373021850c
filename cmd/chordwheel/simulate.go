package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/chordwheel/chordwheel/orchestrator/simulate"
)

// simulation is what the flags of `simulate` say.
type simulation struct {
	seed     uint64
	days     float64
	devices  int
	sampling float64
	policies []string
	svg      string
}

func (a *app) simulate() *cobra.Command {
	var f simulation
	c := &cobra.Command{
		Use:   "simulate SCENARIO.yaml...",
		Short: "Run the policy code in a made-up world, beside simpler policies",
		Long: `simulate runs the real policy code (learning, ordering, deltas, exploration, leases) over
a simulated fleet, with providers whose true latencies and outages only the world knows, beside
simpler policies and two clairvoyants on the same stream of requests: c1 knows everything about
the moment, c2 all but outages. The same scenario and seed give the same numbers. examples/simulate
has scenarios to begin with; docs/policy.md says what they show.`,
		Example: `  chordwheel simulate examples/simulate/close/storm.yaml
  chordwheel simulate examples/simulate/close/*.yaml --policies none --sampling 0.01
  chordwheel simulate storm.yaml --days 2 --svg storm.svg --json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.simulateAll(c.Context(), c, f, args) },
	}
	c.Flags().Uint64Var(&f.seed, "seed", 0, "`SEED` instead of the scenario's")
	c.Flags().Float64Var(&f.days, "days", 0, "simulate so many `DAYS`")
	c.Flags().IntVar(&f.devices, "devices", 0, "with so many devices (`N`)")
	c.Flags().Float64Var(&f.sampling, "sampling", 0, "`SHARE` of successes that devices report in detail")
	c.Flags().StringSliceVar(&f.policies, "policies", nil, "`NAMES` to compare with, or all, or none: "+strings.Join(simulate.Names()[3:], ", "))
	c.Flags().StringVar(&f.svg, "svg", "", "draw the runs into `FILE` (one scenario only)")
	return c
}

// simulateAll runs scenarios one after another.
func (a *app) simulateAll(ctx context.Context, c *cobra.Command, f simulation, files []string) error {
	if f.svg != "" && len(files) > 1 {
		return usage("--svg draws one scenario; %d were named", len(files))
	}
	for _, p := range f.policies {
		if p != "all" && p != "none" && !slices.Contains(simulate.Names(), p) {
			return usage("--policies: %q is none of all, none, %s", p, strings.Join(simulate.Names(), ", "))
		}
	}
	progress := a.progress()
	for i, file := range files {
		s, err := readScenario(file)
		if err != nil {
			return err
		}
		if err := f.apply(c, s); err != nil {
			return err
		}
		r, err := runScenario(ctx, scenarioName(file), s, f.wanted(), progress, fmt.Sprintf("%d of %d", i+1, len(files)))
		progress.end()
		if err != nil {
			return err
		}
		if f.svg != "" {
			if err := os.WriteFile(f.svg, simulate.Draw(&r), 0o644); err != nil {
				return fmt.Errorf("draw the runs: %w", err)
			}
		}
		if err := a.print(r, func(w io.Writer) { a.simulated(w, &r) }); err != nil {
			return err
		}
	}
	return nil
}

// scenarioName gives the name of a scenario with the folder that it is in: the same
// story is told in several worlds.
func scenarioName(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	if dir := filepath.Base(filepath.Dir(file)); dir != "." && dir != string(filepath.Separator) {
		name = dir + "/" + name
	}
	return name
}

// readScenario reads one file; every fault in it is a line of its own.
func readScenario(file string) (*simulate.Scenario, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the scenario: %w", err)
	}
	defer func() { _ = in.Close() }()
	b, err := io.ReadAll(io.LimitReader(in, simulate.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the scenario: %w", err)
	}
	s, err := simulate.Parse(file, b)
	var invalid *simulate.Invalid
	if errors.As(err, &invalid) {
		return nil, fmt.Errorf("%w\n%s has %s", err, file, count(len(invalid.Faults), "fault"))
	}
	return s, err
}

// apply puts what the flags say in place of what the scenario says.
func (f *simulation) apply(c *cobra.Command, s *simulate.Scenario) error {
	set := c.Flags().Changed
	if set("seed") {
		s.Seed = f.seed
	}
	if set("days") {
		if !(f.days >= 0.01 && f.days <= simulate.MaxDays) {
			return usage("--days: want 0.01 to %d", simulate.MaxDays)
		}
		s.Days = f.days
	}
	if set("devices") {
		if f.devices < 1 || f.devices > simulate.MaxDevices {
			return usage("--devices: want 1 to %d", simulate.MaxDevices)
		}
		s.Fleet.Devices = f.devices
	}
	if set("sampling") {
		if !(f.sampling >= 0.001 && f.sampling <= 1) {
			return usage("--sampling: want 0.001 to 1")
		}
		s.Rules.Sampling = f.sampling
	}
	return nil
}

// wanted gives the rule of which baselines to run; nil leaves it to the scenario.
func (f *simulation) wanted() func(string) bool {
	if len(f.policies) == 0 {
		return nil
	}
	return func(p string) bool { return slices.Contains(f.policies, p) || slices.Contains(f.policies, "all") }
}

// runScenario runs the policies beside each other. place says for the waiting which of
// the scenarios it is.
func runScenario(ctx context.Context, name string, s *simulate.Scenario, wanted func(string) bool, p *progress, place string) (simulate.Result, error) {
	policies := s.Policies(wanted)
	outcomes := make([]simulate.Outcome, len(policies))
	p.begin(fmt.Sprintf("%s, %s: %g days, %s", name, place, s.Days, count(len(policies), "run")), len(policies))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, policy := range policies {
		group.Go(func() (err error) {
			outcomes[i], err = s.Run(ctx, policy, func(share float64) { p.reached(i, share) })
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return simulate.Result{}, err
	}
	return s.Compare(name, outcomes), nil
}

// simulated prints a table.
func (a *app) simulated(w io.Writer, r *simulate.Result) {
	fmt.Fprintf(w, "%s, seed %d: %s, %s, %g days, sampling %g %%\n%s\n\n", r.Name, r.Seed, count(r.Devices, "device"), count(r.Options, "option"), r.Days, 100*r.Sampling, r.About)
	var lines [][]string
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		lines = append(lines, []string{o.Policy, fmt.Sprintf("%.0f", o.Cost), fmt.Sprintf("%+.1f %%", 100*o.OverC1), fmt.Sprintf("%+.1f %%", 100*o.OverC2),
			fmt.Sprintf("%.2f", o.P50), fmt.Sprintf("%.2f", o.P95), fmt.Sprintf("%.2f %%", 100*o.Success), fmt.Sprintf("%.1f %%", 100*o.Best), fmt.Sprintf("%.2f %%", 100*o.DeadLate),
			fmt.Sprintf("%.2f", o.OwnReorders), fmt.Sprintf("%.2f", o.Orders), fmt.Sprintf("%.1f", o.HubReorders), fmt.Sprint(o.Extensions), fmt.Sprintf("%.0f", o.Bytes/1000)})
	}
	a.rows(w, []string{"POLICY", "µ$/REQUEST", "OVER C1", "OVER C2", "P50 s", "P95 s", "ANSWERED", "BEST FIRST", "DEAD >5 MIN", "OWN REORDERS", "ORDERS", "HUB'S A DAY", "EXTENSIONS", "kB/DAY"}, lines)
	for _, l := range r.Outcomes[0].Ceilings {
		unit := "micro-dollars a month"
		if l.Calls {
			unit = "calls a day"
		}
		fmt.Fprintf(w, "ceiling %s: %d of %d %s, exceeded by %d, largest block %d\n", l.Name, l.Most, l.Limit, unit, max(l.Over, 0), l.Block)
	}
	fmt.Fprintln(w)
}
