package daemon_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

func TestASlotIsFilledWithALivePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		text, result, err := b.ask(edge.Work{})
		if err != nil || text != "answer of box" || result.Option != "peer" || result.Attempts != 1 || len(result.Peers) != 1 || result.Peers[0] != x.id() {
			t.Fatalf("%q, %+v, %v", text, result, err)
		}
		if b.PeerName(x.id()) != "box" || b.PeerName("nobody") != "" {
			t.Error("the peer's name is not known")
		}
		traces := b.Traces("r")
		if len(traces) != 1 || traces[0].End != "answered" || len(traces[0].Attempts) != 1 || traces[0].Attempts[0].Peer != x.id() || traces[0].Attempts[0].Name != "box" || traces[0].Attempts[0].Class != chain.OK || traces[0].Transaction != x.asked()[0].TransactionID {
			t.Errorf("the request's trace is %+v", traces)
		}
		if len(b.Traces("another")) != 0 || len(b.Traces("")) != 1 {
			t.Error("traces are not found by the request's ID")
		}
		r := x.asked()[0]
		if r.RequestID != "r" || r.Option != "peer" || r.Scope != chain.DefaultScope || r.Primitive != chain.LLMChat || r.Seeker != chaintest.PeerID(device).DID() ||
			r.Agent != x.id().DID() || !strings.HasPrefix(r.RequestHash, "sha256:") || r.TransactionID == "" || r.Token != nil {
			t.Errorf("request %+v", r)
		}
		time.Sleep(20 * time.Minute)
		reports, _, _ := b.hub.take()
		found := false
		for _, report := range reports {
			for _, c := range report.Counters {
				found = found || c.Option == "peer" && c.Peer == x.id() && c.Outcomes[chain.OK] == 1
			}
		}
		if !found {
			t.Errorf("the hub does not hear which peer it was: %+v", reports)
		}
	})
}

func TestWhoIsNotInContactIsNotBoundTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		expect := func(step, want string) {
			t.Helper()
			if text, _, _ := b.ask(edge.Work{}); text != "answer of "+want {
				t.Errorf("%s: %q, want %s", step, text, want)
			}
		}
		expect("in contact", "box")
		b.hub.events.Parted(x.id())
		expect("parted", "beta/small")
		c := x.contact()
		b.hub.events.Announced(mesh.Presence{Scope: chain.DefaultScope, Membership: c.Membership, Capabilities: c.Capabilities})
		expect("introduced by gossip", "beta/small")
		b.hub.events.Contact(x.contact())
		expect("returned", "box")
		list, err := member.Revoke(b.hub.policy.Key, member.Revocations{Mesh: b.hub.policy.Trust.Mesh, Seq: 1, Issued: chain.InstantOf(time.Now()),
			Ended: []member.Ended{{Peer: x.id(), At: chain.InstantOf(time.Now())}}})
		if err != nil {
			t.Fatal(err)
		}
		b.hub.events.Revoked(list)
		expect("revoked", "beta/small")
	})
}

// TestARevocationThatComesWithJoiningHolds: not only one that comes later.
func TestARevocationThatComesWithJoiningHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bare(t, newMemory())
		list, err := member.Revoke(b.hub.policy.Key, member.Revocations{Mesh: b.hub.policy.Trust.Mesh, Seq: 1, Issued: chain.InstantOf(time.Now()),
			Ended: []member.Ended{{Peer: chaintest.PeerID(10), At: chain.InstantOf(time.Now())}}})
		if err != nil {
			t.Fatal(err)
		}
		b.hub.change = func(w *wire.Welcome) { w.Revocations = list }
		b.hub.serve(withSlot)
		if err := b.Join(t.Context(), b.invitation()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.neighbour("box", 10)
		if text, _, _ := b.ask(edge.Work{}); text != "answer of beta/small" {
			t.Errorf("%q: the peer was revoked before this device joined", text)
		}
	})
}

