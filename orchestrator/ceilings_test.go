package orchestrator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
)

const rationed = `
providers:
  - {name: alpha, adapter: openai, endpoint: "http://127.0.0.1:9001/v1", keys: [alpha], models: [{name: small, primitives: [llm.chat], price: {per_call: 0.01}}]}
  - {name: beta, adapter: openai, endpoint: "http://127.0.0.1:9002/v1", keys: [beta, spare], models: [{name: small, primitives: [llm.chat]}]}
primitives:
  - {name: llm.chat, default: [alpha/small, beta/small]}
workspaces:
  - {id: home, ceilings: [{options: "alpha/*", usd_per_month: 1}]}
  - {id: lab, keys: [beta]}
ceilings: [{key: beta, calls_per_day: 10}]
`

// TestLeasesOfCeilings: chains name the accounts, blocks are handed out to members
// of the scope, are there after a restart, and a ceiling that is used up takes its
// option out of the chain.
func TestLeasesOfCeilings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, rationed))
		a := r.joined("a", "key:alpha", "key:beta", "key:spare")
		c, err := a.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		want := map[chain.OptionID]chain.Account{"alpha/small": {Name: "workspace:home alpha/* usd_per_month"}, "beta/small": {Name: "key beta calls_per_day", Key: "beta", Calls: true}}
		for _, o := range c.Options() {
			if len(o.Accounts) != 1 || o.Accounts[0] != want[o.ID] {
				t.Errorf("accounts of %s: %+v", o.ID, o.Accounts)
			}
		}
		lease := func(account string, slot chain.Slot, usage ...wire.LeaseUsage) wire.Grant {
			t.Helper()
			reply, err := r.Lease(t.Context(), a.key.PeerID(), wire.Lease{Asks: []wire.LeaseAsk{{Account: account, Slot: slot, Least: 1}}, Usage: usage})
			if err != nil || len(reply.Grants) != 1 {
				t.Fatalf("%+v, %v", reply, err)
			}
			return reply.Grants[0]
		}
		const money, calls = "workspace:home alpha/* usd_per_month", "key beta calls_per_day"
		g := lease(money, home)
		if g.Amount != 250_000 || g.Until != chain.InstantOf(time.Now().Add(30*time.Minute)) {
			t.Errorf("%+v", g)
		}
		lab := chain.Slot{Scope: "workspace:lab", Primitive: chain.LLMChat}
		for what, got := range map[string]wire.Grant{"another scope's": lease(money, lab), "unknown": lease("no such ceiling", home), "unknown work": lease(calls, chain.Slot{Scope: home.Scope, Primitive: "x.y"})} {
			if got.Amount != 0 || got.ID != "" {
				t.Errorf("%s: %+v", what, got)
			}
		}
		r.stop()
		r = start(t, r.disk, parsed(t, rationed))
		a.rig = r
		if again := lease(money, home); again.ID != g.ID {
			t.Errorf("after a restart a block that never arrived is another: %+v", again)
		}
		used := wire.LeaseUsage{ID: g.ID, Account: money, Used: 250_000, Done: true}
		lease(calls, home, used)
		status := func() (spent, leased int64) {
			s, err := r.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range s.Ceilings {
				if l.Account == money {
					return l.Spent, l.Leased
				}
			}
			return -1, -1
		}
		if spent, leased := status(); spent != 250_000 || leased != 0 {
			t.Errorf("%d spent, %d leased", spent, leased)
		}
		for range 60 { // each time a quarter of the rest
			g := lease(money, home)
			if g.ID == "" {
				break
			}
			lease(calls, home, wire.LeaseUsage{ID: g.ID, Account: money, Used: g.Amount, Done: true})
		}
		if got := a.order(home); len(got) != 1 || got[0] != "beta/small" {
			t.Errorf("with the ceiling used up: %v", got)
		}
		next := time.Date(time.Now().Year(), time.Now().Month()+1, 1, 0, 0, 0, 0, time.UTC)
		for time.Now().Before(next) {
			time.Sleep(min(time.Until(next)+time.Second, 24*time.Hour))
			if _, err := a.visit(); err != nil {
				t.Fatal(err)
			}
		}
		if got := a.order(home); len(got) != 2 {
			t.Errorf("in the next month: %v", got)
		}
	})
}

