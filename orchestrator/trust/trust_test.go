package trust

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/did"
)

const (
	origin       = "https://hub.example:7443"
	agentDID     = "did:web:agents.example"
	suspendedDID = "did:web:agents.example:suspended"
	otherDID     = "did:web:agents.example:other"
	strangerDID  = "did:web:stranger.example"
)

// policy permits one agent to everybody, and says no in the ways that there are.
type policy struct{}

func (policy) Permit(_ context.Context, seeker, agent, capability string) error {
	switch {
	case seeker == strangerDID:
		return fmt.Errorf("%w: not enrolled", ErrSeeker)
	case agent == suspendedDID:
		return ErrSuspended
	case agent != agentDID || capability != "llm.chat":
		return ErrNoAgent
	}
	return nil
}

// documents resolves did:key, and a did:webvh in each state that matters.
type documents struct{ key ed25519.PublicKey }

func (d documents) Resolve(ctx context.Context, id string) ([]ed25519.PublicKey, error) {
	switch id {
	case "did:webvh:two":
		return []ed25519.PublicKey{public(signer(9)), d.key}, nil
	case "did:webvh:none":
		return nil, nil
	case "did:webvh:away":
		return nil, errors.New("fetch: connection refused to 10.0.0.1")
	case "did:webvh:false":
		return nil, fmt.Errorf("%w: entry 2", did.ErrInvalid)
	}
	return Documents{}.Resolve(ctx, id)
}

func signer(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
}

func device(t testing.TB) (chain.Key, ed25519.PublicKey) {
	t.Helper()
	key, err := chain.NewKey(strings.NewReader(strings.Repeat("d", 64)))
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PeerID().Public()
	if err != nil {
		t.Fatal(err)
	}
	return key, public
}

func server(t testing.TB) *Server {
	t.Helper()
	_, key := device(t)
	s, err := New(Config{Origin: func() string { return origin }, Keys: NewRing(signer(1)), Resolver: documents{key}, Policy: policy{}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// call posts JSON and gives status, body and code of the error.
func call(t testing.TB, h http.Handler, path, body string) (int, map[string]any, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return do(t, h, r)
}

func do(t testing.TB, h http.Handler, r *http.Request) (int, map[string]any, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var out map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatalf("%s %s: %d %q", r.Method, r.URL.Path, w.Code, w.Body)
	}
	e, _ := out["error"].(map[string]any)
	code, _ := e["code"].(string)
	if (w.Code >= 400) != (code != "" && e["request_id"] != "" && e["message"] != "" && e["type"] != "") {
		t.Errorf("%s %s: %d without the shape of errors: %s", r.Method, r.URL.Path, w.Code, w.Body)
	}
	return w.Code, out, code
}

func challenge(t testing.TB, s *Server, id string) string {
	t.Helper()
	status, out, _ := call(t, s, "/trust/v1/challenge", fmt.Sprintf(`{"did":%q}`, id))
	text, _ := out["challenge"].(string)
	if status != http.StatusOK || text == "" {
		t.Fatal(status, out)
	}
	return text
}

// request gives a body that holds, to be changed.
func request(t testing.TB, s *Server) ask {
	t.Helper()
	key, public := device(t)
	in := ask{DID: chain.DIDKey(public), Capability: "llm.chat", Audience: agentDID}
	in.Challenge = challenge(t, s, in.DID)
	in.Signature = sign(t, key, origin, in)
	return in
}

func sign(t testing.TB, key chain.Key, aud string, in ask) string {
	t.Helper()
	signature, err := chain.Control{Audience: aud, Challenge: in.Challenge, DID: in.DID}.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

func mint(t testing.TB, s *Server, in ask) (int, map[string]any, string) {
	t.Helper()
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return call(t, s, "/trust/v1/token", string(b))
}

// open checks a token with a key and gives its claims.
func open(t testing.TB, token string, key ed25519.PublicKey) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatal(token)
	}
	var raw [3][]byte
	for i, p := range parts {
		b, err := base64.RawURLEncoding.DecodeString(p)
		if err != nil {
			t.Fatal(err)
		}
		raw[i] = b
	}
	if !ed25519.Verify(key, []byte(parts[0]+"."+parts[1]), raw[2]) {
		t.Fatal("the signature does not fit")
	}
	if want := `{"alg":"EdDSA","kid":"` + Thumbprint(key) + `","typ":"JWT"}`; string(raw[0]) != want {
		t.Errorf("header %s, want %s", raw[0], want)
	}
	var claims map[string]any
	if err := json.Unmarshal(raw[1], &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

func TestMint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server(t)
		in := request(t, s)
		status, out, _ := mint(t, s, in)
		if status != http.StatusOK {
			t.Fatal(status, out)
		}
		token, _ := out["token"].(string)
		claims := open(t, token, public(signer(1)))
		now := float64(time.Now().Unix())
		want := map[string]any{
			"iss": origin, "sub": in.DID, "aud": in.Audience, "capability": "llm.chat", "iat": now, "nbf": now, "exp": now + 900,
			"cnf": map[string]any{"kid": in.DID}, "jti": claims["jti"],
		}
		if fmt.Sprint(claims) != fmt.Sprint(want) || claims["jti"] == "" {
			t.Errorf("%v\nwant %v", claims, want)
		}
		if out["expires_at"] != time.Unix(int64(now)+900, 0).UTC().Format(time.RFC3339) {
			t.Error(out["expires_at"])
		}
	})
}

