package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/daemon/control"
)

// enforcing starts a daemon in dir that wants tokens.
func enforcing(t *testing.T, dir string) *process {
	t.Helper()
	cmd := program(t, "daemon", "--dir", dir, "--edge", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0", "--json")
	cmd.Env = append(cmd.Env, "GATE_MODE=enforce")
	return startCommand(t, cmd)
}

func gatingOf(t *testing.T, dir string) *control.Gating {
	t.Helper()
	var s control.Status
	if err := json.Unmarshal([]byte(good(t, "status", "--dir", dir, "--json")), &s); err != nil || s.Gating == nil || s.Gating.Snapshot == nil {
		t.Fatalf("status: %v", err)
	}
	return s.Gating
}

// admin asks the admin listener with a token.
func admin(t *testing.T, method, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Timeout: patience}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(b)
}

// refusals holds listeners to the one shape of errors, also where the server refuses before
// any handler is asked, and where a page of another site calls.
func refusals(t *testing.T, bases map[string]string) {
	t.Helper()
	for what, base := range bases {
		for name, head := range map[string]string{
			"two lengths": "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "no host": "GET / HTTP/1.1\r\n\r\n", "no HTTP": "hello\r\n\r\n",
			"a large header": "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", "every path": "OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
			"another site": "GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://evil.example\r\n\r\n", "another host": "GET /nothing HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		} {
			u, err := url.Parse(base)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("tcp", u.Host)
			if err != nil {
				t.Fatal(err)
			}
			if u.Scheme == "https" {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(conn, head); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("%s, %s: %v", what, name, err)
			}
			var got struct {
				Error struct{ Message, Type, Code, Request_ID string }
			}
			err = json.NewDecoder(response.Body).Decode(&got)
			conn.Close()
			if e := got.Error; err != nil || response.StatusCode < 400 || e.Message == "" || e.Type == "" || e.Code == "" || e.Request_ID == "" || response.Header.Get("X-Chordwheel-Request-Id") != e.Request_ID {
				t.Errorf("%s, %s: %s %+v %v", what, name, response.Status, got, err)
			}
		}
	}
}

// A device that enforces answers its first chat with a token of the hub's, goes on with
// it when the hub is gone, and without one is told so; its owner sees all of that.
func TestADeviceEnforcesInEarnest(t *testing.T) {
	dir := t.TempDir()
	hubDir, own := filepath.Join(dir, "hub"), filepath.Join(dir, "a")
	hub := start(t, "orchestrator", "--dir", hubDir, "--web", "127.0.0.1:0", "--authority", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0")
	good(t, "join", "--dir", own, strings.TrimSpace(good(t, "invite", "--dir", hubDir)))
	p := enforcing(t, own)
	until(t, "the device has its chain", func() bool { status, _, _ := ask(t, p.ready.Device); return status == http.StatusOK })
	g := gatingOf(t, own)
	if g.Mode != "enforce" || g.Allowed == 0 || g.Denied != 0 || g.Snapshot.Registry != "hub" || g.Snapshot.Source != "registry" || g.Snapshot.Agents == 0 || g.Snapshot.Problem != "" {
		t.Errorf("%+v %+v", g, g.Snapshot)
	}
	var receipts []struct {
		Status  string `json:"status"`
		TokenID string `json:"token_id"`
	}
	until(t, "a receipt is on the disk", func() bool { // it comes behind the answer
		if err := json.Unmarshal([]byte(good(t, "receipts", "list", "--dir", own, "--json")), &receipts); err != nil {
			t.Fatal(err)
		}
		return len(receipts) > 0
	})
	for _, r := range receipts {
		if (r.Status == "ok") != (r.TokenID != "") {
			t.Errorf("receipt %+v", r)
		}
	}

	info, err := os.Stat(filepath.Join(own, "admin.token"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	b, err := os.ReadFile(filepath.Join(own, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	token, base := strings.TrimSpace(string(b)), p.ready.Device.Admin
	for _, c := range []struct {
		method, path, token string
		status              int
		says                string
	}{
		{"POST", "/admin/snapshot/refresh", token, 200, `"registry":"hub"`},
		{"GET", "/admin/spool", token, 200, `"writable":true`},
		{"GET", "/admin/spool", "", 401, `"code":"unauthorized"`},
		{"GET", "/admin/spool", p.ready.Device.Key + "x", 401, `"code":"unauthorized"`},
	} {
		if status, body := admin(t, c.method, base+c.path, c.token); status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
	refusals(t, map[string]string{"admin": base, "dashboard": hub.ready.Hub.URL, "authority services": hub.ready.Hub.Authority})
	out, _, code := command(t, "gate", "check", "a.b.c", "--dir", own, "--json")
	var v control.TokenVerdict
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitRefused || v.Verdict != "deny" || v.Code != "invalid_token" || v.Reason == "" || v.Mode != "enforce" {
		t.Errorf("gate check: code %d, %s", code, out)
	}

	hub.kill()
	if status, text, _ := ask(t, p.ready.Device); status != http.StatusOK {
		t.Errorf("with the hub gone: %d %s", status, text)
	}
	p.stop()
	p = enforcing(t, own) // tokens are in memory alone
	if status, text, _ := ask(t, p.ready.Device); status != http.StatusForbidden || !strings.Contains(text, `"code":"token_missing"`) {
		t.Errorf("without a token: %d %s", status, text)
	}
	if g := gatingOf(t, own); g.Snapshot.Source != "last-good" || g.Tokenless == 0 || g.Snapshot.Problem != "" {
		t.Errorf("%+v %+v", g, g.Snapshot)
	}
	if after, err := os.ReadFile(filepath.Join(own, "admin.token")); err != nil || string(after) != string(b) {
		t.Errorf("the service token changed: %v", err)
	}
}

// What a mode that observes lets go on is said per reason: the token's faults alone are forgiven.
func TestWhatObservingForgives(t *testing.T) {
	for code, want := range map[string]string{"invalid_token": "goes on all the same", "token_missing": "goes on all the same", "agent_suspended": "not selected", "no_agent": "not selected", "snapshot_stale": "nothing is begun"} {
		var out strings.Builder
		(&app{}).writeVerdict(&out, &control.TokenVerdict{Verdict: "deny", Code: code, Mode: "observe"}, time.Now())
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: %q does not say %q", code, out.String(), want)
		}
	}
}
