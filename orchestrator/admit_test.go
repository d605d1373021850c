package orchestrator_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// TestRefusals holds every no that a device can get, by its code.
func TestRefusals(t *testing.T) {
	foreign := newKey()
	issue := func(key chain.Key, m member.Membership) []byte {
		b, err := member.Issue(key, m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		name string
		code string
		ask  func(r *rig, in *device) error
	}{
		{"hello of a member", "", func(_ *rig, in *device) error { _, err := in.visit(); return err }},
		{"hello without anything", spoke.CodeProtocol, func(r *rig, _ *device) error { _, err := r.device("x").visit(); return err }},
		{"an invitation nobody made", spoke.CodeInvitation, func(r *rig, _ *device) error {
			_, err := r.device("x").enrol(member.Invitation{Secret: make([]byte, 32), Scope: chain.DefaultScope})
			return err
		}},
		{"an invitation that is used up", spoke.CodeInvitation, func(r *rig, _ *device) error {
			i := r.invite(orchestrator.Invite{})
			if _, err := r.device("x").enrol(i); err != nil {
				t.Fatal(err)
			}
			_, err := r.device("y").enrol(i)
			return err
		}},
		{"an invitation that expired", spoke.CodeInvitation, func(r *rig, _ *device) error {
			i := r.invite(orchestrator.Invite{TTL: time.Hour})
			time.Sleep(time.Hour)
			_, err := r.device("x").enrol(i)
			return err
		}},
		{"an invitation to another scope", spoke.CodeInvitation, func(r *rig, _ *device) error {
			i := r.invite(orchestrator.Invite{})
			i.Scope = "workspace:lab"
			_, err := r.device("x").enrol(i)
			return err
		}},
		{"a device ID that is taken", spoke.CodeConflict, func(r *rig, in *device) error {
			x := r.device("x")
			x.id = in.id
			_, err := x.enrol(r.invite(orchestrator.Invite{}))
			return err
		}},
		{"a membership that another key signed", spoke.CodeNotMember, func(r *rig, in *device) error {
			in.membership = issue(foreign, member.Membership{Mesh: r.trust().Mesh, DeviceID: in.id, Peer: in.key.PeerID(), Scopes: []chain.ScopeID{chain.DefaultScope}, Issued: chain.InstantOf(time.Now()), Serial: 1})
			_, err := in.visit()
			return err
		}},
		{"a membership of another mesh", spoke.CodeNotMember, func(r *rig, in *device) error {
			in.membership = issue(r.key, member.Membership{Mesh: "other", DeviceID: in.id, Peer: in.key.PeerID(), Scopes: []chain.ScopeID{chain.DefaultScope}, Issued: chain.InstantOf(time.Now()), Serial: 1})
			_, err := in.visit()
			return err
		}},
		{"another peer's membership", spoke.CodeNotMember, func(r *rig, in *device) error {
			x := r.device("x")
			x.membership, x.id = in.membership, in.id
			_, err := x.visit()
			return err
		}},
		{"a membership under another device ID", spoke.CodeNotMember, func(_ *rig, in *device) error {
			in.id = "00000000-0000-4000-8000-00000000000f"
			_, err := in.visit()
			return err
		}},
		{"an altered membership", spoke.CodeNotMember, func(_ *rig, in *device) error {
			in.membership = slices.Clone(in.membership)
			in.membership[len(in.membership)-1] ^= 1
			_, err := in.visit()
			return err
		}},
		{"an expired membership of a device the hub does not know", spoke.CodeNotMember, func(r *rig, _ *device) error {
			x := r.device("x")
			x.membership = issue(r.key, member.Membership{Mesh: r.trust().Mesh, DeviceID: x.id, Peer: x.key.PeerID(), Scopes: []chain.ScopeID{chain.DefaultScope}, Issued: chain.InstantOf(time.Now()), Serial: 1})
			time.Sleep(9 * 24 * time.Hour)
			_, err := x.visit()
			return err
		}},
		{"hello after a revocation", spoke.CodeRevoked, func(r *rig, in *device) error {
			if _, err := r.Revoke(context.Background(), in.name); err != nil {
				t.Fatal(err)
			}
			_, err := in.visit()
			return err
		}},
		{"fetch after a revocation", spoke.CodeRevoked, func(r *rig, in *device) error {
			if _, err := r.Revoke(context.Background(), string(in.id)); err != nil {
				t.Fatal(err)
			}
			_, err := in.fetch(home)
			return err
		}},
		{"fetch of a stranger", spoke.CodeNotMember, func(r *rig, _ *device) error { _, err := r.device("x").fetch(home); return err }},
		{"fetch with a membership that ran out", spoke.CodeNotMember, func(_ *rig, in *device) error {
			time.Sleep(9 * 24 * time.Hour)
			_, err := in.fetch(home)
			return err
		}},
		{"fetch of another scope", spoke.CodeScope, func(_ *rig, in *device) error {
			_, err := in.fetch(chain.Slot{Scope: "workspace:lab", Primitive: chain.LLMChat})
			return err
		}},
		{"fetch of an unknown primitive", spoke.CodeNoChain, func(_ *rig, in *device) error {
			_, err := in.fetch(chain.Slot{Scope: chain.DefaultScope, Primitive: "render.pdf"})
			return err
		}},
		{"fetch where nothing can run", spoke.CodeNoChain, func(r *rig, _ *device) error {
			x := r.device("x")
			if _, err := x.enrol(r.invite(orchestrator.Invite{Scope: "workspace:lab"})); err != nil {
				t.Fatal(err)
			}
			_, err := x.fetch(chain.Slot{Scope: "workspace:lab", Primitive: chain.LLMChat})
			return err
		}},
		{"report of a stranger", spoke.CodeNotMember, func(r *rig, _ *device) error {
			_, err := r.Report(context.Background(), newKey().PeerID(), batch("b", 1, "alpha/small", chain.OK, 1, time.Second))
			return err
		}},
		{"protest for another scope", spoke.CodeScope, func(r *rig, in *device) error {
			_, err := r.Protest(context.Background(), in.key.PeerID(), wire.Protest{Slot: chain.Slot{Scope: "workspace:lab", Primitive: chain.LLMChat}, Nonce: "n"})
			return err
		}},
		{"protest without a nonce", spoke.CodeProtocol, func(r *rig, in *device) error {
			_, err := r.Protest(context.Background(), in.key.PeerID(), wire.Protest{Slot: home})
			return err
		}},
		{"protests without end", spoke.CodeTooMany, func(r *rig, in *device) (err error) {
			for i := range 61 {
				_, err = r.Protest(context.Background(), in.key.PeerID(), wire.Protest{Slot: home, Nonce: strings.Repeat("n", i%60+1), Body: "x"})
				if err != nil && i < 60 {
					return errors.New("refused too early")
				}
			}
			return err
		}},
		{"anything once the hub has stopped", spoke.CodeShutdown, func(r *rig, in *device) error {
			r.stop()
			_, err := in.visit()
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, newDisk(), parsed(t, declared))
				in := r.joined("in", "key:alpha", chain.Submit)
				if got := code(c.ask(r, in)); got != c.code {
					t.Errorf("code %q, want %q", got, c.code)
				}
			})
		})
	}
}

