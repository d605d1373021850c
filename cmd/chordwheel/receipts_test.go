package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon/adapter/providertest"
	"github.com/chordwheel/chordwheel/daemon/audit"
	"github.com/chordwheel/chordwheel/daemon/control"
)

// findings runs `receipts verify` and gives what it found.
func findings(t *testing.T, args ...string) (all []audit.Finding, code int) {
	t.Helper()
	return findingsWithin(t, patience, args...)
}

func findingsWithin(t *testing.T, limit time.Duration, args ...string) (all []audit.Finding, code int) {
	t.Helper()
	out, _, code := commandWithin(t, limit, append([]string{"receipts", "verify", "--json"}, args...)...)
	if out != "" {
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
	}
	return all, code
}

func fares(t *testing.T, dir string) control.Receipts {
	t.Helper()
	var s control.Status
	if err := json.Unmarshal([]byte(good(t, "status", "--json", "--dir", dir)), &s); err != nil || s.Receipts == nil {
		t.Fatalf("%v: no receipts in the status", err)
	}
	return *s.Receipts
}

// verified waits until n receipts are in the ledger and everything about them holds.
func verified(t *testing.T, dir string, n int) {
	t.Helper()
	until(t, fmt.Sprintf("%d receipts are in the ledger", n), func() bool {
		all, code := findings(t, "--dir", dir)
		for _, f := range all {
			if !f.OK || f.Inclusion != "ok" {
				return false
			}
		}
		return code == 0 && len(all) == n
	})
}

// A file that was emptied, or input that is cut off, is not taken for checked.
func TestNothingIsNotVerified(t *testing.T) {
	for _, content := range []string{"", "\n \n", strings.Repeat("x", maxAnswer+1)} {
		v := verification{app: &app{in: strings.NewReader(content)}}
		if lines, err := v.read("-"); err == nil {
			t.Errorf("%d bytes: %d receipts", len(content), len(lines))
		}
	}
	hash := (&app{in: strings.NewReader(strings.Repeat(" ", receipt.MaxBytes+1)), out: io.Discard}).hash()
	hash.SetArgs([]string{"text"})
	hash.SilenceErrors, hash.SilenceUsage = true, true
	if err := hash.Execute(); err == nil {
		t.Error("the beginning of a text is hashed as if it were the whole")
	}
	file := filepath.Join(t.TempDir(), "receipts.jsonl")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&verification{app: &app{}}).read(file); err == nil {
		t.Error("an empty file counts as checked")
	}
}

