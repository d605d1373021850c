package daemon_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/pipeline"
	"github.com/chordwheel/chordwheel/mesh/member"
)

// BenchmarkEasyQuestion is an easy question of 1 KiB at an option that answers at
// once, with the pipeline off and on, and as a multiple of off: what a device that has
// one pays for what needs none.
func BenchmarkEasyQuestion(b *testing.B) {
	body := fmt.Appendf(nil, `{"model":"auto","messages":[{"role":"system","content":"%s"},{"role":"user","content":"What is the capital of France?"}]}`,
		strings.Repeat("You are brief and friendly. ", 34))
	off := 0.0
	for _, on := range []bool{false, true} {
		b.Run(map[bool]string{false: "off", true: "on"}[on], func(b *testing.B) {
			d := easyDevice(b, on)
			b.ReportAllocs()
			for b.Loop() {
				w := edge.Work{ID: "r", Primitive: chain.LLMChat, Model: edge.Auto, Body: body, Ask: []byte(`"What is the capital of France?"`)}
				if result, err := d.Do(b.Context(), &w, func(walk.Attempt, [][]byte) error { return nil }); err != nil || result.Option != "beta/small" {
					b.Fatal(result, err)
				}
			}
			each := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			if !on {
				off = each
			} else if off > 0 {
				b.ReportMetric(each/off, "x/off")
				b.ReportMetric((each-off)/1000, "µs-more")
			}
		})
	}
}

// easyDevice is a joined device whose adapter answers at once.
func easyDevice(b *testing.B, on bool) *daemon.Daemon {
	h := &hub{t: new(testing.T), policy: chaintest.NewHub(), peer: chaintest.PeerID(device), others: newOthers()}
	h.serve("beta/small")
	m := newMemory()
	settings := pipeline.Default()
	settings.Enabled = on
	d, err := daemon.New(daemon.Config{Key: chaintest.Key(device), DeviceID: "d", Name: "a", Version: "test", Keys: &ring{}, Chains: chains{m}, Marks: marks{m}, State: m,
		Adapters: map[string]adapter.Adapter{"openai": &provider{}}, Pipeline: settings, Log: slog.New(slog.DiscardHandler), Random: random(),
		Connect: func(context.Context, daemon.Joined, daemon.Events) (daemon.Node, error) { return h, nil }})
	if err == nil {
		err = d.Start(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	text, err := member.Invitation{Mesh: h.policy.Trust.Mesh, Orchestrator: h.policy.Trust.Orchestrator, Addresses: []string{"/ip4/127.0.0.1/tcp/7411"},
		Scope: chain.DefaultScope, Secret: member.NewSecret(), Expires: chain.InstantOf(time.Now().Add(time.Hour)), Uses: 1}.Encode()
	if err == nil {
		err = d.Join(b.Context(), text)
	}
	if err != nil {
		b.Fatal(err)
	}
	<-d.Visited()
	return d
}