// TestRefusalsLeaveNothing: what is refused leaves no byte in the hub's storage.
func TestRefusalsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		in := r.joined("in", "key:alpha")
		stranger := newKey().PeerID()
		issued, err := member.Issue(newKey(), member.Membership{Mesh: r.trust().Mesh, DeviceID: in.id, Peer: stranger, Scopes: []chain.ScopeID{home.Scope}, Issued: chain.InstantOf(time.Now())})
		if err != nil {
			t.Fatal(err)
		}
		hello := in.hello()
		forged, stolen, bogus, late := hello, hello, hello, hello
		forged.Membership = issued
		bogus.Membership, bogus.Invitation = nil, &wire.Redeem{Secret: make([]byte, 32), Scope: home.Scope}
		late.Membership = altered(in.membership)
		impossible := batch("boot", 1, "alpha/small", chain.OK, 3, time.Second)
		impossible.Counters[0].Outcomes[chain.OK] = 4
		ctx, before := context.Background(), r.disk.copy()
		for name, ask := range map[string]func() error{
			"a forged membership":   func() error { _, err := r.Hello(ctx, stranger, forged); return err },
			"a stolen membership":   func() error { _, err := r.Hello(ctx, stranger, stolen); return err },
			"an altered membership": func() error { _, err := r.Hello(ctx, in.key.PeerID(), late); return err },
			"an unknown invitation": func() error { _, err := r.Hello(ctx, stranger, bogus); return err },
			"a fetch of a stranger": func() error { _, err := r.Fetch(ctx, stranger, wire.Fetch{Slot: home}); return err },
			"a report of a stranger": func() error {
				_, err := r.Report(ctx, stranger, batch("b", 1, "alpha/small", chain.OK, 1, 1))
				return err
			},
			"a protest of a stranger": func() error { _, err := r.Protest(ctx, stranger, wire.Protest{Slot: home, Nonce: "n"}); return err },
			"an impossible report": func() error {
				_, _ = r.Report(ctx, in.key.PeerID(), impossible)
				return errors.New("refused in the reply")
			},
			"a wrong revocation":       func() error { _, err := r.Revoke(ctx, "nobody"); return err },
			"an approval of nothing":   func() error { return r.Approve(ctx, stranger) },
			"an invitation to nowhere": func() error { _, err := r.Invite(ctx, orchestrator.Invite{Scope: "nowhere"}); return err },
		} {
			if ask() == nil {
				t.Errorf("%s was accepted", name)
			}
			if after := r.disk.copy(); !reflect.DeepEqual(after, before) {
				t.Errorf("%s left something behind", name)
			}
		}
	})
}

