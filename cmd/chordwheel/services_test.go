package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/daemon/snapshot"
	"github.com/chordwheel/chordwheel/daemon/token"
	"github.com/chordwheel/chordwheel/orchestrator/trust"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// copied opens a copy of one file of a data directory that a process holds.
func copied(t *testing.T, from string, names ...string) *datadir.Dir {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := datadir.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// pinOf gives the SHA-256 of the certificate that a hub's services show.
func pinOf(t *testing.T, url string) string {
	t.Helper()
	c, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sum := sha256.Sum256(c.ConnectionState().PeerCertificates[0].Raw)
	return hex.EncodeToString(sum[:])
}

// A hub of `up` has its registry and its trust server where devices are told that they are:
// over TLS 1.3 with the certificate that it pins, and no other. A device of it gets tokens for
// agents of its chain, which end with its membership.
func TestTheHubIsARegistryAndATrustServer(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "up", "--dir", dir, "--devices", "2")
	url := p.ready.Hub.Authority
	if _, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("the services speak TLS 1.2")
	}
	pin := pinOf(t, url)
	wrong, err := authority.New(url, authority.Options{Pin: strings.Repeat("00", 32)})
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	if _, err := wrong.Do(t.Context(), "GET", "/trust/v1/keys", nil, nil, 1<<16); !errors.Is(err, authority.ErrPin) {
		t.Errorf("another certificate: %v", err)
	}

	keys := map[string]chain.Key{}
	for _, d := range p.ready.Devices {
		key, err := copied(t, d.DataDir, datadir.IdentityFile).Identity()
		if err != nil {
			t.Fatal(err)
		}
		keys[d.Name] = key
	}
	client, err := authority.New(url, authority.Options{Transport: pinned(t, pin)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	agents, err := snapshot.New(snapshot.Config{Server: client, Registry: url, Own: true, Store: datadir.File(filepath.Join(t.TempDir(), "agents"))})
	if err != nil {
		t.Fatal(err)
	}
	defer agents.Close()
	agents.Start(t.Context())
	first, second := p.ready.Devices[0], p.ready.Devices[1]
	self, peer := keys[first.Name].PeerID().DID(), keys[second.Name].PeerID().DID()
	standing := func(did string) gate.Standing { return agents.Standing(did, string(chain.LLMChat), time.Now()) }
	for _, did := range []string{self, peer} {
		if got := standing(did); got != gate.Active {
			t.Errorf("%s is %v in the registry", did, got)
		}
	}

	mine := minting(t, client, keys[first.Name])
	got, err := mine.Token(t.Context(), peer, string(chain.LLMChat))
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(gate.Enforce, gate.Verifier{Keys: mine, Issuer: gate.Exactly(client.Origin())}, agents)
	if err != nil {
		t.Fatal(err)
	}
	at := gate.Request{Token: got.Value, Agent: peer, Capability: string(chain.LLMChat), From: keys[first.Name].PeerID(), Nonce: "1"}
	if d := g.Decide(t.Context(), time.Now(), at); !d.Allowed() {
		t.Errorf("the peer's gate: %v", d.Denial)
	}
	refused := func(what string, c *token.Client, agent, want string) {
		t.Helper()
		if _, err := c.Token(t.Context(), agent, string(chain.LLMChat)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	refused("an agent that is nobody", mine, newKey(t).PeerID().DID(), "no_agent")
	refused("a stranger", minting(t, client, newKey(t)), peer, "unknown_seeker")

	good(t, "revoke", second.Name, "--dir", filepath.Join(dir, "hub"))
	if err := agents.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := standing(peer); got != gate.Suspended {
		t.Errorf("a revoked device is %v in the registry", got)
	}
	at.Nonce = "2"
	if d := g.Decide(t.Context(), time.Now(), at); d.Allowed() || d.Denial.Code != gate.AgentSuspended {
		t.Errorf("a revoked agent's gate: %+v", d)
	}
	refused("a revoked agent", minting(t, client, keys[first.Name]), peer, "agent_suspended")
	refused("a revoked seeker", minting(t, client, keys[second.Name]), self, "unknown_seeker")
}

// contracted holds everything that passes against the document.
type contracted struct {
	t    *testing.T
	base http.RoundTripper

	mu   sync.Mutex
	seen map[string]bool // method, path, status
}

// pinned speaks to whoever has the certificate.
func pinned(t *testing.T, pin string) *contracted {
	c := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		if sum := sha256.Sum256(s.PeerCertificates[0].Raw); hex.EncodeToString(sum[:]) != pin {
			return authority.ErrPin
		}
		return nil
	}}
	base := &http.Transport{TLSClientConfig: c}
	t.Cleanup(base.CloseIdleConnections)
	return &contracted{t: t, base: base, seen: map[string]bool{}}
}

func (c *contracted) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	a, err := c.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(a.Body)
	a.Body.Close()
	a.Body = io.NopCloser(bytes.NewReader(answer))
	if err != nil {
		return nil, err
	}
	if err := meets(r, body, a.StatusCode, a.Header, answer); err != nil {
		c.t.Errorf("%s %s: %d %s: %v", r.Method, r.URL, a.StatusCode, answer, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[fmt.Sprint(r.Method, " ", r.URL.Path, " ", a.StatusCode)] = true
	return a, nil
}

// The ledger of a hub over its real listener: what goes in and comes out is what the
// document says, receipts of strangers stay out, and nobody reads without the token.
func TestTheHubsLedgerKeepsToItsDocument(t *testing.T) {
	dir := t.TempDir()
	cmd := program(t, "up", "--dir", dir, "--json")
	cmd.Env = append(cmd.Env, "CHORDWHEEL_LEDGER_TOKEN=for-auditors")
	p := startCommand(t, cmd)
	url := p.ready.Hub.Authority
	client := &http.Client{Transport: pinned(t, pinOf(t, url)), Timeout: patience}
	key, err := copied(t, p.ready.Devices[0].DataDir, datadir.IdentityFile).Identity()
	if err != nil {
		t.Fatal(err)
	}
	line := func(transaction string, by chain.Key, status receipt.Status) []byte {
		r := receipt.Receipt{TransactionID: transaction, MessageID: receipt.MessageID(transaction, receipt.RoleRoot), SeekerDID: by.PeerID().DID(), Capability: "llm.chat",
			RequestHash: receipt.OutputHash([]byte("1")), ResponseHash: receipt.OutputHash([]byte("2")), RequestAt: time.Now(), ResponseAt: time.Now(), Status: status}
		s, err := r.Sign(by)
		if err != nil {
			t.Fatal(err)
		}
		return s.Line
	}
	id := "/T1/" + receipt.MessageID("T1", receipt.RoleRoot)
	for _, c := range []struct {
		method, path, token string
		body                []byte
		status              int
		code                string
	}{
		{"POST", "/audit/v1/receipts", "", line("T1", key, receipt.OK), 202, ""},
		{"POST", "/audit/v1/receipts", "", line("T1", key, receipt.Rejected), 409, "conflict"},
		{"POST", "/audit/v1/receipts", "", line("T2", key, receipt.UpstreamError), 202, ""},
		{"POST", "/audit/v1/receipts", "", line("T3", newKey(t), receipt.OK), 403, "unknown_sender"},
		{"POST", "/audit/v1/receipts", "", []byte(`{}`), 400, "invalid_request"},
		{"GET", "/audit/v1/receipts" + id, "", nil, 401, "unauthorized"},
		{"GET", "/audit/v1/receipts" + id, "for-auditors", nil, 200, ""},
		{"GET", "/audit/v1/receipts/T1/x", "for-auditors", nil, 404, "not_found"},
		{"GET", "/audit/v1/proofs" + id, "", nil, 200, ""},
		{"GET", "/audit/v1/proofs/T9/x", "", nil, 404, "not_found"},
		{"GET", "/audit/v1/checkpoint", "", nil, 200, ""},
		{"GET", "/audit/v1/consistency?from=1&to=2", "", nil, 200, ""},
		{"GET", "/audit/v1/consistency?from=2&to=1", "", nil, 404, "not_found"},
		{"GET", "/audit/v1/inclusion?index=0&size=2", "", nil, 200, ""},
		{"GET", "/audit/v1/inclusion?index=x&size=2", "", nil, 400, "invalid_request"},
		{"GET", "/audit/v1/tile/0/000.p/2", "", nil, 200, ""},
		{"GET", "/audit/v1/tile/entries/000.p/2", "", nil, 401, "unauthorized"},
		{"GET", "/audit/v1/tile/entries/000.p/2", "for-auditors", nil, 200, ""},
		{"GET", "/audit/v1/key", "", nil, 200, ""},
		{"GET", "/registry/v1/agents", "", nil, 200, ""},
		{"GET", "/registry/v1/agents?page_size=0", "", nil, 400, "invalid_request"},
		{"GET", "/trust/v1/keys", "", nil, 200, ""},
		{"POST", "/trust/v1/challenge", "", []byte(`{"did":"x"}`), 400, "invalid_did"},
		{"POST", "/trust/v1/challenge", "", []byte(`{"did":"` + key.PeerID().DID() + `"}`), 200, ""},
		{"POST", "/trust/v1/token", "", []byte(`{"did":"did:key:z6Mk","challenge":"c","signature":"s","capability":"llm.chat","audience":"did:key:z6Mk"}`), 400, "invalid_did"},
		{"POST", "/trust/v1/token", "", fmt.Appendf(nil, `{"did":%[1]q,"challenge":"c","signature":"s","capability":"llm.chat","audience":%[1]q}`, key.PeerID().DID()), 403, "proof_of_control_failed"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, url+c.path, bytes.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if c.body != nil {
			r.Header.Set("Content-Type", "application/json")
		}
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		a, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var no struct{ Error struct{ Code string } }
		_ = json.NewDecoder(a.Body).Decode(&no)
		a.Body.Close()
		if a.StatusCode != c.status || no.Error.Code != c.code {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, a.StatusCode, no.Error.Code, c.status, c.code)
		}
	}
}

// minting is a device's side of the trust server.
func minting(t *testing.T, client *authority.Client, key chain.Key) *token.Client {
	t.Helper()
	c, err := token.New(token.Config{Server: client, Key: key, Issuer: gate.Exactly(client.Origin())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// What signs tokens outlives the process, and no key of it stands in the data directory.
func TestTheKeysForTokensOutliveARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hub")
	kids := func() (list []string) {
		p := start(t, "orchestrator", "--dir", dir, "--web", "127.0.0.1:0", "--authority", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0")
		defer p.stop()
		client, err := authority.New(p.ready.Hub.Authority, authority.Options{Pin: pinOf(t, p.ready.Hub.Authority)})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		a, err := client.Do(t.Context(), "GET", "/trust/v1/keys", nil, nil, 1<<16)
		if err != nil || a.Status != 200 {
			t.Fatal(a.Status, err)
		}
		return strings.Split(string(a.Body), `"kid":`)[1:]
	}
	before := kids()
	if after := kids(); !slices.Equal(before, after) || len(after) != 1 {
		t.Errorf("before %s\nafter  %s", before, after)
	}
	info, err := os.Stat(filepath.Join(dir, "trust-key"))
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() > 256 {
		t.Errorf("the count: %v %v", info, err)
	}
}

// memoryFiles are checked files in memory.
type memoryFiles map[string][]byte

func (m memoryFiles) ReadChecked(name string) ([]byte, error) {
	if b, ok := m[name]; ok {
		return b, nil
	}
	return nil, fs.ErrNotExist
}

func (m memoryFiles) WriteChecked(name string, b []byte) error { m[name] = b; return nil }

// A hub that runs for a year changes its key for tokens four times, unasked.
func TestAHubChangesItsKeyForTokens(t *testing.T) {
	identity := newKey(t)
	synctest.Test(t, func(t *testing.T) {
		keys, err := trust.OpenRotation(memoryFiles{}, identity, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		h := &hub{tokenKeys: keys, log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.rotateKeys(ctx) }()
		kid := func() string {
			w := httptest.NewRecorder()
			s, err := trust.New(trust.Config{Origin: func() string { return "https://hub.example" }, Keys: keys.Ring(), Resolver: trust.Documents{}, Policy: h.Register()})
			if err != nil {
				t.Fatal(err)
			}
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/trust/v1/keys", nil))
			return w.Body.String()
		}
		seen := map[string]bool{}
		for range 365 {
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			seen[kid()] = true
		}
		if len(seen) < 5 { // those just rotated show two
			t.Errorf("%d sets of keys in a year", len(seen))
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
