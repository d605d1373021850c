package bind

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
)

var (
	start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	slot  = chain.Option{ID: "peer", Kind: chain.Peer, Requires: []chain.Capability{"execute:llm.chat"}}
	ask   = Ask{Scope: chain.DefaultScope, Primitive: chain.LLMChat, Slot: &slot}
	work  = ask.work()
)

func newTable(seed uint64) *Table { return New("self", rand.New(rand.NewPCG(seed, seed))) }

// contact is a peer that may do everything, changed by change.
func contact(name string, change func(*Contact)) Contact {
	c := Contact{
		Peer: chain.PeerID(name), BootID: "boot", RTT: 10 * time.Millisecond, Capabilities: []chain.Capability{"execute:llm.chat", "submit"},
		Membership: member.Membership{Peer: chain.PeerID(name), Name: name, DeviceID: chain.DeviceID("id-" + name), Scopes: []chain.ScopeID{chain.DefaultScope},
			Granted: []member.Pattern{member.Everything}, Issued: chain.InstantOf(start.Add(-time.Hour)), Expires: chain.InstantOf(start.Add(24 * time.Hour))},
	}
	if change != nil {
		change(&c)
	}
	return c
}

func (t *Table) why(name string, a Ask, now time.Time) Reason {
	for _, v := range t.Explain(a, nil, now) {
		if v.Name == name {
			return v.Why
		}
	}
	return "unknown"
}

// TestWhoMayFillASlot: Bind and Explain judge alike, one peer at a time.
func TestWhoMayFillASlot(t *testing.T) {
	device := chain.Option{ID: "peer/b", Kind: chain.Peer, Requires: []chain.Capability{"device:id-b"}}
	model := chain.Option{ID: "peer/m", Kind: chain.Peer, Requires: []chain.Capability{"model:big"}}
	private := chain.Option{ID: "peer/l", Kind: chain.Peer, Data: chain.LocalOnly}
	on := func(o *chain.Option) Ask { return Ask{chain.DefaultScope, chain.LLMChat, o} }
	declares := func(c ...chain.Capability) func(*Contact) {
		return func(x *Contact) { x.Capabilities = append(x.Capabilities, c...) }
	}
	for name, c := range map[string]struct {
		ask    Ask
		change func(*Contact)
		after  time.Duration
		want   Reason
	}{
		"one that may":                              {ask, nil, 0, Eligible},
		"the device that the slot names":            {on(&device), nil, 0, Eligible},
		"one that declares to be another device":    {on(&device), func(c *Contact) { c.Membership.DeviceID = "id-x"; declares("device:id-b")(c) }, 0, Lacks},
		"a model that it has":                       {on(&model), declares("model:big"), 0, Eligible},
		"a model that it has not":                   {on(&model), nil, 0, Lacks},
		"a model that it was not granted":           {on(&model), func(c *Contact) { declares("model:big")(c); c.Membership.Granted = []member.Pattern{"execute:*"} }, 0, Lacks},
		"a primitive that it does not declare":      {Ask{chain.DefaultScope, "embed.text", &chain.Option{ID: "peer", Kind: chain.Peer}}, nil, 0, Lacks},
		"a primitive that it was not granted":       {ask, func(c *Contact) { c.Membership.Granted = []member.Pattern{"submit"} }, 0, Lacks},
		"data that stays here":                      {on(&private), nil, 0, LocalOnly},
		"another scope":                             {Ask{"workspace:other", chain.LLMChat, &slot}, nil, 0, OtherScope},
		"a millisecond before its membership's end": {ask, nil, 24*time.Hour - time.Millisecond, Eligible},
		"at its membership's end":                   {ask, nil, 24 * time.Hour, Expired},
		"over a relay that carries no work":         {ask, func(c *Contact) { c.Relayed = true }, 0, Relayed},
	} {
		t.Run(name, func(t *testing.T) {
			table := newTable(1)
			table.Contact(contact("b", c.change), start)
			now := start.Add(c.after)
			if got := table.why("b", c.ask, now); got != c.want {
				t.Errorf("explained as %q, want %q", got, c.want)
			}
			if _, ok := table.Bind(c.ask, nil, now); ok != (c.want == Eligible) {
				t.Errorf("bound: %v, though the verdict is %q", ok, c.want)
			}
		})
	}
}

