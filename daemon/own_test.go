package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// upstream answers after a time of each option's own.
type upstream struct {
	mu     sync.Mutex
	takes  map[chain.OptionID]time.Duration
	bodies map[chain.OptionID][]string
	at     []time.Time
	tokens [2]int64 // of each answer, in and out
}

func newUpstream() *upstream {
	return &upstream{takes: map[chain.OptionID]time.Duration{}, bodies: map[chain.OptionID][]string{}, tokens: [2]int64{10, 5}}
}

func (u *upstream) Run(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
	id := c.Attempt.Option.ID
	u.mu.Lock()
	u.bodies[id] = append(u.bodies[id], string(c.Request.Body))
	u.at = append(u.at, time.Now())
	wait, tokens := u.takes[id], u.tokens
	u.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return walk.Outcome{Class: chain.Canceled}
	}
	if err := emit(walk.Chunk{Data: []byte("answer of " + string(id)), Meaningful: true}); err != nil {
		return walk.Outcome{Class: chain.Canceled}
	}
	return walk.Outcome{Class: chain.OK, Input: tokens[0], Output: tokens[1]}
}

// asked gives how often each option was asked, and with what.
func (u *upstream) asked(id chain.OptionID) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.bodies[id]
}

// behind is a joined device with u behind every option, and change applied to its
// configuration.
func behind(t *testing.T, u *upstream, m *memory, body []byte, change func(*daemon.Config)) *bench {
	b := assemble(t, u, func(c *daemon.Config) {
		c.Chains, c.Marks, c.State = chains{m}, marks{m}, m
		if change != nil {
			change(c)
		}
	})
	b.memory = m
	b.hub.body = body
	b.hub.head = b.hub.policy.Head(t, body, time.Now())
	if err := b.Join(t.Context(), b.invitation()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return b
}

func (b *bench) answers(w edge.Work) string {
	b.t.Helper()
	text, _, err := b.ask(w)
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.TrimPrefix(text, "answer of ")
}

// TestADeviceFarFromAProviderHasItsOwnOrder, explains it, and keeps it over a restart.
func TestADeviceFarFromAProviderHasItsOwnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, m := newUpstream(), newMemory()
		u.takes["alpha/small"], u.takes["beta/small"] = 10*time.Second, 2*time.Second
		b := behind(t, u, m, nil, nil)
		b.hub.serve("alpha/small p=.99 s=1 | beta/small p=.99 s=2")
		b.hub.set(true)
		b.hub.set(false)
		synctest.Wait()
		n := 1
		for ; n < 20 && b.answers(edge.Work{}) == "alpha/small"; n++ {
			time.Sleep(time.Minute)
		}
		if n >= 20 || n < 5 {
			t.Fatalf("after %d requests", n)
		}
		view, err := b.Chain(slot)
		if err != nil || view.Options[0].ID != "beta/small" || view.Own[1].Option != "alpha/small" || view.Own[1].HubAt != 1 || view.Own[1].Why == "" {
			t.Errorf("%+v, %v", view.Own, err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if kept := string(m.files["deltas.json"]); !strings.Contains(kept, "alpha/small") || strings.Contains(kept, "answer") {
			t.Errorf("kept: %s", kept)
		}
		again := restarted(t, b)
		if view, err := again.Chain(slot); err != nil || view.Own[0].Samples == 0 {
			t.Errorf("after a restart: %+v, %v", view.Own, err)
		}
	})
}

// TestAConversationStaysWhereItWasAnswered, be it named or not.
func TestAConversationStaysWhereItWasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "alpha/small p=.99 s=1 | beta/small p=.99 s=2")
		b.provider.fail("alpha/small", chain.Status)
		say := func(w edge.Work, messages string) string {
			w.ID, w.Primitive, w.Model, w.Body = "r", chain.LLMChat, edge.Auto, []byte(`{"temperature":1,"messages":[`+messages+`]}`)
			var text string
			_, err := b.Do(t.Context(), &w, func(_ walk.Attempt, data [][]byte) error { text += string(data[0]); return nil })
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimPrefix(text, "answer of ")
		}
		const hello = `{"role":"system","content":"s"},{"role":"user","content":"hello"}`
		first := say(edge.Work{}, hello) + say(edge.Work{Session: "s1"}, `{"role":"user","content":"x"}`)
		b.provider.heal()
		time.Sleep(5 * time.Minute) // the cool-down is over
		if first != "beta/smallbeta/small" {
			t.Fatal(first)
		}
		for what, c := range map[string]struct {
			got, want string
		}{
			"its next turn":   {say(edge.Work{}, hello+`,{"role":"assistant","content":"hi"},{"role":"user","content":"more"}`), "beta/small"},
			"the session":     {say(edge.Work{Session: "s1"}, `{"role":"user","content":"quite another thing"}`), "beta/small"},
			"another one":     {say(edge.Work{}, `{"role":"user","content":"new"}`), "alpha/small"},
			"another session": {say(edge.Work{Session: "s2"}, hello), "alpha/small"},
		} {
			if c.got != c.want {
				t.Errorf("%s: %s, want %s", what, c.got, c.want)
			}
		}
	})
}

