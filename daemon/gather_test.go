package daemon_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// TestPeersBringChainsWhileTheHubIsAway, and nothing else: what they bring is
// judged as if the hub had sent it.
func TestPeersBringChainsWhileTheHubIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		first := b.memory.Get(slot)
		oldHead, oldBody := first.Bytes()
		time.Sleep(time.Second)
		newBody := b.hub.policy.Body(t, "gamma/x | peer")
		newHead := b.hub.policy.Head(t, newBody, time.Now())
		bring := func(at chain.Slot, head, body []byte, seq uint64) {
			x.set(func(x *box) {
				x.chains = map[chain.Slot][2][]byte{at: {head, body}}
				x.heads = []wire.Held{{Slot: at, Mark: chain.Mark{Seq: seq, Body: chain.CIDOf(body), Issued: chain.InstantOf(time.Now())}}}
			})
			time.Sleep(2 * time.Minute)
			b.hub.events.Contact(x.contact())
			synctest.Wait()
		}
		bring(slot, newHead, newBody, 1<<60)
		if b.memory.Get(slot) != first || x.fetched != 0 {
			t.Fatal("a peer was asked although the hub is there")
		}
		b.hub.set(true)
		forged := chaintest.Stranger().Head(t, newBody, time.Now())
		other := b.hub.policy.For("workspace:other", chain.LLMChat)
		for name, c := range map[string]struct {
			at         chain.Slot
			head, body []byte
		}{
			"a stranger's signature":   {slot, forged, newBody},
			"an older chain":           {slot, b.hub.policy.Head(t, newBody, time.Now().Add(-time.Hour)), newBody},
			"another body":             {slot, newHead, oldBody},
			"another slot's chain":     {slot, other.Head(t, newBody, time.Now()), newBody},
			"a scope that is not ours": {chain.Slot{Scope: "workspace:other", Primitive: chain.LLMChat}, other.Head(t, newBody, time.Now()), newBody},
			"nothing":                  {slot, nil, nil},
		} {
			if bring(c.at, c.head, c.body, 1<<60); b.memory.Get(slot) != first || len(b.memory.chains) != 1 {
				t.Fatalf("%s was taken from a peer", name)
			}
		}
		bring(slot, oldHead, oldBody, first.Head().Seq-1)
		bring(slot, newHead, newBody, uint64(time.Now().UnixMilli()))
		if got := b.memory.Get(slot); got == first || got.Head().Body != chain.CIDOf(newBody) {
			t.Fatal("the hub's newer chain was not taken from a peer")
		}
		if text, _, _ := b.ask(edge.Work{}); text != "answer of gamma/x" {
			t.Errorf("%q", text)
		}
	})
}

func TestMembersAreGivenWhatIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, options)
		give := b.hub.events.Chains
		c := b.memory.Get(slot)
		head, body := c.Bytes()
		gotHead, gotBody := give.Chain(slot)
		if held := give.Heads(chain.DefaultScope); len(held) != 1 || held[0].Mark != c.Mark() || string(gotHead) != string(head) || string(gotBody) != string(body) ||
			string(give.Body(chain.DefaultScope, c.Head().Body)) != string(body) {
			t.Error("what is in force is not given")
		}
		if len(give.Heads("workspace:other")) != 0 || give.Body("workspace:other", c.Head().Body) != nil || give.Body(chain.DefaultScope, "x") != nil {
			t.Error("another scope, or another body, is given something")
		}
		b.hub.set(true)
		time.Sleep(time.Until(c.Head().Expires.Time()))
		if h, _ := give.Chain(slot); len(give.Heads(chain.DefaultScope)) != 0 || h != nil || give.Body(chain.DefaultScope, c.Head().Body) != nil {
			t.Error("an expired chain is given on")
		}
	})
}

func TestWhereTheHubSaysThatPeersAreIsTriedAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bare(t, newMemory())
		at := wire.PeerAddress{Peer: chaintest.PeerID(10), Addresses: []string{"/ip4/192.0.2.7/tcp/7412"}}
		b.hub.change = func(w *wire.Welcome) { w.Peers = []wire.PeerAddress{at} }
		b.hub.serve(withSlot)
		if err := b.Join(t.Context(), b.invitation()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(b.hub.introduced); n == 0 || b.hub.introduced[n-1].Peer != at.Peer {
			t.Errorf("introduced %+v", b.hub.introduced)
		}
		again := restarted(t, b)
		synctest.Wait()
		if got := again.hub.introduced; len(got) == 0 || got[0].Peer != at.Peer || got[0].Addresses[0] != at.Addresses[0] {
			t.Errorf("after a start without the hub: %+v", got)
		}
	})
}

// TestAnInvalidationHeardWithoutTheHubIsFollowedAtAPeer: gossip names a newer
// chain, and somebody in contact has it.
func TestAnInvalidationHeardWithoutTheHubIsFollowedAtAPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		time.Sleep(time.Second)
		b.hub.set(true)
		body := b.hub.policy.Body(t, "gamma/x")
		x.set(func(x *box) {
			x.chains[slot] = [2][]byte{b.hub.policy.Head(t, body, time.Now()), body}
			x.heads = []wire.Held{{Slot: slot, Mark: chain.Mark{Seq: uint64(time.Now().UnixMilli()), Body: chain.CIDOf(body)}}}
		})
		b.hub.events.Invalidated(slot)
		synctest.Wait()
		if text, _, _ := b.ask(edge.Work{}); text != "answer of gamma/x" {
			t.Errorf("%q", text)
		}
	})
}