// TestOnlyDirectContactIsProofOfLife tells the story of one peer.
func TestOnlyDirectContactIsProofOfLife(t *testing.T) {
	table := newTable(1)
	now := start
	b := contact("b", nil)
	expect := func(step string, want Reason) {
		t.Helper()
		if got := table.why("b", ask, now); got != want {
			t.Errorf("%s: %q, want %q", step, got, want)
		}
		if _, ok := table.Bind(ask, nil, now); ok != (want == Eligible) {
			t.Errorf("%s: bound %v", step, ok)
		}
		now = now.Add(time.Second)
	}
	hear := Introduction{b.Peer, b.Membership, b.Capabilities}
	table.Introduce(hear, now)
	expect("introduced", OnlyHeardOf)
	table.Heard("b", 0, now)
	expect("an answer to nobody", OnlyHeardOf)
	if !table.Contact(b, now) {
		t.Error("the first contact is a return")
	}
	expect("met", Eligible)
	if table.Contact(b, now) {
		t.Error("a refreshed contact is no return")
	}
	table.Silent("b", now)
	expect("silent", Silent)
	table.Introduce(hear, now)
	expect("gossip about a silent peer", Silent)
	if table.Contact(b, now) {
		t.Error("a silent peer that speaks is not one that returned: what failed may fail again")
	}
	expect("heard again", Eligible)
	table.Silent("b", now)
	table.Heard("b", time.Millisecond, now)
	expect("a ping answered", Eligible)
	table.Parted("b", now)
	expect("parted", Parted)
	table.Introduce(hear, now)
	table.Silent("b", now)
	table.Heard("b", 0, now)
	expect("gossip, or an old ping, about one that left", Parted)
	if !table.Contact(b, now) {
		t.Error("it returned")
	}
	expect("returned", Eligible)
	b.BootID = "another"
	if !table.Contact(b, now) {
		t.Error("a restarted peer has returned, although the old connection was never seen to end")
	}
	table.PartedAll(now)
	expect("left the mesh", Parted)
}

func TestAPeerThatDeclinesIsLeftAloneUntilItsTimeOrItsReturn(t *testing.T) {
	table := newTable(1)
	table.Contact(contact("b", nil), start)
	table.Declined("b", Work{}, start.Add(time.Minute))
	for after, want := range map[time.Duration]Reason{0: Declines, time.Minute - 1: Declines, time.Minute: Eligible} {
		if why := table.why("b", ask, start.Add(after)); why != want {
			t.Errorf("after %s: %q, want %q", after, why, want)
		}
	}
	table.Declined("b", Work{"embed.text", "peer"}, start.Add(time.Hour))
	if why := table.why("b", ask, start.Add(time.Minute)); why != Eligible {
		t.Errorf("other work: %q", why)
	}
	table.Declined("b", work, start.Add(time.Hour))
	if why := table.why("b", ask, start.Add(time.Minute)); why != Declines {
		t.Errorf("this work: %q", why)
	}
	table.Contact(contact("b", func(c *Contact) { c.BootID = "another" }), start)
	if why := table.why("b", ask, start); why != Eligible {
		t.Errorf("restarted: %q", why)
	}
}

// What nonces begin with comes with a contact, from the peer itself if its clock jumped, and
// with the next contact once more if it was restarted.
func TestWhichBootNoncesAreFor(t *testing.T) {
	table := newTable(1)
	table.Booted("b", "nobody")
	met := func(boot string) { table.Contact(contact("b", func(c *Contact) { c.BootID = boot }), start) }
	expect := func(step, want string) {
		t.Helper()
		if got := table.Boot("b"); got != want {
			t.Errorf("%s: %q, want %q", step, got, want)
		}
	}
	expect("never met", "")
	met("one")
	expect("met", "one")
	table.Booted("b", "one-later")
	met("one")
	expect("it said otherwise", "one-later")
	met("two")
	expect("it was restarted", "two")
}

func TestARevokedPeerIsOut(t *testing.T) {
	table := newTable(1)
	table.Contact(contact("b", nil), start)
	table.Revoke(&member.Revocations{Ended: []member.Ended{{Peer: "b", At: chain.InstantOf(start)}}})
	if why := table.why("b", ask, start); why != Revoked {
		t.Errorf("%q", why)
	}
	table.Contact(contact("b", func(c *Contact) { c.Membership.Issued = chain.InstantOf(start.Add(time.Second)) }), start)
	if why := table.why("b", ask, start.Add(time.Minute)); why != Eligible {
		t.Errorf("a membership given after the revocation: %q", why)
	}
}

func TestADeviceDoesNotBindToItself(t *testing.T) {
	table := newTable(1)
	table.Contact(contact("self", nil), start)
	table.Introduce(Introduction{Peer: "self"}, start)
	if n := len(table.Explain(ask, nil, start)); n != 0 {
		t.Errorf("%d peers", n)
	}
}

func TestExceptIsKept(t *testing.T) {
	table := newTable(1)
	for _, name := range []string{"b", "c"} {
		table.Contact(contact(name, nil), start)
	}
	for range 50 {
		if p, ok := table.Bind(ask, func(p chain.PeerID) bool { return p == "b" }, start); !ok || p != "c" {
			t.Fatalf("bound to %q, %v", p, ok)
		}
	}
	if _, ok := table.Bind(ask, func(chain.PeerID) bool { return true }, start); ok {
		t.Error("nobody was left")
	}
	verdicts := table.Explain(ask, func(p chain.PeerID) bool { return p == "b" }, start)
	if verdicts[0].Peer != "c" || verdicts[1].Why != CoolingDown {
		t.Errorf("%+v", verdicts)
	}
}

