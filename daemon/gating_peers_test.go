package daemon_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// An executor judges a peer's token before it reads a byte of the payload: its own
// gate, with itself as the audience, and the token bound to who sent it.
func TestAPeersTokenIsJudgedBeforeThePayload(t *testing.T) {
	const id = "jti-1"
	for name, c := range map[string]struct {
		claims func(map[string]any)
		change func(*wire.ExecRequest)
		list   string // status of the executor in the registry
		want   wire.ExecCode
	}{
		"a good token":              {},
		"none":                      {change: func(q *wire.ExecRequest) { q.Token, q.TokenID = nil, "" }, want: wire.ExecTokenMissing},
		"rubbish":                   {change: func(q *wire.ExecRequest) { q.Token = []byte("a.b.c") }, want: wire.ExecInvalidToken},
		"for another executor":      {claims: func(c map[string]any) { c["aud"] = "did:web:other.example" }, want: wire.ExecTokenAudience},
		"for other work":            {claims: func(c map[string]any) { c["capability"] = "llm.t3" }, want: wire.ExecInvalidToken},
		"of another peer":           {claims: func(c map[string]any) { c["cnf"] = map[string]string{"kid": chaintest.PeerID(stranger).DID()} }, want: wire.ExecInvalidToken},
		"bound to nobody":           {claims: func(c map[string]any) { delete(c, "cnf") }, want: wire.ExecInvalidToken},
		"expired":                   {claims: func(c map[string]any) { c["iat"], c["exp"] = 1, 2 }, want: wire.ExecInvalidToken},
		"the executor is suspended": {list: "=suspended", want: wire.ExecAgentSuspended},
		"the executor is gone":      {list: "=deregistered", want: wire.ExecNoAgent},
		"another id than it says":   {change: func(q *wire.ExecRequest) { q.TokenID = "jti-7" }, want: wire.ExecProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []gate.Mode{gate.Observe, gate.Enforce} {
				var o *bureau
				var s shelf
				inTheShop(t, shared, func(c *daemon.Config) {
					o = newBureau(t)
					o.lists(self())
					c.Spool = &s
					o.gated(mode, true)(c)
				}, func(t *testing.T, r *shop) {
					t.Cleanup(o.ends)
					o.lists(self() + c.list)
					if err := r.Refresh(t.Context()); err != nil {
						t.Fatal(err)
					}
					g := r.guest(t, 1)
					o.set(func(o *bureau) { o.twist = c.claims })
					change := func(q *wire.ExecRequest) {
						o.set(func(o *bureau) {
							o.minted = nil
							q.Token, q.TokenID = []byte(o.mint(g.key.PeerID().DID(), self(), "llm.chat")), id
						})
						if c.change != nil {
							c.change(q)
						}
					}
					if c.want == wire.ExecProtocol || mode == gate.Enforce && c.want != "" {
						open, _ := g.ask(streamed, change)
						if reply := g.first(open); reply.Refusal == nil || reply.Refusal.Code != c.want { // not a byte of a payload was sent
							t.Errorf("%s: %+v, want %q", mode, reply, c.want)
						}
						return
					}
					_, q, trailer, err := g.do(t.Context(), streamed, change)
					if err != nil || trailer.Class != chain.OK {
						t.Fatalf("%s: %+v %v", mode, trailer, err)
					}
					synctest.Wait() // what is refreshed behind it has its say in the log
					verdict := map[bool]string{true: "allow", false: "deny"}[c.want == ""]
					if !strings.Contains(r.log.String(), "gate_decision="+verdict) {
						t.Errorf("the log has no verdict %s", verdict)
					}
					if len(q.Token) > 0 && strings.Contains(r.log.String(), string(q.Token)) {
						t.Error("the token is in the log")
					}
					if got := s.take(t); len(got) != 1 || got[0].TokenID != q.TokenID {
						t.Errorf("receipt %+v", got)
					}
				})
			}
		})
	}
}

// The same token comes with many requests; with a nonce that it came with before it
// is refused, also after the request itself has expired.
func TestATokenAndNonceComeOnce(t *testing.T) {
	var o *bureau
	inTheShop(t, shared, func(c *daemon.Config) {
		o = newBureau(t)
		o.lists(self())
		o.gated(gate.Enforce, true)(c)
	}, func(t *testing.T, r *shop) {
		t.Cleanup(o.ends)
		g := r.guest(t, 1)
		var held string
		o.set(func(o *bureau) { held = o.mint(g.key.PeerID().DID(), self(), "llm.chat") })
		do := func(nonce string) error {
			_, _, _, err := g.do(t.Context(), streamed, func(q *wire.ExecRequest) { q.Token, q.TokenID, q.Nonce = []byte(held), "jti-1", nonce })
			return err
		}
		if err := do("nonce-one-of-16-bytes"); err != nil {
			t.Fatal(err)
		}
		if err := do("nonce-two-of-16-bytes"); err != nil {
			t.Errorf("another request with the same token: %v", err)
		}
		time.Sleep(5 * time.Minute)
		if err := do("nonce-one-of-16-bytes"); err == nil || !strings.Contains(err.Error(), string(wire.ExecInvalidToken)) {
			t.Errorf("a replay: %v", err)
		}
	})
}