// TestBeforeStart: a hub that was made but not started says so, and closes.
func TestBeforeStart(t *testing.T) {
	d := newDisk()
	h, err := orchestrator.New(orchestrator.Config{Key: hubKey(), Mesh: "m", Catalogue: parsed(t, declared), Storage: d.storage(), Addrs: func() []string { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Fetch(t.Context(), newKey().PeerID(), wire.Fetch{Slot: home})
	want(t, "code", code(err), spoke.CodeShutdown)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := orchestrator.New(orchestrator.Config{}); err == nil {
		t.Error("an empty config was accepted")
	}
}

// TestEnrolment: one invitation, one device; the membership holds what was granted.
func TestEnrolment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		i := r.invite(orchestrator.Invite{Grant: []member.Pattern{"execute:*", "key:alpha"}})
		d := r.device("a", "key:alpha", "key:beta", "execute:llm.chat")
		w, err := d.enrol(i)
		if err != nil {
			t.Fatal(err)
		}
		m, err := member.Verify(r.trust(), w.Membership, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if m.Peer != d.key.PeerID() || m.DeviceID != d.id || m.Name != "a" || !slices.Equal(m.Scopes, []chain.ScopeID{chain.DefaultScope}) ||
			!slices.Equal(m.Granted, []member.Pattern{"execute:*", "key:alpha"}) || m.Expires.Time().Sub(m.Issued.Time()) != member.Lifetime {
			t.Errorf("membership %+v", m)
		}
		if len(w.Topics) != 1 || len(w.Topics[0].Key) != 32 || !w.Stay || len(w.Chains) != 1 || w.Chains[0].Slot != home {
			t.Errorf("welcome %+v", w)
		}
		if err := w.Validate(); err != nil {
			t.Error(err)
		}
		// key:beta was declared but not granted: it reaches nothing.
		wantOrder(t, d.order(home), "alpha/small", "peer")
		if r.disk.holds(string(i.Secret)) {
			t.Error("the secret of an invitation is on disk")
		}

		// The answer was lost: the same device may try again, another may not.
		if _, err := d.enrol(i); err != nil {
			t.Errorf("the same device again: %v", err)
		}
		_, err = r.device("b").enrol(i)
		want(t, "another device", code(err), spoke.CodeInvitation)

		// A second scope is added, not swapped in.
		w, err = d.enrol(r.invite(orchestrator.Invite{Scope: "workspace:lab", Uses: 2}))
		if err != nil || len(w.Scopes) != 2 || len(w.Topics) != 2 {
			t.Errorf("second scope: %+v %v", w.Scopes, err)
		}
	})
}

// TestRenewal: a membership is renewed once a day, and also after a long absence,
// for the hub knows who was revoked.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		d := r.joined("a", "key:alpha")
		first := d.membership
		for _, c := range []struct {
			after time.Duration
			renew bool
		}{{time.Hour, false}, {22 * time.Hour, false}, {time.Hour, true}, {time.Hour, false}, {30 * 24 * time.Hour, true}} {
			time.Sleep(c.after)
			w, err := d.visit()
			if err != nil || (w.Membership != nil) != c.renew {
				t.Errorf("after %s: renewed %v, %v", c.after, w.Membership != nil, err)
			}
		}
		a, _ := member.Verify(r.trust(), first, time.Now())
		b, err := member.Verify(r.trust(), d.membership, time.Now())
		if err != nil || b.Serial <= a.Serial {
			t.Errorf("serial %d after %d: %v", b.Serial, a.Serial, err)
		}
		d.name = "renamed"
		if w, err := d.visit(); err != nil || w.Membership == nil {
			t.Errorf("a new name must be in a new membership: %v", err)
		}
	})
}

