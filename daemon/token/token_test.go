package token

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	agent = "did:key:z6MkAgent"
	work  = "llm.chat"
)

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func identity(t testing.TB) chain.Key {
	t.Helper()
	key, err := chain.NewKey(strings.NewReader(strings.Repeat("d", 64)))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// script is a trust server that does what it is told. It checks proofs for real.
type script struct {
	t      testing.TB
	signer ed25519.PrivateKey
	kid    string

	delay  atomic.Int64                                  // before each answer, in nanoseconds
	claims func(map[string]any)                          // changes what is minted; nil: nothing
	answer func(w http.ResponseWriter, path string) bool // answers instead; nil: nobody

	challenges, mints, keys atomic.Int32
	used                    sync.Map
}

func newScript(t testing.TB) *script {
	return &script{t: t, signer: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32)), kid: "k1"}
}

// RoundTrip serves a request where it stands.
func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if delay := time.Duration(s.delay.Load()); delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	s.serve(w, r)
	return w.Result(), nil
}

func (s *script) serve(w *httptest.ResponseRecorder, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if s.answer != nil && s.answer(w, r.URL.Path) {
		return
	}
	var in map[string]string
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			s.t.Error(err)
		}
	}
	switch r.URL.Path {
	case "/trust/v1/keys":
		s.keys.Add(1)
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","x":%q,"kid":%q}]}`, b64(s.signer.Public().(ed25519.PublicKey)), s.kid)
	case "/trust/v1/challenge":
		fmt.Fprintf(w, `{"challenge":"c%d","expires_at":"2026-01-01T00:00:00Z"}`, s.challenges.Add(1))
	case "/trust/v1/token":
		n := s.mints.Add(1)
		public, err := chain.ParseDIDKey(in["did"])
		proof := chain.Control{Audience: "https://trust.example", Challenge: in["challenge"], DID: in["did"]}
		if _, again := s.used.LoadOrStore(in["challenge"], true); err != nil || again || proof.Verify(public, in["signature"]) != nil {
			s.t.Errorf("no proof: %v", in)
		}
		now := time.Now().Unix()
		claims := map[string]any{"iss": "https://trust.example", "sub": in["did"], "aud": in["audience"], "capability": in["capability"], "jti": fmt.Sprintf("t%d", n),
			"iat": now, "nbf": now, "exp": now + 900, "cnf": map[string]string{"kid": in["did"]}}
		if s.claims != nil {
			s.claims(claims)
		}
		payload, err := json.Marshal(claims)
		if err != nil {
			s.t.Error(err)
		}
		signed := b64([]byte(`{"alg":"EdDSA","kid":"`+s.kid+`"}`)) + "." + b64(payload)
		fmt.Fprintf(w, `{"token":%q,"expires_at":"x"}`, signed+"."+b64(ed25519.Sign(s.signer, []byte(signed))))
	default:
		s.t.Errorf("asked for %s", r.URL.Path)
	}
}

func client(t testing.TB, s http.RoundTripper, log *slog.Logger) *Client {
	t.Helper()
	server, err := authority.New("https://trust.example", authority.Options{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Server: server, Key: identity(t), Issuer: gate.Exactly("https://trust.example"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestATokenIsKeptAndRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		c := client(t, s, nil)
		get := func(want string, mints int32) {
			t.Helper()
			token, err := c.Token(t.Context(), agent, work)
			synctest.Wait()
			if err != nil || token.ID != want || s.mints.Load() != mints {
				t.Errorf("token %q, %d mints, %v; want %q, %d", token.ID, s.mints.Load(), err, want, mints)
			}
		}
		get("t1", 1)
		get("t1", 1)
		time.Sleep(14*time.Minute - time.Second)
		get("t1", 1)
		time.Sleep(time.Second) // REFRESH_SKEW before its end: the kept one at once, another behind it
		get("t1", 2)
		get("t2", 2)
		time.Sleep(15 * time.Minute) // it expired with nobody asking
		get("t3", 3)
		if other, err := c.Token(t.Context(), agent, "llm.t3"); err != nil || other.ID != "t4" {
			t.Error("another capability:", other.ID, err)
		}
		if other, err := c.Token(t.Context(), agent+"2", work); err != nil || other.ID != "t5" {
			t.Error("another agent:", other.ID, err)
		}
	})
}

func TestFiveHundredCallersOneMint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		s.delay.Store(int64(100 * time.Millisecond))
		c := client(t, s, nil)
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				if token, err := c.Token(t.Context(), agent, work); err != nil || token.ID != "t1" {
					t.Error(token.ID, err)
				}
			})
		}
		wg.Wait()
		if s.mints.Load() != 1 || s.challenges.Load() != 1 || s.keys.Load() != 1 {
			t.Errorf("%d mints, %d challenges, %d requests for keys", s.mints.Load(), s.challenges.Load(), s.keys.Load())
		}
	})
}

