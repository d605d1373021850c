package main

import (
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// states gives the states of findings, in their order.
func states(findings []finding) string {
	var all []string
	for _, f := range findings {
		all = append(all, f.Check+" "+f.State)
	}
	return strings.Join(all, ", ")
}

func TestTheDoctorTellsFaultsFromNotes(t *testing.T) {
	healthy := func(change func(*control.Status)) control.Status {
		s := control.Status{Name: "a", Version: version, Hub: control.HubStatus{Joined: true, Reachable: true}}
		change(&s)
		return s
	}
	view := func(options ...control.OptionView) []control.ChainView {
		return []control.ChainView{{Head: chain.Head{Scope: "workspace:home", Primitive: "llm.chat"}, Options: options}}
	}
	builtin := control.OptionView{Option: chain.Option{ID: chain.BuiltinOption}, Usable: true}
	model := control.OptionView{Option: chain.Option{ID: "alpha/small"}, Usable: true}
	keyless := control.OptionView{Option: chain.Option{ID: "beta/small", Keys: []string{"beta"}}, Why: chain.KeyMissing}
	problem := []control.Problem{{What: "w", Next: "n"}}
	for want, options := range map[string][]control.OptionView{"chordwheel keys set beta": {keyless, builtin}, "put a provider into the catalogue": {builtin}} {
		if f := ofChains(view(options...)); !strings.Contains(f[0].Next, want) {
			t.Errorf("%+v, want %q", f[0], want)
		}
	}
	for name, c := range map[string]struct {
		got  []finding
		want string
	}{
		"all is well":                     {ofDevice(healthy(func(*control.Status) {})), "device ok, hub ok"},
		"another version runs":            {ofDevice(healthy(func(s *control.Status) { s.Version = "other" })), "device note, hub ok"},
		"no mesh, said once":              {ofDevice(healthy(func(s *control.Status) { s.Hub, s.Problems = control.HubStatus{}, []string{"not joined"} })), "device ok, hub wrong"},
		"the hub is away, said once":      {ofDevice(healthy(func(s *control.Status) { s.Hub.Reachable, s.Problems = false, []string{"the hub is out of reach; x"} })), "device ok, hub wrong"},
		"a problem of status":             {ofDevice(healthy(func(s *control.Status) { s.Problems = []string{"p"} })), "device ok, hub ok, status wrong"},
		"nothing is in the way":           {ofNetwork(control.Network{}), "network ok"},
		"something is in the way":         {ofNetwork(control.Network{Problems: problem}), "network wrong"},
		"on one machine it is a note":     {ofNetwork(control.Network{Problems: problem, Within: true}), "network note"},
		"no chain":                        {ofChains(nil), "chains wrong"},
		"a model":                         {ofChains(view(model, builtin)), "models ok"},
		"the built-in one alone":          {ofChains(view(builtin)), "models note"},
		"the built-in one, for a key":     {ofChains(view(keyless, builtin)), "models note, keys note"},
		"nothing can be tried, for a key": {ofChains(view(keyless, keyless)), "chains wrong, keys note"},
		"receipts are taken":              {ofReceipts(&control.Receipts{Sent: 3, Writable: true}), "receipts ok"},
		"the ledger takes none":           {ofReceipts(&control.Receipts{Waiting: 3, LastError: "answered 503", Writable: true}), "receipts note"},
		"the ledger wants a DID served":   {ofReceipts(&control.Receipts{Waiting: 3, LastError: "answered 502; chordwheel did show says where", Writable: true}), "receipts note"},
		"the disk takes none":             {ofReceipts(&control.Receipts{Fault: "no space left"}), "receipts wrong"},
		"no receipts are kept":            {ofReceipts(nil), ""},
		"a catalogue with faults":         {[]finding{ofCatalogue(orchestrator.CatalogueView{Refused: "line 3"})}, "catalogue wrong"},
	} {
		if got := states(c.got); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		for _, f := range c.got {
			if f.State == wrong && f.Check != "status" && f.Next == "" {
				t.Errorf("%s: %q comes without a next step", name, f.What)
			}
		}
	}
}
