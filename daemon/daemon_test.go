package daemon_test

import (
	"errors"
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
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

const options = "alpha/small keys=alpha | beta/small | local/own/m"

// joined makes a device that has joined and holds a chain of options.
func joined(t *testing.T, options string) *bench {
	b := bare(t, newMemory())
	b.hub.serve(options)
	if err := b.Join(t.Context(), b.invitation()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return b
}

func codeOf(err error) edge.Code {
	var r *edge.Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

func TestADeviceThatHasNotJoinedSaysHowToJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bare(t, newMemory())
		_, _, err := b.ask(edge.Work{})
		if codeOf(err) != edge.NoChain || !strings.Contains(err.Error(), "chordwheel join") {
			t.Errorf("error %v: want no_chain and the command that helps", err)
		}
		if b.Ready() == nil {
			t.Error("it is not ready")
		}
	})
}

func TestJoiningGivesAMembershipAndThenTheChains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		text, result, err := b.ask(edge.Work{})
		if err != nil || text != "answer of alpha/small" || result.Option != "alpha/small" || result.Attempts != 1 {
			t.Fatalf("text %q, result %+v, error %v", text, result, err)
		}
		if s := b.Status(); !s.Ready || !s.Hub.Joined || len(s.Chains) != 1 || s.Hub.Scopes[0] != chain.DefaultScope {
			t.Errorf("status %+v", s)
		}
		if n := len(b.hub.announced); n == 0 || len(b.hub.announced[n-1].Membership) == 0 {
			t.Error("a member presents itself to its scope")
		}
	})
}

func TestAMembershipForAnotherPeerIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bare(t, newMemory())
		b.hub.peer = chaintest.PeerID(stranger)
		err := b.Join(t.Context(), b.invitation())
		if !errors.Is(err, member.ErrPeer) {
			t.Fatalf("error %v: want that the membership is of another peer", err)
		}
		if len(b.memory.files) != 0 || b.Status().Hub.Joined {
			t.Error("a refused membership left something behind")
		}
	})
}

func TestWhatIsNoInvitationIsRefusedInOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bare(t, newMemory())
		good := b.invitation()
		for _, text := range []string{"", "hello", good[:len(good)-3], "chordwheel9:abc", strings.Replace(good, "chordwheel1:", "chordwheel1:AA", 1)} {
			err := b.Join(t.Context(), text)
			if !errors.Is(err, control.ErrRefused) || strings.Contains(err.Error(), "\n") {
				t.Errorf("joining with %.20q…: %v", text, err)
			}
		}
		if _, _, calls := b.hub.take(); calls != 0 {
			t.Error("nobody was to be asked")
		}
	})
}

func TestADeviceStaysInOneMesh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		other := b.hub.policy
		other.Trust.Mesh = "another"
		b.hub.policy, other = other, b.hub.policy
		text := b.invitation()
		b.hub.policy = other
		if err := b.Join(t.Context(), text); !errors.Is(err, control.ErrRefused) || !strings.Contains(err.Error(), "--dir") {
			t.Errorf("error %v", err)
		}
		if text, _, _ := b.ask(edge.Work{}); text != "answer of alpha/small" {
			t.Error("the device no longer works in its own mesh")
		}
	})
}

func TestAnInvalidationBringsTheNewOrderAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		time.Sleep(time.Second)
		b.hub.serve("beta/small | alpha/small keys=alpha")
		b.hub.events.Invalidated(slot)
		synctest.Wait()
		if text, _, _ := b.ask(edge.Work{}); text != "answer of beta/small" {
			t.Errorf("%q: want the new first option", text)
		}
	})
}

func TestARefusedChainLeavesTheOldOneInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		before := b.memory.Get(slot)
		time.Sleep(time.Second)
		forge := map[string]func(){
			"a stranger's signature": func() { b.hub.head = chaintest.Stranger().Head(t, b.hub.body, time.Now()) },
			"an older sequence":      func() { b.hub.head = b.hub.policy.Head(t, b.hub.body, time.Now().Add(-time.Hour)) },
			"another slot's chain": func() {
				b.hub.head = b.hub.policy.For("workspace:other", chain.LLMChat).Head(t, b.hub.body, time.Now())
			},
			"an altered body": func() {
				b.hub.head = b.hub.policy.Head(t, b.hub.body, time.Now())
				b.hub.body = b.hub.policy.Body(t, "evil/option")
			},
		}
		for name, change := range forge {
			b.hub.serve("beta/small")
			b.hub.mu.Lock()
			change()
			b.hub.mu.Unlock()
			b.hub.events.Invalidated(slot)
			synctest.Wait()
			if b.memory.Get(slot) != before {
				t.Errorf("%s was taken", name)
			}
		}
	})
}