// TestTheSoonestAnswerIsPreferred: one thing at a time makes a peer the worse
// one.
func TestTheSoonestAnswerIsPreferred(t *testing.T) {
	measured := func(class chain.Class, took time.Duration) func(*Table) {
		return func(t *Table) {
			for i := range 8 {
				t.Observe("worse", work, class, took, start.Add(time.Duration(i)*time.Second))
				t.Observe("better", work, chain.OK, time.Second, start.Add(time.Duration(i)*time.Second))
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*Contact)
		then   func(*Table)
	}{
		"far away":      {func(c *Contact) { c.RTT = 5 * time.Second }, nil},
		"loaded":        {func(c *Contact) { c.Load = Load{Jobs: 4, Parallel: 2} }, nil},
		"slow so far":   {nil, measured(chain.OK, 3*time.Second)},
		"failing":       {nil, measured(chain.Status, time.Second)},
		"quick, loaded": {func(c *Contact) { c.Load = Load{Jobs: 30, Parallel: 2} }, measured(chain.OK, time.Second/2)},
		"ours already":  {nil, func(t *Table) { t.Begin("worse"); t.Begin("worse") }},
	} {
		t.Run(name, func(t *testing.T) {
			table := newTable(7)
			table.Contact(contact("better", nil), start)
			table.Contact(contact("worse", c.change), start)
			if c.then != nil {
				c.then(table)
			}
			for range 50 {
				if p, _ := table.Bind(ask, nil, start.Add(10*time.Second)); p != "better" {
					t.Fatalf("bound to %q: %+v", p, table.Explain(ask, nil, start))
				}
			}
		})
	}
}

func TestWhatSaysNothingTeachesNothing(t *testing.T) {
	table := newTable(1)
	table.Contact(contact("b", nil), start)
	before := table.Explain(ask, nil, start)[0]
	for _, class := range []chain.Class{chain.Busy, chain.Canceled, chain.CallerError, chain.Offline, chain.Internal, chain.Feature} {
		table.Observe("b", work, class, time.Hour, start)
	}
	if after := table.Explain(ask, nil, start)[0]; !reflect.DeepEqual(after, before) {
		t.Errorf("%+v, then %+v", before, after)
	}
}

func TestASaidLoadFades(t *testing.T) {
	table := newTable(1)
	table.Contact(contact("b", func(c *Contact) { c.Load = Load{Jobs: 8, Parallel: 2} }), start)
	for after, want := range map[time.Duration]float64{0: 4, staleLoad: 2, 2 * staleLoad: 1} {
		if got := table.Explain(ask, nil, start.Add(after))[0].Ahead; got != want {
			t.Errorf("after %s: %g ahead, want %g", after, got, want)
		}
	}
	end := table.Begin("b")
	if got := table.Explain(ask, nil, start)[0].Ahead; got != 4.5 {
		t.Errorf("with one of ours: %g", got)
	}
	table.Contact(contact("b", func(c *Contact) { c.Load = Load{Jobs: 9, Parallel: 2} }), start)
	if got := table.Explain(ask, nil, start)[0].Ahead; got != 4.5 {
		t.Errorf("ours is among those that it counts, not beside them: %g", got)
	}
	end()
	if got := table.Explain(ask, nil, start)[0].Ahead; got != 4 {
		t.Errorf("after ours ended: %g", got)
	}
}

func TestTheTableIsBounded(t *testing.T) {
	table := newTable(1)
	for i := range 3 * maxPeers {
		name := fmt.Sprintf("heard%d", i)
		table.Introduce(Introduction{Peer: chain.PeerID(name)}, start.Add(time.Duration(i)))
	}
	table.Contact(contact("live", nil), start)
	for i := range maxPeers {
		name := fmt.Sprintf("later%d", i)
		table.Introduce(Introduction{Peer: chain.PeerID(name)}, start.Add(time.Hour))
	}
	if n := len(table.peers); n != maxPeers || len(table.order) != n {
		t.Errorf("%d peers, %d in order", n, len(table.order))
	}
	for i, k := range table.order {
		if table.peers[k.peer] != k || i > 0 && table.order[i-1].peer >= k.peer {
			t.Fatal("the order is not that of the table")
		}
	}
	if _, ok := table.Bind(ask, nil, start); !ok {
		t.Error("hearsay drove a live peer out")
	}
	for i := range 3 * maxPools {
		table.Observe("live", Work{chain.Primitive(fmt.Sprintf("p%d", i)), "peer"}, chain.OK, time.Second, start)
	}
	if n, m := len(table.peers["live"].works), len(table.pools); n != maxWorks || m != maxPools {
		t.Errorf("%d kinds of work at the peer, %d in all", n, m)
	}
}

func TestExplanationsAreInOrder(t *testing.T) {
	table := newTable(1)
	table.Contact(contact("far", func(c *Contact) { c.RTT = time.Second }), start)
	table.Contact(contact("near", nil), start)
	table.Contact(contact("gone", nil), start)
	table.Parted("gone", start.Add(time.Minute))
	var names []string
	for _, v := range table.Explain(ask, nil, start) {
		names = append(names, v.Name)
		if (v.Why == Eligible) != (v.Detail == "") {
			t.Errorf("%+v", v)
		}
	}
	if !slices.Equal(names, []string{"near", "far", "gone"}) {
		t.Errorf("%v", names)
	}
}
