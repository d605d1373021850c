package orchestrator_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
)

// TestACascadeKeepsItsBehaviour: a configuration of three levels that was moved
// into a catalogue chooses what it always chose, for the whole cross product of
// stages, consumers and instances, known and unknown. A device looks for the chain
// as the daemon does.
func TestACascadeKeepsItsBehaviour(t *testing.T) {
	read := func(name string) []byte {
		b, err := os.ReadFile("../examples/cascade/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	c, err := catalog.Parse("catalogue.yaml", read("catalogue.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var table []struct {
		Stage, Consumer, Instance string
		Models                    []chain.OptionID
	}
	if err := json.Unmarshal(read("choices.json"), &table); err != nil || len(table) < 50 {
		t.Fatalf("%d choices: %v", len(table), err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), c)
		d := r.device("a", "key:openai", "key:groq", "execute:llm.chat")
		d.locals = append(d.locals, local("local/ollama/q", chain.LLMChat)) // which the cascade knew nothing of
		w, err := d.enrol(r.invite(orchestrator.Invite{}))
		if err != nil {
			t.Fatal(err)
		}
		chains := map[chain.ScopeID][]chain.OptionID{}
		for _, a := range w.Chains {
			chains[a.Slot.Scope] = d.order(a.Slot)
		}
		for _, want := range table {
			var got []chain.OptionID
			for _, q := range (chain.Qualifier{Stage: want.Stage, Consumer: want.Consumer, Instance: want.Instance}).Wider() {
				if own, ok := chains[chain.DefaultScope.With(q)]; ok {
					got = own
					break
				}
			}
			if !slices.Equal(got, want.Models) {
				t.Errorf("%q %q %q: %v, the cascade chose %v", want.Stage, want.Consumer, want.Instance, got, want.Models)
			}
		}
		t.Logf("%d combinations, %d chains", len(table), len(chains))
	})
}
