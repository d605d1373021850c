package mesh_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/exchange"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// cache is what a device holds: one chain.
type cache struct {
	head, body []byte
	mark       chain.Mark
}

func (c *cache) Heads(scope chain.ScopeID) []wire.Held {
	if scope != home.Scope {
		return nil
	}
	return []wire.Held{{Slot: home, Mark: c.mark}}
}

func (c *cache) Chain(slot chain.Slot) (head, body []byte) {
	if slot != home {
		return nil, nil
	}
	return c.head, c.body
}

func (c *cache) Body(scope chain.ScopeID, body chain.CID) []byte {
	if scope != home.Scope || body != c.mark.Body {
		return nil
	}
	return c.body
}

// published is a chain that the hub of w signed.
func (w *world) published(seq uint64) *cache {
	w.t.Helper()
	body, err := chain.Marshal(chain.Body{Primitive: home.Primitive, Options: []chain.Option{{ID: "peer", Kind: chain.Peer}}})
	if err != nil {
		w.t.Fatal(err)
	}
	now := time.Now()
	h := chain.Head{Mesh: testMesh, Scope: home.Scope, Primitive: home.Primitive, Seq: seq, Body: chain.CIDOf(body), Issued: chain.InstantOf(now),
		RefreshAfter: chain.InstantOf(now.Add(time.Hour)), Expires: chain.InstantOf(now.Add(24 * time.Hour))}
	payload, err := chain.Marshal(h)
	if err != nil {
		w.t.Fatal(err)
	}
	head, err := w.desk.key.Seal(chain.DomainChain, payload)
	if err != nil {
		w.t.Fatal(err)
	}
	return &cache{head, body, chain.Mark{Seq: seq, Body: h.Body, Issued: h.Issued}}
}

