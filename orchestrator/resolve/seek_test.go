package resolve_test

import (
	"math"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// TestWhatIsSought: an option behind the first of which the newest word would change the
// place, as long as more samples are what is missing.
func TestWhatIsSought(t *testing.T) {
	slower := resolve.Trend{Latency: math.Log(3), LatencyDoubt: 0.3, Devices: 6}
	faster := resolve.Trend{Latency: -math.Log(4), LatencyDoubt: 0.3, Devices: 6}
	fails := resolve.Trend{Reliability: -0.6, ReliabilityDoubt: 0.2, Devices: 6}
	for _, c := range []struct {
		name   string
		of     string // the option that it is about; the others are calm
		trend  resolve.Trend
		change func(*resolve.Input, *resolve.Candidate)
		want   bool
	}{
		{"slower than the next", "b/m", slower, nil, true},
		{"faster than the first", "d/m", faster, nil, true},
		{"failing", "b/m", fails, nil, true},
		{"slower, and the last all the same", "d/m", slower, nil, false},
		{"within chance", "b/m", resolve.Trend{Latency: math.Log(3), LatencyDoubt: 0.7, Devices: 6}, nil, false},
		{"the first: requests measure it", "a/m", slower, nil, false},
		{"known well: an estimate lags not for want of samples", "b/m", slower, func(_ *resolve.Input, x *resolve.Candidate) {
			x.Estimates.Latency.Weight, x.Estimates.Reliability.Weight = 60, 60
		}, false},
		{"a quota that is nearly used up", "b/m", slower, func(_ *resolve.Input, x *resolve.Candidate) {
			x.Ceilings = []resolve.Ceiling{{Name: "x", Used: 0.81}}
		}, false},
		{"a quota with some left", "b/m", slower, func(_ *resolve.Input, x *resolve.Candidate) {
			x.Ceilings = []resolve.Ceiling{{Name: "x", Used: 0.79}}
		}, true},
		{"an order that the owner fixed", "b/m", slower, func(in *resolve.Input, _ *resolve.Candidate) { in.Mode = resolve.Fixed }, false},
		{"what devices may explore", "b/m", slower, func(in *resolve.Input, _ *resolve.Candidate) { in.Explore = []string{"c/*", "b/*"} }, true},
		{"what they may not", "b/m", slower, func(in *resolve.Input, _ *resolve.Candidate) { in.Explore = []string{"c/*"} }, false},
		{"a chain that nobody explores", "b/m", slower, func(in *resolve.Input, _ *resolve.Candidate) { in.NoExploration = true }, false},
		{"out of the chain", "b/m", slower, func(in *resolve.Input, _ *resolve.Candidate) { in.Deny = []resolve.Ruling{{Pattern: "b/*"}} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := resolve.Input{Slot: chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}}
			for i, id := range []chain.OptionID{"a/m", "b/m", "c/m", "d/m"} {
				in.Default = append(in.Default, id)
				in.Candidates = append(in.Candidates, resolve.Candidate{Option: chain.Option{ID: id, Kind: chain.Provider, Adapter: "openai", Model: "m", Endpoint: "https://x.example/v1"},
					Estimates: resolve.Estimates{Latency: resolve.Estimate{Value: 2 * float64(i+1), Weight: 9}, Reliability: resolve.Estimate{Value: 0.99, Weight: 9}}})
			}
			for i := range in.Candidates {
				if x := &in.Candidates[i]; string(x.Option.ID) == c.of {
					if x.Trend = c.trend; c.change != nil {
						c.change(&in, x)
					}
				}
			}
			r := resolve.Explain(in)
			if got := len(r.Sought) == 1 && string(r.Sought[0].Option) == c.of && r.Sought[0].Daily > 0; got != c.want || len(r.Sought) > 1 {
				t.Errorf("sought %+v", r.Sought)
			}
			for _, v := range r.Why {
				if (v.Sought > 0) != (c.want && string(v.Option) == c.of) || v.Sought > 0 && v.Trend == "" {
					t.Errorf("%s: sought %d, %q", v.Option, v.Sought, v.Trend)
				}
			}
		})
	}
}
