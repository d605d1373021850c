package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/store/datadir"
)

func (a *app) chain() *cobra.Command {
	c := &cobra.Command{
		Use:     "chain",
		Short:   "Show, explain and verify chains",
		Example: "  chordwheel chain show\n  chordwheel chain explain workspace:home llm.chat",
		Args:    verb,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.chainShow(), a.chainExplain(), a.chainVerify())
	return c
}

// slotOf reads the arguments SCOPE and PRIMITIVE, which default to the home
// workspace's chat.
func slotOf(args []string) (chain.Slot, error) {
	slot := chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}
	var err error
	if len(args) > 0 {
		if slot.Scope, err = chain.ParseScope(args[0]); err != nil {
			return slot, usage("%w", err)
		}
	}
	if len(args) > 1 {
		if slot.Primitive, err = chain.ParsePrimitive(args[1]); err != nil {
			return slot, usage("%w", err)
		}
	}
	return slot, nil
}

func query(path string, slot chain.Slot) string {
	return path + "?" + url.Values{"scope": {string(slot.Scope)}, "primitive": {string(slot.Primitive)}}.Encode()
}

func (a *app) chainShow() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "show [SCOPE [PRIMITIVE]]",
		Short: "Show a chain: the device's with what it can do now, or the hub's",
		Long:  "Show a chain as the device holds it, with what it can do with each option now, or\nas the hub would sign it. SCOPE defaults to workspace:home, PRIMITIVE to llm.chat.",
		Example: `  chordwheel chain show
  chordwheel chain show workspace:home llm.chat --json
  chordwheel chain show --out chain.json && chordwheel chain verify chain.json`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			slot, err := slotOf(args)
			if err != nil {
				return err
			}
			n, err := a.anyNode(c.Context())
			if err != nil {
				return err
			}
			var v control.ChainView // the hub's has the same members, without the device's part
			if err := n.get(c.Context(), query("/api/v1/chain", slot), &v); err != nil {
				return err
			}
			if out != "" {
				b, err := json.Marshal(v.Signed)
				if err != nil {
					return err
				}
				return datadir.WritePrivate(out, append(b, '\n'))
			}
			return a.print(v, func(w io.Writer) { a.writeChain(w, v, time.Now()) })
		},
	}
	c.Flags().StringVar(&out, "out", "", "write the signed bytes to `FILE` for chain verify")
	return c
}

func (a *app) writeChain(w io.Writer, v control.ChainView, now time.Time) {
	state := "in force"
	switch {
	case v.Expired:
		state = a.paint(yellow, "expired")
	case v.Stale:
		state = a.paint(yellow, "due for a refresh")
	}
	fmt.Fprintf(w, "%s %s  (%s's view, %s)\n", v.Head.Scope, v.Head.Primitive, v.Source, state)
	fmt.Fprintf(w, "  sequence %d, issued %s, expires %s\n  body %s\n\n", v.Head.Seq, ago(v.Head.Issued.Time(), now), ago(v.Head.Expires.Time(), now), v.Head.Body)
	var lines [][]string
	for i, o := range v.Options {
		can := ""
		if v.Source == "device" {
			can = a.paint(green, "usable")
			if !o.Usable {
				can = a.paint(yellow, string(o.Why))
			}
			if o.Until != nil {
				can += " for " + span(o.Until.Sub(now))
			}
		}
		lines = append(lines, []string{strconv.Itoa(i + 1), string(o.ID), string(o.Kind), estimate(o.Cost), can})
	}
	a.rows(w, []string{"", "option", "kind", "latency, reliability", ""}, lines)
}

func estimate(c chain.Cost) string {
	if c.Latency == 0 && c.Reliability == 0 {
		return ""
	}
	text := fmt.Sprintf("%s s, %.3g %%", figures(c.Latency.Duration().Seconds(), 2), c.Reliability.Share()*100)
	if c.LowN {
		text += " (low-n)"
	}
	return text
}