// With the hub away a device finds the newest chain at a peer, and believes it
// for the hub's signature alone.
func TestAChainFromAPeer(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		_ = w.hub.Close()
		has := w.published(7)
		all := w.neighbours(2, func(cfg *mesh.DeviceConfig) { cfg.Chains = has })
		defer closeAll(all)
		a, b := all[0], all[1]
		held, err := a.Heads(t.Context(), b.PeerID(), home.Scope)
		if err != nil || len(held) != 1 || held[0].Slot != home || held[0].Mark != has.mark {
			t.Fatalf("%+v %v", held, err)
		}
		reply, err := a.FetchFrom(t.Context(), b.PeerID(), wire.Fetch{Slot: home})
		if err != nil {
			t.Fatal(err)
		}
		c, err := w.desk.trust().Verify(home, reply.Head, reply.Body, chain.Mark{Seq: 6}, time.Now())
		if err != nil || c.Head().Seq != 7 {
			t.Errorf("%v", err)
		}
		reply, err = a.FetchFrom(t.Context(), b.PeerID(), wire.Fetch{Slot: home, Body: has.mark.Body})
		if err != nil || reply.Body != nil || reply.Head == nil {
			t.Errorf("a renewal carries no body: %v", err)
		}
		if body, err := a.BodyFrom(t.Context(), b.PeerID(), home.Scope, has.mark.Body); err != nil || !bytes.Equal(body, has.body) {
			t.Errorf("by its address: %v", err)
		}
		for what, err := range map[string]error{
			"another slot": second(a.FetchFrom(t.Context(), b.PeerID(), wire.Fetch{Slot: chain.Slot{Scope: home.Scope, Primitive: "embed.text"}})),
			"another body": second(a.BodyFrom(t.Context(), b.PeerID(), home.Scope, chain.CIDOf([]byte("x")))),
		} {
			if !errors.Is(err, &exchange.Refusal{Code: exchange.CodeNone}) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, err := range map[string]error{
			"a foreign scope's heads": second(a.Heads(t.Context(), b.PeerID(), "workspace:lab")),
			"a foreign scope's chain": second(a.FetchFrom(t.Context(), b.PeerID(), wire.Fetch{Slot: scoped("workspace:lab")})),
			"a foreign scope's body":  second(a.BodyFrom(t.Context(), b.PeerID(), "workspace:lab", has.mark.Body)),
		} {
			if !errors.Is(err, &exchange.Refusal{Code: exchange.CodeScope}) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// A revocation list that one device has reaches the others with the hub away,
// and ends the contact with whom it names.
func TestRevocationsSpread(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		_ = w.hub.Close()
		all := w.neighbours(4, nil)
		defer closeAll(all)
		outcast := all[3]
		time.Sleep(time.Second)
		r, err := (*member.Revocations)(nil).Add(outcast.PeerID(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		r.Mesh = testMesh
		list, err := member.Revoke(w.desk.key, r)
		if err != nil {
			t.Fatal(err)
		}
		if err := all[0].SetRevocations(list); err != nil {
			t.Fatal(err)
		}
		if all[0].has(outcast.PeerID()) {
			t.Error("whoever has the list keeps the contact")
		}
		w.within(2*time.Minute, "the list reaches the others", func() bool {
			return !all[1].has(outcast.PeerID()) && !all[2].has(outcast.PeerID()) && len(outcast.Contacts()) == 0
		})
		for _, d := range all[1:3] {
			w.within(time.Second, "the daemon is told", func() bool { d.rim.mu.Lock(); defer d.rim.mu.Unlock(); return d.lists == 1 })
		}
		// Its own tries go on beside these, within one budget of dials.
		w.within(3*time.Minute, "the outcast's greeting is refused", func() bool {
			return errors.Is(second(outcast.Ping(t.Context(), all[1].PeerID())), &exchange.Refusal{Code: exchange.CodeRevoked})
		})
		time.Sleep(10 * time.Minute)
		for _, d := range all[:3] {
			if d.has(outcast.PeerID()) || len(d.Contacts()) != 2 {
				t.Error("the outcast is back, or somebody else is gone")
			}
		}
	})
}

// A member that fetches without end is told to wait; others are served.
func TestFetchesAreBounded(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		has := w.published(7)
		all := w.neighbours(2, func(cfg *mesh.DeviceConfig) { cfg.Chains = has })
		defer closeAll(all)
		k := key(t, w.net, 40)
		r := w.rogueWith(k, 40)
		r.connect(all[0].Host())
		s := r.talk(all[0].Host())
		if _, err := s.ask(&wire.Ask{Greeting: &wire.Greeting{Membership: w.membership(nil, w.desk.key, k.PeerID()), BootID: "b"}}); err != nil {
			t.Fatal(err)
		}
		given := 0
		for range 2000 {
			a, err := s.ask(&wire.Ask{Fetch: &wire.Fetch{Slot: home}})
			if err != nil {
				t.Fatal(err)
			}
			if a.Fetch != nil {
				given++
			} else if a.Refusal == nil || a.Refusal.Code != exchange.CodeBusy {
				t.Fatalf("%+v", a)
			}
		}
		if given < 256 || given > 600 { // two thousand round trips take 20 s of simulated time
			t.Errorf("%d of 2000 were answered", given)
		}
		if _, err := all[1].FetchFrom(t.Context(), all[0].PeerID(), wire.Fetch{Slot: home}); err != nil {
			t.Errorf("another member: %v", err)
		}
	})
}

// talk is one exchange stream, spoken by hand.
type talk struct {
	t  *testing.T
	s  network.Stream
	in *bufio.Reader
}

func (r *rogue) talk(to host.Host) *talk {
	r.t.Helper()
	s, err := r.NewStream(r.t.Context(), to.ID(), exchange.Protocol)
	if err != nil {
		r.t.Fatal(err)
	}
	return &talk{r.t, s, bufio.NewReader(s)}
}

func (k *talk) ask(q *wire.Ask) (a wire.Answer, err error) {
	k.t.Helper()
	b, err := chain.Marshal(q) // also what Encode would refuse
	if err != nil {
		k.t.Fatal(err)
	}
	if err := wire.WriteFrame(k.s, b); err != nil {
		return a, err
	}
	return a, wire.Read(k.in, wire.MaxControl, &a)
}

func (w *world) membership(change func(*member.Membership), signer chain.Key, of chain.PeerID) []byte {
	w.t.Helper()
	m := member.Membership{Mesh: testMesh, DeviceID: "hostile", Peer: of, Name: "hostile", Scopes: []chain.ScopeID{chain.DefaultScope}, Issued: chain.InstantOf(time.Now()), Serial: 50}
	if change != nil {
		change(&m)
	}
	b, err := member.Issue(signer, m)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// Each bad greeting is refused by its own code, before anything else is
// answered, and makes no contact.
func TestHostileGreetings(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		has := w.published(7)
		d := w.near(1, func(cfg *mesh.DeviceConfig) { cfg.Chains = has })
		defer d.Close()
		k := key(t, w.net, 40)
		r := w.rogueWith(k, 40)
		r.connect(d.Host())
		me, hub := k.PeerID(), w.desk.key
		gone, err := (*member.Revocations)(nil).Add(me, time.Now().Add(-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		gone.Mesh = testMesh
		list, err := member.Revoke(hub, gone)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.SetRevocations(list); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		r.connect(d.Host()) // it was hung up on
		day := chain.Instant(24 * time.Hour / time.Millisecond)
		for _, c := range []struct {
			name, code string
			membership []byte
		}{
			{"another's membership", exchange.CodeNotHere, w.announcement(d.rim).Membership},
			{"garbage", exchange.CodeNotHere, []byte("garbage")},
			{"signed by itself", exchange.CodeNotHere, w.membership(nil, k, me)},
			{"of another mesh", exchange.CodeNotHere, w.membership(func(m *member.Membership) { m.Mesh = "another" }, hub, me)},
			{"expired", exchange.CodeExpired, w.membership(func(m *member.Membership) { m.Issued -= 7 * day; m.Expires = m.Issued + day }, hub, me)},
			{"not begun", exchange.CodeExpired, w.membership(func(m *member.Membership) { m.Issued += day }, hub, me)},
			{"revoked", exchange.CodeRevoked, w.membership(func(m *member.Membership) { m.Issued -= day }, hub, me)},
			{"of another scope", exchange.CodeScope, w.membership(func(m *member.Membership) { m.Scopes = []chain.ScopeID{"workspace:lab"} }, hub, me)},
		} {
			k := r.talk(d.Host())
			a, err := k.ask(&wire.Ask{Greeting: &wire.Greeting{Membership: c.membership, BootID: "b"}})
			if err != nil || a.Refusal == nil || a.Refusal.Code != c.code {
				t.Errorf("%s: %+v %v", c.name, a.Refusal, err)
			}
			if a, err := k.ask(&wire.Ask{Fetch: &wire.Fetch{Slot: home}}); err == nil {
				t.Errorf("%s: then it answered %+v", c.name, a)
			}
		}
		good := wire.Greeting{Membership: w.membership(nil, hub, me), BootID: "b"}
		for name, q := range map[string]*wire.Ask{
			"no greeting":         {Fetch: &wire.Fetch{Slot: home}},
			"a giant list":        {Greeting: &wire.Greeting{Membership: good.Membership, BootID: "b", Addresses: slices.Repeat([]string{"/ip4/8.8.8.8/tcp/1"}, 33)}},
			"a giant capability":  {Greeting: &wire.Greeting{Membership: good.Membership, BootID: "b", Capabilities: []chain.Capability{chain.Capability(bytes.Repeat([]byte("x"), 200))}}},
			"an impossible load":  {Greeting: &wire.Greeting{Membership: good.Membership, BootID: "b", Load: wire.Load{Queued: -1}}},
			"an escape in a word": {Greeting: &wire.Greeting{Membership: good.Membership, BootID: "\x1b[2J"}},
			"a giant frame":       {Greeting: &wire.Greeting{Membership: make([]byte, 100<<10), BootID: "b"}},
		} {
			if a, err := r.talk(d.Host()).ask(q); err == nil && a.Refusal == nil {
				t.Errorf("%s: %+v", name, a)
			}
		}
		if n := len(d.Contacts()); n != 0 {
			t.Fatalf("%d contacts", n)
		}
		// A member that says nothing after the greetings was not met: it may have refused ours.
		shy := r.talk(d.Host())
		if a, err := shy.ask(&wire.Ask{Greeting: &good}); err != nil || a.Greeting == nil {
			t.Fatalf("%+v %v", a, err)
		}
		if n := len(d.Contacts()); n != 0 {
			t.Errorf("%d contacts after greetings alone", n)
		}
		if a, err := shy.ask(&wire.Ask{Echo: &wire.Echo{N: 1}}); err != nil || a.Echo == nil || !d.has(me) {
			t.Errorf("after an echo: %+v %v", a, err)
		}
		if a, err := shy.ask(&wire.Ask{Greeting: &good}); err != nil || a.Refusal == nil || a.Refusal.Code != exchange.CodeProtocol {
			t.Errorf("a second greeting: %+v %v", a, err)
		}
		// Its membership ends while the stream stands.
		gone, err = gone.Add(me, time.Now().Add(time.Second))
		if err == nil {
			list, err = member.Revoke(hub, gone)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := d.SetRevocations(list); err != nil {
			t.Fatal(err)
		}
		if a, err := shy.ask(&wire.Ask{Fetch: &wire.Fetch{Slot: home}}); err == nil && a.Refusal == nil {
			t.Errorf("after its revocation: %+v", a)
		}
	})
}

// A member that opens streams without end, or says nothing on them, takes four
// and no more; others are served meanwhile.
func TestHostileStreams(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		all := w.neighbours(2, nil)
		defer closeAll(all)
		a, b := all[0], all[1]
		r := w.rogueWith(key(t, w.net, 40), 40)
		r.connect(a.Host())
		var streams []*talk
		for range 60 {
			if s, err := r.NewStream(t.Context(), a.Host().ID(), exchange.Protocol); err == nil {
				streams = append(streams, &talk{t, s, bufio.NewReader(s)})
				_, _ = s.Write([]byte{0x80}) // half a length
			}
		}
		time.Sleep(time.Second)
		open := 0
		for _, c := range a.Host().Network().ConnsToPeer(r.ID()) {
			for _, s := range c.GetStreams() {
				if s.Protocol() == exchange.Protocol {
					open++
				}
			}
		}
		if open == 0 || open > 4 {
			t.Errorf("%d of %d streams stand", open, len(streams))
		}
		if _, err := b.Ping(t.Context(), a.PeerID()); err != nil {
			t.Errorf("another peer: %v", err)
		}
		time.Sleep(15 * time.Second)
		for _, c := range a.Host().Network().ConnsToPeer(r.ID()) {
			for _, s := range c.GetStreams() {
				if s.Protocol() == exchange.Protocol {
					t.Error("a stream that says nothing outlives the time to greet")
				}
			}
		}
	})
}

// A hostile member names inward addresses as its own; nothing there is dialled.
func TestInwardAddresses(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		d := w.near(1, nil)
		defer d.Close()
		k := key(t, w.net, 40)
		r := w.rogueWith(k, 40)
		r.connect(d.Host())
		greeting := wire.Greeting{Membership: w.membership(nil, w.desk.key, k.PeerID()), BootID: "b",
			Addresses: []string{"/ip4/127.0.0.1/udp/7411/quic-v1", "/ip4/169.254.169.254/udp/80/quic-v1", "/dns4/localhost/udp/1/quic-v1", "/ip4/0.0.0.0/udp/1/quic-v1"}}
		s := r.talk(d.Host())
		if _, err := s.ask(&wire.Ask{Greeting: &greeting}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ask(&wire.Ask{Echo: &wire.Echo{}}); err != nil || !d.has(k.PeerID()) {
			t.Fatalf("not met: %v", err)
		}
		before := d.DialsAsked()
		r.Close()
		w.within(time.Minute, "it is gone", func() bool { return !d.has(k.PeerID()) })
		time.Sleep(10 * time.Minute)
		if n := d.DialsAsked() - before; n != 0 {
			t.Errorf("%d dials", n)
		}
		if _, err := d.Ping(t.Context(), k.PeerID()); err == nil {
			t.Error("a ping went somewhere")
		}
	})
}