// The caller who began a mint leaves; the others get its token.
func TestACallerWhoLeavesEndsNoMint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		s.delay.Store(int64(time.Second))
		c := client(t, s, nil)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := c.Token(ctx, agent, work)
			left <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if token, err := c.Token(t.Context(), agent, work); err != nil || token.ID != "t1" || s.mints.Load() != 1 {
			t.Error(token.ID, err)
		}
	})
}

// What a server does wrong gives no token, and the error's code.
func TestServersThatFail(t *testing.T) {
	status := func(code int, body string) func(http.ResponseWriter, string) bool {
		return func(w http.ResponseWriter, path string) bool {
			if path == "/trust/v1/token" {
				w.WriteHeader(code)
				_, _ = w.Write([]byte(body))
				return true
			}
			return false
		}
	}
	on := func(path, kind, body string) func(http.ResponseWriter, string) bool {
		return func(w http.ResponseWriter, p string) bool {
			if p == path {
				w.Header().Set("Content-Type", kind)
				_, _ = w.Write([]byte(body))
			}
			return p == path
		}
	}
	for name, c := range map[string]struct {
		script func(*script)
		code   string
	}{
		"away":                 {func(s *script) { s.delay.Store(int64(time.Hour)) }, "upstream_timeout"},
		"proof refused":        {func(s *script) { s.answer = status(403, `{"error":{"code":"proof_of_control_failed","message":"x"}}`) }, "proof_of_control_failed"},
		"DID away":             {func(s *script) { s.answer = status(502, `{"error":{"code":"unresolvable_did"}}`) }, "unresolvable_did"},
		"agent suspended":      {func(s *script) { s.answer = status(403, `{"error":{"code":"agent_suspended"}}`) }, "agent_suspended"},
		"a code of its own":    {func(s *script) { s.answer = status(403, `{"error":{"code":"canary\u001b[31m"}}`) }, "upstream_error"},
		"500 with HTML":        {func(s *script) { s.answer = status(500, `<html>`) }, "upstream_error"},
		"202":                  {func(s *script) { s.answer = status(202, `{"token":"x"}`) }, "upstream_error"},
		"a redirect":           {func(s *script) { s.answer = status(302, ``) }, "upstream_error"},
		"HTML for a challenge": {func(s *script) { s.answer = on("/trust/v1/challenge", "text/html", "<html>") }, "upstream_error"},
		"no challenge":         {func(s *script) { s.answer = on("/trust/v1/challenge", "application/json", "{}") }, "upstream_error"},
		"a challenge that is long": {func(s *script) {
			s.answer = on("/trust/v1/challenge", "application/json", `{"challenge":"`+strings.Repeat("x", 1025)+`"}`)
		}, "upstream_error"},
		"a challenge to forge with": {func(s *script) {
			s.answer = on("/trust/v1/challenge", "application/json", `{"challenge":"x\",\"did\":\"did:key:z6MkOther"}`)
		}, "upstream_error"},
		"a list": {func(s *script) { s.answer = on("/trust/v1/token", "application/json", "[]") }, "upstream_error"},
		"a body that is large": {func(s *script) {
			s.answer = on("/trust/v1/token", "application/json", `{"token":"`+strings.Repeat("x", maxAnswer)+`"}`)
		}, "upstream_error"},
		"a token that is none":   {func(s *script) { s.answer = on("/trust/v1/token", "application/json", `{"token":"a.b.c"}`) }, "upstream_error"},
		"no token":               {func(s *script) { s.answer = on("/trust/v1/token", "application/json", `{}`) }, "upstream_error"},
		"no keys":                {func(s *script) { s.answer = on("/trust/v1/keys", "application/json", `{"keys":[]}`) }, "upstream_error"},
		"for another agent":      {func(s *script) { s.claims = func(c map[string]any) { c["aud"] = "did:key:z6MkOther" } }, "upstream_error"},
		"for another capability": {func(s *script) { s.claims = func(c map[string]any) { c["capability"] = "llm.t3" } }, "upstream_error"},
		"for another subject":    {func(s *script) { s.claims = func(c map[string]any) { c["sub"] = "did:key:z6MkOther" } }, "upstream_error"},
		"bound to another key": {func(s *script) {
			s.claims = func(c map[string]any) { c["cnf"] = map[string]string{"kid": "did:key:z6MkOther"} }
		}, "upstream_error"},
		"from another issuer": {func(s *script) { s.claims = func(c map[string]any) { c["iss"] = "https://evil.example" } }, "upstream_error"},
		"expired":             {func(s *script) { s.claims = func(c map[string]any) { c["iat"], c["exp"] = 1, 2 } }, "upstream_error"},
		"for ever":            {func(s *script) { s.claims = func(c map[string]any) { c["exp"] = c["iat"].(int64) + 3601 } }, "upstream_error"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(t)
			c.script(s)
			cl := client(t, s, nil)
			token, err := cl.Token(t.Context(), agent, work)
			var e *Error
			if !errors.As(err, &e) || e.Code != c.code || token != (Token{}) {
				t.Errorf("%s: %v", name, err)
			}
			if name == "202" && !strings.Contains(err.Error(), "answered 202") {
				t.Errorf("%s: its body was read: %v", name, err)
			}
			if err != nil && (strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 600) {
				t.Errorf("%s: %q", name, err)
			}
		})
	}
}