// TestRevocation: out at once, for its peers by the signed list, and its scope's
// topic key changes with a day of overlap; a new invitation lets it in again.
func TestRevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		a, b := r.joined("a", "key:alpha"), r.joined("b", "key:beta")
		before, _ := b.visit()
		wantOrder(t, b.order(home), "alpha/small", "beta/small")
		old := a.membership
		if _, err := r.Revoke(context.Background(), "nobody"); !errors.Is(err, orchestrator.ErrAsked) {
			t.Errorf("unknown device: %v", err)
		}
		if p, err := r.Revoke(context.Background(), string(a.key.PeerID())); err != nil || p != a.key.PeerID() {
			t.Fatal(err)
		}
		lists := r.said.revoked()
		if len(lists) != 1 {
			t.Fatalf("%d lists were published, want 1", len(lists))
		}
		list, err := member.VerifyRevocations(r.trust(), lists[0], 0, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		m, _ := member.Verify(r.trust(), old, time.Now())
		if !list.Ends(&m) {
			t.Error("the list does not end the membership")
		}
		wantOrder(t, b.order(home), "beta/small") // nobody holds alpha's key any more
		after, _ := b.visit()
		if len(after.Topics) != 2 || slices.Equal(after.Topics[0].Key, before.Topics[0].Key) || !slices.Equal(after.Topics[1].Key, before.Topics[0].Key) {
			t.Error("want a new topic key, and the old one beside it")
		}
		if string(after.Revocations) != string(lists[0]) {
			t.Error("the list does not come with a visit")
		}
		time.Sleep(25 * time.Hour)
		if later, _ := b.visit(); len(later.Topics) != 1 || !slices.Equal(later.Topics[0].Key, after.Topics[0].Key) {
			t.Error("the old topic key outlived its day")
		}

		if _, err := a.enrol(r.invite(orchestrator.Invite{})); err != nil {
			t.Fatalf("let in again: %v", err)
		}
		again, err := member.Verify(r.trust(), a.membership, time.Now())
		if err != nil || list.Ends(&again) {
			t.Errorf("the new membership is void: %v", err)
		}
		if _, err := a.visit(); err != nil {
			t.Error(err)
		}
	})
}

