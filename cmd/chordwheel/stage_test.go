package main

import (
	"os"
	"strings"
	"testing"
)

// A stage is an edit of the catalogue: its requests walk a chain of their own as
// soon as the device has it, those of other stages the workspace's; taking the
// stage away takes its chain away.
func TestARequestsStageSelectsItsChain(t *testing.T) {
	w := newWorld(t)
	plain, err := os.ReadFile(w.catalog)
	if err != nil {
		t.Fatal(err)
	}
	answers := func(want string, headers ...string) bool {
		_, text, _ := ask(t, w.device.ready.Device, headers...)
		return text == want
	}
	if !answers("alpha", "X-Chordwheel-Stage", "extract") {
		t.Error("a stage that nobody knows does not get the workspace's chain")
	}

	staged := string(plain) + "workspaces:\n  - id: home\n    stages: [{name: extract, default: [beta/small]}]\n    consumers: [{name: guest, deny: [\"*\"]}]\n"
	if err := os.WriteFile(w.catalog, []byte(staged), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "requests of the stage get its chain", func() bool { return answers("beta", "X-Chordwheel-Stage", "extract") })
	w.wantAnswer("alpha")
	if !answers("alpha", "X-Chordwheel-Stage", "rewrite") || !answers("beta", "X-Chordwheel-Stage", "extract", "X-Chordwheel-Instance", "eu-1") {
		t.Error("what is not known must say nothing")
	}
	if status, text, _ := ask(t, w.device.ready.Device, "X-Chordwheel-Consumer", "guest"); status != 503 || !strings.Contains(text, "no_models") {
		t.Errorf("a consumer to whom all is denied: %d %s", status, text)
	}
	if out := good(t, "chain", "explain", "workspace:home;stage=extract", "--dir", w.hubDir); !strings.Contains(out, "default of stage extract, place 1 of 1") {
		t.Errorf("explain: %s", out)
	}

	if err := os.WriteFile(w.catalog, plain, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the stage's chain is gone", func() bool { return answers("alpha", "X-Chordwheel-Stage", "extract") })
}
