package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/daemon/adapter/providertest"
)

func TestUpAnswersWithNothingConfigured(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"hub": "web: 127.0.0.1:0\nlisten: [/ip4/127.0.0.1/tcp/0]\n", "a": "edge: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlisten: [/ip4/127.0.0.1/tcp/0]\n"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "config.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, "up", "--dir", dir)
	d := p.ready.Devices[0]
	status, text, header := ask(t, d)
	if status != http.StatusOK || text == "" || header.Get("X-Chordwheel-Option") != "local/builtin/primer" {
		t.Fatalf("answer %d %q from %q", status, text, header.Get("X-Chordwheel-Option"))
	}
	if got := strings.TrimSpace(good(t, "key", "--dir", dir)); got != d.Key {
		t.Errorf("chordwheel key gives %q, the edge takes %q", got, d.Key)
	}
	if status, _, _ := ask(t, deviceReady{Edge: d.Edge, Key: "wrong"}); status != http.StatusUnauthorized {
		t.Errorf("a wrong key gets %d", status)
	}
	if out := good(t, "chat", "--dir", dir, "what is 12 * 7?"); !strings.Contains(out, "84") {
		t.Errorf("chat says %q", out)
	}
	if out := good(t, "run", "llm.chat", "what is 12 * 7?", "--dir", dir); !strings.Contains(out, "84") {
		t.Errorf("run says %q", out)
	}
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"chain", "show"}, {"chain", "explain"}, {"keys", "list"}} {
		if out := good(t, append(args, "--dir", dir)...); out == "" {
			t.Errorf("%v says nothing", args)
		}
	}
}

func TestAHubThatIsGoneIsNotMissed(t *testing.T) {
	t.Parallel() // it waits more than it works
	w := newWorld(t)
	w.wantAnswer("alpha")
	w.hub.kill()
	w.wantAnswer("alpha")
	w.device.stop()
	w.startDevice()
	w.wantAnswer("alpha")
}

func TestAHubWithOldDataContinuesAboveWhatDevicesHold(t *testing.T) {
	t.Parallel() // it waits more than it works
	w := newWorld(t)
	w.hub.stop()
	old := filepath.Join(t.TempDir(), "old")
	if out, err := exec.Command("cp", "-a", w.hubDir, old).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.startHub()
	catalogOf(t, w.catalog, w.endpoints(), []string{"beta", "alpha"}, nil)
	until(t, "the device has the new order", func() bool { return slices.Equal(order(t, w.deviceDir), []string{"beta/small", "alpha/small"}) })
	newest := sequence(t, w.deviceDir)
	w.hub.stop()

	if err := os.RemoveAll(w.hubDir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(old, w.hubDir); err != nil {
		t.Fatal(err)
	}
	catalogOf(t, w.catalog, w.endpoints(), []string{"alpha", "beta"}, nil) // what the old data says
	w.startHub()
	until(t, "the hub is above what the device holds, and the device follows", func() bool {
		hub, device := sequence(t, w.hubDir), sequence(t, w.deviceDir)
		if device < newest {
			t.Fatalf("the device went back from %d to %d", newest, device)
		}
		return hub > newest && device == hub
	})
	w.wantAnswer("alpha")
}

func TestAnEditOfTheCatalogueIsInForceWithoutARestart(t *testing.T) {
	t.Parallel() // it waits more than it works
	w := newWorld(t)
	w.wantAnswer("alpha")
	catalogOf(t, w.catalog, w.endpoints(), []string{"beta", "alpha"}, []string{"gamma"})
	took := until(t, "the new order is in force on the device", func() bool { return slices.Equal(order(t, w.deviceDir), []string{"beta/small", "alpha/small"}) })
	t.Logf("the new order was in force after %s, looks included", took)
	w.wantAnswer("beta")

	before := sequence(t, w.deviceDir)
	broken := "providers:\n  - name: alpha\n    adapter: openai\n    endpoint: http://127.0.0.1:1/v1\n    models: [{name: small, primitives: [llm.chat], price: {input_per_mtok: -1}}]\nprimitives:\n  - name: llm.chat\n    default: [nobody/small]\n"
	if err := os.WriteFile(w.catalog, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the hub names both faults with their places", func() bool {
		log := w.hub.log.String()
		return strings.Contains(log, "catalog.yaml:5:") && strings.Contains(log, "catalog.yaml:8:")
	})
	if out := good(t, "status", "--dir", w.hubDir); !strings.Contains(out, "not in force") || !strings.Contains(out, "catalog.yaml:5:") {
		t.Errorf("the hub's status does not show the refused catalogue: %s", out)
	}
	w.wantAnswer("beta")
	if sequence(t, w.deviceDir) != before {
		t.Error("a catalogue with faults changed the chain")
	}
	_, errs, code := command(t, "catalog", "check", w.catalog)
	if code != exitFailed || !strings.Contains(errs, ":5:") || !strings.Contains(errs, ":8:") {
		t.Errorf("catalog check ended with %d: %s", code, errs)
	}
}

