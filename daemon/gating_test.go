package daemon_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/gate"
)

const twoAgents = "alpha/small agent=did:web:a.example | beta/small agent=did:web:b.example | local/own/m kind=local adapter=openai model=m"

// guarded is a device whose gate asks o, with a chain of twoAgents in the owner's
// order; what is in s are its receipts.
func guarded(t *testing.T, o *bureau, mode gate.Mode, s *shelf) *bench {
	t.Helper()
	m, p := newMemory(), &provider{fails: map[chain.OptionID]walk.Outcome{}}
	t.Cleanup(o.ends)
	b := assemble(t, p, func(c *daemon.Config) {
		c.Chains, c.Marks, c.State, c.Spool = chains{m}, marks{m}, m, s
		o.gated(mode, true)(c)
	})
	b.memory, b.provider = m, p
	b.hub.rules = chain.Rules{Fixed: true}
	b.hub.serve(twoAgents)
	if err := b.Join(t.Context(), b.invitation()); err != nil {
		t.Fatal(err)
	}
	<-b.Visited()
	return b
}

// In enforce mode an option without a good token is passed over, and where nothing
// is let through the caller is told why. In observe mode everything goes on.
func TestTheGateOnTheWayOfAChat(t *testing.T) {
	const a, b = "did:web:a.example", "did:web:b.example"
	for name, c := range map[string]struct {
		office   func(*bureau)
		work     edge.Work
		enforced string    // the option that answers
		code     edge.Code // else
		observed string
		word     string // of the first attempt, whatever the mode
	}{
		"all is well":            {nil, edge.Work{}, "alpha/small", "", "alpha/small", "allow"},
		"no token for the first": {func(o *bureau) { o.refuse[a] = "unknown_seeker" }, edge.Work{}, "beta/small", "", "alpha/small", "deny"},
		"no token for any": {func(o *bureau) { o.refuse[a], o.refuse[b], o.refuse[self()] = "x", "x", "x" }, edge.Work{}, "", edge.TokenMissing,
			"alpha/small", "deny"},
		"none, by name":            {func(o *bureau) { o.refuse[b] = "x" }, edge.Work{Model: "beta/small"}, "", edge.TokenMissing, "beta/small", "deny"},
		"suspended at the mint":    {func(o *bureau) { o.refuse[b] = "agent_suspended" }, edge.Work{Model: "beta/small"}, "", edge.AgentSuspended, "beta/small", "deny"},
		"no proof of control":      {func(o *bureau) { o.refuse[b] = "proof_of_control_failed" }, edge.Work{Model: "beta/small"}, "", edge.ProofOfControlFailed, "beta/small", "deny"},
		"the trust server is away": {func(o *bureau) { o.hangs = true }, edge.Work{}, "", edge.TokenMissing, "alpha/small", "deny"},
		"tokens for somebody else": {func(o *bureau) { o.twist = func(c map[string]any) { c["aud"] = "did:web:c.example" } }, edge.Work{}, "", edge.TokenMissing,
			"alpha/small", "deny"}, // they are not even kept
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []gate.Mode{gate.Observe, gate.Enforce} {
				synctest.Test(t, func(t *testing.T) {
					o, s := newBureau(t), &shelf{}
					o.lists(a, b, self())
					d := guarded(t, o, mode, s)
					if c.office != nil {
						o.set(c.office)
					}
					want, code := c.observed, edge.Code("")
					if mode == gate.Enforce {
						want, code = c.enforced, c.code
					}
					w, began := c.work, time.Now()
					text, result, err := d.askFor(&w)
					if text != strings.TrimSuffix("answer of "+want, "answer of ") || codeOf(err) != code {
						t.Errorf("%s: %q, %+v, %v; want %s %s", mode, text, result, err, want, code)
					}
					if took := time.Since(began); mode == gate.Observe && took > 150*time.Millisecond {
						t.Errorf("a gate that observes held a chat for %s", took)
					}
					if mode == gate.Observe && w.Gate != c.word {
						t.Errorf("the log says %q", w.Gate)
					}
					r := s.take(t)
					if len(r) != 1 || r[0].TokenID != w.TokenID || r[0].AgentDID != w.Agent || w.Agent == "" {
						t.Errorf("%s: receipt %+v, log %q %q", mode, r, w.Agent, w.TokenID)
					}
					if (w.TokenID == "") == (w.Gate == "allow") {
						t.Errorf("%s: %s with token %q", mode, w.Gate, w.TokenID)
					}
				})
			}
		})
	}
}