func (a *app) chainExplain() *cobra.Command {
	return &cobra.Command{
		Use:     "explain [SCOPE [PRIMITIVE]]",
		Short:   "Say why a chain has this order, and what was kept out",
		Long:    "Ask the hub why the options stand in this order: each one's probability of success,\nthe terms of its cost, its rank on each axis, who put it in and who kept it out.\nA device, which --dir may name, says in which order it tries them itself and why,\nand who could fill each peer slot.",
		Example: "  chordwheel chain explain\n  chordwheel chain explain workspace:home llm.chat --json\n  chordwheel chain explain --dir ~/mesh/a",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			slot, err := slotOf(args)
			if err != nil {
				return err
			}
			n, err := a.hubNode(c.Context())
			if err != nil {
				if own, errDevice := a.device(c.Context()); errDevice == nil {
					return a.explainOwn(c.Context(), own, slot)
				}
				return err
			}
			var raw json.RawMessage
			if err := n.get(c.Context(), query("/api/v1/explain", slot), &raw); err != nil {
				return err
			}
			if a.json {
				return a.print(raw, nil)
			}
			var e orchestrator.Explanation
			if err := json.Unmarshal(raw, &e); err != nil {
				return fmt.Errorf("read the hub's explanation: %w", err)
			}
			a.writeExplanation(a.out, e)
			return nil
		},
	}
}

// explainOwn says in which order a device tries a chain's options, and why.
func (a *app) explainOwn(ctx context.Context, n *node, slot chain.Slot) error {
	var v control.ChainView
	if err := n.get(ctx, query("/api/v1/chain", slot), &v); err != nil {
		return err
	}
	return a.print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s %s  (this device's order beside the hub's)\n\n", v.Head.Scope, v.Head.Primitive)
		defer a.writeSlots(w, v)
		var lines [][]string
		for _, r := range v.Own {
			lines = append(lines, []string{strconv.Itoa(r.Place), strconv.Itoa(r.HubAt), string(r.Option), ownValues(r.Hub), ownValues(r.Own), strconv.FormatUint(r.Samples, 10), r.Why})
		}
		a.rows(w, []string{"here", "hub", "option", "the hub's", "here", "samples", "because"}, lines)
	})
}

// writeSlots says who could fill the peer slots of a chain now.
func (a *app) writeSlots(w io.Writer, v control.ChainView) {
	var lines [][]string
	for _, o := range v.Options {
		for _, c := range o.Peers {
			can := a.paint(green, fmt.Sprintf("can, expected in %.0f ms", c.Expected))
			if !c.Eligible {
				can = a.paint(yellow, c.Why) + ": " + c.Detail
			}
			lines = append(lines, []string{string(o.ID), nameOr(c.Name, c.PeerID), can})
		}
	}
	if len(lines) > 0 {
		fmt.Fprintln(w)
		a.rows(w, []string{"slot", "device", ""}, lines)
	}
}

func ownValues(v delta.Values) string {
	return fmt.Sprintf("%s s, %.3g %%, index %.0f", figures(v.Latency, 2), v.Reliability*100, v.Index)
}

