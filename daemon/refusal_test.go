package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// fingerprint is every file below dir, by name and content.
func fingerprint(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		sum := sha256.Sum256(b)
		all[path] = hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestWhatIsRefusedLeavesTheDataDirectoryAsItWas offers forged, foreign,
// expired, replayed and altered heads, bodies, extensions, memberships and
// revocation lists to a device with a real data directory.
func TestWhatIsRefusedLeavesTheDataDirectoryAsItWas(t *testing.T) {
	synctest.Test(t, refusals)
}

func refusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	dir, err := datadir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	db, err := store.Open(dir, store.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	marks, err := dir.Marks()
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{fails: map[chain.OptionID]walk.Outcome{}}
	cache := store.NewChainCache(db, marks)
	b := assemble(t, p, func(c *daemon.Config) { c.Chains, c.Marks, c.State = cache, marks, dir })
	b.provider = p
	b.hub.serve(options)
	if err := b.Join(t.Context(), b.invitation()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	stranger, policy := chaintest.Stranger(), b.hub.policy
	held := cache.Get(slot)
	before := fingerprint(t, path)

	refuse := func(name string, offer func()) {
		t.Helper()
		offer()
		synctest.Wait()
		if cache.Get(slot) != held {
			t.Errorf("%s was put in force", name)
		}
		after := fingerprint(t, path)
		for file, sum := range after {
			if before[file] != sum {
				t.Errorf("%s changed %s", name, filepath.Base(file))
			}
		}
		if len(after) != len(before) {
			t.Errorf("%s: %d files, before %d", name, len(after), len(before))
		}
		if _, err := b.Chain(slot); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	offerChain := func(head, body []byte) func() {
		return func() {
			b.hub.mu.Lock()
			fetched := b.hub.fetches
			b.hub.head, b.hub.body = head, body
			b.hub.mu.Unlock()
			b.hub.events.Invalidated(slot)
			synctest.Wait()
			if b.hub.fetches == fetched {
				t.Error("the device did not look at it")
			}
		}
	}
	now := time.Now()
	other := policy.Body(t, "evil/option")
	expired := policy.HeadOf(other, now)
	expired.Issued, expired.RefreshAfter, expired.Expires = 1, 1, 2
	ahead := policy.HeadOf(other, now.Add(time.Hour))
	equivocal := policy.HeadOf(other, now)
	equivocal.Seq = held.Head().Seq
	altered := append([]byte{}, policy.Head(t, other, now)...)
	altered[len(altered)-1] ^= 1
	foreign := policy
	foreign.Trust.Mesh = "another"
	refuse("a head signed by a stranger", offerChain(stranger.Head(t, other, now), other))
	refuse("a head with an altered byte", offerChain(altered, other))
	refuse("a head of another mesh", offerChain(foreign.Head(t, other, now), other))
	refuse("a head for another scope", offerChain(policy.For("workspace:other", chain.LLMChat).Head(t, other, now), other))
	refuse("a head for another primitive", offerChain(policy.For(chain.DefaultScope, "embed.text").Head(t, other, now), other))
	refuse("an expired head", offerChain(policy.Sign(t, chain.DomainChain, expired), other))
	refuse("a head from the future", offerChain(policy.Sign(t, chain.DomainChain, ahead), other))
	refuse("a head with a lower sequence", offerChain(policy.Head(t, other, now.Add(-time.Hour)), other))
	refuse("another body under the same sequence", offerChain(policy.Sign(t, chain.DomainChain, equivocal), other))
	refuse("a head signed for another purpose", offerChain(policy.Sign(t, chain.DomainExtension, policy.HeadOf(other, now)), other))
	refuse("a body that is not the one of the head", offerChain(policy.Head(t, other, now), policy.Body(t, "other/option")))
	refuse("a body cut short", offerChain(policy.Head(t, other, now), other[:len(other)-1]))

	extend := func(make func(nonce string) []byte) func() {
		return func() {
			for _, id := range []chain.OptionID{"alpha/small", "beta/small", "local/own/m"} {
				p.fail(id, chain.Feature) // nothing cools down
			}
			b.hub.mu.Lock()
			b.hub.extend = func(q wire.Protest) wire.ProtestReply { return wire.ProtestReply{Extension: make(q.Nonce)} }
			b.hub.mu.Unlock()
			if text, _, _ := b.ask(edge.Work{}); text != "" {
				t.Errorf("it answered %q", text)
			}
		}
	}
	me := chaintest.PeerID(device)
	refuse("an extension signed by a stranger", extend(func(n string) []byte { return stranger.Extension(t, held, n, me, "evil/option", now) }))
	refuse("a replayed extension", extend(func(string) []byte { return policy.Extension(t, held, "old", me, "evil/option", now) }))
	refuse("another device's extension", extend(func(n string) []byte {
		return policy.Extension(t, held, n, chaintest.PeerID(2), "evil/option", now)
	}))
	refuse("an expired extension", extend(func(n string) []byte {
		return policy.Extension(t, held, n, me, "evil/option", now.Add(-24*time.Hour))
	}))

	greet := func(welcome func(w *wire.Welcome)) func() {
		return func() {
			hellos := len(b.hub.hellos)
			b.hub.mu.Lock()
			b.hub.change = welcome
			b.hub.mu.Unlock()
			b.hub.events.HubUp(true)
			synctest.Wait()
			if len(b.hub.hellos) == hellos {
				t.Error("the device did not visit")
			}
		}
	}
	membership := func(key chain.Key, m member.Membership) []byte {
		m.Name, m.DeviceID, m.Scopes, m.Serial = "a", "d", []chain.ScopeID{"workspace:evil"}, 9
		if m.Issued == 0 {
			m.Issued = chain.InstantOf(now)
		}
		signed, err := member.Issue(key, m)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	mesh := policy.Trust.Mesh
	for name, envelope := range map[string][]byte{
		"a membership signed by a stranger": membership(stranger.Key, member.Membership{Mesh: mesh, Peer: me}),
		"a membership of another mesh":      membership(policy.Key, member.Membership{Mesh: "another", Peer: me}),
		"a membership of another peer":      membership(policy.Key, member.Membership{Mesh: mesh, Peer: chaintest.PeerID(2)}),
		"an expired membership":             membership(policy.Key, member.Membership{Mesh: mesh, Peer: me, Issued: chain.InstantOf(now.Add(-30 * 24 * time.Hour))}),
	} {
		refuse(name, greet(func(w *wire.Welcome) { w.Membership = envelope }))
	}
	list, err := (&member.Revocations{}).Add(me, now.Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	list.Mesh = mesh
	forged, err := member.Revoke(stranger.Key, list)
	if err != nil {
		t.Fatal(err)
	}
	refuse("a revocation list signed by a stranger", greet(func(w *wire.Welcome) { w.Revocations = forged }))
	refuse("a revocation list that is rubbish", func() { b.hub.events.Revoked([]byte("rubbish")) })
}