func TestTheRimWorksWithoutTheHubUntilTheChainExpiresAndNeverAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		expires := b.memory.Get(slot).Head().Expires.Time()
		b.hub.set(true)
		for _, after := range []time.Duration{time.Minute, 2 * time.Hour, 6 * 24 * time.Hour} {
			time.Sleep(after)
			if text, _, err := b.ask(edge.Work{}); text != "answer of alpha/small" {
				t.Fatalf("after %s without the hub: %q, %v", after, text, err)
			}
		}
		time.Sleep(time.Until(expires) - time.Millisecond)
		if _, _, err := b.ask(edge.Work{}); err != nil {
			t.Errorf("a millisecond before the end: %v", err)
		}
		time.Sleep(time.Millisecond)
		if _, _, err := b.ask(edge.Work{}); codeOf(err) != edge.ChainExpired {
			t.Errorf("at the end: %v, want chain_expired", err)
		}
		b.hub.serve(options)
		b.hub.set(false)
		synctest.Wait()
		if _, _, err := b.ask(edge.Work{}); err != nil {
			t.Errorf("after the hub's return: %v", err)
		}
	})
}

func TestAHubThatIsAwayIsNotStormed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		b.hub.set(true)
		b.hub.take()
		time.Sleep(6 * time.Hour)
		if _, _, calls := b.hub.take(); calls > 160 {
			t.Errorf("%d calls in six hours: want about one in five minutes", calls)
		}
	})
}

func TestStoredStateIsEnoughForARestartWithoutTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := joined(t, options)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		second := restarted(t, first)
		if text, _, err := second.ask(edge.Work{}); text != "answer of alpha/small" {
			t.Errorf("%q, %v", text, err)
		}
	})
}

func TestWhenAllFailTheSignedExtensionAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "alpha/small keys=alpha | beta/small")
		b.provider.fail("alpha/small", chain.Status)
		b.provider.fail("beta/small", chain.Timeout)
		b.hub.extend = func(p wire.Protest) wire.ProtestReply {
			return wire.ProtestReply{Extension: b.hub.policy.Extension(t, b.memory.Get(slot), p.Nonce, chaintest.PeerID(device), "gamma/large", time.Now())}
		}
		text, result, err := b.ask(edge.Work{})
		if err != nil || text != "answer of gamma/large" || !result.Extended {
			t.Fatalf("text %q, result %+v, error %v", text, result, err)
		}
		_, protests, _ := b.hub.take()
		if len(protests) != 1 || !slices.Equal(protests[0].Failed, []chain.Failure{{Option: "alpha/small", Class: chain.Status}, {Option: "beta/small", Class: chain.Timeout}}) {
			t.Errorf("protests %+v", protests)
		}
		if text, _, _ := b.ask(edge.Work{}); text != "answer of gamma/large" {
			t.Errorf("the next request: %q; it needs a protest of its own", text)
		}
		if _, protests, _ := b.hub.take(); len(protests) != 1 {
			t.Errorf("%d protests of the next request: an extension holds for one", len(protests))
		}
	})
}

func TestAnExtensionThatDoesNotFitIsNotWalked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "alpha/small keys=alpha")
		held := b.memory.Get(slot)
		me := chaintest.PeerID(device)
		for name, extend := range map[string]func(nonce string) []byte{
			"a stranger's": func(nonce string) []byte {
				return chaintest.Stranger().Extension(t, held, nonce, me, "gamma/large", time.Now())
			},
			"a replayed nonce": func(string) []byte {
				return b.hub.policy.Extension(t, held, "another", me, "gamma/large", time.Now())
			},
			"another device's": func(nonce string) []byte {
				return b.hub.policy.Extension(t, held, nonce, chaintest.PeerID(stranger), "gamma/large", time.Now())
			},
			"an expired one": func(nonce string) []byte {
				return b.hub.policy.Extension(t, held, nonce, me, "gamma/large", time.Now().Add(-time.Hour))
			},
		} {
			b.provider.fail("alpha/small", chain.Status)
			b.hub.extend = func(p wire.Protest) wire.ProtestReply { return wire.ProtestReply{Extension: extend(p.Nonce)} }
			text, result, err := b.ask(edge.Work{})
			if err != nil || text != "" || result.End == walk.Answered {
				t.Errorf("%s extension: text %q, result %+v, error %v", name, text, result, err)
			}
		}
	})
}

func TestAnAsynchronousExtensionHoldsForTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "alpha/small keys=alpha")
		b.provider.fail("alpha/small", chain.Status)
		b.hub.extend = func(p wire.Protest) wire.ProtestReply {
			return wire.ProtestReply{Extension: b.hub.policy.Extension(t, b.memory.Get(slot), p.Nonce, chaintest.PeerID(device), "gamma/large", time.Now())}
		}
		_, result, err := b.ask(edge.Work{Async: true})
		if err != nil || result.End != walk.Escalating {
			t.Fatalf("result %+v, error %v: want escalating", result, err)
		}
		synctest.Wait()
		if text, _, _ := b.ask(edge.Work{Async: true}); text != "answer of gamma/large" {
			t.Errorf("the next request: %q", text)
		}
	})
}

func TestAnAsynchronousExtensionEndsWithItsOwnExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "alpha/small keys=alpha")
		b.provider.fail("alpha/small", chain.Status)
		b.hub.extend = func(p wire.Protest) wire.ProtestReply {
			e := b.hub.policy.ExtensionOf(t, b.memory.Get(slot), p.Nonce, chaintest.PeerID(device), "gamma/large", time.Now())
			e.Expires = chain.InstantOf(time.Now().Add(time.Minute))
			return wire.ProtestReply{Extension: b.hub.policy.Sign(t, chain.DomainExtension, e)}
		}
		if _, result, err := b.ask(edge.Work{Async: true}); err != nil || result.End != walk.Escalating {
			t.Fatalf("result %+v, error %v: want escalating", result, err)
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		if text, _, _ := b.ask(edge.Work{Async: true}); text != "" {
			t.Errorf("%q: the extension has expired", text)
		}
	})
}

func TestAModelByNameIsThatModelOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "alpha/small keys=alpha | beta/big/v1:latest | peer")
		b.hub.extend = func(wire.Protest) wire.ProtestReply {
			t.Error("nobody asked for another model")
			return wire.ProtestReply{}
		}
		for name, want := range map[string]string{"beta/big/v1:latest": "answer of beta/big/v1:latest", "big/v1:latest": "answer of beta/big/v1:latest", "small": "answer of alpha/small"} {
			if text, _, err := b.ask(edge.Work{Model: name}); text != want {
				t.Errorf("model %s: %q, %v", name, text, err)
			}
		}
		for _, name := range []string{"gamma/large", "peer", "alpha"} {
			if _, _, err := b.ask(edge.Work{Model: name}); codeOf(err) != edge.ModelNotFound {
				t.Errorf("model %s: %v, want model_not_found", name, err)
			}
		}
		b.provider.fail("alpha/small", chain.Status)
		if text, _, _ := b.ask(edge.Work{Model: "small"}); text != "" {
			t.Errorf("%q: another model answered for the one that was asked for", text)
		}
	})
}

func TestAFailureIsReportedSoonAndASuccessWithTheNextVisit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		b.hub.take()
		b.ask(edge.Work{})
		time.Sleep(time.Minute)
		if reports, _, _ := b.hub.take(); len(reports) != 0 {
			t.Errorf("a success was news: %+v", reports)
		}
		b.provider.fail("alpha/small", chain.Status)
		b.ask(edge.Work{})
		time.Sleep(time.Minute)
		reports, _, _ := b.hub.take()
		if len(reports) != 1 {
			t.Fatalf("%d reports within a minute of a failure", len(reports))
		}
		got := map[chain.OptionID]wire.Counter{}
		for _, c := range reports[0].Counters {
			got[c.Option] = c
		}
		if got["alpha/small"].Attempts != 2 || got["alpha/small"].Outcomes[chain.Status] != 1 || got["beta/small"].Outcomes[chain.OK] != 1 {
			t.Errorf("counters %+v", got)
		}
	})
}

