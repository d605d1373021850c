package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/daemon/snapshot"
	"github.com/chordwheel/chordwheel/daemon/token"
	"github.com/chordwheel/chordwheel/orchestrator/audit"
	services "github.com/chordwheel/chordwheel/orchestrator/authority"
	"github.com/chordwheel/chordwheel/orchestrator/registry"
	"github.com/chordwheel/chordwheel/orchestrator/trust"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// office is a hub's registry and trust server on a listener of their own, over TLS
// 1.3, with every request and answer held against openapi.yaml.
type office struct {
	t      *testing.T
	server *httptest.Server
	pin    string
	ring   *trust.Ring
	seeker string // the one device that may have tokens

	mu      sync.Mutex
	version uint64
	agents  []registry.Agent
	seen    []string // method, path and status
}

func (o *office) Version() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.version
}

func (o *office) Agents(context.Context) ([]registry.Agent, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.agents), nil
}

func (o *office) suspend(did string, status registry.Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.version++
	for i := range o.agents {
		if o.agents[i].DID == did {
			o.agents[i].Status = status
		}
	}
}

// Permit gives tokens to the one seeker, for agents that are active.
func (o *office) Permit(_ context.Context, seeker, agent, capability string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seeker != o.seeker {
		return trust.ErrSeeker
	}
	for _, a := range o.agents {
		switch {
		case a.DID != agent || a.Capability != capability:
		case a.Status == registry.Suspended:
			return trust.ErrSuspended
		case a.Status == registry.Active:
			return nil
		}
	}
	return trust.ErrNoAgent
}

func ringKey(t *testing.T, identity chain.Key, n uint32) ed25519.PrivateKey {
	t.Helper()
	key, err := trust.DeriveKey(identity, n)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func openOffice(t *testing.T, seeker string, agents ...registry.Agent) *office {
	t.Helper()
	identity, err := chain.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &office{t: t, ring: trust.NewRing(ringKey(t, identity, 1)), seeker: seeker, agents: agents}
	tokens, err := trust.New(trust.Config{Origin: func() string { return o.server.URL }, Keys: o.ring, Resolver: trust.Documents{}, Policy: o})
	if err != nil {
		t.Fatal(err)
	}
	list, err := registry.New(o)
	if err != nil {
		t.Fatal(err)
	}
	handler := services.NewMux(append(tokens.Routes(), list.Routes()...)...)
	o.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.check(handler, w, r) }))
	o.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	o.server.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	o.server.StartTLS()
	t.Cleanup(o.server.Close)
	sum := sha256.Sum256(o.server.Certificate().Raw)
	o.pin = hex.EncodeToString(sum[:])
	return o
}

var contract = sync.OnceValues(func() (routers.Router, error) {
	doc, err := openapi3.NewLoader().LoadFromFile("../../orchestrator/authority/openapi.yaml")
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	doc.Servers = nil
	doc.Paths.Set(tilePath+":.*}", doc.Paths.Value(tilePath+"}")) // its value has slashes
	doc.Paths.Delete(tilePath + "}")
	return gorillamux.NewRouter(doc)
})

const tilePath = "/audit/v1/tile/{tile"

// check answers a request, and holds both against the document.
func (o *office) check(h http.Handler, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		o.t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	record := httptest.NewRecorder()
	h.ServeHTTP(record, r)
	o.mu.Lock()
	o.seen = append(o.seen, fmt.Sprint(r.Method, " ", r.URL.Path, " ", record.Code))
	o.mu.Unlock()
	if err := meets(r, body, record.Code, record.Header(), record.Body.Bytes()); err != nil {
		o.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	for name, values := range record.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(record.Code)
	_, _ = w.Write(record.Body.Bytes())
}

// meets holds a request and its answer against the document.
func meets(r *http.Request, body []byte, status int, header http.Header, answer []byte) error {
	router, err := contract()
	if err != nil {
		return err
	}
	route, params, err := router.FindRoute(r)
	if err != nil {
		return err
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if err := openapi3filter.ValidateRequest(r.Context(), in); err != nil && status < http.StatusBadRequest { // what is refused may be anything
		return err
	}
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: status, Header: header, Body: io.NopCloser(bytes.NewReader(answer)),
	})
}

// visitor is the device's side.
type visitor struct {
	tokens *token.Client
	agents *snapshot.Keeper
	gate   *gate.Gate
}

