package orchestrator_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// What requests turn out to be replaces the declared profile: an option that is
// dear by output goes behind once answers are long. One absurd size moves next to
// nothing.
func TestMeasuredSizesReplaceTheProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, `
providers:
  - {name: talks, adapter: openai, endpoint: "http://127.0.0.1:9001/v1", models: [{name: m, primitives: [llm.chat], price: {input_per_mtok: 0.1, output_per_mtok: 4}}]}
  - {name: reads, adapter: openai, endpoint: "http://127.0.0.1:9002/v1", models: [{name: m, primitives: [llm.chat], price: {input_per_mtok: 3, output_per_mtok: 0.1}}]}
primitives: [{name: llm.chat, default: [talks/m, reads/m]}]
workspaces: [{id: home, weights: {preference: 0}}]
`))
		d := r.joined("a")
		wantOrder(t, d.order(home), "talks/m", "reads/m")
		report := func(input, output int64) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			d.seq++
			b := batch(d.boot, d.seq, "talks/m", chain.OK, 5, time.Second)
			for i := range b.Measurements {
				b.Measurements[i].Input, b.Measurements[i].Output = input, output
			}
			if reply, err := r.Report(context.Background(), d.key.PeerID(), b); err != nil || !reply.Accepted {
				t.Fatalf("%+v %v", reply, err)
			}
		}
		for range 12 {
			report(1000, 3000)
		}
		time.Sleep(2 * time.Minute)
		wantOrder(t, d.order(home), "reads/m", "talks/m")
		profile := func() float64 {
			e, err := r.Explain(t.Context(), home)
			if err != nil {
				t.Fatal(err)
			}
			return e.Profile.OutputTokens
		}
		before := profile()
		if before < 1500 || before > 3300 {
			t.Errorf("answers of 3000 tokens are thought to have %g", before)
		}
		report(1000, 1<<40)
		if after := profile(); after > 1.1*before {
			t.Errorf("one absurd answer: from %g to %g tokens", before, after)
		}
	})
}
