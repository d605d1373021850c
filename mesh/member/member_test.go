package member_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func key(t testing.TB, seed int64) chain.Key {
	t.Helper()
	k, err := chain.NewKey(rand.New(rand.NewSource(seed)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func trust(k chain.Key) chain.Trust { return chain.Trust{Mesh: "m", Orchestrator: k.PeerID()} }

func sample(t testing.TB) member.Membership {
	return member.Membership{Mesh: "m", DeviceID: "7f6c2f0a-6d3c-4f6e-9a52-0f3c1f9a7b11", Peer: key(t, 2).PeerID(), Name: "laptop",
		Scopes: []chain.ScopeID{"workspace:home", "session:a"}, Granted: []member.Pattern{"execute:*", "submit"}, Issued: chain.InstantOf(now), Serial: 7}
}

func TestMembershipRoundTrip(t *testing.T) {
	hub := key(t, 1)
	envelope, err := member.Issue(hub, sample(t))
	if err != nil {
		t.Fatal(err)
	}
	m, err := member.Verify(trust(hub), envelope, now)
	if err != nil {
		t.Fatal(err)
	}
	want := sample(t)
	want.Expires = want.Issued + chain.Instant(member.Lifetime/time.Millisecond)
	if fmt.Sprint(m) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", m, want)
	}
}

func TestMembershipRefusals(t *testing.T) {
	hub := key(t, 1)
	issue := func(k chain.Key, change func(*member.Membership)) []byte {
		m := sample(t)
		change(&m)
		envelope, err := member.Issue(k, m)
		if err != nil {
			t.Fatal(err)
		}
		return envelope
	}
	good := issue(hub, func(*member.Membership) {})
	payload, err := chain.Marshal(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(d chain.Domain, payload []byte) []byte {
		envelope, err := hub.Seal(d, payload)
		if err != nil {
			t.Fatal(err)
		}
		return envelope
	}
	unmade := func(change func(*member.Membership)) []byte {
		m := sample(t)
		m.Expires = m.Issued + 1000
		change(&m)
		b, err := chain.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return sealed(chain.DomainMembership, b)
	}
	flipped := append([]byte(nil), good...)
	flipped[len(flipped)-1] ^= 1
	for _, c := range []struct {
		name     string
		envelope []byte
		at       time.Time
		want     error
	}{
		{"by another key", issue(key(t, 3), func(*member.Membership) {}), now, chain.ErrSigner},
		{"for another purpose", sealed(chain.DomainChain, payload), now, chain.ErrDomain},
		{"altered", flipped, now, chain.ErrSignature},
		{"cut", good[:len(good)-3], now, chain.ErrEncoding},
		{"empty", nil, now, chain.ErrEncoding},
		{"of another mesh", issue(hub, func(m *member.Membership) { m.Mesh = "n" }), now, chain.ErrMesh},
		{"at its end", good, now.Add(member.Lifetime), chain.ErrExpired},
		{"long after its end", good, now.AddDate(1, 0, 0), chain.ErrExpired},
		{"of tomorrow", good, now.Add(-time.Hour), chain.ErrFuture},
		{"not a map", sealed(chain.DomainMembership, []byte{0x01}), now, chain.ErrEncoding},
		{"without scopes", unmade(func(m *member.Membership) { m.Scopes = nil }), now, chain.ErrContent},
		{"of a strange scope", unmade(func(m *member.Membership) { m.Scopes = []chain.ScopeID{"home"} }), now, chain.ErrContent},
		{"of no peer", unmade(func(m *member.Membership) { m.Peer = "me" }), now, chain.ErrContent},
		{"for a year", unmade(func(m *member.Membership) { m.Expires = m.Issued + 365*24*3600*1000 }), now, chain.ErrContent},
		{"that ends before it begins", unmade(func(m *member.Membership) { m.Expires = m.Issued - 1 }), now, chain.ErrContent},
		{"with a name to clear the screen", unmade(func(m *member.Membership) { m.Name = "\x1b[2J" }), now, chain.ErrContent},
		{"with too many scopes", unmade(func(m *member.Membership) {
			for i := range 65 {
				m.Scopes = append(m.Scopes, chain.ScopeID(fmt.Sprintf("session:%d", i)))
			}
		}), now, chain.ErrContent},
		{"of a megabyte", make([]byte, 1<<20), now, chain.ErrContent},
	} {
		if _, err := member.Verify(trust(hub), c.envelope, c.at); !errors.Is(err, c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
	if _, err := member.Verify(trust(hub), good, now.Add(member.Lifetime-time.Millisecond)); err != nil {
		t.Errorf("in its last moment: %v", err)
	}
	if _, err := member.Verify(trust(hub), good, now.Add(-chain.Leeway)); err != nil {
		t.Errorf("with a clock a minute behind: %v", err)
	}
}

func TestMembershipCheck(t *testing.T) {
	m := sample(t)
	m.Expires = m.Issued + 1000
	other := key(t, 4).PeerID()
	revoked := func(peer chain.PeerID, at chain.Instant) *member.Revocations {
		return &member.Revocations{Mesh: "m", Seq: 1, Issued: at, Ended: []member.Ended{{Peer: peer, At: at}}}
	}
	for _, c := range []struct {
		name    string
		peer    chain.PeerID
		scope   chain.ScopeID
		revoked *member.Revocations
		want    error
	}{
		{"its own", m.Peer, "workspace:home", nil, nil},
		{"its other scope", m.Peer, "session:a", nil, nil},
		{"another peer", other, "workspace:home", nil, member.ErrPeer},
		{"another scope", m.Peer, "workspace:work", nil, member.ErrScope},
		{"revoked later", m.Peer, "workspace:home", revoked(m.Peer, m.Issued+1), member.ErrRevoked},
		{"revoked at the moment of issue", m.Peer, "workspace:home", revoked(m.Peer, m.Issued), member.ErrRevoked},
		{"let in again since", m.Peer, "workspace:home", revoked(m.Peer, m.Issued-1), nil},
		{"somebody else revoked", m.Peer, "workspace:home", revoked(other, m.Issued+1), nil},
	} {
		if err := m.Check(c.peer, c.scope, c.revoked); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern member.Pattern
		of      chain.Capability
		want    bool
	}{
		{"*", "anything:at all", true},
		{"*", "", true},
		{"submit", "submit", true},
		{"submit", "submitter", false},
		{"execute:*", "execute:llm.chat", true},
		{"execute:*", "execute:", true},
		{"execute:*", "submit", false},
		{"execute:llm.*", "execute:fetch.plain", false},
		{"*:llm.chat", "execute:llm.chat", true},
		{"model:*:7b", "model:qwen2.5:7b", true},
		{"model:*:7b", "model:7b", false},
		{"a*b*c", "a-b-b-c", true},
		{"a*b*c", "acb", false},
		{"a*a", "a", false},
		{"a**a", "aa", true},
		{"a*b*b", "ab", false},
		{"", "", true},
		{"", "x", false},
		{"net:?", "net:x", false},
	} {
		if got := c.pattern.Matches(c.of); got != c.want {
			t.Errorf("%q on %q: %v", c.pattern, c.of, got)
		}
	}
}

// The matcher against the obvious, slow one.
func TestPatternsAgreeWithTheDefinition(t *testing.T) {
	var slow func(p, s string) bool
	slow = func(p, s string) bool {
		switch {
		case p == "":
			return s == ""
		case p[0] == '*':
			return slow(p[1:], s) || s != "" && slow(p, s[1:])
		default:
			return s != "" && s[0] == p[0] && slow(p[1:], s[1:])
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.StringMatching(`[ab*]{0,8}`).Draw(t, "pattern")
		s := rapid.StringMatching(`[ab]{0,10}`).Draw(t, "capability")
		if got, want := member.Pattern(p).Matches(chain.Capability(s)), slow(p, s); got != want {
			t.Fatalf("%q on %q: %v", p, s, got)
		}
	})
}

func TestDeclaredAndGrantedCounts(t *testing.T) {
	m := sample(t)
	got := m.Counts([]chain.Capability{"submit", "key:groq", "execute:llm.chat", "execute:fetch.plain"})
	if fmt.Sprint(got) != "[submit execute:llm.chat execute:fetch.plain]" {
		t.Errorf("%v", got)
	}
	if m.Allows("key:groq") || !m.Allows(chain.Submit) {
		t.Error("Allows differs from Counts")
	}
}

func TestRevocations(t *testing.T) {
	hub := key(t, 1)
	var list *member.Revocations
	first, err := list.Add(key(t, 2).PeerID(), now)
	if err != nil {
		t.Fatal(err)
	}
	first.Mesh = "m"
	second, err := first.Add(key(t, 3).PeerID(), now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if second.Seq != 2 || len(second.Ended) != 2 || len(first.Ended) != 1 {
		t.Fatalf("%+v after %+v", second, first)
	}
	signed := func(r member.Revocations) []byte {
		b, err := member.Revoke(hub, r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	got, err := member.VerifyRevocations(trust(hub), signed(second), 1, now.Add(time.Hour))
	if err != nil || fmt.Sprint(got) != fmt.Sprint(second) {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := member.VerifyRevocations(trust(hub), signed(first), 2, now); !errors.Is(err, chain.ErrRollback) {
		t.Errorf("an older list: %v", err)
	}
	if _, err := member.VerifyRevocations(trust(hub), signed(second), 2, now.Add(time.Hour)); err != nil {
		t.Errorf("the same list again: %v", err)
	}
	if _, err := member.VerifyRevocations(trust(hub), signed(second), 0, now); !errors.Is(err, chain.ErrFuture) {
		t.Errorf("a list of the next hour: %v", err)
	}
	if _, err := member.VerifyRevocations(trust(key(t, 9)), signed(first), 0, now); !errors.Is(err, chain.ErrSigner) {
		t.Errorf("a list of another hub: %v", err)
	}
	other := trust(hub)
	other.Mesh = "n"
	if _, err := member.VerifyRevocations(other, signed(first), 0, now); !errors.Is(err, chain.ErrMesh) {
		t.Errorf("a list of another mesh: %v", err)
	}
	if _, err := member.VerifyRevocations(trust(hub), signed(first)[1:], 0, now); !errors.Is(err, chain.ErrEncoding) {
		t.Errorf("a damaged list: %v", err)
	}

	// What outlived every membership makes room; the same peer stands once.
	later, err := second.Add(key(t, 3).PeerID(), now.Add(member.Lifetime+time.Hour))
	if err != nil || len(later.Ended) != 1 {
		t.Errorf("%+v %v", later, err)
	}
}

func TestAFullRevocationListFitsOneMessageOfGossip(t *testing.T) {
	hub := key(t, 1)
	list := member.Revocations{Mesh: chain.MeshID(strings.Repeat("m", 64)), Seq: 1}
	var err error
	for i := range member.MaxRevoked {
		if list, err = list.Add(key(t, int64(100+i)).PeerID(), now); err != nil {
			t.Fatal(err)
		}
	}
	b, err := member.Revoke(hub, list)
	if err != nil || len(b) > 60<<10 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if _, err := list.Add(key(t, 99).PeerID(), now); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("one more: %v", err)
	}
}

func TestIssueRefusesWhatNobodyWouldRead(t *testing.T) {
	m := sample(t)
	m.Scopes = nil
	if _, err := member.Issue(key(t, 1), m); !errors.Is(err, chain.ErrContent) {
		t.Errorf("got %v", err)
	}
	if _, err := member.Revoke(key(t, 1), member.Revocations{}); !errors.Is(err, chain.ErrContent) {
		t.Errorf("got %v", err)
	}
}

func FuzzMembership(f *testing.F) {
	hub := key(f, 1)
	good, err := member.Issue(hub, sample(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := member.Verify(trust(hub), b, now); err == nil && string(b) != string(good) {
			t.Errorf("accepted other bytes as %+v", m)
		}
		_, _ = member.VerifyRevocations(trust(hub), b, 0, now)
	})
}

func FuzzMembershipPayload(f *testing.F) {
	hub := key(f, 1)
	m := sample(f)
	m.Expires = m.Issued + 1000
	good, err := chain.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	list, err := chain.Marshal(member.Revocations{Mesh: "m", Seq: 1, Issued: m.Issued, Ended: []member.Ended{{Peer: m.Peer, At: 1}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(list)
	f.Fuzz(func(t *testing.T, payload []byte) {
		envelope, err := hub.Seal(chain.DomainMembership, payload)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := member.Verify(trust(hub), envelope, now); err == nil {
			if _, err := json.Marshal(m); err != nil {
				t.Error(err)
			}
			_ = m.Counts([]chain.Capability{"execute:llm.chat"})
		}
		if envelope, err = hub.Seal(chain.DomainRevocation, payload); err != nil {
			t.Fatal(err)
		}
		if r, err := member.VerifyRevocations(trust(hub), envelope, 0, now); err == nil {
			_ = r.Ends(&m)
		}
	})
}