// cnf names the key that signed, also where the DID has several and is no did:key.
func TestMintForADocument(t *testing.T) {
	s := server(t)
	key, public1 := device(t)
	in := ask{DID: "did:webvh:two", Capability: "llm.chat", Audience: agentDID, Challenge: challenge(t, s, "did:webvh:two")}
	in.Signature = sign(t, key, origin, in)
	status, out, _ := mint(t, s, in)
	if status != http.StatusOK {
		t.Fatal(status, out)
	}
	claims := open(t, out["token"].(string), public(signer(1)))
	if cnf := claims["cnf"].(map[string]any); cnf["kid"] != chain.DIDKey(public1) || claims["sub"] != in.DID {
		t.Error(claims)
	}
}

func TestRefusals(t *testing.T) {
	key, _ := device(t)
	other, err := chain.NewKey(strings.NewReader(strings.Repeat("o", 64)))
	if err != nil {
		t.Fatal(err)
	}
	again := func(t *testing.T, s *Server, in *ask, id string) {
		in.DID, in.Challenge = id, challenge(t, s, id)
		in.Signature = sign(t, key, origin, *in)
	}
	for name, c := range map[string]struct {
		change func(*testing.T, *Server, *ask)
		status int
		code   string
	}{
		"signed by another key":      {func(t *testing.T, _ *Server, in *ask) { in.Signature = sign(t, other, origin, *in) }, 403, "proof_of_control_failed"},
		"signed for another service": {func(t *testing.T, _ *Server, in *ask) { in.Signature = sign(t, key, "https://evil.example", *in) }, 403, "proof_of_control_failed"},
		"signed for another purpose": {func(t *testing.T, _ *Server, in *ask) { in.Signature = statement(t, key, *in) }, 403, "proof_of_control_failed"},
		"no signature":               {func(_ *testing.T, _ *Server, in *ask) { in.Signature = "" }, 403, "proof_of_control_failed"},
		"no challenge":               {func(_ *testing.T, _ *Server, in *ask) { in.Challenge = "" }, 403, "proof_of_control_failed"},
		"a challenge of their own":   {func(_ *testing.T, _ *Server, in *ask) { in.Challenge = strings.Repeat("A", 54) }, 403, "proof_of_control_failed"},
		"a challenge of another DID": {func(t *testing.T, s *Server, in *ask) {
			in.Challenge = challenge(t, s, "did:webvh:two")
			in.Signature = sign(t, key, origin, *in)
		}, 403, "proof_of_control_failed"},
		"a challenge of another server": {func(t *testing.T, _ *Server, in *ask) {
			in.Challenge = challenge(t, server(t), in.DID)
			in.Signature = sign(t, key, origin, *in)
		}, 403, "proof_of_control_failed"},
		"a seeker unknown":           {func(t *testing.T, s *Server, in *ask) { again(t, s, in, strangerDID) }, 403, "unknown_seeker"},
		"a suspended agent":          {func(_ *testing.T, _ *Server, in *ask) { in.Audience = suspendedDID }, 403, "agent_suspended"},
		"an agent unknown":           {func(_ *testing.T, _ *Server, in *ask) { in.Audience = otherDID }, 404, "no_agent"},
		"a capability unknown":       {func(_ *testing.T, _ *Server, in *ask) { in.Capability = "llm.t3" }, 404, "no_agent"},
		"no capability":              {func(_ *testing.T, _ *Server, in *ask) { in.Capability = "" }, 400, "invalid_request"},
		"a capability with a line":   {func(_ *testing.T, _ *Server, in *ask) { in.Capability = "a\nb" }, 400, "invalid_request"},
		"an audience that is no DID": {func(_ *testing.T, _ *Server, in *ask) { in.Audience = "https://x" }, 400, "invalid_did"},
		"no DID":                     {func(_ *testing.T, _ *Server, in *ask) { in.DID = "" }, 400, "invalid_did"},
		"a long DID":                 {func(_ *testing.T, _ *Server, in *ask) { in.DID = "did:" + strings.Repeat("x", 512) }, 400, "invalid_did"},
		"a DID of no document":       {func(t *testing.T, s *Server, in *ask) { again(t, s, in, "did:webvh:false") }, 400, "invalid_did"},
		"a DID away":                 {func(t *testing.T, s *Server, in *ask) { again(t, s, in, "did:webvh:away") }, 502, "unresolvable_did"},
		"a DID without keys":         {func(t *testing.T, s *Server, in *ask) { again(t, s, in, "did:webvh:none") }, 403, "proof_of_control_failed"},
	} {
		s := server(t)
		in := request(t, s)
		c.change(t, s, &in)
		status, out, code := mint(t, s, in)
		if status != c.status || code != c.code {
			t.Errorf("%s: %d %s, want %d %s", name, status, code, c.status, c.code)
		}
		if strings.Contains(fmt.Sprint(out), "10.0.0.1") {
			t.Errorf("%s: shows what a fetch met: %v", name, out)
		}
		if len(s.challenges.used) != 0 {
			t.Errorf("%s: used a challenge up", name)
		}
	}
}