// A failing key is left alone, longer each time, and what Retry-After says counts.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		asked := 0
		s.answer = func(w http.ResponseWriter, path string) bool {
			asked++
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}
		c := client(t, s, nil)
		for range 600 * 10 { // ten calls a second, ten minutes
			if _, err := c.Token(t.Context(), agent, work); err == nil {
				t.Fatal("a token")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if asked < 100 || asked > 300 {
			t.Errorf("asked %d times", asked)
		}
		s.answer = nil
		time.Sleep(5 * time.Second) // a failure is remembered for a few seconds, however long the outage was
		if token, err := c.Token(t.Context(), agent, work); err != nil || token.ID == "" {
			t.Error(err)
		}
	})
	if d := backoff(0, &Error{retryAfter: 40 * time.Second}); d != 40*time.Second {
		t.Error(d)
	}
	if d := backoff(0, &Error{retryAfter: time.Hour}); d != maxAskedFor {
		t.Error(d)
	}
}

// With the trust server away, a token holds until it expires and no longer.
func TestOneTokensLifeBeyondTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		c := client(t, s, nil)
		if _, err := c.Token(t.Context(), agent, work); err != nil {
			t.Fatal(err)
		}
		s.answer = func(w http.ResponseWriter, _ string) bool { w.WriteHeader(503); return true }
		time.Sleep(900*time.Second - time.Nanosecond)
		token, err := c.Token(t.Context(), agent, work)
		if err != nil || token.ID != "t1" {
			t.Error(token.ID, err)
		}
		synctest.Wait()
		time.Sleep(time.Nanosecond)
		if _, err := c.Token(t.Context(), agent, work); err == nil {
			t.Error("an expired token")
		}
	})
}

func TestObserveGoesOnWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		s.answer = func(w http.ResponseWriter, _ string) bool { w.WriteHeader(503); return true }
		var log bytes.Buffer
		c := client(t, s, slog.New(slog.NewJSONHandler(&log, nil)))
		for _, mode := range []gate.Mode{gate.Observe, gate.Enforce} {
			if token, err := c.TokenFor(t.Context(), mode, agent, work); err == nil || token != (Token{}) {
				t.Error(mode, token, err)
			}
		}
		if !strings.Contains(log.String(), `"agent_did":"`+agent) || strings.Count(log.String(), "\n") != 1 {
			t.Error("an outage is said once:", log.String())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(time.Hour)
		s.delay.Store(int64(time.Second))
		if _, err := c.TokenFor(ctx, gate.Observe, agent, work); !errors.Is(err, context.Canceled) {
			t.Error("a caller who left:", err)
		}
	})
}

