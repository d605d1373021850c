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

// One device that lies about its requests does not make the fleet's; and what was
// measured is there after a restart.
func TestALiarAboutSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		report := func(d *device, output int64) {
			t.Helper()
			time.Sleep(time.Second)
			d.seq++
			b := batch(d.boot, d.seq, "alpha/small", chain.OK, 5, time.Second)
			for i := range b.Measurements {
				b.Measurements[i].Input, b.Measurements[i].Output = 1000, output
			}
			if reply, err := r.Report(context.Background(), d.key.PeerID(), b); err != nil || !reply.Accepted {
				t.Fatalf("%+v %v", reply, err)
			}
		}
		var honest []*device
		for _, name := range []string{"a", "b", "c"} {
			honest = append(honest, r.joined(name, "key:alpha"))
		}
		liar := r.joined("liar", "key:alpha")
		for i := range 40 {
			for _, d := range honest {
				report(d, 600)
			}
			for range 5 * (i / 10) { // and much more often
				report(liar, 1<<40)
			}
		}
		profile := func() float64 {
			e, err := r.Explain(t.Context(), home)
			if err != nil {
				t.Fatal(err)
			}
			return e.Profile.OutputTokens
		}
		was := profile()
		if was < 500 || was > 750 {
			t.Errorf("answers of 600 tokens are thought to have %g", was)
		}
		r.stop()
		r = start(t, r.disk, parsed(t, declared))
		if now := profile(); now < 0.99*was || now > 1.01*was {
			t.Errorf("after a restart %g tokens, %g before", now, was)
		}
	})
}