// TestHowAnAttemptAtAPeerEnds: each way, and what the walk makes of it.
func TestHowAnAttemptAtAPeerEnds(t *testing.T) {
	refuse := func(code wire.ExecCode) func(*box) {
		return func(x *box) { x.errs(&wire.ExecRefusal{Code: code, Message: "no"}) }
	}
	trailer := func(t wire.ExecTrailer) func(*box) { return func(x *box) { x.fails(t) } }
	const next = "answer of beta/small"
	for name, c := range map[string]struct {
		how      func(*box)
		class    chain.Class // of the slot's failure; "" for none
		attempts int
		asked    int // of the peer, by three requests in one second
	}{
		"it answers":                 {func(*box) {}, "", 1, 3},
		"its own walk failed":        {trailer(wire.ExecTrailer{Class: chain.Status, Status: 503, Used: 2}), chain.Status, 3, 1},
		"its upstreams are away":     {trailer(wire.ExecTrailer{Class: chain.Unreachable, Used: 2}), chain.Status, 3, 1},
		"it is offline itself":       {trailer(wire.ExecTrailer{Class: chain.Offline, Used: 1}), chain.Status, 2, 1},
		"it was told to wait":        {trailer(wire.ExecTrailer{Class: chain.RateLimited, Status: 429, RetryAfter: 30_000, HasRetryAfter: true, Used: 1}), chain.RateLimited, 2, 1},
		"it claims to have spent 99": {trailer(wire.ExecTrailer{Class: chain.Status, Used: 64}), chain.Status, 4, 1},
		"it has no key":              {trailer(wire.ExecTrailer{Class: chain.KeyMissing}), chain.Declined, 1, 1},
		"all it has cools down":      {trailer(wire.ExecTrailer{Class: chain.Cooling, RetryAfter: 100, HasRetryAfter: true}), chain.Declined, 1, 3},
		"it answers nothing at all":  {trailer(wire.ExecTrailer{Class: chain.OK, Used: 1}), chain.BadAnswer, 2, 1},
		"busy":                       {refuse(wire.ExecBusy), chain.Busy, 1, 3},
		"its owner shares nothing":   {refuse(wire.ExecSharingOff), chain.Declined, 1, 1},
		"it stops":                   {refuse(wire.ExecShutdown), chain.Declined, 1, 1},
		"too large for it":           {refuse(wire.ExecTooLarge), chain.Declined, 1, 3},
		"it cannot after all":        {refuse(wire.ExecLacksCapability), chain.Declined, 1, 1},
		"nothing there runs it":      {refuse(wire.ExecNothingToRun), chain.Declined, 1, 1},
		"a defect there":             {refuse(wire.ExecInternal), chain.Status, 2, 1},
		"it does not like our chain": {refuse(wire.ExecNoChain), chain.Internal, 2, 1},
		"a code of tomorrow":         {refuse("tomorrow"), chain.Internal, 2, 1},
		"it was not reached":         {func(x *box) { x.errs(fmt.Errorf("%w x", mesh.ErrNotConnected)) }, chain.Unreachable, 2, 1},
		"it vanished":                {func(x *box) { x.errs(exec.ErrBroken) }, chain.Unreachable, 4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, x := beside(t, "peer tries=2 | beta/small")
				c.how(x)
				text, result, _ := b.ask(edge.Work{})
				if want := map[bool]string{true: "answer of box", false: next}[c.class == ""]; text != want || result.Attempts != c.attempts {
					t.Errorf("%q after %d attempts, want %q after %d", text, result.Attempts, want, c.attempts)
				}
				if c.class != "" && (len(result.Failures) != 1 || result.Failures[0].Option != "peer" || result.Failures[0].Class != c.class) {
					t.Errorf("failures %v, want peer: %s", result.Failures, c.class)
				}
				if c.class != "" && c.class != chain.BadAnswer && !strings.HasPrefix(result.Failures[0].Why, "box") {
					t.Errorf("%v does not say who it was", result.Failures)
				}
				for range 2 {
					time.Sleep(300 * time.Millisecond)
					_, _, _ = b.ask(edge.Work{})
				}
				if n := len(x.asked()); n != c.asked {
					t.Errorf("asked %d times in a second, want %d", n, c.asked)
				}
			})
		})
	}
}

func TestACallersErrorOfAPeerIsPassedThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		x.fails(wire.ExecTrailer{Class: chain.CallerError, Status: 400, Used: 1, Answer: &wire.ExecAnswer{Status: 400, ContentType: "application/json", Body: []byte(`{"error":1}`)}})
		_, result, err := b.ask(edge.Work{})
		if err != nil || result.End != walk.Refused || result.Answer == nil || result.Answer.Status != 400 || string(result.Answer.Body) != `{"error":1}` {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

// TestAPeerThatDiesInMidWait is given up long before the option's own limits, and
// no later request binds to it.
func TestAPeerThatDiesInMidWait(t *testing.T) {
	for _, stream := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, x := beside(t, withSlot)
			x.leaves()
			begin := time.Now()
			text, result, err := b.ask(edge.Work{Stream: stream})
			if err != nil || text != "answer of beta/small" || result.Failures[0].Class != chain.Unreachable {
				t.Fatalf("%q, %+v, %v", text, result, err)
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("noticed after %s", took)
			}
			for range 4 { // few enough that what this device measures of beta moves nothing
				time.Sleep(25 * time.Second)
				if text, _, _ := b.ask(edge.Work{Stream: stream}); text != "answer of beta/small" {
					t.Fatalf("bound to the dead: %q", text)
				}
			}
			if n := len(x.asked()); n != 1 {
				t.Errorf("%d attempts at a dead peer, want the one", n)
			}
			x.set(func(x *box) { x.mute, x.runs = false, x.answers })
			b.hub.events.Parted(x.id())
			b.hub.events.Contact(x.contact())
			if text, _, _ := b.ask(edge.Work{Stream: stream}); text != "answer of box" {
				t.Errorf("%q: want the returned peer at its first contact", text)
			}
		})
	}
}

// TestAPeerThatThinksForLongIsWaitedFor: silence with a heartbeat is no death.
func TestAPeerThatThinksForLongIsWaitedFor(t *testing.T) {
	for _, refuses := range []bool{false, true} { // a refused ping is an answer too
		synctest.Test(t, func(t *testing.T) { waitsFor(t, refuses) })
	}
}

func waitsFor(t *testing.T, refuses bool) {
	b, x := beside(t, withSlot)
	x.set(func(x *box) {
		x.refuses = refuses
		x.runs = func(ctx context.Context, r wire.ExecRequest, emit exec.Emit) (wire.ExecTrailer, error) {
			time.Sleep(50 * time.Second)
			return x.answers(ctx, r, emit)
		}
	})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if text, _, err := b.ask(edge.Work{Stream: true}); text != "answer of box" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
	all.Wait()
	if x.pings > 40 {
		t.Errorf("%d pings for 20 attempts in 50 s: they share them", x.pings)
	}
}

func TestAPeerThatDiesInMidAnswerBreaksTheAnswer(t *testing.T) {
	for name, die := range map[string]func(*box){
		"the stream breaks": func(x *box) {
			x.set(func(x *box) {
				x.runs = func(_ context.Context, _ wire.ExecRequest, emit exec.Emit) (wire.ExecTrailer, error) {
					_ = emit([]byte("half an"), true, false)
					return wire.ExecTrailer{}, exec.ErrBroken
				}
			})
		},
		"nothing comes any more": func(x *box) { x.set(func(x *box) { x.mute = true }); x.hangs("half an") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, x := beside(t, withSlot)
				die(x)
				text, result, _ := b.ask(edge.Work{Stream: true})
				if text != "half an" || result.End != walk.Broken {
					t.Errorf("%q, %+v: want a broken answer and nothing behind it", text, result)
				}
				if text, _, _ := b.ask(edge.Work{Stream: true}); text != "answer of beta/small" {
					t.Errorf("the next request: %q", text)
				}
			})
		})
	}
}

// TestASilentPeerThatSpeaksAgainIsUsed: without parting, without a restart.
func TestASilentPeerThatSpeaksAgainIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		x.errs(exec.ErrBroken)
		x.set(func(x *box) { x.mute = true })
		_, _, _ = b.ask(edge.Work{})
		x.set(func(x *box) { x.runs = x.answers })
		time.Sleep(10 * time.Minute)
		if text, _, _ := b.ask(edge.Work{}); text != "answer of beta/small" {
			t.Errorf("silent for long: %q", text)
		}
		x.set(func(x *box) { x.mute = false })
		time.Sleep(2 * time.Minute) // a ping and the end of its cool-down
		if text, _, _ := b.ask(edge.Work{}); text != "answer of box" {
			t.Errorf("it answers pings: %q", text)
		}
	})
}

func TestACallerWhoLeavesIsToldToThePeerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		left := make(chan time.Time, 1)
		x.set(func(x *box) {
			x.runs = func(ctx context.Context, _ wire.ExecRequest, _ exec.Emit) (wire.ExecTrailer, error) {
				<-ctx.Done()
				left <- time.Now()
				return wire.ExecTrailer{}, context.Cause(ctx)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		time.AfterFunc(2*time.Second, cancel)
		w := edge.Work{ID: "r", Primitive: chain.LLMChat, Model: edge.Auto, Body: []byte(`{}`)}
		result, _ := b.Do(ctx, &w, func(walk.Attempt, [][]byte) error { return nil })
		if told := (<-left).Sub(begin); result.End != walk.Left || told > 2100*time.Millisecond {
			t.Errorf("%+v, told after %s", result, told)
		}
		x.set(func(x *box) { x.runs = x.answers })
		if text, _, _ := b.ask(edge.Work{}); text != "answer of box" {
			t.Errorf("the peer is blamed for a caller who left: %q", text)
		}
	})
}

