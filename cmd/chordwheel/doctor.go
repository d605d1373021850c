package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// finding is what doctor says of one thing.
type finding struct {
	Check string `json:"check"`
	State string `json:"state"` // ok; note: it works, and could do better; wrong
	What  string `json:"what"`
	Next  string `json:"next,omitempty"` // what to do
}

const (
	fine  = "ok"
	note  = "note"
	wrong = "wrong"
)

func (a *app) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check whether all is well here, and say what to do where it is not",
		Long: `Check the running device, and the hub where one runs beside it: versions, the edge, the
spoke to the hub, receipts, networks, chains, models and keys, the catalogue. It changes nothing,
asks no provider and costs nothing. The exit code is 1 if something is wrong; notes say
what works and could do better.`,
		Example: "  chordwheel doctor\n  chordwheel doctor --dir ~/device --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			findings, err := a.examine(c.Context())
			if err != nil {
				return err
			}
			failed := 0
			for _, f := range findings {
				if f.State == wrong {
					failed++
				}
			}
			if err := a.print(map[string]any{"findings": findings, "wrong": failed}, func(w io.Writer) { a.writeFindings(w, findings) }); err != nil || failed == 0 {
				return err
			}
			return fmt.Errorf("%s wrong here", count(failed, "thing")+[]string{" is", " are"}[min(failed-1, 1)])
		},
	}
}

// examine asks the nodes that run here. Its error is that of a device that cannot be asked.
func (a *app) examine(ctx context.Context) ([]finding, error) {
	n, err := a.device(ctx)
	if err != nil {
		var e *exit
		if !errors.As(err, &e) || e.code != exitUnreachable {
			return nil, err // something runs there, and it is no device
		}
		if why := a.whyNotStarted(); why != nil {
			return nil, fmt.Errorf("%w\n%w", err, why)
		}
		return nil, err
	}
	s, views, err := n.chains(ctx)
	if err != nil {
		return nil, err
	}
	var network control.Network
	if err := n.call(ctx, http.MethodPost, "/api/v1/netcheck", nil, &network); err != nil {
		return nil, err
	}
	findings := slices.Concat(ofDevice(s), ofReceipts(s.Receipts), []finding{askEdge(ctx, s.Edge)}, ofNetwork(network), ofChains(views))
	if h, err := a.hubNode(ctx); err == nil {
		var s orchestrator.Status
		if err := h.get(ctx, "/api/v1/status", &s); err != nil {
			return nil, err
		}
		findings = append(append(findings, ofCatalogue(s.Catalogue)), ofLedger(s.Ledger)...)
	}
	return findings, nil
}

// ofDevice judges what a device says of itself.
func ofDevice(s control.Status) []finding {
	f := []finding{{"device", fine, s.Name + " runs, in " + s.DataDir, ""}}
	if s.Version != version {
		f[0] = finding{"device", note, fmt.Sprintf("%s runs version %s, this program is %s", s.Name, s.Version, version), "start it anew"}
	}
	switch {
	case !s.Hub.Joined:
		f = append(f, finding{"hub", wrong, "the device has joined no mesh", "on the hub's machine: chordwheel invite; here: chordwheel join INVITATION"})
	case !s.Hub.Reachable:
		f = append(f, finding{"hub", wrong, "the hub is out of reach; work goes on with the chains held", "see that it runs; chordwheel netcheck says where it was looked for"})
	default:
		f = append(f, finding{"hub", fine, "connected, mesh " + string(s.Hub.Mesh), ""})
	}
	for _, p := range s.Problems {
		if !s.Hub.Joined && strings.Contains(p, "join") || !s.Hub.Reachable && strings.Contains(p, "hub is out of reach") {
			continue // said already
		}
		f = append(f, finding{"status", wrong, p, ""})
	}
	return f
}

// ofReceipts judges how a device's receipts fare; nil: it keeps none.
func ofReceipts(r *control.Receipts) []finding {
	switch {
	case r == nil:
		return nil
	case !r.Writable:
		return []finding{{"receipts", wrong, "they cannot be written: " + r.Fault, "see that the disk of the data directory, or of spool_dir, has room and can be written"}}
	case r.Waiting > 0 && r.LastError != "":
		then := "they are kept and sent again; where its own hub is meant, see that it runs"
		if strings.Contains(r.LastError, "chordwheel ") { // it says what to do itself
			then = "they are kept, and sent again until it does"
		}
		return []finding{{"receipts", note, fmt.Sprintf("%d wait, for the ledger does not take them: %s", r.Waiting, r.LastError), then}}
	}
	return []finding{{"receipts", fine, fmt.Sprintf("%d sent, %d waiting", r.Sent, r.Waiting), ""}}
}

