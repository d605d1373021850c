package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/adapter/openai"
	"github.com/chordwheel/chordwheel/daemon/control"
)

// keyTried is what came of a key at one provider.
type keyTried struct {
	Endpoint string `json:"endpoint"`
	Accepted bool   `json:"accepted"`
	Models   int    `json:"models"`
	Error    string `json:"error,omitempty"`
}

func (a *app) keysTest() *cobra.Command {
	return &cobra.Command{
		Use:   "test NAME",
		Short: "Try a key at the providers that the device's chains name for it",
		Long: `Ask each provider that the running device's chains name for this key for its list of
models, with the key. Nothing is completed and nothing billed. The exit code is 4 if a
provider refuses the key, 3 if one is not reached.`,
		Example: "  chordwheel keys test groq",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ring, err := a.ring()
			if err != nil {
				return err
			}
			secret, ok := ring.Get(args[0])
			if !ok {
				return fmt.Errorf("key %s is not in the ring or the environment of this command; set it with: chordwheel keys set %s", chain.Clip(args[0]), chain.Clip(args[0]))
			}
			endpoints, err := a.endpointsOf(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.tryKey(c.Context(), args[0], secret, endpoints)
		},
	}
}

// endpointsOf gives the providers that the running device would show a key to.
func (a *app) endpointsOf(ctx context.Context, key string) ([]string, error) {
	n, err := a.device(ctx)
	if err != nil {
		return nil, err
	}
	var s control.Status
	if err := n.get(ctx, "/api/v1/status", &s); err != nil {
		return nil, err
	}
	var all []string
	for _, summary := range s.Chains {
		var v control.ChainView
		if err := n.get(ctx, query("/api/v1/chain", chain.Slot{Scope: summary.Scope, Primitive: summary.Primitive}), &v); err != nil {
			return nil, err
		}
		for _, o := range v.Options {
			if o.Adapter == "openai" && o.Endpoint != "" && slices.Contains(o.Keys, key) && !slices.Contains(all, o.Endpoint) {
				all = append(all, o.Endpoint)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no chain of this device names key %s: keys: of a provider in the catalogue does; see chordwheel chain show; a key that was just set takes some seconds to get there", chain.Clip(key))
	}
	slices.Sort(all)
	return all, nil
}

func (a *app) tryKey(ctx context.Context, name string, secret chain.Secret, endpoints []string) error {
	client := openai.New(openai.Config{})
	defer client.Close()
	all := struct {
		Key       string     `json:"key"`
		Endpoints []keyTried `json:"endpoints"`
	}{Key: name}
	code, failed := 0, 0
	for _, endpoint := range endpoints {
		models, err := client.Models(ctx, endpoint, secret)
		tried := keyTried{Endpoint: endpoint, Accepted: err == nil, Models: len(models)}
		if err != nil {
			tried.Error = err.Error()
			failed++
			code = max(code, exitUnreachable)
			if errors.Is(err, openai.ErrKey) {
				code = exitRefused
			}
		}
		all.Endpoints = append(all.Endpoints, tried)
	}
	err := a.print(all, func(w io.Writer) {
		for _, t := range all.Endpoints {
			if t.Accepted {
				fmt.Fprintf(w, "%s  %s, %s\n", t.Endpoint, a.paint(green, "accepted"), count(t.Models, "model"))
			} else {
				fmt.Fprintf(w, "%s  %s\n", t.Endpoint, a.paint(yellow, t.Error))
			}
		}
	})
	if err != nil || failed == 0 {
		return err
	}
	return &exit{code, fmt.Errorf("key %s did not do at %d of %d providers", name, failed, len(endpoints))}
}