func visit(t *testing.T, o *office, key chain.Key, dir string) visitor {
	t.Helper()
	client, err := authority.New(o.server.URL, authority.Options{Pin: o.pin})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	tokens, err := token.New(token.Config{Server: client, Key: key, Issuer: gate.Exactly(client.Origin())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	agents, err := snapshot.New(snapshot.Config{Server: client, Registry: o.server.URL, Own: true, Store: datadir.File(filepath.Join(dir, "agents"))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agents.Close)
	agents.Start(t.Context())
	g, err := gate.New(gate.Enforce, gate.Verifier{Keys: tokens, Issuer: gate.Exactly(client.Origin())}, agents)
	if err != nil {
		t.Fatal(err)
	}
	return visitor{tokens, agents, g}
}

func newKey(t *testing.T) chain.Key {
	t.Helper()
	key, err := chain.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func codeOf(d gate.Decision) string {
	if d.Denial == nil {
		return "allow"
	}
	return string(d.Denial.Code)
}

// The hub's services and the device's rooms meet, as they will when they are wired:
// a token is minted, holds at the gate of the agent that it is for and at no other
// one, holds once with each nonce from its own peer, and ends with a suspension.
func TestHubAndDeviceMeetOverTokens(t *testing.T) {
	submitter, executor, stranger := newKey(t), newKey(t), newKey(t)
	agent := executor.PeerID().DID()
	o := openOffice(t, submitter.PeerID().DID(),
		registry.Agent{DID: "did:web:alpha.example", Capability: "llm.chat", Endpoint: "https://alpha.example/v1", Status: registry.Active, ModelID: "small"},
		registry.Agent{DID: agent, Capability: "llm.chat", Status: registry.Active, Class: registry.Device},
	)
	dir := t.TempDir()
	v := visit(t, o, submitter, dir)
	got, err := v.tokens.Token(t.Context(), agent, "llm.chat")
	if err != nil {
		t.Fatal(err)
	}
	decide := func(r gate.Request) string {
		r.Token = got.Value
		d := v.gate.Decide(t.Context(), time.Now(), r)
		if d.TokenID != got.ID {
			t.Errorf("%+v: token %q", r, d.TokenID)
		}
		return codeOf(d)
	}
	peer := gate.Request{Agent: agent, Capability: "llm.chat", From: submitter.PeerID(), Nonce: "n1"}
	for name, c := range map[string]struct {
		change func(*gate.Request)
		want   string
	}{
		"another agent":      {func(r *gate.Request) { r.Agent = "did:web:alpha.example" }, "token_audience_mismatch"},
		"another capability": {func(r *gate.Request) { r.Capability = "llm.t3" }, "invalid_token"},
		"another peer":       {func(r *gate.Request) { r.From = stranger.PeerID() }, "invalid_token"},
		"over HTTP":          {func(r *gate.Request) { r.From = "" }, "allow"},
	} {
		r := peer
		c.change(&r)
		if word := decide(r); word != c.want {
			t.Errorf("%s: %s", name, word)
		}
	}
	if a, b := decide(peer), decide(peer); a != "allow" || b != "invalid_token" {
		t.Errorf("a nonce twice: %s, then %s", a, b)
	}
	o.suspend(agent, registry.Suspended)
	if err := v.agents.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	peer.Nonce = "n2"
	if word := decide(peer); word != "agent_suspended" {
		t.Error("suspended:", word)
	}
	if restarted := visit(t, o, submitter, dir); restarted.agents.State(time.Now()).Agents != 2 {
		t.Error(restarted.agents.State(time.Now()))
	}
	if err := v.agents.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if want := "GET /registry/v1/agents 304"; !slices.Contains(o.seen, want) {
		t.Errorf("never %s: %s", want, o.seen)
	}
}

func TestHubAndDeviceMeetOverRefusals(t *testing.T) {
	submitter, stranger := newKey(t), newKey(t)
	o := openOffice(t, submitter.PeerID().DID(), registry.Agent{DID: "did:web:a.example", Capability: "llm.chat", Endpoint: "https://a.example", Status: registry.Suspended})
	for name, c := range map[string]struct {
		key   chain.Key
		agent string
		code  string
	}{
		"a device that is not enrolled": {stranger, "did:web:a.example", "upstream_error"},
		"a suspended agent":             {submitter, "did:web:a.example", "agent_suspended"},
		"an agent unknown":              {submitter, "did:web:b.example", "no_agent"},
	} {
		v := visit(t, o, c.key, t.TempDir())
		if _, err := v.tokens.Token(t.Context(), c.agent, "llm.chat"); err == nil || !strings.Contains(err.Error(), "mint a token: "+c.code+":") {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := v.tokens.TokenFor(t.Context(), gate.Observe, c.agent, "llm.chat"); err == nil || got.ID != "" {
			t.Errorf("%s, observed: %v", name, err)
		}
	}
}

// The services have the routes of the document, and no others.
func TestAuthorityRoutesAreTheDocuments(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("../../orchestrator/authority/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			want = append(want, method+" "+path)
		}
	}
	below := map[string]string{"/audit/v1/receipts/*": "/audit/v1/receipts/{transaction}/{message}", "/audit/v1/proofs/*": "/audit/v1/proofs/{transaction}/{message}",
		"/audit/v1/tile/*": "/audit/v1/tile/{tile}"}
	for _, r := range slices.Concat(new(trust.Server).Routes(), new(registry.Server).Routes(), new(audit.Service).Routes()) {
		got = append(got, r.Method+" "+cmp.Or(below[r.Path], r.Path))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("openapi.yaml %v\nroutes %v", want, got)
	}
}

// A token of the key before a rotation holds, and one of the key after it too,
// without a restart of anybody.
func TestHubAndDeviceMeetOverARotation(t *testing.T) {
	submitter := newKey(t)
	o := openOffice(t, submitter.PeerID().DID(), registry.Agent{DID: "did:web:a.example", Capability: "llm.chat", Endpoint: "https://a.example", Status: registry.Active})
	v := visit(t, o, submitter, t.TempDir())
	before, err := v.tokens.Token(t.Context(), "did:web:a.example", "llm.chat")
	if err != nil {
		t.Fatal(err)
	}
	o.ring.Rotate(ringKey(t, newKey(t), 2), time.Now())
	other := visit(t, o, submitter, t.TempDir())
	after, err := other.tokens.Token(t.Context(), "did:web:a.example", "llm.chat")
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []chain.Secret{before.Value, after.Value} {
		d := other.gate.Decide(t.Context(), time.Now(), gate.Request{Token: value, Agent: "did:web:a.example", Capability: "llm.chat"})
		if !d.Allowed() {
			t.Error(d.Denial)
		}
	}
}