func TestWhenEverythingFailsTheWithheldOptionAnswers(t *testing.T) {
	w := newWorld(t)
	w.alpha.Script(providertest.Refusal(503, `{"error":{"message":"down"}}`))
	w.beta.Close()
	w.wantAnswer("gamma")
	if n := len(w.gamma.Requests()); n != 1 {
		t.Errorf("the withheld option was asked %d times", n)
	}
	w.hub.kill()
	status, text, _ := ask(t, w.device.ready.Device)
	if status != http.StatusBadGateway && status != http.StatusTooManyRequests {
		t.Errorf("without the hub: %d %s", status, text)
	}
}

func TestChainsAreVerifiedOffline(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "chain.json")
	good(t, "chain", "show", "--dir", w.deviceDir, "--out", file)
	w.device.stop()
	if out := good(t, "chain", "verify", file, "--dir", w.deviceDir); !strings.Contains(out, "valid") {
		t.Errorf("verify says %q", out)
	}
	_, errs, code := command(t, "chain", "verify", file, "--mesh", "another", "--orchestrator", string(w.hub.ready.Hub.PeerID))
	if code != exitRefused || !strings.Contains(errs, "another mesh") {
		t.Errorf("a chain of another mesh: %d %s", code, errs)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		if b[i] >= 'a' && b[i] < 'z' && i%7 == 0 && !strings.Contains(`"headbody`, string(b[i])) {
			b[i]++
			break
		}
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := command(t, "chain", "verify", file, "--dir", w.deviceDir); code == 0 {
		t.Errorf("an altered chain is said to be valid: %s", errs)
	}
}

func TestAFailingOptionMovesBackInTheOrder(t *testing.T) {
	t.Parallel() // it waits more than it works
	w := newWorld(t)
	text, err := os.ReadFile(w.catalog)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.catalog, []byte(strings.Replace(string(text), "order: fixed", "order: learned", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the order is learned", func() bool { return strings.Contains(good(t, "chain", "explain", "--dir", w.hubDir), "order: learned") })
	first := order(t, w.deviceDir)[0]
	failing := map[string]*providertest.Provider{"alpha/small": w.alpha, "beta/small": w.beta}[first]
	failing.Script(providertest.Refusal(503, `{"error":{"message":"down"}}`))
	ask(t, w.device.ready.Device)
	until(t, "the hub heard of the failure", func() bool {
		return strings.Contains(good(t, "chain", "explain", "--dir", w.hubDir, "--json"), `"learned":true`)
	})
}

func TestAnEdgeThatOthersCanReachNeedsAKey(t *testing.T) {
	_, errs, code := command(t, "daemon", "--dir", filepath.Join(t.TempDir(), "d"), "--edge", "0.0.0.0:0", "--admin", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0")
	if code != exitUsage || !strings.Contains(errs, "ORCH_API_KEY") {
		t.Errorf("it ended with %d: %s", code, errs)
	}
}

func TestUpComesBackToWhatItWas(t *testing.T) {
	dir := t.TempDir()
	first := start(t, "up", "--dir", dir, "--devices", "2")
	before := first.ready
	first.stop()
	second := start(t, "up", "--dir", dir, "--devices", "2")
	for i, d := range second.ready.Devices {
		if d.PeerID != before.Devices[i].PeerID || d.DeviceID != before.Devices[i].DeviceID || d.Key != before.Devices[i].Key {
			t.Errorf("device %d was %+v and is %+v", i, before.Devices[i], d)
		}
		if status, text, _ := ask(t, d); status != http.StatusOK {
			t.Errorf("device %d answers %d %s", i, status, text)
		}
	}
}
