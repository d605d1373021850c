package main

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/did"
)

// A device that goes by a did:webvh signs its receipts as that. The hub, which serves the
// log, takes them in, and whoever has the log verifies them; once the name has ended
// they verify no more.
func TestReceiptsAreSignedAsAName(t *testing.T) {
	t.Parallel() // it waits more than it works
	dir := t.TempDir()
	hub, device := filepath.Join(dir, "hub"), filepath.Join(dir, "a")
	p := start(t, "up", "--dir", dir)
	p.stop()
	show := func(args ...string) (s shown) {
		t.Helper()
		if err := json.Unmarshal([]byte(good(t, append([]string{"did"}, args...)...)), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	key := show("show", "--dir", device, "--json").Key
	made := show("create", "hub.example/devices/a", "--dir", hub, "--key", key, "--json")
	if other := show("create", "hub.example", "--dir", hub, "--json"); other.DID == made.DID || show("show", "--dir", hub, "--json").DID != other.DID {
		t.Errorf("the hub's own name: %+v", other)
	}
	if info, err := os.Stat(made.Keys); err != nil || info.Mode().Perm() != 0o600 || filepath.Dir(made.Keys) != hub {
		t.Errorf("the keys of the log: %v, %v", info, err)
	}
	if _, errs, code := command(t, "did", "use", show("show", "--dir", hub, "--json").DID, filepath.Join(hub, "did", "hub.example", ".well-known", did.LogFile), "--dir", device); code != 1 || !strings.Contains(errs, "does not list the key") {
		t.Errorf("a name that lists another key: %d %s", code, errs)
	}
	if used := show("use", made.DID, made.Log, "--dir", device, "--json"); used.DID != made.DID {
		t.Errorf("%+v", used)
	}

	p = start(t, "up", "--dir", dir)
	client := &http.Client{Transport: pinned(t, pinOf(t, p.ready.Hub.Authority)).base, Timeout: patience}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.ready.Hub.Authority+"/devices/a/did.jsonl", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "hub.example"
	a, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	served, err := io.ReadAll(a.Body)
	a.Body.Close()
	kept, err2 := os.ReadFile(made.Log)
	if err != nil || err2 != nil || a.StatusCode != 200 || string(served) != string(kept) {
		t.Errorf("the hub serves %d %q, %v; kept is %q, %v", a.StatusCode, served, err, kept, err2)
	}

	if status, text, _ := ask(t, p.ready.Devices[0]); status != 200 {
		t.Fatal(status, text)
	}
	verified(t, device, 1)
	all, _ := findings(t, "--dir", device)
	if all[0].Signer != made.DID {
		t.Errorf("signed as %s, want %s", all[0].Signer, made.DID)
	}
	ended := show("deactivate", made.DID, "--yes", "--dir", hub, "--json")
	if !ended.Ended {
		t.Errorf("%+v", ended)
	}
	if status, text, _ := ask(t, p.ready.Devices[0]); status != 200 {
		t.Fatal(status, text)
	}
	until(t, "the receipt under a name that ended is set aside", func() bool { return fares(t, device).Rejected == 1 })
}

// Receipts that were signed as a name which nobody served, and which the device gave up
// since, hold up all that follow until the log is found, and no longer.
func TestReceiptsOfANameThatWasGivenUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hub, device := filepath.Join(dir, "hub"), filepath.Join(dir, "a")
	p := start(t, "up", "--dir", dir)
	p.stop()
	var made shown
	if err := json.Unmarshal([]byte(good(t, "did", "create", "hub.example/a", "--dir", device, "--json")), &made); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(made.Log)
	if err != nil {
		t.Fatal(err)
	}
	// What cannot be read in the hub's own directory is not asked for in the network.
	served := filepath.Join(hub, "did", "hub.example", "a", did.LogFile)
	if err := os.MkdirAll(served, 0o700); err != nil {
		t.Fatal(err)
	}
	p = start(t, "up", "--dir", dir)
	if status, text, _ := ask(t, p.ready.Devices[0]); status != 200 {
		t.Fatal(status, text)
	}
	until(t, "the hub says that it does not find the name", func() bool {
		return strings.Contains(fares(t, device).LastError, "502 unresolvable_did")
	})
	p.stop()
	good(t, "did", "use", made.Key, "--dir", device)
	p = start(t, "up", "--dir", dir)
	if status, text, _ := ask(t, p.ready.Devices[0]); status != 200 {
		t.Fatal(status, text)
	}
	until(t, "the receipts wait in order", func() bool {
		now := fares(t, device)
		return now.Waiting == 2 && strings.Contains(now.LastError, "502 unresolvable_did")
	})
	p.stop()
	if err := errors.Join(os.Remove(served), os.WriteFile(served, log, 0o600)); err != nil {
		t.Fatal(err)
	}
	start(t, "up", "--dir", dir)
	verified(t, device, 2)
	all, _ := findings(t, "--dir", device)
	if len(all) != 2 || all[0].Signer != made.DID || all[1].Signer != made.Key {
		t.Errorf("%+v", all)
	}
}

// A log that was cut back while the hub was down does not bring an old key back.
func TestAHubRemembersLogsOverARestart(t *testing.T) {
	t.Parallel()
	dir, made := withName(t)
	first, err := os.ReadFile(made.Log)
	if err != nil {
		t.Fatal(err)
	}
	good(t, "did", "rotate", "--dir", dir)
	longer, err := os.ReadFile(made.Log)
	if err != nil {
		t.Fatal(err)
	}
	hubDir := filepath.Join(t.TempDir(), "hub")
	for i, step := range []struct {
		log   []byte
		holds bool
	}{{longer, true}, {first, false}, {longer, true}} {
		h, err := openHub(hubOptions{dir: hubDir, config: defaultHub("127.0.0.1"), log: slog.New(slog.DiscardHandler), say: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.shelf.Put(made.DID, step.log); err != nil {
			t.Error(err)
		}
		if _, err := did.Resolve(t.Context(), h.documents, made.DID, did.Want{}, time.Now()); step.holds != (err == nil) || err != nil && !errors.Is(err, did.ErrRewritten) {
			t.Errorf("start %d: %v", i, err)
		}
		if err := h.close(); err != nil {
			t.Error(err)
		}
	}
}
