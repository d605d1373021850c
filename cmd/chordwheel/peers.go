package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
)

func (a *app) peers() *cobra.Command {
	return &cobra.Command{
		Use:   "peers",
		Short: "Show the other devices that this one knows, and what they can do for it",
		Long: `Show each device that this one knows: how it stands with it, over which connection,
how far and how busy it is, and which peer slots of the chains in force it could fill,
or why not. docs/binding.md explains the reasons.`,
		Example: "  chordwheel peers\n  chordwheel peers --dir ~/mesh/b --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			n, err := a.device(c.Context())
			if err != nil {
				return err
			}
			var v struct {
				Peers []control.Peer `json:"peers"`
			}
			if err := n.get(c.Context(), "/api/v1/peers", &v); err != nil {
				return err
			}
			return a.print(v, func(w io.Writer) { a.writePeers(w, v.Peers, time.Now()) })
		},
	}
}

func (a *app) writePeers(w io.Writer, peers []control.Peer, now time.Time) {
	if len(peers) == 0 {
		fmt.Fprintln(w, "this device knows no other yet; if there should be one: chordwheel netcheck")
		return
	}
	var lines, slots [][]string
	for _, p := range peers {
		lines = append(lines, []string{chain.ClipTo(p.Name, 32), a.peerState(p, now), heardOf(p, now), wayOf(p.Way), millis(p.RTT), figures(p.Ahead, 2), executes(p.Capabilities), string(p.PeerID)})
		for _, s := range p.Slots {
			can := a.paint(green, fmt.Sprintf("can, expected in %.0f ms", s.Expected))
			if !s.Eligible {
				can = a.paint(yellow, s.Why) + ": " + s.Detail
			}
			slots = append(slots, []string{string(s.Scope) + " " + string(s.Primitive), string(s.Option), chain.ClipTo(p.Name, 32), can})
		}
	}
	a.rows(w, []string{"device", "", "last heard", "over", "rtt", "ahead", "runs", "peer ID"}, lines)
	if len(slots) > 0 {
		slices.SortStableFunc(slots, func(x, y []string) int { return strings.Compare(x[0]+x[1], y[0]+y[1]) })
		fmt.Fprintln(w)
		a.rows(w, []string{"chain", "slot", "device", ""}, slots)
	}
}

func (a *app) peerState(p control.Peer, now time.Time) string {
	state := map[string]string{"live": "in contact", "silent": "silent", "parted": "out of contact", "heard_of": "only heard of"}[p.State]
	if state == "" {
		state = p.State
	}
	colour := yellow
	if p.State == "live" {
		colour = green
	}
	line := a.paint(colour, state)
	if p.State != "heard_of" {
		line += " for " + span(now.Sub(p.Since))
	}
	if p.Cooling != nil {
		line += a.paint(yellow, fmt.Sprintf(", cooling for %s (%s)", span(p.Cooling.Sub(now)), p.CoolingFor))
	}
	return line
}

func heardOf(p control.Peer, now time.Time) string {
	if p.Heard == nil {
		return "never"
	}
	return ago(*p.Heard, now)
}

func wayOf(w *control.Way) string {
	if w == nil {
		return "—"
	}
	return w.Path + ", " + w.Transport
}

// executes gives the primitives among capabilities.
func executes(all []chain.Capability) string {
	var list []string
	for _, c := range all {
		if p, ok := c.Executes(); ok {
			list = append(list, string(p))
		}
	}
	return strings.Join(list, ", ")
}

func (a *app) chords() *cobra.Command {
	return &cobra.Command{
		Use:   "chords",
		Short: "Show which devices are in contact with which, and how far apart",
		Long: `Show the chords of the mesh: which devices say that they are in contact, and the
round trip between them. A chord counts once both ends claim it. A device shows what
it heard in its scopes, the hub what was reported to it.`,
		Example: "  chordwheel chords\n  chordwheel chords --dir ~/mesh/hub --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			n, err := a.anyNode(c.Context())
			if err != nil {
				return err
			}
			var v struct {
				Chords []control.Chord `json:"chords"` // the hub's have the same members
			}
			if err := n.get(c.Context(), "/api/v1/chords", &v); err != nil {
				return err
			}
			return a.print(v, func(w io.Writer) { a.writeChords(w, v.Chords, time.Now()) })
		},
	}
}