// The candidates follow in chain order, each with a token of its own.
func TestEachCandidateHasATokenOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, s := newBureau(t), &shelf{}
		o.lists("did:web:a.example", "did:web:b.example", self())
		d := guarded(t, o, gate.Enforce, s)
		d.provider.fail("alpha/small", chain.Status)
		d.provider.fail("beta/small", chain.Status)
		for range 2 {
			if text, _, err := d.ask(edge.Work{}); text != "answer of local/own/m" {
				t.Errorf("%q %v", text, err)
			}
		}
		if want := "did:web:a.example llm.chat|did:web:b.example llm.chat|" + self() + " llm.chat"; o.tokens() != want {
			t.Errorf("tokens for %s, want %s", o.tokens(), want)
		}
		if r := s.take(t); r[0].TokenID != "jti-3" || r[0].AgentDID != self() || r[1].TokenID != "jti-3" {
			t.Errorf("%+v", r)
		}
		if g := d.Status().Gating; g.Mode != "enforce" || g.Allowed != 4 || g.Denied != 0 || g.Snapshot.Agents != 3 || g.Snapshot.Source != "registry" || g.Snapshot.Registry != "hub" {
			t.Errorf("%+v %+v", g, g.Snapshot)
		}
	})
}

// The hub's tokens say where its services are, as it told the device. When it moves, what it signed
// before holds for a token's life.
func TestTheHubsTokensNameIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const before, after = "https://office.example", "https://moved.example"
		o := newBureau(t)
		d := guarded(t, o, gate.Enforce, &shelf{})
		o.lists("did:web:a.example", "did:web:b.example", self())
		if !d.Issues("https://anywhere.example") {
			t.Error("while the hub has not said where it is, nobody knows better")
		}
		o.set(func(o *bureau) { o.issues = d.Issues })
		expect := func(step string, code edge.Code) {
			t.Helper()
			if _, _, err := d.ask(edge.Work{Model: "alpha/small"}); codeOf(err) != code {
				t.Errorf("%s: %v, want %q", step, err, code)
			}
		}
		d.hub.moves(before)
		time.Sleep(30 * time.Minute) // the next visit
		o.set(func(o *bureau) { o.twist = func(claims map[string]any) { claims["iss"] = before + "/" } })
		expect("another issuer", edge.TokenMissing) // its mint is not kept
		o.set(func(o *bureau) { o.twist = nil })
		time.Sleep(time.Minute)
		expect("the hub", "")
		d.hub.moves(after)
		if d.Issues(after) || !d.Issues(before) {
			t.Error("the device knows of a move that nobody told it")
		}
		time.Sleep(30 * time.Minute)
		if !d.Issues(after) || !d.Issues(before) || d.Issues("https://anywhere.example") {
			t.Error("after the move")
		}
		if time.Sleep(gate.MaxLifetime); !d.Issues(after) || d.Issues(before) {
			t.Error("the old address holds for ever")
		}
	})
}

// With a slot in the chain there is always an option. Where nobody fills it and all the others' agents
// are suspended, that is what is said, not that there are no models.
func TestAllSuspendedBesideASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newBureau(t)
		d := guarded(t, o, gate.Observe, &shelf{})
		time.Sleep(time.Minute) // a later edition
		d.hub.serve(twoAgents + " | peer")
		o.lists("did:web:a.example=suspended", self()+"=suspended")
		time.Sleep(30 * time.Minute) // the next visit
		_, result, err := d.ask(edge.Work{})
		want := []chain.Failure{{Option: "alpha/small", Class: chain.Denied, Why: "its agent is suspended in the registry"},
			{Option: "beta/small", Class: chain.Denied, Why: "the registry does not list its agent"},
			{Option: "local/own/m", Class: chain.Denied, Why: "its agent is suspended in the registry"}, {Option: "peer", Class: chain.NoPeer, Why: "no other device is known"}}
		if err != nil || result.End != walk.NothingToTry || !slices.Equal(result.Failures, want) {
			t.Errorf("%+v %v", result, err)
		}
		if _, result, err = d.ask(edge.Work{Model: "alpha/small"}); codeOf(err) != edge.AgentSuspended {
			t.Errorf("by name: %+v %v", result, err)
		}
	})
}

