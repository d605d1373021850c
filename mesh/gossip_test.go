package mesh_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	pb "github.com/libp2p/go-libp2p-pubsub/pb"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

func encode(t *testing.T, m wire.Message) []byte {
	t.Helper()
	b, err := wire.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rejected is how many messages a node found to be their sender's fault.
func rejected(s mesh.Stats) uint64 { return s.Gossip.Rejected["validation failed"] }

func TestOnlyTheHubAuthorsPolicy(t *testing.T) {
	run(t, 3, func(t *testing.T, w *world) {
		r := w.rogue(4, 1) // a neighbour of device 1 only
		forged := encode(t, &wire.Invalidation{Scope: wire.ScopeHash(w.desk.topics[0].Key, home.Scope), Primitive: home.Primitive, Seq: 99, Prefix: make([]byte, 8)})
		r.publish(mesh.PolicyTopic(testMesh, home.Scope), forged)
		list, err := member.Revoke(someKey(t), member.Revocations{Mesh: testMesh, Seq: 1, Issued: chain.InstantOf(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		r.publish(mesh.RevokedTopic(testMesh), list)
		if n := rejected(w.devices[0].Stats()); n != 2 {
			t.Errorf("the first honest node rejected %d, want 2: %v", n, w.devices[0].Stats().Gossip)
		}
		if n := rejected(w.hub.Stats()) + rejected(w.devices[1].Stats()); n != 0 {
			t.Errorf("it passed on what it rejected: %d", n)
		}
		w.invalidate(1) // the number of the forged one left no trace
		w.within(time.Second, "the honest one arrives", w.all(func(r *rim) bool { return len(r.seqs()) == 1 }))
	})
}

func TestInvalidationsOfOldSequencesAreIgnored(t *testing.T) {
	run(t, 2, func(t *testing.T, w *world) {
		w.invalidate(7)
		for _, old := range []uint64{7, 6} {
			if err := w.hub.Invalidate(t.Context(), home, old, chain.CIDOf(nil)); !errors.Is(err, chain.ErrRollback) {
				t.Errorf("publishing %d after 7: %v", old, err)
			}
		}
		time.Sleep(time.Second) // two at once may overtake each other, and then the lower is old
		w.invalidate(8)
		time.Sleep(time.Second)
		for _, r := range w.devices {
			if got := r.seqs(); len(got) != 2 || got[0] != 7 || got[1] != 8 {
				t.Errorf("heard %v", got)
			}
		}
		if err := w.hub.Invalidate(t.Context(), scoped("workspace:unknown"), 1, ""); err == nil {
			t.Error("a scope without a topic key was published")
		}
	})
}

// A rotated topic key is valid beside the old one for a day: whoever holds
// either hears.
func TestOldAndNewTopicKeysAreHeard(t *testing.T) {
	run(t, 2, func(t *testing.T, w *world) {
		old, fresh := w.desk.topics[0], wire.TopicKey{Scope: home.Scope, Key: bytes.Repeat([]byte{5}, 32)}
		if err := w.hub.Join(old, fresh); err != nil {
			t.Fatal(err)
		}
		if err := w.devices[1].Join(fresh); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		w.invalidate(1)
		w.within(time.Second, "both hear it", w.all(func(r *rim) bool { return last(r.seqs(), 1) }))
		time.Sleep(time.Second)
		if n := len(w.devices[0].seqs()) + len(w.devices[1].seqs()); n != 2 {
			t.Errorf("heard %d times", n)
		}
		if err := w.devices[1].Join(old); err != nil { // and back: leaving is complete
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		w.invalidate(2)
		w.within(time.Second, "both hear it again", w.all(func(r *rim) bool { return last(r.seqs(), 2) }))
	})
}

func TestAnnouncementsNeedAMembership(t *testing.T) {
	run(t, 2, func(t *testing.T, w *world) {
		heard := make(chan mesh.Presence, 10)
		w.devices[0].hears(func(p mesh.Presence) { heard <- p })
		r := w.rogue(3, 1)
		self := chain.PeerID(r.ID().String())
		now := time.Now()
		good := member.Membership{Mesh: testMesh, DeviceID: "r", Peer: self, Scopes: []chain.ScopeID{home.Scope}, Issued: chain.InstantOf(now)}
		with := func(signer chain.Key, change func(*member.Membership)) []byte {
			m := good
			change(&m)
			envelope, err := member.Issue(signer, m)
			if err != nil {
				t.Fatal(err)
			}
			return envelope
		}
		day := chain.Instant(24 * time.Hour / time.Millisecond)
		topic := mesh.AnnounceTopic(testMesh, w.desk.topics[0])
		for _, bad := range []struct {
			name       string
			membership []byte
		}{
			{"forged", with(someKey(t), func(*member.Membership) {})},
			{"of another mesh", with(w.desk.key, func(m *member.Membership) { m.Mesh = "other" })},
			{"of another peer", with(w.desk.key, func(m *member.Membership) { m.Peer = someKey(t).PeerID() })},
			{"of another scope", with(w.desk.key, func(m *member.Membership) { m.Scopes = []chain.ScopeID{"workspace:other"} })},
			{"expired", with(w.desk.key, func(m *member.Membership) { m.Issued, m.Expires = m.Issued-2*day, m.Issued-day })},
			{"of the future", with(w.desk.key, func(m *member.Membership) { m.Issued += day })},
			{"garbage", []byte("no envelope")},
		} {
			before := rejected(w.devices[0].Stats())
			r.publish(topic, encode(t, &wire.Announce{Membership: bad.membership, BootID: "b", Seq: 1}))
			if n := rejected(w.devices[0].Stats()) - before; n != 1 {
				t.Errorf("%s: rejected %d times, want 1", bad.name, n)
			}
			time.Sleep(10 * time.Minute) // the score is forgiven
		}
		r.publish(topic, encode(t, &wire.Announce{Membership: with(w.desk.key, func(*member.Membership) {}), BootID: "b", Seq: 1}))
		if len(heard) != 1 || len(w.heard) != 1 {
			t.Fatalf("a good announcement after the bad ones: heard by the neighbour %d times, by the hub %d times", len(heard), len(w.heard))
		}
		if p := <-w.heard; p.Membership.Peer != self {
			t.Errorf("the hub heard %s", p.Membership.Peer)
		}

		// The same device, revoked.
		var list *member.Revocations
		next, err := list.Add(self, time.Now())
		next.Mesh = testMesh
		if err != nil {
			t.Fatal(err)
		}
		signed, err := member.Revoke(w.desk.key, next)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.hub.Revoked(t.Context(), signed); err != nil {
			t.Fatal(err)
		}
		w.within(time.Second, "the list is known", w.all(func(r *rim) bool { r.mu.Lock(); defer r.mu.Unlock(); return r.lists == 1 }))
		time.Sleep(time.Second)
		r.connect(w.devices[0].Host()) // it was hung up on
		time.Sleep(5 * time.Second)
		before := rejected(w.devices[0].Stats())
		r.publish(topic, encode(t, &wire.Announce{Membership: with(w.desk.key, func(*member.Membership) {}), BootID: "b", Seq: 2}))
		if n := rejected(w.devices[0].Stats()) - before; n != 1 || len(heard) != 1 {
			t.Errorf("revoked: rejected %d times, heard %d times", n, len(heard))
		}
		if err := w.hub.Revoked(t.Context(), signed[:len(signed)-1]); err == nil {
			t.Error("the hub published a damaged list")
		}
	})
}

func TestRecordedAnnouncementsStayOld(t *testing.T) {
	run(t, 2, func(t *testing.T, w *world) {
		heard := make(chan string, 10)
		w.devices[1].hears(func(p mesh.Presence) { heard <- p.BootID })
		topic := mesh.AnnounceTopic(testMesh, w.desk.topics[0])
		r := w.rogue(3, 0, 2)
		r.topic(topic)
		for _, boot := range []string{"first", "second"} {
			a := w.announcement(w.devices[0])
			a.BootID = boot
			w.devices[0].Announce(a)
			time.Sleep(time.Second)
		}
		recorded, err := r.subs[topic].Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // the library has forgotten that it saw it
		r.send(w.devices[1].Host().ID(), &pb.RPC{Publish: []*pb.Message{recorded.Message}})
		if n := len(heard); n != 2 {
			t.Fatalf("heard %d announcements, want 2", n)
		}
		if a, b := <-heard, <-heard; a != "first" || b != "second" {
			t.Errorf("heard boots %s, %s", a, b)
		}
	})
}

func TestAnnouncementsRepeatAndFollowAReconnection(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		w.devices[0].Announce(w.announcement(w.devices[0]))
		time.Sleep(46 * time.Minute)
		if n := len(w.heard); n != 4 {
			t.Errorf("announced %d times in 46 minutes, want 4", n)
		}
		w.restartHub(time.Minute)
		w.within(10*time.Minute, "back", w.all(func(r *rim) bool { return r.HubReachable() }))
		time.Sleep(5 * time.Second)
		if n := len(w.heard); n != 5 {
			t.Errorf("announced %d times after the hub's restart, want once", n-4)
		}
	})
}

// A neighbour that floods is cut off; those beside it notice nothing.
func TestFloodIsCut(t *testing.T) {
	run(t, 5, func(t *testing.T, w *world) {
		topic := mesh.PolicyTopic(testMesh, home.Scope)
		r := w.rogue(6, 0, 1, 2)
		flood := r.topic(topic)
		stop := time.Now().Add(4 * time.Second)
		for seq := uint64(1); time.Now().Before(stop); time.Sleep(50 * time.Millisecond) {
			for range 50 { // 1,000 a second
				_ = flood.Publish(t.Context(), []byte("garbage"))
			}
			if seq < 20 {
				w.invalidate(seq)
				seq++
			}
		}
		w.within(time.Second, "all 19 arrive", w.all(func(r *rim) bool { return last(r.seqs(), 19) }))
		for i, r := range w.devices {
			if n := len(r.seqs()); n != 19 {
				t.Errorf("device %d heard %d of 19", i, n)
			}
		}
		if n := w.hub.Stats().Gossip.Rejected["validation failed"]; n > 1000 {
			t.Errorf("the hub looked at %d messages of the flood", n)
		}
	})
}

// A member that says too much is heard at its rate, and what it sends beyond
// that is thrown away before its signatures are checked.
func TestAMemberThatFloods(t *testing.T) {
	run(t, 2, func(t *testing.T, w *world) {
		k := key(t, w.net, 3)
		r := w.rogueWith(k, 3, 0, 1)
		w.desk.mu.Lock()
		envelope, err := w.desk.issue(k.PeerID(), time.Now())
		w.desk.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		flood := r.topic(mesh.AnnounceTopic(testMesh, w.desk.topics[0]))
		const each, rounds = 40, 100
		for i := range rounds { // 800 a second for 5 s
			for n := range each {
				if err := flood.Publish(t.Context(), encode(t, &wire.Announce{Membership: envelope, BootID: "b", Seq: uint64(i*each + n + 1)})); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
		looked := w.hub.Stats().Gossip
		if n := len(w.heard); n < 10 || n > 40 {
			t.Errorf("heard %d announcements in 5 s, want about 20 and one a second", n)
		}
		if n := looked.Delivered + looked.Rejected["validation ignored"]; n > each*rounds/4 {
			t.Errorf("the hub checked %d of %d messages", n, each*rounds)
		}
		w.invalidate(1)
		w.within(time.Second, "the hub is heard beside it", w.all(func(r *rim) bool { return last(r.seqs(), 1) }))
	})
}

// The largest list there can be still fits one message of gossip.
func TestAFullRevocationListIsHeard(t *testing.T) {
	run(t, 2, func(t *testing.T, w *world) {
		list := member.Revocations{Mesh: testMesh}
		var err error
		for range member.MaxRevoked {
			if list, err = list.Add(someKey(t).PeerID(), time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		signed, err := member.Revoke(w.desk.key, list)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.hub.Revoked(t.Context(), signed); err != nil {
			t.Fatal(err)
		}
		w.within(time.Second, "all have it", w.all(func(r *rim) bool { r.mu.Lock(); defer r.mu.Unlock(); return r.lists == 1 }))
		t.Logf("%d bytes", len(signed))
		older, err := member.Revoke(w.desk.key, member.Revocations{Mesh: testMesh, Seq: 1, Issued: list.Issued})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.hub.Revoked(t.Context(), older); !errors.Is(err, chain.ErrRollback) {
			t.Errorf("an older list: %v", err)
		}
		if err := w.devices[0].SetRevocations(older); !errors.Is(err, chain.ErrRollback) {
			t.Errorf("an older list from the disk: %v", err)
		}
	})
}