// No text that only looks like a DID reaches a policy, a document or a token.
func TestDIDsAreRead(t *testing.T) {
	for why, s := range chaintest.NoDIDs() {
		for name, in := range map[string]map[string]string{
			"/trust/v1/challenge": {"did": s},
			"/trust/v1/token":     {"did": s, "challenge": "c", "signature": "s", "capability": "llm.chat", "audience": agentDID},
			"audience":            {"did": otherDID, "challenge": "c", "signature": "s", "capability": "llm.chat", "audience": s},
		} {
			path := name
			if name == "audience" {
				path = "/trust/v1/token"
			}
			body, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			if status, _, code := call(t, server(t), path, string(body)); status != 400 || code != "invalid_did" {
				t.Errorf("%s: %s: %d %s", name, why, status, code)
			}
		}
	}
}

// statement signs the same text as if it were an executor's.
func statement(t testing.TB, key chain.Key, in ask) string {
	t.Helper()
	raw, err := key.SignText(chain.PrefixExec, fmt.Appendf(nil, `{"aud":%q,"challenge":%q,"did":%q}`, origin, in.Challenge, in.DID))
	if err != nil {
		t.Fatal(err)
	}
	return b64(raw)
}

// One proof, a hundred times at once: one token.
func TestAChallengeHoldsOnce(t *testing.T) {
	s := server(t)
	in := request(t, s)
	var wg sync.WaitGroup
	results := make(chan int, 32)
	for range 32 {
		wg.Go(func() {
			status, _, _ := mint(t, s, in)
			results <- status
		})
	}
	wg.Wait()
	close(results)
	count := map[int]int{}
	for status := range results {
		count[status]++
	}
	if count[http.StatusOK] != 1 || count[http.StatusForbidden] != 31 {
		t.Error(count)
	}
}

func TestAChallengeExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server(t)
		late, early := request(t, s), request(t, s)
		time.Sleep(ChallengeLife - time.Millisecond)
		if status, out, _ := mint(t, s, early); status != http.StatusOK {
			t.Error("within its life:", out)
		}
		time.Sleep(time.Millisecond)
		if status, _, code := mint(t, s, late); status != http.StatusForbidden || code != "proof_of_control_failed" {
			t.Error("after it:", status, code)
		}
		if status, _, _ := mint(t, s, early); status != http.StatusForbidden {
			t.Error("a used one, after it:", status)
		}
	})
}

// What is remembered is bounded, and asking for challenges takes no memory at all.
func TestChallengesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChallenges(2)
		for range 1000 {
			c.issue("did:x", time.Now())
		}
		take := func() error {
			text, _ := c.issue("did:x", time.Now())
			id, expires, err := c.check(text, "did:x", time.Now())
			return errors.Join(err, c.use(id, expires, time.Now()))
		}
		if err := errors.Join(take(), take()); err != nil || len(c.used) != 2 {
			t.Fatal(err, len(c.used))
		}
		if err := take(); !errors.Is(err, errChallengeFull) {
			t.Error(err)
		}
		time.Sleep(ChallengeLife)
		if err := take(); err != nil || len(c.used) != 1 {
			t.Error(err, len(c.used))
		}
	})
}

func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server(t)
		kids := func() []string {
			_, out, _ := do(t, s, httptest.NewRequest(http.MethodGet, "/trust/v1/keys", nil))
			var kids []string
			for _, k := range out["keys"].([]any) {
				k := k.(map[string]any)
				if k["kty"] != "OKP" || k["crv"] != "Ed25519" || k["use"] != "sig" || k["alg"] != "EdDSA" || len(k) != 6 {
					t.Error(k)
				}
				kids = append(kids, k["kid"].(string))
			}
			return kids
		}
		first, second := Thumbprint(public(signer(1))), Thumbprint(public(signer(2)))
		s.cfg.Keys.Rotate(signer(2), time.Now())
		s.cfg.Keys.Rotate(signer(2), time.Now())
		_, out, _ := mint(t, s, request(t, s))
		open(t, out["token"].(string), public(signer(2)))
		if got := kids(); fmt.Sprint(got) != fmt.Sprint([]string{second, first}) {
			t.Error(got)
		}
		time.Sleep(Overlap)
		if got := kids(); fmt.Sprint(got) != fmt.Sprint([]string{second}) {
			t.Error("after the overlap:", got)
		}
		for i := range byte(20) {
			s.cfg.Keys.Rotate(signer(10+i), time.Now())
		}
		if n := len(kids()); n != maxPublished {
			t.Errorf("%d keys", n)
		}
	})
}

// RFC 8037, appendix A.3.
func TestThumbprint(t *testing.T) {
	key, err := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	if err != nil || Thumbprint(key) != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Error(Thumbprint(key), err)
	}
}

