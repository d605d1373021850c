package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/sharing"
)

// sharingConfig is `sharing:` of a config.yaml: what the device does for others.
// docs/sharing.md describes each field.
type sharingConfig struct {
	Mode    string                     `yaml:"mode" env:"CHORDWHEEL_SHARING"`
	Hours   []string                   `yaml:"hours"`
	Mains   bool                       `yaml:"mains"`
	Metered bool                       `yaml:"metered"`
	Jobs    *int                       `yaml:"jobs"`
	Scopes  map[string]sharingOverride `yaml:"scopes"`
}

// sharingOverride is one entry of `sharing: scopes:`.
type sharingOverride struct {
	Mode    string   `yaml:"mode"`
	Hours   []string `yaml:"hours"`
	Mains   *bool    `yaml:"mains"`
	Metered *bool    `yaml:"metered"`
	Jobs    *int     `yaml:"jobs"`
}

// policy gives c as the device keeps it. Its error is one line that names
// everything that is wrong.
func (c *sharingConfig) policy() (sharing.Policy, error) {
	var wrong []string
	hours := func(where string, texts []string) []sharing.Hours {
		if texts == nil {
			return nil
		}
		all := []sharing.Hours{}
		for _, text := range texts {
			h, err := sharing.ParseHours(text)
			if err != nil {
				wrong = append(wrong, where+err.Error())
				continue
			}
			all = append(all, h)
		}
		return all
	}
	jobs := func(where string, n *int) int {
		if n == nil {
			return 0
		}
		if *n < 1 {
			wrong = append(wrong, where+fmt.Sprintf("jobs must be 1 to %d; mode: off shares nothing", sharing.MaxJobs))
		}
		return max(0, *n)
	}
	p := sharing.Policy{Rules: sharing.Rules{Mode: sharing.Mode(c.Mode), Hours: hours("", c.Hours), Mains: c.Mains, Metered: c.Metered, Jobs: jobs("", c.Jobs)}}
	for _, name := range slices.Sorted(maps.Keys(c.Scopes)) {
		o, where := c.Scopes[name], "scopes: "+chain.Clip(name)+": "
		if p.Scopes == nil {
			p.Scopes = map[chain.ScopeID]sharing.Override{}
		}
		p.Scopes[chain.ScopeID(name)] = sharing.Override{Mode: sharing.Mode(o.Mode), Hours: hours(where, o.Hours), Mains: o.Mains, Metered: o.Metered, Jobs: jobs(where, o.Jobs)}
	}
	if err := p.Validate(); err != nil {
		wrong = append(wrong, strings.TrimPrefix(err.Error(), "sharing: "))
	}
	if len(wrong) > 0 {
		return p, fmt.Errorf("sharing: %s", strings.Join(wrong, "; "))
	}
	return p, nil
}

func (a *app) pause() *cobra.Command {
	return &cobra.Command{
		Use:   "pause [DURATION]",
		Short: "Do no work for other devices, for a while or until resumed",
		Long: `While sharing is paused this device refuses work of others, also after a restart;
what it runs for them already is finished. Its own requests are not affected.`,
		Example: "  chordwheel pause 2h\n  chordwheel pause",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			question := map[string]time.Time{}
			if len(args) == 1 {
				d, err := time.ParseDuration(args[0])
				if err != nil || d <= 0 || d > sharing.MaxPause {
					return usage("a pause of %q: want a duration up to %dh, such as 30m or 8h", chain.Clip(args[0]), int(sharing.MaxPause.Hours()))
				}
				question["until"] = time.Now().Add(d)
			}
			return a.switchSharing(c.Context(), "/api/v1/pause", question)
		},
	}
}

func (a *app) resume() *cobra.Command {
	return &cobra.Command{
		Use:     "resume",
		Short:   "Work for other devices again, as the configuration allows",
		Example: "  chordwheel resume",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.switchSharing(c.Context(), "/api/v1/resume", map[string]time.Time{})
		},
	}
}

// switchSharing asks the running device, and says what holds now.
func (a *app) switchSharing(ctx context.Context, path string, question any) error {
	n, err := a.device(ctx)
	if err != nil {
		return err
	}
	var s control.Status
	if err := n.call(ctx, http.MethodPost, path, question, &s); err != nil {
		return err
	}
	return a.print(s.Foreign, func(w io.Writer) {
		for _, line := range a.sharingLines(s.Foreign, time.Now()) {
			fmt.Fprintln(w, line)
		}
		if len(s.Foreign.Sharing) == 0 {
			fmt.Fprintln(w, "this device has joined no mesh yet; the setting is kept")
		}
	})
}

// sharingLines says for each scope whether the device works for others: one line
// where it is the same for all.
func (a *app) sharingLines(f control.Foreign, now time.Time) []string {
	var lines []string
	for _, s := range f.Sharing {
		line := a.paint(green, "on") + fmt.Sprintf(", up to %s at once", count(s.Jobs, "job"))
		if !s.On {
			line = a.paint(yellow, "off") + ": " + s.Why
			if s.Back != nil && !strings.Contains(s.Why, "until") {
				line += ", on again " + ago(*s.Back, now)
			}
		}
		lines = append(lines, line)
	}
	if len(slices.Compact(slices.Clone(lines))) <= 1 {
		return lines[:min(1, len(lines))]
	}
	for i := range lines {
		lines[i] = string(f.Sharing[i].Scope) + " " + lines[i]
	}
	return lines
}

// foreignLine counts the work of others.
func foreignLine(f control.Foreign) string {
	line := fmt.Sprintf("%d running, %d answered, %d failed, %d left", f.Running, f.Answered, f.Failed, f.Left)
	codes := slices.SortedFunc(maps.Keys(f.Refused), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.Refused[b], f.Refused[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, code := range codes {
		parts = append(parts, fmt.Sprintf("%d %s", f.Refused[code], code))
	}
	if len(parts) > 0 {
		line += "; refused: " + strings.Join(parts, ", ")
	}
	return line
}
