package daemon_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/daemon/snapshot"
	"github.com/chordwheel/chordwheel/daemon/token"
)

// bureau plays registry and trust server. What it says is set by the test.
type bureau struct {
	t      *testing.T
	signer ed25519.PrivateKey
	close  []func() // of what devices have to ask it with

	mu     sync.Mutex
	away   bool
	hangs  bool                 // questions are answered by nobody, ever
	agents []snapshot.Agent     // nil: the registry does not answer
	refuse map[string]string    // code, by agent that a token is asked for
	twist  func(map[string]any) // changes what is minted
	minted []string             // agent and capability of each token
	asked  int                  // for agents
	issues func(string) bool    // what devices take for its name; nil: anything
}

func newBureau(t *testing.T) *bureau {
	return &bureau{t: t, signer: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)), refuse: map[string]string{}}
}

func (o *bureau) Origin() string { return "https://office.example" }

// set changes o while others may ask.
func (o *bureau) set(change func(*bureau)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(o)
}

func (o *bureau) named(iss string) bool {
	o.mu.Lock()
	issues := o.issues
	o.mu.Unlock()
	return issues == nil || issues(iss)
}

// lists has the registry list these agents; a name behind a = is the status.
func (o *bureau) lists(agents ...string) {
	list := []snapshot.Agent{}
	for _, a := range agents {
		did, status, ok := strings.Cut(a, "=")
		if !ok {
			status = "active"
		}
		list = append(list, snapshot.Agent{DID: did, Capability: "llm.chat", Status: snapshot.Status(status)})
	}
	o.set(func(o *bureau) { o.agents = list })
}

func (o *bureau) tokens() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.minted, "|")
}

func (o *bureau) Do(ctx context.Context, _, path string, _ http.Header, body []byte, _ int64) (authority.Answer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hangs {
		o.mu.Unlock()
		<-ctx.Done()
		o.mu.Lock()
		return authority.Answer{}, ctx.Err()
	}
	if o.away {
		return authority.Answer{}, errors.New("connection refused")
	}
	var in map[string]string
	if len(body) > 0 {
		if err := json.Unmarshal(body, &in); err != nil {
			o.t.Error(err)
		}
	}
	switch path, _, _ := strings.Cut(path, "?"); path {
	case "/registry/v1/agents":
		if o.asked++; o.agents == nil {
			return authority.Answer{}, errors.New("connection refused")
		}
		return answer(200, map[string]any{"agents": o.agents, "next_cursor": ""})
	case "/trust/v1/keys":
		return answer(200, map[string]any{"keys": []any{map[string]string{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": b64(o.signer.Public().(ed25519.PublicKey))}}})
	case "/trust/v1/challenge":
		return answer(200, map[string]string{"challenge": "c"})
	case "/trust/v1/token":
		if code := o.refuse[in["audience"]]; code != "" {
			return answer(403, map[string]any{"error": map[string]string{"code": code, "message": "no"}})
		}
		return answer(200, map[string]string{"token": o.mint(in["did"], in["audience"], in["capability"])})
	}
	o.t.Errorf("asked for %s", path)
	return authority.Answer{Status: 404}, nil
}

func answer(status int, v any) (authority.Answer, error) {
	b, err := json.Marshal(v)
	return authority.Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: b}, err
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// mint makes a token. o.mu is held.
func (o *bureau) mint(did, agent, capability string) string {
	now := time.Now().Unix()
	o.minted = append(o.minted, agent+" "+capability)
	claims := map[string]any{"iss": o.Origin(), "sub": did, "aud": agent, "capability": capability, "jti": fmt.Sprintf("jti-%d", len(o.minted)), "iat": now, "exp": now + 900,
		"cnf": map[string]string{"kid": did}}
	if o.twist != nil {
		o.twist(claims)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		o.t.Error(err)
	}
	signed := b64([]byte(`{"alg":"EdDSA","kid":"k"}`)) + "." + b64(payload)
	return signed + "." + b64(ed25519.Sign(o.signer, []byte(signed)))
}

// ends closes what devices had; it belongs into the bubble of the test.
func (o *bureau) ends() {
	for _, end := range o.close {
		end()
	}
}

// gated has a device ask o, as the hub's own or as a service elsewhere.
func (o *bureau) gated(mode gate.Mode, own bool) func(*daemon.Config) {
	return func(c *daemon.Config) {
		o.t.Helper()
		agents, err := snapshot.New(snapshot.Config{Server: o, Registry: "office", Own: own, Log: c.Log})
		if err != nil {
			o.t.Fatal(err)
		}
		var issuer func(string) bool
		if own {
			issuer = o.named
		}
		tokens, err := token.New(token.Config{Server: o, Key: c.Key, Issuer: issuer, Log: c.Log})
		if err != nil {
			o.t.Fatal(err)
		}
		o.close = append(o.close, agents.Close, tokens.Close)
		g, err := gate.New(mode, gate.Verifier{Keys: tokens, Issuer: issuer}, agents)
		if err != nil {
			o.t.Fatal(err)
		}
		c.Gating = daemon.Gating{Registry: agents, Tokens: tokens, Gate: g}
	}
}

// self is the device under test as an agent.
func self() string { return chaintest.PeerID(device).DID() }

var _ token.Server = (*bureau)(nil)
