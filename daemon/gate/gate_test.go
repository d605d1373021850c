package gate

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

type standing Standing

func (s standing) Standing(string, string, time.Time) Standing { return Standing(s) }

func newGate(t testing.TB, mode Mode, agents Agents) *Gate {
	t.Helper()
	g, err := New(mode, verifier(), agents)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func peerOf(t testing.TB, seed byte) chain.PeerID {
	t.Helper()
	key, err := chain.NewKey(strings.NewReader(strings.Repeat(string(rune(seed)), 64)))
	if err != nil {
		t.Fatal(err)
	}
	return key.PeerID()
}

func TestModes(t *testing.T) {
	for _, s := range []string{"observe", "enforce"} {
		if m, err := ParseMode(s); err != nil || string(m) != s {
			t.Error(s, m, err)
		}
	}
	for _, s := range []string{"", "Enforce", "enforce ", "off", "deny"} {
		if _, err := ParseMode(s); err == nil {
			t.Errorf("%q is a mode", s)
		}
	}
	if _, err := New("off", verifier(), standing(Active)); err == nil {
		t.Error("a gate without a mode")
	}
	if _, err := New(Enforce, verifier(), nil); err == nil {
		t.Error("a gate without agents")
	}
}

func TestStandings(t *testing.T) {
	for s, want := range map[Standing]error{
		Active: nil, Suspended: errSuspended, Unknown: errNoAgent, Missing: errNoSnapshot, Stale: errStale, "": errNoAgent, "deregistered": errNoAgent,
	} {
		g := newGate(t, Enforce, standing(s))
		d := g.Decide(context.Background(), now, Request{Token: chain.Secret(good()), Agent: agent, Capability: work})
		if !errors.Is(d.Err(), want) || d.TokenID != tokenID || d.Allowed() != (want == nil) {
			t.Errorf("%q: %v, %+v", s, d.Err(), d)
		}
	}
}

// A standing that changes between two requests counts at once.
func TestSuspensionCountsAtOnce(t *testing.T) {
	s := standing(Active)
	g := newGate(t, Enforce, &s)
	r := Request{Token: chain.Secret(good()), Agent: agent, Capability: work}
	if err := g.Decide(context.Background(), now, r).Err(); err != nil {
		t.Fatal(err)
	}
	s = standing(Suspended)
	if err := g.Decide(context.Background(), now, r).Err(); !errors.Is(err, errSuspended) {
		t.Error(err)
	}
}

// traffic is one corpus for both modes: hostile tokens, good ones, peers' work in
// order and again.
func traffic(t testing.TB) []Request {
	peer, other := peerOf(t, 'a'), peerOf(t, 'b')
	bound := chain.Secret(good(`cnf={"kid":"` + peer.DID() + `"}`))
	var all []Request
	for _, h := range hostiles() {
		all = append(all, Request{Token: chain.Secret(h.token), Agent: agent, Capability: work}, Request{Token: chain.Secret(h.token), Agent: agent, Capability: work, From: peer, Nonce: "n0"})
	}
	for _, from := range []chain.PeerID{"", peer, other} {
		for _, nonce := range []string{"", "n1", "n2", "n1"} {
			for _, token := range []chain.Secret{bound, chain.Secret(good()), ""} {
				all = append(all, Request{Token: token, Agent: agent, Capability: work, From: from, Nonce: nonce}, Request{Token: token, Agent: agent, Capability: "llm.t3", From: from, Nonce: nonce})
			}
		}
	}
	return all
}

// One verifier: over the same traffic both modes give the same verdicts, token IDs
// and log fields; only what becomes of a denial differs.
func TestObserveAndEnforceGiveTheSameVerdicts(t *testing.T) {
	for _, s := range []Standing{Active, Suspended, Stale} {
		observe, enforce := newGate(t, Observe, standing(s)), newGate(t, Enforce, standing(s))
		denied := 0
		for i, r := range traffic(t) {
			a, b := observe.Decide(context.Background(), now, r), enforce.Decide(context.Background(), now, r)
			if a.Denial != b.Denial || a.TokenID != b.TokenID || a.Subject != b.Subject || a.Word() != b.Word() {
				t.Errorf("request %d: %+v here, %+v there", i, a, b)
			}
			if a.Err() != nil {
				t.Errorf("request %d: observe refused: %v", i, a.Err())
			}
			if b.Allowed() != (b.Err() == nil) {
				t.Errorf("request %d: %v, but %v", i, b.Word(), b.Err())
			}
			la, lb := fmt.Sprint(a.LogValue()), fmt.Sprint(b.LogValue())
			if strings.Replace(la, "observe", "enforce", 1) != lb {
				t.Errorf("request %d: logs %s and %s", i, la, lb)
			}
			if !b.Allowed() {
				denied++
			}
		}
		if n := len(traffic(t)); denied == 0 || s == Active && denied == n {
			t.Errorf("%s: %d of %d denied: this corpus shows nothing", s, denied, n)
		}
	}
}

func TestPeers(t *testing.T) {
	peer, other := peerOf(t, 'a'), peerOf(t, 'b')
	bound := good(`cnf={"kid":"` + peer.DID() + `"}`)
	for _, c := range []struct {
		name        string
		token       string
		from        chain.PeerID
		nonce       string
		first, then error
	}{
		{"bound to the peer", bound, peer, "n", nil, errReplayed},
		{"of another peer", bound, other, "n", errOtherPeer, errOtherPeer},
		{"bound to nobody", good(), peer, "n", errNoConfirm, errNoConfirm},
		{"bound to the peer ID as a text", good(`cnf={"kid":"` + string(peer) + `"}`), peer, "n", errOtherPeer, errOtherPeer},
		{"from what is no peer ID", good(`cnf={"kid":"x"}`), "x", "n", errOtherPeer, errOtherPeer},
		{"no nonce", bound, peer, "", errNoNonce, errNoNonce},
		{"an agent over HTTP carries it", bound, "", "", nil, nil},
	} {
		g := newGate(t, Enforce, standing(Active))
		r := Request{Token: chain.Secret(c.token), Agent: agent, Capability: work, From: c.from, Nonce: c.nonce}
		first, then := g.Decide(context.Background(), now, r).Err(), g.Decide(context.Background(), now, r).Err()
		if !errors.Is(first, c.first) || !errors.Is(then, c.then) {
			t.Errorf("%s: %v, then %v", c.name, first, then)
		}
	}
}

// A denied request uses no nonce up: it may come again with a token that holds.
func TestADeniedNonceIsNotUsed(t *testing.T) {
	peer := peerOf(t, 'a')
	s := standing(Suspended)
	g := newGate(t, Enforce, &s)
	r := Request{Token: chain.Secret(good(`cnf={"kid":"` + peer.DID() + `"}`)), Agent: agent, Capability: work, From: peer, Nonce: "n"}
	if err := g.Decide(context.Background(), now, r).Err(); !errors.Is(err, errSuspended) {
		t.Fatal(err)
	}
	s = standing(Active)
	if err := g.Decide(context.Background(), now, r).Err(); err != nil {
		t.Error(err)
	}
}

// Memory against replays is bounded, for one peer and for all, and comes back when
// tokens expire. A pair is remembered for as long as its token lives.
func TestTheReplayWindow(t *testing.T) {
	w := newWindow(10, 4)
	a, b, c := chain.PeerID("a"), chain.PeerID("b"), chain.PeerID("c")
	expires := now.Add(10 * time.Minute)
	for i := range 4 {
		if err := w.use(a, "t", fmt.Sprint(i), expires, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.use(a, "t", "4", expires, now); !errors.Is(err, errReplayFull) {
		t.Error("a fifth of one peer:", err)
	}
	if err := w.use(a, "t", "3", expires, now); !errors.Is(err, errReplayed) {
		t.Error("a replay in a full window:", err)
	}
	for i := range 4 {
		if err := w.use(b, "t", fmt.Sprint(i), expires.Add(time.Minute), now); err != nil {
			t.Error("another peer has its own room:", err)
		}
	}
	for i := range 3 {
		if err := w.use(c, "t", fmt.Sprint(i), expires, now); (err != nil) != (i == 2) {
			t.Errorf("pair %d of all: %v", 8+i, err)
		}
	}
	late := expires.Add(-1)
	if err := w.use(a, "t", "0", expires, late); !errors.Is(err, errReplayed) {
		t.Error("forgotten early:", err)
	}
	after := expires.Add(time.Second)
	if err := w.use(a, "t", "4", after.Add(time.Hour), after); err != nil {
		t.Error("expired pairs still take room:", err)
	}
	if err := w.use(b, "t", "0", expires.Add(time.Minute), after); !errors.Is(err, errReplayed) {
		t.Error("forgotten with the others:", err)
	}
	if n := len(w.seen); n != 5 {
		t.Errorf("%d pairs", n)
	}
	if w.use(a, "xy", "z", after.Add(time.Hour), after) != nil || w.use(a, "x", "yz", after.Add(time.Hour), after) != nil {
		t.Error("two pairs are taken for one")
	}
}

func TestKeySets(t *testing.T) {
	x := b64(string(server.Public().(ed25519.PublicKey)))
	y := b64(string(stranger.Public().(ed25519.PublicKey)))
	key := func(kid, x string) string { return `{"kty":"OKP","crv":"Ed25519","x":"` + x + `","kid":"` + kid + `"}` }
	var many []string
	for i := range maxKeys + 1 {
		many = append(many, key(fmt.Sprint(i), x))
	}
	for _, c := range []struct {
		name, jwks string
		keys       int // 0: refused
	}{
		{"one", `{"keys":[` + key("a", x) + `]}`, 1},
		{"two, for a rotation", `{"keys":[` + key("a", x) + `,` + key("b", y) + `]}`, 2},
		{"with use and alg", `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + x + `","use":"sig","alg":"EdDSA"}]}`, 1},
		{"others are passed over", `{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"OKP","crv":"X25519","x":"` + x + `"},{"kty":"OKP","crv":"Ed25519","x":"` + x + `","use":"enc"},` + key("a", x) + `]}`, 1},
		{"the same twice", `{"keys":[` + key("a", x) + `,` + key("a", x) + `]}`, 1},
		{"two of one name", `{"keys":[` + key("a", x) + `,` + key("a", y) + `]}`, 0},
		{"a private key", `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + x + `","d":"` + x + `"}]}`, 0},
		{"a short key", `{"keys":[` + key("a", x[:40]) + `]}`, 0},
		{"a padded key", `{"keys":[` + key("a", x+"=") + `]}`, 0},
		{"an empty name", `{"keys":[` + key("", x) + `]}`, 0},
		{"too many", `{"keys":[` + strings.Join(many, ",") + `]}`, 0},
		{"none", `{"keys":[]}`, 0},
		{"none of them", `{"keys":[{"kty":"RSA"}]}`, 0},
		{"no list", `{}`, 0},
		{"an array", `[]`, 0},
		{"a name twice", `{"keys":[],"keys":[` + key("a", x) + `]}`, 0},
		{"HTML", `<html>`, 0},
		{"nothing", ``, 0},
		{"long", `{"keys":[` + key("a", x) + `],"x":"` + strings.Repeat("x", MaxKeySet) + `"}`, 0},
	} {
		s, err := ParseKeySet([]byte(c.jwks))
		if s.Len() != c.keys && err == nil || errors.Is(err, ErrKeySet) != (c.keys == 0) {
			t.Errorf("%s: %d keys, %v", c.name, s.Len(), err)
		}
	}
}

// RFC 8037, appendix A.1 to A.5: the key, and its signature over a JWS whose
// payload is no claims.
func TestVectorsOfRFC8037(t *testing.T) {
	set, err := ParseKeySet([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	const a4 = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
	v := Verifier{Keys: set}
	token, err := parse(a4)
	if err != nil || string(token.payload) != "Example of Ed25519 signing" || func() error { _, err := v.signature(context.Background(), token); return err }() != nil {
		t.Error(string(token.payload), err)
	}
	if _, err := v.Verify(context.Background(), now, a4, agent, work); !errors.Is(err, errClaimsJSON) {
		t.Error(err)
	}
	seed, err := decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A") // A.1, d
	if err != nil || mint(ed25519.NewKeyFromSeed(seed), `{"alg":"EdDSA"}`, "Example of Ed25519 signing") != a4 {
		t.Error("the private key makes another signature", err)
	}
}

// A signature that was checked is not checked again, and counts only while its key
// is one of the server's. Everything else is looked at each time.
func TestASeenTokenIsJudgedAnew(t *testing.T) {
	keys := &changing{KeySet: verifier().Keys.(KeySet)}
	s := standing(Active)
	g, err := New(Enforce, Verifier{Keys: keys}, &s)
	if err != nil {
		t.Fatal(err)
	}
	token := chain.Secret(good())
	at := now
	decide := func(want error) {
		t.Helper()
		if err := g.Decide(context.Background(), at, Request{Token: token, Agent: agent, Capability: work}).Err(); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	for range 2 {
		decide(nil)
	}
	if d := g.Decide(context.Background(), at, Request{Token: token, Agent: agent + "x", Capability: work}); d.Denial != errOtherAud {
		t.Error(d.Denial)
	}
	s = standing(Suspended)
	decide(errSuspended)
	s = standing(Active)
	keys.away = true
	decide(errKeys)
	keys.away, keys.KeySet = false, KeySet{}
	decide(errUnknownKey)
	keys.KeySet = verifier().Keys.(KeySet)
	decide(nil)
	if token = chain.Secret(good()[:len(good())-2] + "AA"); g.Decide(context.Background(), at, Request{Token: token, Agent: agent, Capability: work}).Allowed() {
		t.Error("another signature over the same claims")
	}
	token, at = chain.Secret(good()), now.Add(time.Hour)
	decide(errExpired)
	if n := len(g.proofs.of); n != 1 {
		t.Errorf("%d proofs are remembered", n)
	}
}

// changing is a key set that changes.
type changing struct {
	KeySet
	away bool
}

func (c *changing) Keys(ctx context.Context, kid string) ([]ed25519.PublicKey, error) {
	if c.away {
		return nil, errors.New("away")
	}
	return c.KeySet.Keys(ctx, kid)
}
