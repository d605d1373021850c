package main

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/orchestrator/registry"
)

// outside is a ledger that takes whatever is a receipt.
type outside struct {
	server *httptest.Server

	mu    sync.Mutex
	taken []string // token IDs
}

func openLedger(t *testing.T) *outside {
	t.Helper()
	o := &outside{}
	o.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/audit/v1/receipts" {
			t.Errorf("%s: %v", r.URL, err)
		}
		taken, err := receipt.Parse(b)
		if err != nil {
			t.Error(err)
		}
		o.mu.Lock()
		o.taken = append(o.taken, taken.TokenID)
		o.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
	}))
	o.server.Config.ErrorLog = log.New(io.Discard, "", 0) // whoever does not believe it says so himself
	o.server.StartTLS()
	t.Cleanup(o.server.Close)
	return o
}

// A registry, a trust server and a ledger of somebody else, behind certificates of a
// private authority: the device believes them because its owner named that authority, does
// by their word what it would by its hub's, and believes nobody without it.
func TestADeviceGoesByServicesOfOthers(t *testing.T) {
	dir := t.TempDir()
	hubDir, own := filepath.Join(dir, "hub"), filepath.Join(dir, "a")
	start(t, "orchestrator", "--dir", hubDir, "--web", "127.0.0.1:0", "--authority", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0")
	good(t, "join", "--dir", own, strings.TrimSpace(good(t, "invite", "--dir", hubDir)))
	var name shown
	if err := json.Unmarshal([]byte(good(t, "did", "show", "--dir", own, "--json")), &name); err != nil {
		t.Fatal(err)
	}
	office := openOffice(t, name.Key, registry.Agent{DID: name.Key, Capability: "llm.chat", Endpoint: "https://agents.example/v1", Status: registry.Active, ModelID: "builtin"})
	ledger := openLedger(t)
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: office.server.Certificate().Raw}), 0o600); err != nil { // the same for both
		t.Fatal(err)
	}
	daemon := func(environ ...string) *process {
		cmd := program(t, "daemon", "--dir", own, "--edge", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0", "--json")
		cmd.Env = append(append(cmd.Env, "GATE_MODE=enforce", "REGISTRY_URL="+office.server.URL, "TRUST_URL="+office.server.URL, "LEDGER_URL="+ledger.server.URL), environ...)
		return startCommand(t, cmd)
	}

	p := daemon() // without the authority
	if status, text, _ := ask(t, p.ready.Device); status != http.StatusServiceUnavailable {
		t.Errorf("a registry that nobody vouches for: %d %s", status, text)
	}
	until(t, "the device says that it does not believe the certificate", func() bool {
		g := gatingOf(t, own)
		return g.Snapshot.Registry == "external" && strings.Contains(g.Snapshot.LastError, "certificate")
	})
	p.stop()

	p = daemon("CHORDWHEEL_TLS_CA="+ca, "CHORDWHEEL_TRUST_ISSUER=https://trust.example")
	until(t, "the device has its snapshot", func() bool { return gatingOf(t, own).Snapshot.Agents == 1 })
	until(t, "tokens of another issuer are refused", func() bool {
		if status, text, _ := ask(t, p.ready.Device); status == http.StatusOK {
			t.Fatalf("tokens of another issuer: %s", text)
		}
		return strings.Contains(p.log.String(), "the token is from another issuer")
	})
	p.stop()

	p = daemon("CHORDWHEEL_TLS_CA="+ca, "CHORDWHEEL_TRUST_ISSUER="+office.server.URL)
	until(t, "the device has its chain", func() bool { status, _, _ := ask(t, p.ready.Device); return status == http.StatusOK })
	if g := gatingOf(t, own); g.Mode != "enforce" || g.Allowed == 0 || g.Snapshot.Source != "registry" || g.Snapshot.Agents != 1 || g.Snapshot.LastError != "" {
		t.Errorf("%+v %+v", g, g.Snapshot)
	}
	until(t, "the ledger has the receipt", func() bool {
		ledger.mu.Lock()
		defer ledger.mu.Unlock()
		return len(ledger.taken) > 0 && ledger.taken[len(ledger.taken)-1] != ""
	})

	office.suspend(name.Key, registry.Suspended)
	b, err := os.ReadFile(filepath.Join(own, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	if status, body := admin(t, "POST", p.ready.Device.Admin+"/admin/snapshot/refresh", strings.TrimSpace(string(b))); status != http.StatusOK || !strings.Contains(body, `"registry":"external"`) {
		t.Errorf("%d %s", status, body)
	}
	for model, want := range map[string]string{name.Key: `"code":"agent_suspended"`, "auto": `"code":"no_models"`} {
		r, err := http.Post(p.ready.Device.Edge+"/chat/completions", "application/json", strings.NewReader(`{"model":"`+model+`","messages":[{"role":"user","content":"hello"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || !strings.Contains(string(text), want) || !strings.Contains(string(text), "suspended") {
			t.Errorf("suspended, %s: %d %s", model, r.StatusCode, text)
		}
	}
}
