package daemon_test

import (
	"context"
	"errors"
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

// A peer's token from another address than the hub's is refused, and has the executor ask where the
// hub is: it may have moved since the last visit.
func TestAPeersTokenFromWhereTheHubMoved(t *testing.T) {
	const after = "https://moved.example"
	var o *bureau
	inTheShop(t, shared, func(c *daemon.Config) {
		o = newBureau(t)
		o.lists(self())
		o.gated(gate.Enforce, true)(c)
	}, func(t *testing.T, r *shop) {
		t.Cleanup(o.ends)
		r.hub.moves(o.Origin())
		time.Sleep(time.Hour)
		o.set(func(o *bureau) {
			o.issues, o.twist = r.Issues, func(claims map[string]any) { claims["iss"] = after }
		})
		g := r.guest(t, 1)
		with := func(q *wire.ExecRequest) {
			o.set(func(o *bureau) {
				o.minted = nil
				q.Token, q.TokenID = []byte(o.mint(g.key.PeerID().DID(), self(), "llm.chat")), "jti-1"
			})
		}
		refused := func() *wire.ExecRefusal {
			open, _ := g.ask(streamed, with)
			return g.first(open).Refusal
		}
		if no := refused(); no == nil || no.Code != wire.ExecInvalidToken {
			t.Errorf("a stranger's address: %+v", no)
		}
		r.hub.moves(after)
		time.Sleep(time.Minute)
		if no := refused(); no == nil || no.Code != wire.ExecInvalidToken {
			t.Errorf("before anybody said so: %+v", no)
		}
		time.Sleep(time.Second) // the visit
		if _, _, trailer, err := g.do(t.Context(), streamed, with); err != nil || trailer.Class != chain.OK {
			t.Errorf("after the visit: %+v %v", trailer, err)
		}
	})
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
			_, _, _, err := g.do(t.Context(), streamed, func(q *wire.ExecRequest) { q.Token, q.TokenID, q.Nonce = []byte(held), "jti-1", r.nonce(nonce) })
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
	tape *[]wire.ExecOpen // of what went over it
}

func (l linked) Exec(ctx context.Context, _ chain.PeerID, open wire.ExecOpen, payload []byte, emit exec.Emit) (wire.ExecTrailer, error) {
	*l.tape = append(*l.tape, open)
	job, err := l.to.hub.events.Executor.Admit(ctx, l.from, &open)
	if err != nil {
		return wire.ExecTrailer{}, err
	}
	defer job.Release()
	trailer := job.Run(ctx, payload, emit)
	job.Sign(&trailer)
	return trailer, nil
}

// enforcing is a device of the mesh that enforces, with what m has.
func enforcing(t *testing.T, o *bureau, key chain.Key, m *memory, spool *shelf, connect func(*hub) daemon.Node) *bench {
	t.Helper()
	const options = "peer | local/own/m"
	p := &provider{fails: map[chain.OptionID]walk.Outcome{}}
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

// boxKey is the second device's of a pair.
const boxKey = 10

// pair is two devices that enforce: the first has its work done by the second, whose
// DID is other.
func pair(t *testing.T, o *bureau, s, others *shelf) (a, b *bench, other string, tape *[]wire.ExecOpen) {
	t.Helper()
	t.Cleanup(o.ends)
	tape = new([]wire.ExecOpen)
	b = enforcing(t, o, chaintest.Key(boxKey), newMemory(), others, func(h *hub) daemon.Node { return h })
	a = enforcing(t, o, chaintest.Key(1), newMemory(), s, func(h *hub) daemon.Node { return linked{h, chaintest.PeerID(1), b, tape} })
	a.neighbour("box", boxKey)
	return a, b, chaintest.PeerID(boxKey).DID(), tape
}

// Two devices that enforce: work goes from one to the other by a token, and goes on
// for that token's life while hub, registry and trust server are away, and no longer.
func TestTwoDevicesEnforceWithTheHubAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, s, others := newBureau(t), &shelf{}, &shelf{}
		a, b, other, _ := pair(t, o, s, others)
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
		a, b, other, _ := pair(t, o, &shelf{}, &shelf{})
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

// An executor that was killed knows nothing of what it admitted, wrote nothing of it, and
// takes none of it again: neither what was recorded, nor its nonce in a request that was
// signed anew. Who asks honestly is asked for another nonce, and notices nothing.
func TestAKilledExecutorTakesNothingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, s, others := newBureau(t), &shelf{}, &shelf{}
		a, b, other, tape := pair(t, o, s, others)
		o.lists(self(), other)
		refresh := func(d *bench) {
			if err := d.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		refresh(a)
		refresh(b)
		ask := func(step string, sent int) {
			t.Helper()
			*tape = nil
			text, result, err := a.askChat(&edge.Work{Model: edge.Auto})
			if err != nil || result.Option != "peer" || text != "answer of local/own/m" || result.Attempts != 1 || len(result.Failures) != 0 {
				t.Fatalf("%s: %q %+v %v", step, text, result, err)
			}
			if len(*tape) != sent {
				t.Errorf("%s: sent %d times, want %d", step, len(*tape), sent)
			}
		}
		refused := func(step string, open wire.ExecOpen, want wire.ExecCode) {
			t.Helper()
			_, err := b.hub.events.Executor.Admit(t.Context(), chaintest.PeerID(1), &open)
			if !errors.Is(err, &wire.ExecRefusal{Code: want}) {
				t.Errorf("%s: %v, want %s", step, err, want)
			}
		}
		ask("at first it has to say of which boot nonces are", 2)
		ask("then it is known", 1)
		recorded := (*tape)[0]
		refused("a replay", recorded, wire.ExecInvalidToken)

		// What the killed one had in memory is gone; what it had on disk is there.
		after := enforcing(t, o, chaintest.Key(boxKey), b.memory, &shelf{}, func(h *hub) daemon.Node { return h })
		b.Daemon, b.hub, b.provider = after.Daemon, after.hub, after.provider
		refresh(b)
		refused("a replay after it was killed", recorded, wire.ExecStaleNonce)
		_, again, err := wire.OpenExecRequest(recorded.Request)
		if err != nil {
			t.Fatal(err)
		}
		again.Expires = chain.InstantOf(time.Now().Add(5 * time.Minute))
		signed := recorded
		if signed.Request, err = wire.SealExecRequest(chaintest.Key(1), again); err != nil {
			t.Fatal(err)
		}
		refused("its token and nonce, signed anew", signed, wire.ExecStaleNonce)
		if n := len(b.provider.calls); n != 0 {
			t.Errorf("%d calls", n)
		}
		ask("an honest request", 2)
		ask("and the next", 1)
		if f := b.Status().Foreign; f.Answered != 2 || len(f.Refused) != 0 {
			t.Errorf("%+v", f)
		}
		time.Sleep(3 * time.Minute)
		refused("once it has expired", recorded, wire.ExecExpired)
	})
}

// An executor that is content with no nonce is asked twice, and then the next option is.
func TestAnExecutorThatWantsOneNonceAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		boots := []string{"the-first", "the-second", "the-third"}
		x.set(func(x *box) {
			x.runs = func(context.Context, wire.ExecRequest, exec.Emit) (wire.ExecTrailer, error) {
				no := &wire.ExecRefusal{Code: wire.ExecStaleNonce, Boot: boots[0]}
				boots = boots[1:]
				return wire.ExecTrailer{}, no
			}
		})
		text, result, err := b.ask(edge.Work{})
		if err != nil || text != "answer of beta/small" || len(result.Failures) != 1 || result.Failures[0].Class != chain.Internal {
			t.Errorf("%q %+v %v", text, result, err)
		}
		asked := x.asked()
		if len(asked) != 2 || !asked[0].OfBoot("boot") || !asked[1].OfBoot("the-first") || asked[0].TransactionID != asked[1].TransactionID {
			t.Errorf("%+v", asked)
		}
	})
}