func TestAReportWhoseAnswerWasLostIsSentAgainAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		b.hub.take()
		b.hub.lose = true
		b.provider.fail("alpha/small", chain.Status)
		b.ask(edge.Work{})
		time.Sleep(time.Minute)
		b.hub.mu.Lock()
		b.hub.lose = false
		b.hub.mu.Unlock()
		time.Sleep(20 * time.Minute)
		reports, _, _ := b.hub.take()
		if len(reports) < 2 {
			t.Fatalf("%d reports: want the lost one again", len(reports))
		}
		for _, r := range reports {
			if r.Seq != reports[0].Seq || r.BootID != reports[0].BootID || r.To != reports[0].To {
				t.Errorf("report %+v is not the first one again", r)
			}
		}
	})
}

func TestAKeyGoesToItsOwnOptionAndNowhereElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "gone/x keys=lost | alpha/small keys=alpha | beta/small")
		b.provider.fail("alpha/small", chain.Status)
		if text, _, _ := b.ask(edge.Work{}); text != "answer of beta/small" {
			t.Fatalf("%q", text)
		}
		for _, c := range b.provider.calls {
			want := chain.Secret("")
			if c.Attempt.Option.ID == "alpha/small" {
				want = alphaSecret
			}
			if c.Secret != want {
				t.Errorf("%s was given the wrong key", c.Attempt.Option.ID)
			}
		}
		if len(b.provider.calls) != 2 {
			t.Errorf("%d calls: an option whose key is missing is not tried", len(b.provider.calls))
		}
	})
}

func TestARefusedKeyIsProtestedWithTheNextReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "alpha/small keys=alpha | beta/small")
		b.provider.fail("alpha/small", chain.Credentials)
		if text, _, _ := b.ask(edge.Work{}); text != "answer of beta/small" {
			t.Fatalf("%q", text)
		}
		time.Sleep(time.Minute)
		reports, _, _ := b.hub.take()
		if len(reports) != 1 || len(reports[0].Protests) != 1 || reports[0].Protests[0].Failed[0] != (chain.Failure{Option: "alpha/small", Class: chain.Credentials}) {
			t.Errorf("reports %+v", reports)
		}
	})
}

func TestALocalOptionRunsAsThisDeviceConfiguredIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "local/other/x adapter=openai | local/own/m adapter=process endpoint=http://10.0.0.1/steal model=other keys=alpha")
		text, result, err := b.ask(edge.Work{})
		if err != nil || text != "answer of local/own/m" || result.Attempts != 1 {
			t.Fatalf("text %q, result %+v, error %v", text, result, err)
		}
		c := b.provider.calls[0]
		if o := c.Attempt.Option; o.Endpoint != "http://127.0.0.1:1/v1" || o.Model != "m" || o.Adapter != "openai" || c.Secret != "" {
			t.Errorf("the chain decided how a local option runs: %+v", o)
		}
	})
}

func TestAWithdrawnOptionIsNotTriedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		b.provider.fail("alpha/small", chain.Status)
		time.Sleep(time.Second)
		b.hub.serve("alpha/small keys=alpha | local/own/m")
		b.hub.events.Invalidated(slot)
		synctest.Wait()
		if text, _, _ := b.ask(edge.Work{}); text != "answer of local/own/m" {
			t.Errorf("%q: beta/small was withdrawn", text)
		}
	})
}

func TestARevokedDeviceStopsAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		time.Sleep(time.Second)
		list, err := (&member.Revocations{}).Add(chaintest.PeerID(device), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		list.Mesh = b.hub.policy.Trust.Mesh
		forged, err := member.Revoke(chaintest.Stranger().Key, list)
		if err != nil {
			t.Fatal(err)
		}
		b.hub.events.Revoked(forged)
		if text, _, err := b.ask(edge.Work{}); text == "" {
			t.Fatalf("a stranger's list stopped the device: %v", err)
		}
		signed, err := member.Revoke(b.hub.policy.Key, list)
		if err != nil {
			t.Fatal(err)
		}
		b.hub.events.Revoked(signed)
		if _, _, err := b.ask(edge.Work{}); codeOf(err) != edge.NoChain || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("error %v", err)
		}
	})
}

// revocations is a signed list that ends the test device's membership.
func (b *bench) revocations() []byte {
	b.hub.t.Helper()
	list, err := (&member.Revocations{}).Add(chaintest.PeerID(device), time.Now())
	if err != nil {
		b.hub.t.Fatal(err)
	}
	list.Mesh = b.hub.policy.Trust.Mesh
	signed, err := member.Revoke(b.hub.policy.Key, list)
	if err != nil {
		b.hub.t.Fatal(err)
	}
	return signed
}