// TestAKeyThatIsUsedUpLeavesTheOthers of an option.
func TestAKeyThatIsUsedUpLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, rationed))
		a := r.joined("a", "key:alpha", "key:beta", "key:spare")
		for range 30 {
			reply, err := r.Lease(t.Context(), a.key.PeerID(), wire.Lease{Asks: []wire.LeaseAsk{{Account: "key beta calls_per_day", Slot: home, Least: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			if g := reply.Grants[0]; g.ID != "" {
				_, err = r.Lease(t.Context(), a.key.PeerID(), wire.Lease{Usage: []wire.LeaseUsage{{ID: g.ID, Account: g.Account, Used: g.Amount, Done: true}}})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		c, err := a.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range c.Options() {
			if o.ID == "beta/small" && (strings.Join(o.Keys, ",") != "spare" || len(o.Accounts) != 0) {
				t.Errorf("keys %v, accounts %v", o.Keys, o.Accounts)
			}
		}
	})
}

// TestWhatCannotBeKeptIsNotLeased, and strangers get nothing.
func TestWhatCannotBeKeptIsNotLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, rationed))
		a := r.joined("a", "key:alpha", "key:beta")
		q := wire.Lease{Asks: []wire.LeaseAsk{{Account: "key beta calls_per_day", Slot: home}}}
		r.disk.failing(errors.New("the disk is full"))
		if reply, err := r.Lease(t.Context(), a.key.PeerID(), q); err == nil {
			t.Errorf("%+v", reply)
		}
		r.disk.failing(nil)
		s, err := r.Status(t.Context())
		if err != nil || s.Ceilings[0].Leased != 0 {
			t.Errorf("%+v, %v", s.Ceilings, err)
		}
		if _, err := r.Lease(t.Context(), newKey().PeerID(), q); !errors.Is(err, &spoke.Refusal{Code: spoke.CodeNotMember}) {
			t.Errorf("a stranger: %v", err)
		}
	})
}

// TestCeilingsOfManyWorkspaces: a workspace's ceiling that is used up concerns its own
// chains alone, and multipliers are kept in one write however many moved.
func TestCeilingsOfManyWorkspaces(t *testing.T) {
	const n = 30
	var text strings.Builder
	text.WriteString(rationed[:strings.Index(rationed, "workspaces:")] + "workspaces:\n")
	for i := range n {
		fmt.Fprintf(&text, "  - {id: w%d, ceilings: [{options: \"alpha/*\", usd_per_month: 1}]}\n", i)
	}
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, text.String()))
		spend := func(d *device, i int) {
			t.Helper()
			slot, account := chain.Slot{Scope: chain.ScopeID(fmt.Sprint("workspace:w", i)), Primitive: chain.LLMChat}, fmt.Sprintf("workspace:w%d alpha/* usd_per_month", i)
			for range 60 {
				reply, err := r.Lease(t.Context(), d.key.PeerID(), wire.Lease{Asks: []wire.LeaseAsk{{Account: account, Slot: slot, Least: 1}}})
				if err != nil {
					t.Fatal(err)
				}
				g := reply.Grants[0]
				if g.ID == "" {
					return
				}
				if _, err := r.Lease(t.Context(), d.key.PeerID(), wire.Lease{Usage: []wire.LeaseUsage{{ID: g.ID, Account: account, Used: g.Amount, Done: true}}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		orders := func() uint64 {
			s, err := r.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return s.Orders
		}
		// The middle of January: what was used so far says something of the month.
		time.Sleep(15 * 24 * time.Hour / 2)
		for i := range n {
			d := r.device(fmt.Sprintf("%03d", i), "key:alpha", "key:beta")
			if _, err := d.enrol(r.invite(orchestrator.Invite{Scope: chain.ScopeID(fmt.Sprint("workspace:w", i))})); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // what joining gave the hub to do is not the ceiling's
			before := orders()
			spend(d, i)
			if made := orders() - before; made == 0 || made > 4 {
				t.Errorf("%d orders were worked out for one workspace's ceiling", made)
			}
		}
		writes := r.disk.written("hub-quota")
		time.Sleep(11 * time.Minute)
		if made := r.disk.written("hub-quota") - writes; made > 2 {
			t.Errorf("%d writes for the multipliers of %d ceilings", made, n)
		}
	})
}