// An agent that the registry suspended is not asked for the sake of measuring either.
func TestASuspendedAgentIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, m := newUpstream(), newMemory()
		b := behind(t, u, m, nil, func(c *daemon.Config) {
			c.Explore, c.Selection = true, daemon.Selection{Agents: suspended{"did:web:b": true}}
		})
		b.hub.serve("alpha/small p=.99 s=1 | beta/small p=.99 s=2 agent=did:web:b")
		b.hub.set(true)
		b.hub.set(false)
		synctest.Wait()
		time.Sleep(40 * time.Hour)
		if n := len(u.asked("beta/small")); n != 0 {
			t.Errorf("%d probes of a suspended agent", n)
		}
	})
}

// TestProbes: while idle, as many as allowed, with the product's own words, measured
// and reported; never while there is work; and not twice for a restart.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, m := newUpstream(), newMemory()
		explore := func(c *daemon.Config) { c.Explore = true }
		b := behind(t, u, m, nil, explore)
		b.hub.serve("alpha/small p=.99 s=1 | beta/small p=.99 s=2 | peer p=.99 s=1")
		b.hub.set(true)
		b.hub.set(false)
		synctest.Wait()
		for range 180 { // three busy hours
			b.answers(edge.Work{Session: "s"})
			time.Sleep(59 * time.Second)
		}
		if n := len(u.asked("beta/small")); n != 0 {
			t.Fatalf("%d probes while busy", n)
		}
		b.hub.take()
		time.Sleep(20 * time.Hour)
		probes := u.asked("beta/small")
		if len(probes) < 5 || len(probes) > 7 {
			t.Errorf("%d probes in 20 h at 0.3 an hour", len(probes))
		}
		var q struct {
			Most     int `json:"max_tokens"`
			Messages []struct{ Role, Content string }
		}
		if err := json.Unmarshal([]byte(probes[0]), &q); err != nil || q.Most != 300 || len(q.Messages) != 1 || len(q.Messages[0].Content) < 3000 {
			t.Errorf("%s, %v", probes[0], err)
		}
		reported := uint64(0)
		reports, _, _ := b.hub.take()
		for _, r := range reports {
			for _, c := range r.Counters {
				if c.Option == "beta/small" {
					reported += c.Attempts
				}
			}
		}
		if reported == 0 || b.Status().Requests.Probes != uint64(len(probes)) {
			t.Errorf("%d reported, status says %d", reported, b.Status().Requests.Probes)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		before := len(u.asked("beta/small"))
		for range 5 {
			again := assemble(t, u, func(c *daemon.Config) { c.Chains, c.Marks, c.State, c.Explore = chains{m}, marks{m}, m, true })
			time.Sleep(10 * time.Minute)
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(u.asked("beta/small")) - before; n > 1 {
			t.Errorf("%d probes in 50 minutes of restarts", n)
		}
	})
}

// TestAProbeGivesWay to a request.
func TestAProbeGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, m := newUpstream(), newMemory()
		u.takes["beta/small"] = time.Minute
		b := behind(t, u, m, nil, func(c *daemon.Config) { c.Explore = true })
		b.hub.serve("alpha/small p=.99 s=1 | beta/small p=.99 s=2")
		b.hub.set(true)
		b.hub.set(false)
		for len(u.asked("beta/small")) == 0 {
			time.Sleep(time.Second)
		}
		if got := b.answers(edge.Work{}); got != "alpha/small" {
			t.Error(got)
		}
		time.Sleep(2 * time.Minute)
		if view, _ := b.Chain(slot); view.Own[1].Samples != 0 {
			t.Errorf("a probe that was called off counts: %+v", view.Own[1])
		}
	})
}

// under is a body of one option under a ceiling of money, and one of calls.
func under(t *testing.T, b *bench) []byte {
	options := []chain.Option{
		{ID: "alpha/small", Kind: chain.Provider, Adapter: "openai", Model: "small", Cost: chain.Cost{InputPerMtok: 1e6, OutputPerMtok: 1e6},
			Accounts: []chain.Account{{Name: "usd"}, {Name: "calls", Calls: true}, {Name: "other key", Key: "other"}}},
		{ID: "beta/small", Kind: chain.Provider, Adapter: "openai", Model: "small"},
	}
	body, err := chain.Marshal(chain.Body{Primitive: chain.LLMChat, Options: options, Rules: chain.Rules{Profile: chain.Profile{Input: 1, Output: 10}}})
	if err != nil {
		t.Fatal(err)
	}
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	b.hub.body, b.hub.head = body, b.hub.policy.Head(t, body, time.Now())
	return body
}