func (b *bench) stopped(when string) {
	b.hub.t.Helper()
	if text, _, err := b.ask(edge.Work{}); codeOf(err) != edge.NoChain || !strings.Contains(err.Error(), "revoked") {
		b.hub.t.Errorf("%s: text %q, error %v; want that a revoked device stops", when, text, err)
	}
}

func TestARevocationOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		time.Sleep(time.Second)
		b.hub.events.Revoked(b.revocations())
		b.stopped("after the list")
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		again := restarted(t, b)
		again.stopped("after a restart without a hub")
	})
}

// TestTheHubsRefusalStopsARevokedDevice: who is revoked is cut off, and hears the
// signed list no more.
func TestTheHubsRefusalStopsARevokedDevice(t *testing.T) {
	ways := map[string]func(*bench){
		"at a visit": func(b *bench) { b.hub.events.HubUp(true) },
		"unasked":    func(b *bench) { b.hub.events.Refused(b.hub.no) },
		"to a protest": func(b *bench) {
			for _, id := range []chain.OptionID{"alpha/small", "beta/small", "local/own/m"} {
				b.provider.fail(id, chain.Status)
			}
			_, _, _ = b.ask(edge.Work{})
		},
	}
	for name, ask := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := joined(t, options)
				time.Sleep(time.Second)
				b.hub.mu.Lock()
				b.hub.no = spoke.Refuse(spoke.CodeNotMember, "join again")
				b.hub.mu.Unlock()
				b.hub.events.HubUp(true)
				synctest.Wait()
				if text, _, _ := b.ask(edge.Work{}); text == "" {
					t.Fatal("any other refusal leaves cached chains in force")
				}
				b.hub.mu.Lock()
				b.hub.no = spoke.Refuse(spoke.CodeRevoked, "ask the owner")
				b.hub.mu.Unlock()
				ask(b)
				synctest.Wait()
				b.stopped("after the refusal")
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				again := restarted(t, b)
				again.stopped("after a restart")
				again.hub.serve(options)
				again.hub.set(false)
				synctest.Wait()
				if text, _, err := again.ask(edge.Work{}); text == "" {
					t.Errorf("the hub welcomed it again, and it does not work: %v", err)
				}
			})
		})
	}
}

// TestARefusalOfAnOlderMembershipMeansNothing: a visit may be under way while the
// owner lets the device in again.
func TestARefusalOfAnOlderMembershipMeansNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		time.Sleep(time.Second)
		b.hub.events.Revoked(b.revocations())
		b.stopped("after the list")
		time.Sleep(time.Second)
		let := make(chan struct{})
		b.hub.mu.Lock()
		b.hub.first = func(q wire.Hello) error {
			if q.Invitation != nil {
				return nil
			}
			<-let
			return spoke.Refuse(spoke.CodeRevoked, "ask the owner")
		}
		b.hub.mu.Unlock()
		b.hub.events.HubUp(true) // a visit that shows the old membership
		synctest.Wait()
		if err := b.Join(t.Context(), b.invitation()); err != nil {
			t.Fatal(err)
		}
		close(let)
		synctest.Wait()
		if text, _, err := b.ask(edge.Work{}); text == "" {
			t.Errorf("it was let in again, and does not work: %v", err)
		}
	})
}

// TestNewsDuringAVisitIsKept: what arrives by gossip while a hello is under way
// is not undone by the older answer.
func TestNewsDuringAVisitIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		time.Sleep(time.Second)
		list := b.revocations()
		b.hub.mu.Lock()
		b.hub.change = func(*wire.Welcome) { b.hub.events.Revoked(list) }
		b.hub.mu.Unlock()
		b.hub.events.HubUp(true)
		synctest.Wait()
		b.stopped("after a list that came during a visit")
	})
}

func TestAHubThatLostCountIsShownTheHeadsItSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		b.hub.mu.Lock()
		for _, hello := range b.hub.hellos {
			for _, held := range hello.Holds {
				if len(held.Head) > 0 {
					t.Error("a head was sent to a hub that did not ask")
				}
			}
		}
		b.hub.forgot, b.hub.hellos = true, nil
		b.hub.mu.Unlock()
		b.hub.set(false)
		synctest.Wait()
		b.hub.mu.Lock()
		defer b.hub.mu.Unlock()
		want, _ := b.memory.Get(slot).Bytes()
		if n := len(b.hub.hellos); n != 2 || string(b.hub.hellos[1].Holds[0].Head) != string(want) {
			t.Errorf("%d hellos: want a second one with the head as evidence", n)
		}
	})
}