// TestAttemptsDoNotMultiply: every box would spend whatever it is lent. The sum
// over all of them and this device stays within the cap.
func TestAttemptsDoNotMultiply(t *testing.T) {
	for _, vanish := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := joined(t, "peer tries=2 | peer/more tries=2 | beta/small | alpha/small keys=alpha | gamma/x")
			for _, id := range []chain.OptionID{"beta/small", "alpha/small", "gamma/x", "local/own/m"} {
				b.provider.fail(id, chain.Status)
			}
			var mu sync.Mutex
			spent := 0
			for i := range 6 {
				x := b.neighbour(fmt.Sprintf("box%d", i), 10+i)
				x.set(func(x *box) {
					x.runs = func(_ context.Context, r wire.ExecRequest, _ exec.Emit) (wire.ExecTrailer, error) {
						mu.Lock()
						defer mu.Unlock()
						used := min(r.Attempts, 5) // its own chain has five failing options
						spent += used
						if vanish {
							return wire.ExecTrailer{}, exec.ErrBroken
						}
						return wire.ExecTrailer{Class: chain.Status, Used: used}, nil
					}
				})
			}
			_, result, _ := b.ask(edge.Work{})
			if total := spent + len(b.provider.calls); total > 8 || result.Attempts > 8 || spent == 0 {
				t.Errorf("%d upstream calls by peers and %d here; counted %d", spent, len(b.provider.calls), result.Attempts)
			}
			if len(b.provider.calls) == 0 {
				t.Error("nothing was left for the options behind the slots")
			}
		})
	}
}

// TestWhatStaysHere: nothing of a key is on the way to a peer, and work that may
// not be handed on is not.
func TestWhatStaysHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, "alpha/small keys=alpha | local/own/m local-only | peer")
		b.provider.fail("alpha/small", chain.Credentials)
		b.provider.fail("local/own/m", chain.Status)
		if text, _, _ := b.ask(edge.Work{}); text != "answer of box" {
			t.Fatalf("%q", text)
		}
		for _, open := range x.opens {
			all := strings.Join([]string{string(open.Request), string(open.Membership), string(open.Head), string(open.Body), string(open.Extension)}, "")
			if strings.Contains(all, alphaSecret.Reveal()) {
				t.Error("a provider's key went to a peer")
			}
		}
		for _, r := range x.asked() {
			if r.Option != "peer" {
				t.Errorf("option %s left the device", r.Option)
			}
		}
		time.Sleep(time.Second)
		b.hub.serve("local/own/m local-only")
		b.hub.events.Invalidated(slot)
		synctest.Wait()
		before := len(x.asked())
		if _, result, _ := b.ask(edge.Work{}); result.End == walk.Answered || len(x.asked()) != before {
			t.Errorf("local-only work was handed on: %+v", result)
		}
	})
}

func TestADeviceThatMayNotSubmitHandsNothingOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bare(t, newMemory())
		b.hub.granted = []member.Pattern{"execute:*"}
		b.hub.serve(withSlot)
		if err := b.Join(t.Context(), b.invitation()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		x := b.neighbour("box", 10)
		if text, _, _ := b.ask(edge.Work{}); text != "answer of beta/small" || len(x.asked()) != 0 {
			t.Errorf("%q, and the peer was asked %d times", text, len(x.asked()))
		}
	})
}

func TestARequestWithoutACanonicalFormStaysHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		w := edge.Work{ID: "r", Primitive: chain.LLMChat, Model: edge.Auto, Body: []byte(`{"a":1,"a":2}`)}
		result, err := b.Do(t.Context(), &w, func(walk.Attempt, [][]byte) error { return nil })
		if err != nil || result.Option != "beta/small" || len(x.asked()) != 0 {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

// TestASlotOfAnExtensionGoesWithWhatSignsIt.
func TestASlotOfAnExtensionGoesWithWhatSignsIt(t *testing.T) {
	for _, async := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, x := beside(t, "beta/small")
			b.provider.fail("beta/small", chain.Status)
			var signed []byte
			b.hub.extend = func(p wire.Protest) wire.ProtestReply {
				signed = b.hub.policy.Extension(t, b.memory.Get(slot), p.Nonce, chaintest.PeerID(device), "peer/more", time.Now())
				return wire.ProtestReply{Extension: signed}
			}
			text, _, _ := b.ask(edge.Work{Async: async})
			if async {
				synctest.Wait()
				text, _, _ = b.ask(edge.Work{})
			}
			if text != "answer of box" {
				t.Fatalf("%q", text)
			}
			if r := x.asked()[0]; r.Option != "peer/more" || string(r.Extension) != string(wire.EnvelopeHash(signed)) || string(x.opens[0].Extension) != string(signed) {
				t.Errorf("request %+v", r)
			}
		})
	}
}

