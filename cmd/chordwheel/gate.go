package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/gate"
)

func (a *app) gate() *cobra.Command {
	c := &cobra.Command{
		Use:     "gate",
		Short:   "Ask what this device's gate thinks of a token",
		Example: "  chordwheel gate check eyJhbGciOi…",
		Args:    verb,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.gateCheck())
	return c
}

func (a *app) gateCheck() *cobra.Command {
	var q control.TokenQuestion
	var from string
	c := &cobra.Command{
		Use:   "check TOKEN",
		Short: "Say whether the gate would let work with a token through, and why not",
		Long: `Have the running device judge a token as its gate would: its form and signature, its
times, whom and what it is for, and how the agent stands in the registry. Nothing is
used up. Without --agent and --capability it is asked for what the token itself says;
with --from it has to be bound to that peer, too. "-" reads the token from standard input.

The exit code is 0 where the gate allows it and 4 where it does not, whatever GATE_MODE says.`,
		Example: "  chordwheel gate check eyJhbGciOi… --agent did:key:z6Mk… --capability llm.chat\n  pbpaste | chordwheel gate check - --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if q.Agent != "" && !chain.IsDID(q.Agent) {
				return usage("--agent: want a DID, such as did:key:z6Mk…, not %q", chain.Clip(q.Agent))
			}
			if from != "" {
				if _, err := chain.ParsePeerID(from); err != nil { // a name would be bound to nobody, whatever the token says
					return usage("--from: want a peer ID, as chordwheel peers shows them: %w", err)
				}
			}
			text := args[0]
			if text == "-" {
				b, err := io.ReadAll(io.LimitReader(a.in, gate.MaxToken+2))
				if err != nil {
					return fmt.Errorf("read the token: %w", err)
				}
				text = strings.TrimSpace(string(b))
			}
			n, err := a.device(c.Context())
			if err != nil {
				return err
			}
			ask := map[string]string{"token": text, "agent": q.Agent, "capability": q.Capability, "from": from}
			var v control.TokenVerdict
			if err := n.call(c.Context(), http.MethodPost, "/api/v1/gate/check", ask, &v); err != nil {
				return err
			}
			if err := a.print(v, func(w io.Writer) { a.writeVerdict(w, &v, time.Now()) }); err != nil {
				return err
			}
			if v.Verdict != "allow" {
				return &exit{exitRefused, fmt.Errorf("the gate denies it: %s: %s", v.Code, v.Reason)}
			}
			return nil
		},
	}
	c.Flags().StringVar(&q.Agent, "agent", "", "`DID` of who is to run the work (default: whom the token is for)")
	c.Flags().StringVar(&q.Capability, "capability", "", "`NAME` of what is to be done (default: what the token is for)")
	c.Flags().StringVar(&from, "from", "", "`PEER ID` of who would hand the work on")
	return c
}

func (a *app) writeVerdict(w io.Writer, v *control.TokenVerdict, now time.Time) {
	colour := green
	if v.Verdict != "allow" {
		colour = yellow
	}
	line := a.paint(colour, v.Verdict)
	if v.Code != "" {
		line += "  " + v.Code + ": " + v.Reason
	}
	fmt.Fprintln(w, line)
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %-11s %s\n", name, chain.ClipTo(value, 128))
		}
	}
	if v.ID != "" && !v.Signed {
		fmt.Fprintln(w, "  it says, and nobody vouches for it:")
	}
	field("token", v.ID)
	field("issuer", v.Issuer)
	field("subject", v.Subject)
	field("agent", v.Audience)
	field("capability", v.Capability)
	if v.Expires != nil {
		field("expires", v.Expires.UTC().Format(time.RFC3339)+", "+ago(*v.Expires, now))
	}
	field("bound to", v.Confirmation)
	field("standing", v.Standing)
	if v.Verdict != "allow" && v.Mode == string(gate.Observe) {
		fmt.Fprintln(w, "  "+observed(v.Code))
	}
}

// observed says what becomes of one's own work in a mode that observes, where the gate denies it
// with code: what does not hang on the token is selection's matter, in either mode.
func observed(code string) string {
	switch gate.Code(code) {
	case gate.AgentSuspended, gate.NoAgent:
		return "GATE_MODE is observe: no token is wanted, but an agent that is not active is not selected"
	case gate.NoSnapshot, gate.SnapshotStale:
		return "GATE_MODE is observe: no token is wanted, but nothing is begun until the registry was heard"
	}
	return "GATE_MODE is observe: work goes on all the same"
}