func TestDerivedKeys(t *testing.T) {
	key, _ := device(t)
	a, err := DeriveKey(key, 1)
	b, err2 := DeriveKey(key, 1)
	c, err3 := DeriveKey(key, 2)
	if err := errors.Join(err, err2, err3); err != nil || !a.Equal(b) || a.Equal(c) {
		t.Error(err)
	}
	if _, err := DeriveKey(chain.Key{}, 1); err == nil {
		t.Error("a key of nobody")
	}
}

func TestHTTP(t *testing.T) {
	s := server(t)
	for name, c := range map[string]struct {
		method, path, kind, body string
		status                   int
		code                     string
	}{
		"a path unknown":      {"GET", "/trust/v1/", "", "", 404, "not_found"},
		"a path with a slash": {"POST", "/trust/v1/token/", "", "", 404, "not_found"},
		"a path encoded":      {"GET", "/trust/v1%2fkeys", "", "", 404, "not_found"},
		"a path doubled":      {"GET", "//trust/v1/keys", "", "", 404, "not_found"},
		"a method":            {"GET", "/trust/v1/token", "", "", 405, "method_not_allowed"},
		"a method of keys":    {"POST", "/trust/v1/keys", "application/json", "{}", 405, "method_not_allowed"},
		"a kind":              {"POST", "/trust/v1/challenge", "text/plain", `{"did":"did:x"}`, 415, "unsupported_media_type"},
		"no JSON":             {"POST", "/trust/v1/challenge", "application/json", `did`, 400, "invalid_request"},
		"a name twice":        {"POST", "/trust/v1/challenge", "application/json", `{"did":"did:x","did":"did:y"}`, 400, "invalid_request"},
		"more behind it":      {"POST", "/trust/v1/challenge", "application/json", `{"did":"did:x"} {}`, 400, "invalid_request"},
		"another kind":        {"POST", "/trust/v1/challenge", "application/json", `{"did":1}`, 400, "invalid_request"},
		"a list":              {"POST", "/trust/v1/challenge", "application/json", `[]`, 400, "invalid_request"},
		"no DID":              {"POST", "/trust/v1/challenge", "application/json", `{}`, 400, "invalid_did"},
		"a long body":         {"POST", "/trust/v1/token", "application/json", `"` + strings.Repeat("x", maxBody) + `"`, 413, "request_too_large"},
		"a deep body":         {"POST", "/trust/v1/token", "application/json", strings.Repeat("[", 1000), 400, "invalid_request"},
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		if status, _, code := do(t, s, r); status != c.status || code != c.code {
			t.Errorf("%s: %d %s, want %d %s", name, status, code, c.status, c.code)
		}
	}
}

// Requests beyond the limit are refused, not queued.
func TestTooManyAtOnce(t *testing.T) {
	s := server(t)
	for range maxInFlight {
		s.inFlight <- struct{}{}
	}
	if status, _, code := mint(t, s, ask{}); status != http.StatusServiceUnavailable || code != "overloaded" {
		t.Error(status, code)
	}
	<-s.inFlight
	if status, _, _ := mint(t, s, request(t, s)); status != http.StatusOK {
		t.Error(status)
	}
}

func TestConfig(t *testing.T) {
	whole := Config{Origin: func() string { return origin }, Keys: NewRing(signer(1)), Resolver: Documents{}, Policy: policy{}}
	if _, err := New(whole); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Config){
		"origin": func(c *Config) { c.Origin = nil }, "keys": func(c *Config) { c.Keys = nil },
		"resolver": func(c *Config) { c.Resolver = nil }, "policy": func(c *Config) { c.Policy = nil },
	} {
		cfg := whole
		spoil(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("without %s", name)
		}
	}
}

func FuzzChallenge(f *testing.F) {
	c := newChallenges(8)
	good, _ := c.issue("did:x", time.Unix(0, 0))
	f.Add(good, "did:x")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, text, id string) {
		if _, _, err := c.check(text, id, time.Unix(1, 0)); (err == nil) != (text == good && id == "did:x") {
			t.Errorf("%q %q: %v", text, id, err)
		}
	})
}