// linked is a way from one device of a test to another, without a network between.
type linked struct {
	*hub
	from chain.PeerID
	to   *bench
}

func (l linked) Exec(ctx context.Context, _ chain.PeerID, open wire.ExecOpen, payload []byte, emit exec.Emit) (wire.ExecTrailer, error) {
	job, err := l.to.hub.events.Executor.Admit(ctx, l.from, &open)
	if err != nil {
		return wire.ExecTrailer{}, err
	}
	defer job.Release()
	trailer := job.Run(ctx, payload, emit)
	job.Sign(&trailer)
	return trailer, nil
}

// pair is two devices that enforce: the first has its work done by the second, whose
// DID is other.
func pair(t *testing.T, o *bureau, s, others *shelf) (a, b *bench, other string) {
	t.Helper()
	t.Cleanup(o.ends)
	const n = 10
	const options = "peer | local/own/m"
	device := func(key chain.Key, spool *shelf, connect func(*hub) daemon.Node) *bench {
		m, p := newMemory(), &provider{fails: map[chain.OptionID]walk.Outcome{}}
		made := assemble(t, p, func(c *daemon.Config) {
			c.Key, c.Chains, c.Marks, c.State, c.Spool = key, chains{m}, marks{m}, m, spool
			o.gated(gate.Enforce, true)(c)
			plain := c.Connect
			c.Connect = func(ctx context.Context, j daemon.Joined, events daemon.Events) (daemon.Node, error) {
				node, err := plain(ctx, j, events)
				return connect(node.(*hub)), err
			}
		})
		made.memory, made.provider, made.hub.peer = m, p, key.PeerID()
		made.hub.rules = chain.Rules{Fixed: true}
		made.hub.serve(options)
		if err := made.Join(t.Context(), made.invitation()); err != nil {
			t.Fatal(err)
		}
		<-made.Visited()
		return made
	}
	b = device(chaintest.Key(n), others, func(h *hub) daemon.Node { return h })
	a = device(chaintest.Key(1), s, func(h *hub) daemon.Node { return linked{h, chaintest.PeerID(1), b} })
	a.neighbour("box", n)
	return a, b, chaintest.PeerID(n).DID()
}

// Two devices that enforce: work goes from one to the other by a token, and goes on
// for that token's life while hub, registry and trust server are away, and no longer.
func TestTwoDevicesEnforceWithTheHubAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, s, others := newBureau(t), &shelf{}, &shelf{}
		a, b, other := pair(t, o, s, others)
		o.lists(self(), other)
		for _, d := range []*bench{a, b} {
			if err := d.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ask := func(step string) (edge.Work, error) {
			t.Helper()
			w := edge.Work{Model: edge.Auto}
			text, result, err := a.askChat(&w)
			if err == nil && (result.Option != "peer" || text != "answer of local/own/m") {
				t.Errorf("%s: %q by %s, %+v", step, text, result.Option, result.Failures)
			}
			return w, err
		}
		first, err := ask("the hub is there")
		if err != nil || first.Agent != other || first.Gate != "allow" || first.TokenID == "" {
			t.Fatalf("%+v %v", first, err)
		}
		mine, theirs := s.take(t), others.take(t)
		if len(mine) != 1 || len(theirs) != 1 || mine[0].TokenID != first.TokenID || theirs[0].TokenID != first.TokenID || mine[0].AgentDID != other || mine[0].Executor == nil {
			t.Fatalf("%+v\n%+v", mine, theirs)
		}
		a.hub.set(true)
		b.hub.set(true)
		o.set(func(o *bureau) { o.away = true })
		for range 14 {
			time.Sleep(time.Minute)
			if w, err := ask("within the token's life"); err != nil || w.TokenID != first.TokenID {
				t.Fatalf("%q %v", w.TokenID, err)
			}
		}
		time.Sleep(time.Minute + time.Second)
		if w, err := ask("after it"); codeOf(err) != edge.TokenMissing || w.TokenID != "" {
			t.Errorf("%+v %v", w, err)
		}
		last := s.take(t)
		if r := last[len(last)-1]; r.Status != receipt.Rejected || r.TokenID != "" {
			t.Errorf("%+v", r)
		}
		o.set(func(o *bureau) { o.away = false })
		time.Sleep(2 * time.Minute)
		if w, err := ask("it is back"); err != nil || w.TokenID == first.TokenID {
			t.Errorf("%+v %v", w, err)
		}
		if g := b.Status().Gating; g.Allowed < 16 || g.Denied != 0 {
			t.Errorf("the executor's gate: %+v", g)
		}
	})
}

// A peer whose gate says no is passed over: its registry says that it is suspended,
// while the submitter's does not say so yet.
func TestAPeersGateSaysNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newBureau(t)
		a, b, other := pair(t, o, &shelf{}, &shelf{})
		o.lists(self(), other)
		if err := a.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.lists(self(), other+"=suspended")
		if err := b.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := edge.Work{Model: edge.Auto}
		text, result, err := a.askChat(&w)
		if err != nil || text != "answer of local/own/m" || result.Option != "local/own/m" || len(result.Failures) != 1 || result.Failures[0].Class != chain.Denied ||
			result.Failures[0].Why != "box: it holds that it is suspended" {
			t.Errorf("%q %+v %v", text, result, err)
		}
	})
}