// A flood of chords ends with its author unheard, and no list of its making
// makes a chord.
func TestChordsFlood(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		all := w.neighbours(2, nil)
		defer closeAll(all)
		a, b := all[0], all[1]
		w.within(time.Minute, "the one true chord", func() bool { return len(agreed(a)) == 1 })
		k := key(t, w.net, 40)
		r := w.rogueWith(k, 40)
		r.connect(a.Host())
		topic := mesh.ChordsTopic(testMesh, w.desk.topics[0])
		claim := wire.Chords{Membership: w.membership(nil, w.desk.key, k.PeerID()), BootID: "b"}
		for _, d := range all {
			claim.Chords = append(claim.Chords, wire.Chord{Peer: d.PeerID(), RTT: 1})
		}
		delivered := a.Stats().Gossip.Delivered
		var group sync.WaitGroup
		for i := range 2000 {
			claim.Seq = uint64(i + 1)
			if i == 0 {
				r.publish(topic, encode(t, &claim))
				continue
			}
			data := encode(t, &claim)
			group.Go(func() { _ = r.topics[topic].Publish(t.Context(), data) })
		}
		group.Wait()
		time.Sleep(5 * time.Second)
		if n := a.Stats().Gossip.Delivered - delivered; n > 60 {
			t.Errorf("%d of a flood were believed", n)
		}
		for _, d := range []*near{a, b} {
			for _, c := range agreed(d) {
				if c.A == k.PeerID() || c.B == k.PeerID() {
					t.Errorf("one end made a chord: %+v", c)
				}
			}
		}
		// Another's name on a claim, and a stranger's claim, are no messages at all.
		forged := claim
		forged.Membership = w.announcement(a.rim).Membership
		rejected := a.Stats().Gossip.Rejected
		r2 := w.rogueWith(key(t, w.net, 41), 41)
		r2.connect(b.Host())
		r2.publish(topic, encode(t, &forged))
		time.Sleep(time.Second)
		if fmt.Sprint(b.Stats().Gossip.Rejected) == fmt.Sprint(rejected) {
			t.Error("a forged claim was not rejected")
		}
	})
}

// Metered devices close idle links and stay in contact; work makes the link
// again, and one that went away is let go after half an hour.
func TestMeteredLinksRest(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		_ = w.hub.Close()
		all := w.neighbours(2, func(cfg *mesh.DeviceConfig) { cfg.Metered = true })
		a, b := all[0], all[1]
		defer a.Close()
		w.within(4*time.Minute, "the link is closed", func() bool { return len(a.Stats().Peers) == 0 && len(b.Stats().Peers) == 0 })
		if !a.has(b.PeerID()) || !b.has(a.PeerID()) {
			t.Error("the contact ended with the link")
		}
		if _, err := a.Ping(t.Context(), b.PeerID()); err != nil {
			t.Errorf("the link is not made again: %v", err)
		}
		w.within(4*time.Minute, "it rests again", func() bool { return len(a.Stats().Peers) == 0 })
		_ = b.Close()
		time.Sleep(10 * time.Minute)
		if !a.has(b.PeerID()) {
			t.Error("let go before its time")
		}
		w.within(25*time.Minute, "it is let go", func() bool { return !a.has(b.PeerID()) })
		if _, err := a.Ping(t.Context(), b.PeerID()); err == nil {
			t.Error("a closed device answers")
		}
	})
}