// What the registry says of agents decides who is asked.
func TestTheSnapshotDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newBureau(t)
		d := guarded(t, o, gate.Enforce, &shelf{}) // the hub's registry was never heard
		expect := func(step string, w edge.Work, want string, code edge.Code) {
			t.Helper()
			if text, _, err := d.ask(w); text != strings.TrimSuffix("answer of "+want, "answer of ") || codeOf(err) != code {
				t.Errorf("%s: %q %v, want %s %s", step, text, err, want, code)
			}
			if err := d.Ready(); (code == edge.SnapshotStale || code == edge.NoSnapshot) != (codeOf(err) == code && err != nil) {
				t.Errorf("%s: ready says %v", step, err)
			}
		}
		expect("at first the chain's options are the agents", edge.Work{}, "alpha/small", "")
		o.lists("did:web:a.example=suspended", "did:web:b.example", self())
		time.Sleep(30 * time.Minute) // the next visit
		expect("suspended", edge.Work{}, "beta/small", "")
		expect("suspended, by name", edge.Work{Model: "alpha/small"}, "", edge.AgentSuspended)
		expect("suspended, by its DID", edge.Work{Model: "did:web:a.example"}, "", edge.AgentSuspended)
		o.lists("did:web:a.example=suspended", "did:web:b.example=suspended", self()+"=suspended")
		if err := d.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := d.ask(edge.Work{}); codeOf(err) != edge.NoAgent || strings.Count(err.Error(), "its agent is suspended in the registry") != 3 {
			t.Errorf("all suspended: %v", err)
		}
		o.lists("did:web:b.example=deregistered")
		if err := d.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect("gone", edge.Work{Model: "beta/small"}, "", edge.NoAgent)
		expect("nobody left", edge.Work{}, "", edge.NoAgent)
		o.lists("did:web:a.example", "did:web:b.example", self())
		time.Sleep(time.Minute) // whoever asks for somebody unknown has the registry asked
		_, _, _ = d.ask(edge.Work{})
		synctest.Wait()
		expect("back", edge.Work{}, "alpha/small", "")
		d.hub.set(true)
		o.set(func(o *bureau) { o.agents = nil })
		time.Sleep(160 * time.Hour) // the chain holds for a week, and so does what is known of agents
		d.hub.serve(twoAgents)
		d.hub.set(false)
		time.Sleep(time.Hour)
		if err := d.Ready(); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Hour)
		expect("stale", edge.Work{}, "", edge.SnapshotStale)
		o.lists()
		_ = d.Refresh(t.Context())
		expect("an empty registry", edge.Work{}, "", edge.NoSnapshot)
	})
}