// TestSecondPeerID: the same device ID under another key is refused, shown, kept
// over a restart, and let in once the owner approves; then the first one is out.
func TestSecondPeerID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		r := start(t, d, parsed(t, declared))
		first := r.joined("a", "key:alpha")
		second := r.device("a", "key:alpha")
		i := r.invite(orchestrator.Invite{})
		_, err := second.enrol(i)
		want(t, "code", code(err), spoke.CodeConflict)
		r.stop()

		r = start(t, d, parsed(t, declared))
		first.rig, second.rig = r, r
		s, err := r.Status(t.Context())
		if err != nil || len(s.Conflicts) != 1 || s.Conflicts[0].PeerID != second.key.PeerID() || s.Conflicts[0].Holder != first.key.PeerID() {
			t.Fatalf("conflicts %+v %v", s.Conflicts, err)
		}
		if err := r.Approve(t.Context(), first.key.PeerID()); !errors.Is(err, orchestrator.ErrAsked) {
			t.Errorf("approved one that waits for nothing: %v", err)
		}
		if err := r.Approve(t.Context(), second.key.PeerID()); err != nil {
			t.Fatal(err)
		}
		if _, err := second.enrol(i); err != nil { // the refused try cost no use
			t.Errorf("after the approval: %v", err)
		}
		_, err = first.visit()
		want(t, "the first one", code(err), spoke.CodeRevoked)
		if s, _ := r.Status(t.Context()); len(s.Conflicts) != 0 {
			t.Errorf("still shown: %+v", s.Conflicts)
		}
	})
}

// TestInvite: what is wrong with the question, and what would not work as meant.
func TestInvite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		for _, q := range []orchestrator.Invite{{Scope: "home"}, {Uses: -1}, {Uses: 1 << 20}, {TTL: time.Second}, {TTL: 1000 * 24 * time.Hour}, {Grant: []member.Pattern{""}}, {Grant: []member.Pattern{"a b"}}} {
			if _, err := r.Invite(t.Context(), q); !errors.Is(err, orchestrator.ErrAsked) {
				t.Errorf("%+v: %v", q, err)
			}
		}
		made, err := r.Invite(t.Context(), orchestrator.Invite{})
		if err != nil || len(made.Warnings) != 0 || made.Uses != 1 || time.Until(made.Expires) != 24*time.Hour || made.Scope != chain.DefaultScope {
			t.Errorf("%+v %v", made, err)
		}
		if made, _ := r.Invite(t.Context(), orchestrator.Invite{Scope: "workspace:hom"}); len(made.Warnings) != 1 {
			t.Errorf("a scope that the catalogue does not list: warnings %v", made.Warnings)
		}
		if strings.Contains(r.logs.String(), made.Text) {
			t.Error("an invitation is in the log")
		}
	})
	for addrs, warn := range map[string]bool{"/ip4/127.0.0.1/tcp/7411": true, "/ip6/::1/udp/7411/quic-v1": true, "/dns4/localhost/tcp/1": true,
		"/ip4/127.0.0.1/tcp/1 /ip4/192.168.1.4/tcp/1": false, "/dns4/hub.example/tcp/1": false} {
		d := newDisk()
		h, err := orchestrator.New(orchestrator.Config{Key: hubKey(), Mesh: "m", Catalogue: parsed(t, declared), Storage: d.storage(), Addrs: func() []string { return strings.Fields(addrs) }})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Start(t.Context(), &said{}); err != nil {
			t.Fatal(err)
		}
		made, err := h.Invite(t.Context(), orchestrator.Invite{})
		if err != nil || (len(made.Warnings) > 0) != warn {
			t.Errorf("%s: warnings %v, %v", addrs, made.Warnings, err)
		}
		h.Close()
	}
}
