package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/store/datadir"
)

func (a *app) status() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show how the device, or the hub, fares",
		Example: "  chordwheel status\n  chordwheel status --dir ~/mesh/hub --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			n, err := a.anyNode(c.Context())
			if err != nil {
				return errors.Join(err, a.whyNotStarted())
			}
			if n.what == "hub" {
				return a.hubStatus(c.Context(), n)
			}
			var s control.Status
			if err := n.get(c.Context(), "/api/v1/status", &s); err != nil {
				return err
			}
			return a.print(s, func(w io.Writer) { a.writeStatus(w, s, time.Now()) })
		},
	}
}

// whyNotStarted says what would keep the device or hub that --dir names from
// starting: a file that was cut short, say. nil: nothing is known.
func (a *app) whyNotStarted() error {
	dirs, err := a.deviceDirs()
	if err != nil || a.dir == "" {
		return err
	}
	hubs, err := a.hubDirs()
	if err != nil {
		return err
	}
	dir, err := existing(append(dirs, hubs[1:]...))
	if err != nil {
		return nil // there is none
	}
	d, err := datadir.Open(dir)
	if err != nil {
		return fmt.Errorf("it cannot start: %w", err)
	}
	return d.Close()
}

func (a *app) writeStatus(w io.Writer, s control.Status, now time.Time) {
	state := a.paint(green, "ready")
	if !s.Ready {
		state = a.paint(yellow, "not ready")
	}
	fmt.Fprintf(w, "%s  %s  chordwheel %s, up for %s\n\n", s.Name, state, s.Version, span(now.Sub(s.Started)))
	for _, p := range s.Problems {
		fmt.Fprintln(w, a.paint(yellow, "! "+p))
	}
	field := func(name, value string) { fmt.Fprintf(w, "  %-12s %s\n", name, value) }
	field("edge", s.Edge)
	field("page", s.Admin)
	field("data", s.DataDir)
	field("device ID", string(s.DeviceID))
	field("peer ID", string(s.PeerID))
	field("hub", a.hubLine(s.Hub, now))
	if m := s.Hub.MembershipExpires; m != nil {
		field("membership", "until "+m.Format(time.DateOnly)+" for "+join(s.Hub.Scopes))
	}
	field("peers", fmt.Sprintf("%d in contact, %d known; see: chordwheel peers", s.Peers.Live, s.Peers.Known))
	a.writeWork(field, &s, now)
	field("can", join(s.Capabilities))
	fmt.Fprintln(w)
	a.writeTables(w, &s, now)
}

// writeWork writes what the device has done, and who may have it do more.
func (a *app) writeWork(field func(name, value string), s *control.Status, now time.Time) {
	field("requests", fmt.Sprintf("%d, %d failed, %d in flight, %d attempts, %d protests", s.Requests.Total, s.Requests.Failed, s.Requests.InFlight, s.Requests.Attempts, s.Requests.Protests))
	for _, line := range a.sharingLines(s.Foreign, now) {
		field("sharing", line)
	}
	field("for others", foreignLine(s.Foreign))
	if p := s.Pipeline; p.Enabled {
		line := fmt.Sprintf("%s running, %d waiting, %d done, %d failed; %s, %d won", count(p.Running, "job"), p.Pending, p.Done, p.Failed, count(int(p.Hedges), "hedge"), p.HedgesWon)
		for _, model := range slices.Sorted(maps.Keys(p.Unscored)) {
			line += fmt.Sprintf("; %d scores of %s not read", p.Unscored[model], chain.ClipTo(model, 48))
		}
		field("pipeline", line)
	}
	if p := s.Providers; p != nil {
		c := p.Counts
		field("providers", fmt.Sprintf("%d online, %d registered; %s lost, %d not accepted, %d refused", p.Online, len(p.Registered), count(int(c.Lost), "lease"), c.NotAccepted,
			c.Unknown+c.NotYours+c.Over+c.Different))
	}
	if s.Receipts != nil {
		field("receipts", a.receiptsLine(*s.Receipts, now))
	}
	if s.Gating != nil {
		verdicts, registry := a.gatingLines(s.Gating, now)
		field("gate", verdicts)
		if registry != "" {
			field("registry", registry)
		}
	}
}

// writeTables writes the chains, what is left alone, and the traffic by protocol.
func (a *app) writeTables(w io.Writer, s *control.Status, now time.Time) {
	var chains [][]string
	for _, c := range s.Chains {
		expires := ago(c.Expires, now)
		if c.Expired {
			expires = a.paint(yellow, "expired")
		}
		chains = append(chains, []string{string(c.Scope), string(c.Primitive), strconv.Itoa(c.Options), strconv.FormatUint(c.Seq, 10), expires})
	}
	a.rows(w, []string{"scope", "primitive", "options", "sequence", "expires"}, chains)
	var resting [][]string
	for _, r := range s.Resting {
		resting = append(resting, []string{string(r.Option) + r.Key + string(r.Peer), string(r.Why), ago(r.Until, now)})
	}
	if len(resting) > 0 {
		fmt.Fprintln(w)
		a.rows(w, []string{"resting", "why", "until"}, resting)
	}
	if len(s.Traffic) > 0 {
		fmt.Fprintln(w)
		var traffic [][]string
		for _, t := range s.Traffic {
			traffic = append(traffic, []string{t.Protocol, strconv.FormatInt(t.In, 10), strconv.FormatInt(t.Out, 10)})
		}
		a.rows(w, []string{"protocol", "bytes in", "bytes out"}, traffic)
	}
}