func (a *app) writeChords(w io.Writer, chords []control.Chord, now time.Time) {
	if len(chords) == 0 {
		fmt.Fprintln(w, "no two devices are known to be in contact; they say so some seconds after they met")
		return
	}
	var lines [][]string
	for _, k := range chords {
		claimed := "both ends"
		if k.By != "" {
			claimed = a.paint(yellow, "only "+nameOr(map[bool]string{true: k.NameA, false: k.NameB}[k.By == k.A], k.By))
		}
		lines = append(lines, []string{nameOr(k.NameA, k.A), nameOr(k.NameB, k.B), millis(k.RTT), claimed, ago(k.At, now), string(k.Scope)})
	}
	a.rows(w, []string{"device", "device", "rtt", "claimed by", "said", "scope"}, lines)
}

func nameOr(name string, p chain.PeerID) string {
	if name == "" {
		return string(p)
	}
	return chain.ClipTo(name, 32)
}

// maxPings bounds `ping --count`.
const maxPings = 1000

// pinged is what `ping --json` prints.
type pinged struct {
	control.Pong           // of the last answer; rtt_ms is the smallest
	Sent         int       `json:"sent"`
	RTTs         []float64 `json:"rtts_ms"`
}

func (a *app) ping() *cobra.Command {
	var n int
	c := &cobra.Command{
		Use:   "ping DEVICE",
		Short: "Greet another device and measure the way to it",
		Long: `Greet another device from this one, over the connection that stands or a new one:
the path (direct or relayed), the transport, the round trip, the address. DEVICE is a
name, a device ID, a peer ID, or the beginning or end of one that no other has. The exit
code is 3 if it is not reached.`,
		Example:           "  chordwheel ping nas\n  chordwheel ping 12D3KooWQ3… --count 5 --json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeDevice,
		RunE: func(c *cobra.Command, args []string) error {
			if n < 1 || n > maxPings {
				return usage("--count must be 1 to %d, is %d", maxPings, n)
			}
			node, err := a.device(c.Context())
			if err != nil {
				return err
			}
			return a.pingAll(c.Context(), node, args[0], n)
		},
	}
	c.Flags().IntVar(&n, "count", 1, "how many times `N`, a second apart")
	return c
}

func (a *app) pingAll(ctx context.Context, n *node, who string, count int) error {
	var all pinged
	var last error
	for i := range count {
		if i > 0 {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Second):
			}
		}
		all.Sent++
		var pong control.Pong
		last = n.call(ctx, http.MethodPost, "/api/v1/ping", map[string]string{"device": who}, &pong)
		if last != nil {
			if count > 1 && !a.json {
				fmt.Fprintln(a.out, a.paint(yellow, last.Error()))
			}
			continue
		}
		all.Pong = pong
		all.RTTs = append(all.RTTs, pong.RTT)
		if !a.json {
			fmt.Fprintf(a.out, "%s answers in %s: %s, %s, at %s\n", nameOr(pong.Name, pong.PeerID), millis(pong.RTT), pong.Path, pong.Transport, pong.Address)
		}
	}
	if len(all.RTTs) == 0 {
		return last
	}
	all.RTT = slices.Min(all.RTTs)
	return a.print(all, func(w io.Writer) {
		if count > 1 {
			fmt.Fprintf(w, "%d of %d answered; rtt %s to %s\n", len(all.RTTs), all.Sent, millis(all.RTT), millis(slices.Max(all.RTTs)))
		}
	})
}

// completeDevice completes the names of the devices that the running one knows.
func (a *app) completeDevice(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	n, err := a.device(ctx)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var v struct {
		Peers []control.Peer `json:"peers"`
	}
	_ = n.get(ctx, "/api/v1/peers", &v) // nothing to complete then
	var names []string
	for _, p := range v.Peers {
		names = append(names, p.Name+"\t"+string(p.PeerID))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
