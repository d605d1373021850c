package orchestrator_test

import (
	"context"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// FuzzMessages: whatever a member or a stranger sends, the hub answers, stays whole
// and publishes only what a device would accept.
func FuzzMessages(f *testing.F) {
	r := start(f, newDisk(), parsed(f, declared+"ceilings: [{key: alpha, calls_per_day: 10}]\n"))
	d := r.joined("a", "key:alpha", "key:beta")
	chains, err := r.Chains(context.Background())
	if err != nil || len(chains) != 1 {
		f.Fatal(err)
	}
	hello := d.hello()
	hello.Holds = []wire.Held{{Slot: home, Mark: chain.Mark{Seq: 1 << 60, Body: chains[0].Body}, Head: []byte("x")}}
	invited := d.hello()
	invited.Membership, invited.Invitation = nil, &wire.Redeem{Secret: make([]byte, 32), Scope: home.Scope}
	report := batch("boot", 1, "alpha/small", chain.Timeout, 3, time.Second)
	for i, m := range []any{hello, invited, report, wire.Fetch{Slot: home}, wire.Protest{Slot: home, Body: chains[0].Body, Nonce: "n", Failed: []chain.Failure{{Option: "alpha/small", Class: chain.Timeout}}},
		wire.Lease{Asks: []wire.LeaseAsk{{Account: "key alpha calls_per_day", Slot: home, Least: 1}}, Usage: []wire.LeaseUsage{{ID: "x", Account: "key alpha calls_per_day", Used: 1, Done: true}}},
		wire.Provider{Invitation: wire.Redeem{Secret: make([]byte, 32), Scope: home.Scope}, Class: "browser", Nonce: "n"}} {
		b, err := chain.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), b)
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		ctx, from := context.Background(), d.key.PeerID()
		if kind&0x80 != 0 {
			from = newKey().PeerID()
		}
		switch kind & 0x7f % 7 {
		case 0, 1:
			var m wire.Hello
			if chain.Unmarshal(b, &m) == nil {
				_, _ = r.Hello(ctx, from, m)
			}
		case 2:
			var m wire.Report
			if chain.Unmarshal(b, &m) == nil {
				_, _ = r.Report(ctx, from, m)
			}
		case 3:
			var m wire.Fetch
			if chain.Unmarshal(b, &m) == nil {
				_, _ = r.Fetch(ctx, from, m)
			}
		case 4:
			var m wire.Protest
			if chain.Unmarshal(b, &m) == nil {
				_, _ = r.Protest(ctx, from, m)
			}
		case 5:
			var m wire.Lease
			if chain.Unmarshal(b, &m) == nil {
				_, _ = r.Lease(ctx, from, m)
			}
		case 6:
			var m wire.Provider
			if chain.Unmarshal(b, &m) == nil {
				_, _ = r.Provider(ctx, from, m)
			}
		}
		view, err := r.Show(ctx, home)
		if err != nil {
			return // its capabilities changed: nothing can run
		}
		if _, err := r.trust().Verify(home, view.Signed.Head, view.Signed.Body, chain.Mark{}, time.Now()); err != nil {
			t.Fatalf("the hub publishes what no device accepts: %v", err)
		}
	})
}