// TestALocalOptionHasItsCeilings: what runs it is the device's own, what its use
// counts against is the chain's.
func TestALocalOptionHasItsCeilings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "local/own/m adapter=openai | beta/small")
		body, err := chain.Marshal(chain.Body{Primitive: chain.LLMChat, Options: []chain.Option{
			{ID: "local/own/m", Kind: chain.Local, Accounts: []chain.Account{{Name: "calls", Calls: true}}},
			{ID: "beta/small", Kind: chain.Provider, Adapter: "openai", Model: "small"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // a later edition
		b.hub.mu.Lock()
		b.hub.body, b.hub.head = body, b.hub.policy.Head(t, body, time.Now())
		b.hub.mu.Unlock()
		b.hub.events.Invalidated(slot)
		synctest.Wait()
		_, r, err := b.ask(edge.Work{})
		if err != nil || r.Option != "beta/small" || len(r.Failures) == 0 || r.Failures[0] != (chain.Failure{Option: "local/own/m", Class: chain.Ceiling}) {
			t.Errorf("without a lease: %+v, %v", r, err)
		}
		if view, err := b.Chain(slot); err != nil || view.Options[0].Usable || view.Options[0].Why != chain.Ceiling {
			t.Errorf("what can be tried now: %+v, %v", view.Options, err)
		}
	})
}

// TestNoLeaseNoUse: an option under a ceiling is used within leased blocks and not
// beyond, settled by what was billed, and passed over with reason ceiling.
func TestNoLeaseNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, m := newUpstream(), newMemory()
		b := behind(t, u, m, nil, nil)
		under(t, b)
		var asks []wire.Lease
		blocks := 0
		b.hub.mu.Lock()
		b.hub.lease = func(l wire.Lease) (r wire.LeaseReply) {
			if err := l.Validate(); err != nil {
				t.Error(err)
			}
			asks = append(asks, l)
			for _, a := range l.Asks {
				g := wire.Grant{Account: a.Account, Slot: a.Slot, Until: chain.InstantOf(time.Now().Add(time.Hour))}
				if blocks < 2 { // one block of each account, of 100 micro-dollars and 100 calls
					blocks++
					g.ID, g.Amount = fmt.Sprint(blocks), 100
				}
				r.Grants = append(r.Grants, g)
			}
			return r
		}
		b.hub.mu.Unlock()
		b.hub.set(true)
		b.hub.set(false)
		synctest.Wait()
		if len(asks) != 1 || len(asks[0].Asks) != 2 {
			t.Fatalf("asked %+v", asks)
		}
		var got []string
		for range 12 { // each is expected to cost 2 + 40 and costs 15
			_, r, err := b.ask(edge.Work{})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(r.Option))
			if r.Option == "beta/small" && (len(r.Failures) == 0 || r.Failures[0] != (chain.Failure{Option: "alpha/small", Class: chain.Ceiling})) {
				t.Errorf("%+v", r.Failures)
			}
		}
		if n := strings.Count(strings.Join(got, " "), "alpha"); n != 4 { // 15, 30, 45, 60; 60 + 42 is too much
			t.Errorf("%d within 100 micro-dollars: %v", n, got)
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		used := map[string]int64{}
		for _, l := range asks {
			for _, x := range l.Usage {
				used[x.Account] = x.Used
			}
		}
		if used["usd"] != 60 || used["calls"] != 4 {
			t.Errorf("told %v", used)
		}
	})
}

// TestBlocksOverARestart: an orderly stop keeps what is left, a crash costs the block.
func TestBlocksOverARestart(t *testing.T) {
	for _, crash := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			u, m := newUpstream(), newMemory()
			b := behind(t, u, m, nil, nil)
			under(t, b)
			n := 0
			b.hub.mu.Lock()
			b.hub.lease = func(l wire.Lease) (r wire.LeaseReply) {
				for _, a := range l.Asks {
					n++
					r.Grants = append(r.Grants, wire.Grant{ID: fmt.Sprint(n), Account: a.Account, Slot: a.Slot, Amount: 1000, Until: chain.InstantOf(time.Now().Add(time.Hour))})
				}
				return r
			}
			b.hub.mu.Unlock()
			b.hub.set(true)
			b.hub.set(false)
			synctest.Wait()
			if got := b.answers(edge.Work{}); got != "alpha/small" {
				t.Fatal(got)
			}
			files := m.files["purse.cbor"]
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if crash {
				m.files["purse.cbor"] = files
			}
			again := restarted(t, b) // its hub is away
			_, r, err := again.ask(edge.Work{})
			if want := map[bool]chain.OptionID{false: "alpha/small", true: "beta/small"}[crash]; err != nil || r.Option != want {
				t.Errorf("crash %v: %s answered, want %s (%v)", crash, r.Option, want, err)
			}
		})
	}
}