// TestADeviceWithoutANetworkPoisonsNothing: when every remote option and the hub
// fail to connect, it is this machine that is offline; when an address changes,
// everything is tried again.
func TestADeviceWithoutANetworkPoisonsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "alpha/small keys=alpha | beta/small")
		b.hub.set(true)
		b.hub.take()
		b.provider.fail("alpha/small", chain.Unreachable)
		b.provider.fail("beta/small", chain.Unreachable)
		for range 10 {
			b.ask(edge.Work{})
			time.Sleep(time.Second)
		}
		if s := b.Status(); len(s.Resting) != 0 {
			t.Errorf("left alone: %+v", s.Resting)
		}
		b.provider.heal()
		b.hub.events.Moved()
		b.hub.set(false)
		if text, _, _ := b.ask(edge.Work{}); text != "answer of alpha/small" {
			t.Errorf("back on the network: %q", text)
		}
		time.Sleep(time.Hour)
		reports, _, _ := b.hub.take()
		for _, r := range reports {
			for _, c := range r.Counters {
				if c.Outcomes[chain.Unreachable] > 0 || c.Outcomes[chain.Offline] > 0 {
					t.Errorf("the hub was told of failures that were this device's own: %+v", c)
				}
			}
		}
	})
}

// TestANewKeyIsToldAtOnce: options wait for it.
func TestANewKeyIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		time.Sleep(time.Minute)
		b.hub.take()
		beta := "beta"
		b.ring.more.Store(&beta)
		time.Sleep(5 * time.Second)
		b.hub.mu.Lock()
		last := b.hub.hellos[len(b.hub.hellos)-1]
		b.hub.mu.Unlock()
		if _, _, calls := b.hub.take(); calls == 0 || !slices.Contains(last.Capabilities, chain.KeyCapability("beta")) {
			t.Errorf("%d calls, capabilities %v", calls, last.Capabilities)
		}
		time.Sleep(time.Minute)
		if _, _, calls := b.hub.take(); calls != 0 {
			t.Errorf("%d more calls: once is enough", calls)
		}
	})
}

func TestModelsAreTheChatChainInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "alpha/small keys=alpha | peer | beta/small")
		var ids []string
		for _, m := range b.Models(nil).Agents {
			ids = append(ids, m.ID)
		}
		if !slices.Equal(ids, []string{"alpha/small", "beta/small"}) || b.Models(nil).Issued.IsZero() {
			t.Errorf("models %v", b.Models(nil))
		}
	})
}

func TestNewRefusesAServiceWithoutAnAdapter(t *testing.T) {
	m := newMemory()
	_, err := daemon.New(daemon.Config{Key: chaintest.Key(device), Chains: chains{m}, Marks: marks{m}, State: m, Keys: &ring{}, Random: random(),
		Locals: []wire.LocalOption{{Option: chain.Option{ID: "local/x/y", Kind: chain.Local, Adapter: "telepathy"}}}})
	if err == nil || !strings.Contains(err.Error(), "telepathy") {
		t.Errorf("error %v: want the adapter that is not there", err)
	}
}

// TestAModelWithALongNameDoesNotKeepTheDeviceOut: names of local models are
// others' choice, some are whole paths; what cannot be declared is not.
func TestAModelWithALongNameDoesNotKeepTheDeviceOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		long := strings.Repeat("x", 200)
		p := &provider{fails: map[chain.OptionID]walk.Outcome{}}
		b := assemble(t, p, func(c *daemon.Config) {
			c.Chains, c.Marks, c.State = chains{m}, marks{m}, m
			more := c.Locals[0]
			more.Option.ID, more.Option.Model = "local/own/long", long
			c.Locals = append(c.Locals, more)
		})
		b.memory, b.provider = m, p
		b.hub.serve(options)
		if err := b.Join(t.Context(), b.invitation()); err != nil { // the hub's double refuses what the wire does
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.hub.hellos[0].Capabilities; !slices.Contains(got, "model:m") || slices.Contains(got, chain.Capability("model:"+long)) {
			t.Errorf("capabilities %v", got)
		}
	})
}