func (a *app) chainVerify() *cobra.Command {
	var mesh, signer string
	c := &cobra.Command{
		Use:   "verify FILE",
		Short: "Verify a chain's signature, address and times, offline",
		Long: `Verify a chain that "chain show --out FILE" wrote: its signature against the
pinned orchestrator, its body against the address in its head, its scope, its times.
The pin is that of the device in --dir, or is given with --mesh and --orchestrator.`,
		Example: "  chordwheel chain verify chain.json\n  chordwheel chain verify chain.json --mesh ID --orchestrator 12D3KooW…",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			trust, err := a.pinned(mesh, signer)
			if err != nil {
				return err
			}
			b, err := readLimited(args[0], 2*chain.MaxBodyBytes)
			if err != nil {
				return err
			}
			var signed chain.Signed
			if err := json.Unmarshal(b, &signed); err != nil {
				return usage("%s is not what `chordwheel chain show --out` writes", args[0])
			}
			h, err := headOf(signed.Head)
			if err != nil {
				return refused("%s: %w", args[0], err)
			}
			verified, err := trust.Verify(chain.Slot{Scope: h.Scope, Primitive: h.Primitive}, signed.Head, signed.Body, chain.Mark{}, time.Now())
			if err != nil {
				return refused("%s: %w", args[0], err)
			}
			v := struct {
				Valid   bool           `json:"valid"`
				Signer  chain.PeerID   `json:"signer"`
				Head    chain.Head     `json:"head"`
				Options []chain.Option `json:"options"`
			}{true, trust.Orchestrator, verified.Head(), verified.Options()}
			return a.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %s, signed by %s, %d %s, expires %s\n", args[0], a.paint(green, "valid"), v.Signer, len(v.Options), plural(len(v.Options), "option"), v.Head.Expires.Time().Format(time.RFC3339))
			})
		},
	}
	c.Flags().StringVar(&mesh, "mesh", "", "the mesh `ID` that the chain must be of")
	c.Flags().StringVar(&signer, "orchestrator", "", "the `PEER ID` that must have signed it")
	return c
}

// headOf reads what a signed head says, unverified: it names the slot that is then
// verified.
func headOf(envelope []byte) (chain.Head, error) {
	var h chain.Head
	_, payload, err := chain.Open(chain.DomainChain, envelope)
	if err != nil {
		return h, err
	}
	return h, chain.Unmarshal(payload, &h)
}

// pinned is whom to trust: the flags, else what the device in --dir joined.
func (a *app) pinned(mesh, signer string) (chain.Trust, error) {
	if (mesh == "") != (signer == "") {
		return chain.Trust{}, usage("--mesh and --orchestrator go together")
	}
	if mesh != "" {
		peer, err := chain.ParsePeerID(signer)
		if err != nil {
			return chain.Trust{}, usage("--orchestrator: %w", err)
		}
		return chain.Trust{Mesh: chain.MeshID(mesh), Orchestrator: peer}, nil
	}
	dir, err := a.deviceDir()
	if err != nil {
		return chain.Trust{}, fmt.Errorf("%w, or name the pin with --mesh and --orchestrator", err)
	}
	n, err := reach(context.Background(), "device", []string{dir})
	if err == nil {
		var s control.Status
		if err := n.get(context.Background(), "/api/v1/status", &s); err != nil {
			return chain.Trust{}, err
		}
		return chain.Trust{Mesh: s.Hub.Mesh, Orchestrator: s.Hub.PeerID}, nil
	}
	d, err := datadir.Open(dir)
	if err != nil {
		return chain.Trust{}, err
	}
	joined, ok, err := daemon.LoadJoined(d)
	err = errors.Join(err, d.Close())
	if err == nil && !ok {
		err = fmt.Errorf("the device in %s has not joined a mesh; name the pin with --mesh and --orchestrator", dir)
	}
	return joined.Trust, err
}

func readLimited(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is over %d bytes", file, limit)
	}
	return b, err
}

// device reaches the device that the command means.
func (a *app) device(ctx context.Context) (*node, error) {
	dirs, err := a.deviceDirs()
	if err != nil {
		return nil, err
	}
	return reach(ctx, "device", dirs)
}

// hubNode reaches the hub that the command means.
func (a *app) hubNode(ctx context.Context) (*node, error) {
	dirs, err := a.hubDirs()
	if err != nil {
		return nil, err
	}
	return reach(ctx, "hub", dirs)
}

// anyNode reaches the device, or else the hub, that the command means.
func (a *app) anyNode(ctx context.Context) (*node, error) {
	n, errDevice := a.device(ctx)
	if errDevice == nil {
		return n, nil
	}
	n, err := a.hubNode(ctx)
	if err != nil {
		return nil, errDevice
	}
	return n, nil
}