func (a *app) hubLine(h control.HubStatus, now time.Time) string {
	if !h.Joined {
		return a.paint(yellow, "not joined") + "; run: chordwheel join INVITATION"
	}
	line := a.paint(green, "connected")
	if !h.Reachable {
		line = a.paint(yellow, "out of reach")
	}
	line += ", mesh " + string(h.Mesh)
	if h.LastVisit != nil {
		line += ", last visit " + ago(*h.LastVisit, now)
	}
	if h.LastError != "" {
		line += " (" + h.LastError + ")"
	}
	return line
}

// join writes a list of names with commas.
func join[S ~string](names []S) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = string(n)
	}
	return strings.Join(out, ", ")
}

// hubStatus shows the hub at a glance.
func (a *app) hubStatus(ctx context.Context, n *node) error {
	var s orchestrator.Status
	if err := n.get(ctx, "/api/v1/status", &s); err != nil {
		return err
	}
	now := time.Now()
	return a.print(s, func(w io.Writer) {
		fmt.Fprintf(w, "hub of mesh %s  chordwheel %s, up for %s\n\n", s.Mesh, s.Version, span(now.Sub(s.Started)))
		fmt.Fprintf(w, "  peer ID    %s\n", s.PeerID)
		for _, address := range s.Addresses {
			fmt.Fprintf(w, "  listens    %s\n", address)
		}
		fmt.Fprintf(w, "  catalogue  %s, %s, loaded %s\n", count(s.Catalogue.Providers, "provider"), count(s.Catalogue.Models, "model"), ago(s.Catalogue.Loaded, now))
		if l := s.Ledger; l != nil && l.Fault != "" {
			fmt.Fprintln(w, "  receipts  ", a.paint(yellow, "the ledger takes none: "+l.Fault))
		} else if l != nil {
			line := fmt.Sprintf("%d in the ledger", l.Receipts)
			if l.DoubleUses > 0 {
				line += a.paint(yellow, "; "+count(int(l.DoubleUses), "double use")+" of tokens: chordwheel receipts report --ledger")
			}
			fmt.Fprintln(w, "  receipts  ", line)
		}
		fmt.Fprintln(w)
		if why := s.Catalogue.Refused; why != "" {
			fmt.Fprintln(w, a.paint(yellow, "! the catalogue that was saved last is not in force: "+why)+"\n")
		}
		a.hubTables(w, &s, now)
		for _, conflict := range s.Conflicts {
			fmt.Fprintln(w, a.paint(yellow, fmt.Sprintf("! %s (%s) waits with the device ID of %s; let it in with: chordwheel approve %s", conflict.Name, conflict.DeviceID, conflict.Holder, conflict.PeerID)))
		}
		for _, alarm := range s.Alarms {
			times := ""
			if alarm.Times > 1 {
				times = fmt.Sprintf(" (%d times)", alarm.Times)
			}
			fmt.Fprintln(w, a.paint(yellow, fmt.Sprintf("! %s: %s %s%s %s", ago(alarm.At, now), alarm.What, alarm.Device, times, alarm.Detail)))
		}
	})
}

// hubTables shows a hub's devices, chains and ceilings.
func (a *app) hubTables(w io.Writer, s *orchestrator.Status, now time.Time) {
	var devices [][]string
	for _, d := range s.Devices {
		state := a.paint(green, d.State)
		if d.State != "online" {
			state = a.paint(yellow, d.State)
		}
		devices = append(devices, []string{d.Name, state, ago(d.Seen, now), string(d.PeerID)})
	}
	if len(devices) == 0 {
		fmt.Fprintln(w, "no device has joined; make an invitation for one: chordwheel invite")
	}
	a.rows(w, []string{"device", "", "seen", "peer ID"}, devices)
	fmt.Fprintln(w)
	var chains [][]string
	for _, c := range s.Chains {
		rate := "—"
		if c.Protests.Requests > 0 {
			rate = figures(c.Protests.Rate.Share()*100, 2) + " %"
		}
		if c.Protests.Above {
			rate = a.paint(yellow, rate+" (target "+figures(c.Protests.Target.Share()*100, 2)+" %)")
		}
		chains = append(chains, []string{string(c.Scope), string(c.Primitive), join(c.Options), c.Reason, rate})
	}
	a.rows(w, []string{"scope", "primitive", "order", "published for", "protests"}, chains)
	if len(s.Ceilings) > 0 {
		fmt.Fprintln(w)
		var ceilings [][]string
		for _, l := range s.Ceilings {
			used := fmt.Sprintf("$%.4f of $%.2f", float64(l.Spent)/1e6, float64(l.Limit)/1e6)
			if l.Calls {
				used = fmt.Sprintf("%d of %d calls", l.Spent, l.Limit)
			}
			if l.Breached {
				used = a.paint(yellow, used+": used up")
			}
			ceilings = append(ceilings, []string{l.Account, used, "until " + l.To.Format("2006-01-02")})
		}
		a.rows(w, []string{"ceiling", "spent", ""}, ceilings)
	}
}