// A chat leaves a receipt in the hub's ledger. A ledger that is away delays it and
// nothing else, a killed process loses nothing that was finished, and what was open
// then is counted.
func TestReceiptsReachTheLedger(t *testing.T) {
	w := newWorld(t)
	w.wantAnswer("alpha")
	verified(t, w.deviceDir, 1)
	auditor := newAuditor(t, w.hub.ready.Hub.Authority)

	w.hub.kill()
	for range 3 {
		w.wantAnswer("alpha")
	}
	until(t, "three wait", func() bool { r := fares(t, w.deviceDir); return r.Waiting == 3 && r.Pending == 0 })
	w.alpha.Script(func(x *providertest.Exchange) { x.Hang() })
	before := len(w.alpha.Requests())
	w.beta.Script(func(x *providertest.Exchange) { x.Hang() })
	request, _ := http.NewRequest(http.MethodPost, w.device.ready.Device.Edge+"/chat/completions", strings.NewReader(`{"model":"auto","messages":[{"role":"user","content":"x"}]}`))
	request.Header.Set("Content-Type", "application/json")
	go func() {
		if r, err := http.DefaultClient.Do(request); err == nil { // it is cut
			r.Body.Close()
		}
	}()
	until(t, "a request is open", func() bool { return len(w.alpha.Requests()) > before })
	w.device.kill()
	w.startDevice()
	if r := fares(t, w.deviceDir); r.Lost != 1 || r.Waiting != 3 {
		t.Errorf("%d lost, %d waiting; want 1, 3", r.Lost, r.Waiting)
	}
	w.startHub()
	verified(t, w.deviceDir, 4)

	exported := filepath.Join(t.TempDir(), "export.jsonl")
	if err := os.WriteFile(exported, []byte(good(t, "receipts", "export", "--dir", w.deviceDir)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.device.stop()
	everyAlteredLineIsWrong(t, w.deviceDir)
	auditor.hasProof(w.hub.ready.Hub.Authority)
	w.hub.stop()
	auditor.verifies(exported)
	everyAlteredMemberFails(t, w.deviceDir, exported)
}

// auditor has no device: a checkpoint that it saw once, and what is in files.
type auditor struct {
	t                 *testing.T
	origin, did       string
	checkpoint, proof string // files
}

// get asks the hub's services.
func (a *auditor) get(url string) []byte {
	a.t.Helper()
	c := http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // what comes is signed
	defer c.CloseIdleConnections()
	r, err := c.Get(url)
	if err != nil {
		a.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		a.t.Fatalf("%s: %d %s, %v", url, r.StatusCode, b, err)
	}
	return b
}

func (a *auditor) file(name string, b []byte) string {
	a.t.Helper()
	name = filepath.Join(a.t.TempDir(), name)
	if err := os.WriteFile(name, b, 0o600); err != nil {
		a.t.Fatal(err)
	}
	return name
}

func newAuditor(t *testing.T, services string) *auditor {
	t.Helper()
	a := &auditor{t: t}
	var key struct{ Origin, DID string }
	if err := json.Unmarshal(a.get(services+"/audit/v1/key"), &key); err != nil {
		t.Fatal(err)
	}
	a.origin, a.did, a.checkpoint = key.Origin, key.DID, a.file("checkpoint", a.get(services+"/audit/v1/checkpoint"))
	return a
}

func (a *auditor) hasProof(services string) {
	a.t.Helper()
	a.proof = a.file("proof", a.get(services+"/audit/v1/consistency?from=1&to=4"))
}

// verifies checks an export with nobody there, and that a proof of something else is none.
func (a *auditor) verifies(exported string) {
	a.t.Helper()
	verify := func(checkpoint, proof string) ([]audit.Finding, int) {
		return findings(a.t, "--offline", "--origin", a.origin, "--ledger-did", a.did, "--checkpoint", checkpoint, "--consistency", proof, exported)
	}
	all, code := verify(a.checkpoint, a.proof)
	for _, f := range all {
		if !f.OK || f.Inclusion != "ok" || f.Consistency != "ok" {
			a.t.Errorf("%+v", f)
		}
	}
	if code != 0 || len(all) != 4 {
		a.t.Errorf("code %d, %d receipts", code, len(all))
	}
	b, err := os.ReadFile(a.proof)
	if err != nil {
		a.t.Fatal(err)
	}
	if all, code = verify(a.checkpoint, a.file("other", bytes.Replace(b, []byte(`"from":1`), []byte(`"from":2`), 1))); code != 1 || !strings.Contains(all[0].Wrong(), "not a proof") {
		a.t.Errorf("a proof of another growth: code %d, %+v", code, all)
	}
	if b, err = os.ReadFile(a.checkpoint); err != nil {
		a.t.Fatal(err)
	}
	if all, code = verify(a.file("changed", bytes.Replace(b, []byte("\n1\n"), []byte("\n2\n"), 1)), a.proof); code != 1 || !strings.Contains(all[0].Wrong(), "not signed") {
		a.t.Errorf("a checkpoint that nobody signed: code %d, %+v", code, all)
	}
}

// What was altered in the device's own files is wrong, also where it is no receipt any
// more; and it keeps no other one from being exported.
func everyAlteredLineIsWrong(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(dir, "spool.jsonl")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{`"status":"ok"`: `"status":"fine"`, `"capability":"llm.chat"`: `"capability":"llm.t1"`} {
		if err := os.WriteFile(file, bytes.Replace(whole, []byte(from), []byte(to), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		all, code := findings(t, "--dir", dir)
		wrong := 0
		for _, f := range all {
			if !f.OK {
				wrong++
			}
		}
		if code != 1 || len(all) != 4 || wrong != 1 {
			t.Errorf("%s: code %d, %d wrong of %d", to, code, wrong, len(all))
		}
		out, said, _ := command(t, "receipts", "export", "--dir", dir)
		if n := strings.Count(out, "\n"); n != 3 || said == "" {
			t.Errorf("%s: %d are exported, and said is %q", to, n, said)
		}
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Whoever kept the question and the answer makes the hashes that the receipt has, however the
// answer came.
func TestAnAuditorMakesTheHashes(t *testing.T) {
	w := newWorld(t)
	w.alpha.Script(providertest.Healthy("w\u00f6rds \"of\" an answer"))
	for n, stream := range []bool{false, true} {
		body := fmt.Sprintf(`{ "stream":%t, "model":"auto","messages":[{"role":"user","content":"h\u00ef"}],"x":1.0}`, stream)
		r, err := http.Post(w.device.ready.Device.Edge+"/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%d %s, %v", r.StatusCode, answer, err)
		}
		until(t, "its receipt is there", func() bool {
			return strings.Count(good(t, "receipts", "list", "--json", "--dir", w.deviceDir), `"version"`) == n+1
		})
		var all []map[string]any
		if err := json.Unmarshal([]byte(good(t, "receipts", "list", "--json", "--dir", w.deviceDir)), &all); err != nil {
			t.Fatal(err)
		}
		text := filepath.Join(t.TempDir(), "text")
		for kind, what := range map[string]string{"request": body, "completion": string(answer), "text": `wörds "of" an answer`} {
			if err := os.WriteFile(text, []byte(what), 0o600); err != nil {
				t.Fatal(err)
			}
			member := "response_hash"
			if kind == "request" {
				member = "request_hash"
			}
			if got := strings.TrimSpace(good(t, "hash", kind, text)); got != all[n][member] {
				t.Errorf("streamed %t: hash %s of %q is %s, and the receipt has %s", stream, kind, what, got, all[n][member])
			}
		}
	}
	for _, none := range []string{"words", "data: {\n\n", ""} {
		if _, err := completionHash([]byte(none)); err == nil {
			t.Errorf("%q has a hash", none)
		}
	}
}

func everyAlteredMemberFails(t *testing.T, dir, exported string) {
	t.Helper()
	if all, code := findings(t, "--offline", "--dir", dir, exported); code != 0 || len(all) != 4 {
		t.Fatalf("as exported: %d, code %d", len(all), code)
	}
	b, err := os.ReadFile(exported)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	var whole struct {
		Receipt map[string]any `json:"receipt"`
	}
	if err := json.Unmarshal(line, &whole); err != nil {
		t.Fatal(err)
	}
	var lines, names []string
	for name, value := range whole.Receipt {
		altered := "x"
		if text, ok := value.(string); ok && text != "" {
			altered = text[:len(text)-1] + string('0'+(text[len(text)-1]+1)%10)
		}
		was, _ := json.Marshal(map[string]any{name: value})
		is, _ := json.Marshal(map[string]any{name: altered})
		changed := strings.Replace(string(line), string(was[1:len(was)-1]), string(is[1:len(is)-1]), 1)
		if changed == string(line) {
			t.Errorf("%s was not altered", name)
		}
		names = append(names, name)
		lines = append(lines, changed)
	}
	noName := strings.Replace(string(line), `"seeker_did":"did:key:z6Mk`, `"seeker_did":"did:key:z6M0`, 1) // no letter of that alphabet
	if noName == string(line) {
		t.Error("the seeker was not altered")
	}
	lines, names = append(lines, noName), append(names, "seeker_did")
	file := filepath.Join(t.TempDir(), "altered.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	all, code := findings(t, "--offline", "--dir", dir, file)
	if code != 1 || len(all) != len(lines) {
		t.Errorf("altered: %d, code %d", len(all), code)
	}
	for i, f := range all {
		if f.OK || f.Wrong() == "" {
			t.Errorf("it verifies: %s", lines[i])
		}
		// What has another form is named; what has the right one no longer fits the signature.
		if !strings.Contains(f.Wrong(), names[i]) && !strings.Contains(f.Wrong(), "signature") && !strings.Contains(f.Wrong(), "another device") {
			t.Errorf("%s was altered, and what is wrong is said to be: %s", names[i], f.Wrong())
		}
	}
}