// A server that hangs delays work for a moment, however many requests come, and work
// that needs a token a little longer.
func TestAServerThatHangsKeepsNobodyWaiting(t *testing.T) {
	for mode, want := range map[gate.Mode]time.Duration{gate.Observe: observeWait, gate.Enforce: enforceWait} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(t)
			s.delay.Store(int64(time.Hour))
			c := client(t, s, nil)
			began := time.Now()
			for range 100 {
				if token, err := c.TokenFor(t.Context(), mode, agent, work); err == nil || token != (Token{}) {
					t.Error(token, err)
				}
			}
			if took := time.Since(began); took != want {
				t.Errorf("%s: a hundred requests waited for %s", mode, took)
			}
			s.delay.Store(int64(0))
			time.Sleep(maxBackoff + mintTimeout)
			if token, err := c.TokenFor(t.Context(), mode, agent, work); err != nil || token.ID == "" {
				t.Error("it is back:", err)
			}
		})
	}
}

// A mint that is late for the request that began it is there for the next.
func TestALateTokenIsForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		s.delay.Store(int64(200 * time.Millisecond)) // of each of three questions
		c := client(t, s, nil)
		if _, err := c.TokenFor(t.Context(), gate.Observe, agent, work); err == nil {
			t.Error("a token, so soon?")
		}
		time.Sleep(time.Second)
		began := time.Now()
		if token, err := c.TokenFor(t.Context(), gate.Observe, agent, work); err != nil || token.ID != "t1" || time.Since(began) != 0 {
			t.Error(token.ID, err)
		}
	})
}

// Keys are asked for when they are needed, again after a rotation, and never in a
// storm: what tokens name has no say in how often.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		c := client(t, s, nil)
		find := func(kid string, want int, asked int32) {
			t.Helper()
			found, err := c.Keys(t.Context(), kid)
			synctest.Wait()
			if err != nil || len(found) != want || s.keys.Load() != asked {
				t.Errorf("%q: %d keys, asked %d times, %v; want %d, %d", kid, len(found), s.keys.Load(), err, want, asked)
			}
		}
		find("k1", 1, 1)
		for i := range 1000 {
			find(fmt.Sprint("unknown", i), 0, 1)
		}
		time.Sleep(keysInterval)
		s.kid = "k2"
		find("k2", 1, 2)
		find("k1", 0, 2) // it is gone, and asking again so soon shows nothing
		time.Sleep(keysFresh)
		find("k2", 1, 3) // from memory, and asked for behind it
		s.answer = func(w http.ResponseWriter, _ string) bool { w.WriteHeader(500); return true }
		time.Sleep(keysMaxAge - time.Second)
		find("k2", 1, 3)
		time.Sleep(time.Second)
		if found, err := c.Keys(t.Context(), "k2"); err == nil || len(found) != 0 {
			t.Error("keys older than a token lives:", found, err)
		}
	})
}

func TestTheCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, newScript(t), nil)
		for i := range maxTokens + 50 {
			if _, err := c.Token(t.Context(), fmt.Sprint(agent, i), work); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if len(c.entries) > maxTokens {
			t.Errorf("%d tokens", len(c.entries))
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		s.delay.Store(int64(time.Hour))
		c := client(t, s, nil)
		done := make(chan error)
		go func() {
			_, err := c.Token(t.Context(), agent, work)
			done <- err
		}()
		synctest.Wait()
		c.Close()
		if err := <-done; err == nil {
			t.Error("a token from a closed client")
		}
		if _, err := c.Token(t.Context(), agent, work); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		c.Close()
	})
}

func TestConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("nobody's client")
	}
	if s := fmt.Sprintf("%v %+v", Token{Value: "canary"}, Token{Value: "canary"}); strings.Contains(s, "canary") {
		t.Error(s)
	}
}