// Both modes give the same verdicts on the same traffic, through the whole device;
// only what becomes of the work differs.
func TestObserveAndEnforceGiveTheSameVerdictStream(t *testing.T) {
	stream := func(mode gate.Mode) (verdicts []string, passed int) {
		synctest.Test(t, func(t *testing.T) {
			o, s := newBureau(t), &shelf{}
			o.lists("did:web:a.example", "did:web:b.example", self())
			d := guarded(t, o, mode, s)
			desk, err := d.Desk()
			if err != nil {
				t.Fatal(err)
			}
			models := []string{"alpha/small", "beta/small", "local/own/m"}
			agents := []string{"did:web:a.example", "did:web:b.example", self()}
			for i := range 300 {
				switch i % 50 { // what happens around the traffic
				case 10:
					o.set(func(o *bureau) { o.refuse["did:web:b.example"] = "unknown_seeker" })
				case 20:
					time.Sleep(16 * time.Minute) // no token is left
				case 30:
					o.set(func(o *bureau) { o.away = true })
					time.Sleep(16 * time.Minute)
				case 40:
					o.set(func(o *bureau) { o.away, o.refuse = false, map[string]string{} })
					time.Sleep(2 * time.Minute)
				}
				n := i * 7 % 3
				if i%2 == 0 {
					decision := desk.Gate.Pass(t.Context(), agents[n], "llm.chat")
					verdicts = append(verdicts, fmt.Sprint(i, decision.Word, decision.TokenID != ""))
					if decision.Err == nil {
						passed++
					}
					continue
				}
				w := edge.Work{Model: models[n]}
				if _, _, err := d.askFor(&w); err == nil {
					passed++
				}
				verdicts = append(verdicts, fmt.Sprint(i, w.Gate, w.TokenID != ""))
			}
		})
		return verdicts, passed
	}
	observed, all := stream(gate.Observe)
	enforced, some := stream(gate.Enforce)
	if !slices.Equal(observed, enforced) {
		for i := range observed {
			if observed[i] != enforced[i] {
				t.Errorf("request %s here, %s there", observed[i], enforced[i])
			}
		}
	}
	denied := 0
	for _, v := range enforced {
		if strings.Contains(v, "deny") {
			denied++
		}
	}
	if all != 300 || some != 300-denied || denied < 50 || denied > 250 {
		t.Errorf("%d of 300 passed where nothing is enforced, %d where it is, with %d denials", all, some, denied)
	}
}

// What `gate check` says of a token is what the gate would, and uses nothing up.
func TestATokenIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agent = "did:web:a.example"
		o := newBureau(t)
		o.lists(agent, "did:web:b.example=suspended")
		d := guarded(t, o, gate.Enforce, &shelf{})
		var good, other string
		o.set(func(o *bureau) {
			good, other = o.mint(self(), agent, "llm.chat"), o.mint(self(), "did:web:b.example", "llm.chat")
		})
		for name, c := range map[string]struct {
			q    control.TokenQuestion
			code string
		}{
			"good":             {control.TokenQuestion{Token: chain.Secret(good)}, ""},
			"and again":        {control.TokenQuestion{Token: chain.Secret(good), Agent: agent, Capability: "llm.chat", From: chaintest.PeerID(device)}, ""},
			"another agent":    {control.TokenQuestion{Token: chain.Secret(good), Agent: "did:web:c.example"}, "token_audience_mismatch"},
			"other work":       {control.TokenQuestion{Token: chain.Secret(good), Capability: "llm.t3"}, "invalid_token"},
			"another peer":     {control.TokenQuestion{Token: chain.Secret(good), From: chaintest.PeerID(stranger)}, "invalid_token"},
			"no peer":          {control.TokenQuestion{Token: chain.Secret(good), From: "nobody"}, "invalid_token"},
			"its agent is out": {control.TokenQuestion{Token: chain.Secret(other)}, "agent_suspended"},
			"none":             {control.TokenQuestion{}, "token_missing"},
			"forged":           {control.TokenQuestion{Token: chain.Secret(good[:len(good)-8] + "AAAAAAAA")}, "invalid_token"},
		} {
			v, err := d.CheckToken(t.Context(), c.q)
			if err != nil || v.Code != c.code || (v.Verdict == "allow") != (c.code == "") || v.Mode != "enforce" || (v.Reason == "") != (c.code == "") {
				t.Errorf("%s: %+v %v", name, v, err)
			}
			if signed := c.q.Token == chain.Secret(good) || c.q.Token == chain.Secret(other); v.Signed != signed {
				t.Errorf("%s: signed %v", name, v.Signed)
			}
		}
		if v, _ := d.CheckToken(t.Context(), control.TokenQuestion{Token: chain.Secret(good)}); v.Audience != agent || v.Subject != self() || v.Standing != "active" || v.Expires == nil {
			t.Errorf("%+v", v)
		}
		if g := d.Status().Gating; g.Allowed+g.Denied != 0 {
			t.Errorf("a question counts as work: %+v", g)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := bare(t, newMemory())
		if _, err := b.CheckToken(t.Context(), control.TokenQuestion{Token: "a.b.c"}); err == nil {
			t.Error("a device without a gate judges")
		}
		if b.Refresh(t.Context()) == nil || b.Status().Gating != nil {
			t.Error("a device without a registry refreshes it")
		}
	})
}