// ofLedger says what is wrong with the hub's ledger, and what it noticed.
func ofLedger(l *orchestrator.LedgerView) (found []finding) {
	if l == nil {
		return nil
	}
	if l.Fault != "" {
		found = append(found, finding{"ledger", wrong, "it takes no receipts: " + l.Fault, "docs/ledger.md says what to do; devices keep theirs meanwhile"})
	}
	if l.DoubleUses > 0 {
		found = append(found, finding{"ledger", wrong, count(int(l.DoubleUses), "double use") + " of tokens", "chordwheel receipts report --ledger says which, and whose receipts say so"})
	}
	return found
}

// askEdge sees whether an application would find the edge. Whether it is let in is
// another matter: no key is sent.
func askEdge(ctx context.Context, url string) finding {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/models", nil)
	if err == nil {
		var response *http.Response
		if response, err = http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			return finding{"edge", fine, url + " answers", ""}
		}
	}
	return finding{"edge", wrong, "applications cannot reach " + url + ": " + chain.Clip(err.Error()), "see edge: in config.yaml, and whether something is between"}
}

// ofNetwork takes over what netcheck found. That nobody outside can call is no fault
// of a mesh on one machine.
func ofNetwork(n control.Network) []finding {
	var f []finding
	for _, p := range n.Problems {
		state := wrong
		if n.Within {
			state = note
		}
		f = append(f, finding{"network", state, p.What, p.Next})
	}
	if len(f) == 0 {
		f = append(f, finding{"network", fine, "nothing is in the way", ""})
	}
	return f
}

// ofChains judges, per chain, whether anything can answer, and names keys that lack.
func ofChains(views []control.ChainView) []finding {
	if len(views) == 0 {
		return []finding{{"chains", wrong, "the device holds no chain: it can do no work", "chordwheel chain explain says why, on the hub's machine"}}
	}
	var f []finding
	var lacking []string
	for _, v := range views {
		usable, only, without := 0, true, len(lacking)
		for _, o := range v.Options {
			if o.Usable {
				usable++
				only = only && o.ID == chain.BuiltinOption
			}
			if o.Why == chain.KeyMissing {
				lacking = append(lacking, o.Keys...)
			}
		}
		name := fmt.Sprintf("%s %s", v.Head.Scope, v.Head.Primitive)
		switch {
		case v.Expired:
			f = append(f, finding{"chains", wrong, name + " has expired", "bring the device to its hub: chordwheel netcheck"})
		case usable == 0:
			f = append(f, finding{"chains", wrong, fmt.Sprintf("%s: none of %s can be tried now", name, count(len(v.Options), "option")), "chordwheel models says why each"})
		case only:
			next := "start a model server such as Ollama, or put a provider into the catalogue (docs/catalogue.md) and its key here: chordwheel keys set NAME"
			if len(lacking) > without {
				next = "give this device the key of a provider that is there: chordwheel keys set " + lacking[without]
			}
			f = append(f, finding{"models", note, name + ": only the small model inside this program can answer", next})
		default:
			f = append(f, finding{"models", fine, fmt.Sprintf("%s: %d of %s can be tried now", name, usable, count(len(v.Options), "option")), ""})
		}
	}
	slices.Sort(lacking)
	for _, key := range slices.Compact(lacking) {
		f = append(f, finding{"keys", note, "an option needs the key " + key + ", which this device has not", "chordwheel keys set " + key})
	}
	return f
}

// ofCatalogue judges the catalogue of a hub on this machine.
func ofCatalogue(c orchestrator.CatalogueView) finding {
	if c.Refused != "" {
		return finding{"catalogue", wrong, "what was saved last is not in force: " + c.Refused, "chordwheel catalog check FILE names every fault"}
	}
	return finding{"catalogue", fine, fmt.Sprintf("%s, %s", count(c.Providers, "provider"), count(c.Models, "model")), ""}
}

func (a *app) writeFindings(w io.Writer, findings []finding) {
	for _, f := range findings {
		mark := a.paint(green, "ok   ")
		if f.State != fine {
			mark = a.paint(yellow, fmt.Sprintf("%-5s", f.State))
		}
		fmt.Fprintf(w, "%s  %-9s  %s\n", mark, f.Check, f.What)
		if f.Next != "" {
			fmt.Fprintf(w, "                  → %s\n", f.Next)
		}
	}
}
