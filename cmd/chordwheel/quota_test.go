package main

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/purse"
	"github.com/chordwheel/chordwheel/orchestrator/quota"
)

// spender is a device's purse as the daemon uses it, with a clock of its own.
type spender struct {
	name   string
	purse  *purse.Purse
	disk   purse.Kept
	clock  time.Duration // ahead of the hub's
	under  []*purse.Reservation
	amount int64 // of a request
}

func (d *spender) restart(clean bool) {
	if clean {
		d.disk = d.purse.Kept(true)
	}
	for _, r := range d.under { // its answer may still be billed; the blocks that are kept know
		r.Settle([]int64{d.amount})
	}
	d.under, d.purse = nil, purse.New()
	d.purse.Restore(d.disk)
	d.disk = d.purse.Kept(false)
}

// visit tells what is used, and asks for one block. Either half of the exchange may
// get lost.
func (d *spender) visit(b *quota.Book, c *quota.Ceiling, slot chain.Slot, arrives bool, now time.Time) {
	usage := d.purse.Usage(now.Add(d.clock))
	holds := map[string]bool{}
	for _, u := range usage {
		holds[u.ID] = true
		b.Settle(c, chain.PeerID(d.name), u.ID, u.Used, u.Done, now)
	}
	g := b.Grant(c, quota.Ask{Device: chain.PeerID(d.name), Slot: slot, Least: d.amount, Known: d.amount, Holds: holds}, quota.Terms{Interval: 15 * time.Minute}, now)
	if !arrives {
		return
	}
	d.purse.Acknowledged(usage)
	if g.ID != "" {
		block := purse.Block{ID: g.ID, Account: c.Account, Slot: slot, Amount: g.Amount, Until: chain.InstantOf(now.Add(d.clock)) + chain.InstantOf(g.Until) - chain.InstantOf(now)}
		d.disk = d.purse.Kept(false, block)
		d.purse.Add(block)
	}
}

// rebooted is the hub's book as it comes back from disk.
func rebooted(b *quota.Book, c *quota.Ceiling, now time.Time) *quota.Book {
	next := quota.New()
	b.State(c, 1, now) // the account is there
	records := b.Kept(c.Account, b.Blocks(c.Account)...)
	next.Restore(c.Account, *records[c.Account].(*quota.Account))
	for _, v := range records {
		if x, ok := v.(quota.Block); ok {
			next.RestoreBlock(x)
		}
	}
	return next
}

// TestCeilingsHoldInAnyRun: hub and devices with the code that ships, between them a
// wire that loses answers, devices that crash or stop, clocks that are hours apart,
// hubs that restart, periods that end. With estimates that hold, no ceiling is ever
// broken; where requests cost twice what was expected, by no more than that excess.
func TestCeilingsHoldInAnyRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := quota.Ceiling{Account: "x", Limit: rapid.Int64Range(1, 3000).Draw(t, "limit"), Calls: true}
		dear := rapid.SampledFrom([]int64{1, 1, 2}).Draw(t, "times the estimate")
		slots := []chain.Slot{{Scope: chain.DefaultScope, Primitive: chain.LLMChat}, {Scope: chain.DefaultScope, Primitive: "llm.t1"}}
		b, now := quota.New(), time.Date(2026, 3, 31, 20, 0, 0, 0, time.UTC)
		var devices []*spender
		for i := range rapid.IntRange(1, 5).Draw(t, "devices") {
			devices = append(devices, &spender{name: fmt.Sprint(i), purse: purse.New(), amount: rapid.Int64Range(1, 40).Draw(t, "request"),
				clock: time.Duration(rapid.Int64Range(int64(-5*time.Hour), int64(5*time.Hour)).Draw(t, "clock"))})
		}
		spent, over := map[time.Time]int64{}, map[time.Time]int64{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Minute)).Draw(t, "pause")))
			from, _ := c.Period(now)
			d := devices[rapid.IntRange(0, len(devices)-1).Draw(t, "device")]
			slot := slots[rapid.IntRange(0, 1).Draw(t, "slot")]
			switch rapid.SampledFrom([]string{"visit", "visit", "request", "request", "request", "request", "answer", "answer", "stop", "crash", "hub"}).Draw(t, "what") {
			case "visit":
				d.visit(b, &c, slot, rapid.Bool().Draw(t, "arrives"), now)
			case "request":
				if r, ok := d.purse.Reserve(slot, []purse.Charge{{Account: c.Account, Amount: d.amount}}, now.Add(d.clock)); ok {
					d.under = append(d.under, r)
					spent[from] += d.amount * dear
					over[from] += d.amount * (dear - 1)
				}
			case "answer":
				if len(d.under) > 0 {
					d.under[0].Settle([]int64{d.amount * dear})
					d.under = d.under[1:]
				}
			case "stop":
				d.restart(true)
			case "crash":
				d.restart(false)
			case "hub":
				b = rebooted(b, &c, now)
			}
			for from, n := range spent {
				if n > c.Limit+over[from] {
					t.Fatalf("%d of %d spent in the period of %s, %d of it over the estimates", n, c.Limit, from, over[from])
				}
			}
		}
	})
}
