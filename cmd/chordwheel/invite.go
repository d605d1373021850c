package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/mdp/qrterminal/v3"
	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// inviteOnce is the invitation that `up` makes for a device of its own.
func inviteOnce() orchestrator.Invite { return orchestrator.Invite{TTL: 5 * time.Minute} }

func (a *app) invite() *cobra.Command {
	var scope string
	var uses int
	var ttl time.Duration
	var grant []string
	var qr bool
	c := &cobra.Command{
		Use:   "invite",
		Short: "Make an invitation for a device",
		Long: `Make an invitation on the hub's machine: one line that a device joins with. It
holds a secret; the hub keeps only a hash of it. It is good for one device and 24
hours unless told otherwise.`,
		Example: "  chordwheel invite\n  chordwheel invite --uses 5 --ttl 1h --scope workspace:home\n  chordwheel invite --grant submit --grant 'execute:llm.*' --qr",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := chain.ParseScope(scope); err != nil {
				return usage("%w", err)
			}
			if uses < 1 {
				return usage("--uses must be 1 or more, is %d", uses)
			}
			if ttl <= 0 {
				return usage("--ttl must be above 0, such as 24h, is %s", ttl)
			}
			n, err := a.hubNode(c.Context())
			if err != nil {
				return err
			}
			var made orchestrator.Invited
			question := map[string]any{"scope": scope, "uses": uses, "ttl": ttl.String(), "grant": grant}
			if err := n.call(c.Context(), http.MethodPost, "/api/v1/invite", question, &made); err != nil {
				return err
			}
			for _, w := range made.Warnings {
				fmt.Fprintln(a.err, a.paint(yellow, "! "+w))
			}
			return a.print(made, func(w io.Writer) {
				fmt.Fprintln(w, made.Text)
				if qr {
					qrterminal.GenerateHalfBlock(made.Text, qrterminal.L, w)
				}
				fmt.Fprintf(a.err, "For %d %s until %s. On the other machine: chordwheel join INVITATION\n", made.Uses, plural(made.Uses, "device"), made.Expires.Local().Format(time.DateTime))
			})
		},
	}
	c.Flags().StringVar(&scope, "scope", string(chain.DefaultScope), "the `SCOPE` that the device becomes a member of")
	c.Flags().IntVar(&uses, "uses", 1, "how many devices `N` may use it")
	c.Flags().DurationVar(&ttl, "ttl", 24*time.Hour, "`DURATION` for which it holds")
	c.Flags().StringArrayVar(&grant, "grant", nil, "capability `PATTERN` that the device may use; may be repeated (default *)")
	c.Flags().BoolVar(&qr, "qr", false, "draw a QR code too")
	return c
}

func (a *app) revoke() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke DEVICE",
		Short:   "End a device's membership",
		Long:    "End the membership of a device, named by its peer ID, device ID or name. The\nsigned list of revocations spreads to all devices.",
		Example: "  chordwheel revoke old-laptop",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.hubNode(c.Context())
			if err != nil {
				return err
			}
			var answer struct {
				PeerID chain.PeerID `json:"revoked"`
			}
			if err := n.call(c.Context(), http.MethodPost, "/api/v1/revoke", map[string]string{"device": args[0]}, &answer); err != nil {
				return err
			}
			return a.print(answer, func(w io.Writer) { fmt.Fprintf(w, "revoked %s\n", answer.PeerID) })
		},
	}
}

func (a *app) approve() *cobra.Command {
	return &cobra.Command{
		Use:   "approve PEER_ID",
		Short: "Let a device that came with a known device ID have it",
		Long: `Settle a device ID that came under a second peer ID: the peer named here may join
with it, and the one that held it is revoked. "chordwheel status" lists those that wait.`,
		Example: "  chordwheel approve 12D3KooW…",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			peer, err := chain.ParsePeerID(args[0])
			if err != nil {
				return usage("%w", err)
			}
			n, err := a.hubNode(c.Context())
			if err != nil {
				return err
			}
			var answer struct {
				PeerID chain.PeerID `json:"approved"`
			}
			if err := n.call(c.Context(), http.MethodPost, "/api/v1/approve", map[string]chain.PeerID{"peer_id": peer}, &answer); err != nil {
				return err
			}
			return a.print(answer, func(w io.Writer) { fmt.Fprintf(w, "approved %s: it may join now\n", answer.PeerID) })
		},
	}
}