// TestAStatementThatDoesNotHoldIsAnAlarm: the caller has the answer, the owner
// hears of it.
func TestAStatementThatDoesNotHoldIsAnAlarm(t *testing.T) {
	for name, forge := range map[string]func(*wire.ExecTrailer){
		"none":           func(t *wire.ExecTrailer) { t.Signature = nil },
		"garbage":        func(t *wire.ExecTrailer) { t.Signature = []byte("garbage") },
		"another answer": func(t *wire.ExecTrailer) { t.ResponseHash = "sha256:" + strings.Repeat("0", 64) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, x := beside(t, withSlot)
				if _, _, _ = b.ask(edge.Work{}); b.Status().Requests.Unproven != 0 {
					t.Error("a good statement is no alarm")
				}
				x.set(func(x *box) { x.forge = forge })
				if text, _, _ := b.ask(edge.Work{}); text != "answer of box" {
					t.Errorf("%q", text)
				}
				if n := b.Status().Requests.Unproven; n != 1 {
					t.Errorf("%d alarms", n)
				}
			})
		})
	}
}

// TestTheOwnerSeesWhoCanFillASlotAndWhyNot.
func TestTheOwnerSeesWhoCanFillASlotAndWhyNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, withSlot)
		view := func() control.OptionView {
			v, err := b.Chain(slot)
			if err != nil {
				t.Fatal(err)
			}
			return v.Options[0]
		}
		if v := view(); v.Usable || v.Why != chain.NoPeer || len(v.Peers) != 0 {
			t.Errorf("alone: %+v", v)
		}
		x, y := b.neighbour("box", 10), b.neighbour("gone", 11)
		b.hub.events.Parted(y.id())
		if v := view(); !v.Usable || v.Why != "" || len(v.Peers) != 2 || v.Peers[0].Name != "box" || !v.Peers[0].Eligible || v.Peers[1].Why != "parted" {
			t.Errorf("with two: %+v", v)
		}
		peers := b.Peers()
		if len(peers) != 2 || peers[0].Name != "box" || peers[0].State != "live" || peers[0].RTT != 1 || len(peers[0].Slots) != 1 || !peers[0].Slots[0].Eligible ||
			peers[1].State != "parted" || peers[1].Slots[0].Detail == "" {
			t.Errorf("%+v", peers)
		}
		x.fails(wire.ExecTrailer{Class: chain.Status, Used: 1})
		_, _, _ = b.ask(edge.Work{})
		if v := view(); v.Usable || v.Why != chain.Cooling || v.Peers[0].Why != "cooling" {
			t.Errorf("after a failure: %+v", v)
		}
		if r := b.Status().Resting; len(r) != 1 || r[0].Peer != x.id() {
			t.Errorf("resting %+v", r)
		}
	})
}

// A peer that has nothing for one slot is as good as ever for others: it is not
// left alone as one that failed is, and the caller reads in words what it said.
func TestAPeerThatCannotIsNoBrokenPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, "peer tries=2")
		x.errs(&wire.ExecRefusal{Code: wire.ExecNothingToRun, Message: "words of its own"})
		_, result, _ := b.ask(edge.Work{})
		if f := result.Failures; result.End != walk.NothingToTry || len(f) != 1 || f[0].Class != chain.Declined || f[0].Why != "box: nothing there runs it for others" {
			t.Errorf("%s %+v", result.End, f)
		}
		if rest := b.Status().Resting; len(rest) > 0 {
			t.Errorf("left alone: %+v", rest)
		}
		if p := b.Peers()[0]; p.State != "live" || p.Cooling != nil || p.Slots[0].Why != "declines" {
			t.Errorf("%+v", p)
		}
		_, result, _ = b.ask(edge.Work{})
		if f := result.Failures; len(f) != 1 || f[0].Class != chain.NoPeer || f[0].Why != "box: declines" {
			t.Errorf("the next one: %+v", f)
		}
	})
}
