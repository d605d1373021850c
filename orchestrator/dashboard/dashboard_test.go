package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/authority"
	"github.com/chordwheel/chordwheel/orchestrator/quota"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// hub is an orchestrator of fixed answers, with names that a hostile device might choose.
type hub struct {
	devices int
	asked   []string
	err     error
}

const hostile = `<script>alert(1)</script>"' onload=x`

func (h *hub) Status(context.Context) (orchestrator.Status, error) {
	zero := uint64(0)
	s := orchestrator.Status{Kind: "hub", Version: "v1", Name: "mesh of tests", Mesh: "m", PeerID: "12D3KooWHub", Addresses: []string{"/ip4/127.0.0.1/tcp/7411"},
		Refused: map[string]uint64{"conflict": 2}, Chains: []orchestrator.ChainSummary{{Scope: chain.DefaultScope, Primitive: chain.LLMChat, Seq: 7, Options: []chain.OptionID{"alpha/small", "peer"}}},
		Conflicts: []orchestrator.ConflictView{{DeviceID: "id", PeerID: "second", Holder: "first", Name: hostile}},
		Alarms:    []orchestrator.Alarm{{What: "an alarm", Device: hostile}}, DialsAsked: &zero, Ledger: &orchestrator.LedgerView{Receipts: 42},
		Ceilings: []quota.State{{Account: "key " + hostile, Limit: 30_000_000, Spent: 1_250_000}}}
	states := []string{"online", "offline", "expired", "revoked"}
	for i := range h.devices {
		s.Devices = append(s.Devices, orchestrator.DeviceView{PeerID: chain.PeerID(fmt.Sprintf("12D3KooW%040d", i)), Name: fmt.Sprintf("d%d%s", i, hostile), State: states[i%4],
			Capabilities: []chain.Capability{hostile}})
	}
	if h.devices > 1 {
		s.Chords = []orchestrator.ChordView{{A: s.Devices[0].PeerID, B: s.Devices[1].PeerID, NameA: hostile, NameB: "other end", RTT: 1.25}}
	}
	return s, h.err
}

func (h *hub) ChainsAfter(_ context.Context, after chain.Slot, most int) ([]orchestrator.ChainSummary, bool, error) {
	s, err := h.Status(context.Background())
	if after != (chain.Slot{}) {
		h.asked = append(h.asked, fmt.Sprint(after, " ", most))
	}
	return s.Chains[:min(most, len(s.Chains))], most < len(s.Chains), err
}

func (h *hub) Show(_ context.Context, slot chain.Slot) (orchestrator.ChainView, error) {
	h.asked = append(h.asked, slot.String())
	return orchestrator.ChainView{Source: "hub"}, h.err
}

func (h *hub) Explain(_ context.Context, slot chain.Slot) (orchestrator.Explanation, error) {
	h.asked = append(h.asked, slot.String())
	return orchestrator.Explanation{Source: "hub", Resolution: resolve.Resolution{Slot: slot, Why: []resolve.Verdict{{Option: "alpha/small", Status: resolve.In, Position: 1, Reasons: []string{"default, place 1 of 2"}},
		{Option: hostile, Status: resolve.Out, Reasons: []string{"denied by " + hostile}}}}}, h.err
}

func (h *hub) Operations(after uint64, limit int) []orchestrator.Operation {
	h.asked = append(h.asked, fmt.Sprintf("operations %d %d", after, limit))
	return []orchestrator.Operation{{ID: 1, Kind: "hello", Direction: "in", Device: hostile, Outcome: "ok"}, {ID: 2, Kind: "fetch", Direction: "in", Peer: "12D3KooWStranger", Outcome: "not_member"}}
}

func (h *hub) Invite(_ context.Context, q orchestrator.Invite) (orchestrator.Invited, error) {
	h.asked = append(h.asked, fmt.Sprintf("invite %s %d %s %v", q.Scope, q.Uses, q.TTL, q.Grant))
	return orchestrator.Invited{Text: "chordwheel1:x", Scope: q.Scope, Warnings: []string{"w"}}, h.err
}

func (h *hub) Revoke(_ context.Context, who string) (chain.PeerID, error) {
	h.asked = append(h.asked, "revoke "+who)
	return "12D3KooWGone", h.err
}

func (h *hub) Approve(_ context.Context, peer chain.PeerID) error {
	h.asked = append(h.asked, "approve "+string(peer))
	return h.err
}

type call struct {
	method, path, body string
	header             map[string]string
	local              string // the address that was connected to
}

func do(handler http.Handler, c call) *http.Response {
	if c.method == "" {
		c.method = http.MethodGet
	}
	r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
	r.Host = "localhost:7400"
	if c.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for k, v := range c.header {
		if k == "Host" {
			r.Host = v
			continue
		}
		r.Header.Set(k, v)
	}
	if c.local != "" {
		a, _ := net.ResolveTCPAddr("tcp", c.local)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(a)))
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestGuard: pages of other sites neither read nor ask.
func TestGuard(t *testing.T) {
	web := New(&hub{}).Web([]string{"hub.lan"}, []string{"https://watch.example"})
	for _, c := range []struct {
		host, origin, local string
		status              int
	}{
		{"localhost:7400", "", "", 200},
		{"LOCALHOST", "", "", 200},
		{"127.0.0.1:7400", "", "", 200},
		{"127.8.9.1", "", "", 200},
		{"[::1]:7400", "", "", 200},
		{"hub.lan:7400", "", "", 200},
		{"evil.example", "", "", 403},
		{"evil.example:7400", "", "", 403},
		{"localhost.evil.example", "", "", 403},
		{"", "", "", 403},
		{"192.168.1.4:7400", "", "", 403},
		{"192.168.1.4:7400", "", "192.168.1.4:7400", 200}, // the address itself was connected to: it cannot be rebound
		{"192.168.1.4:7400", "", "192.168.1.5:7400", 403},
		{"localhost:7400", "http://localhost:7400", "", 200},
		{"localhost:7400", "http://localhost:9999", "", 403},
		{"localhost:7400", "https://evil.example", "", 403},
		{"localhost:7400", "null", "", 403},
		{"localhost:7400", "https://watch.example", "", 200},
	} {
		header := map[string]string{"Host": c.host}
		if c.origin != "" {
			header["Origin"] = c.origin
		}
		r := do(web, call{path: "/api/v1/status", header: header, local: c.local})
		if r.StatusCode != c.status {
			t.Errorf("Host %q, Origin %q, at %q: %d, want %d", c.host, c.origin, c.local, r.StatusCode, c.status)
		}
		if allowed := r.Header.Get("Access-Control-Allow-Origin"); (allowed != "") != (c.origin == "https://watch.example") {
			t.Errorf("Origin %q is allowed %q", c.origin, allowed)
		}
	}
}

// TestPage: one document that loads nothing from elsewhere, runs only its own few
// lines, and escapes what devices call themselves.
func TestPage(t *testing.T) {
	for _, devices := range []int{0, 1, 4, 60, 500} {
		r := do(New(&hub{devices: devices}).Web(nil, nil), call{path: "/"})
		page := text(t, r)
		if r.StatusCode != 200 || r.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Fatalf("%d devices: %d %s", devices, r.StatusCode, page)
		}
		csp := r.Header.Get("Content-Security-Policy")
		nonce := regexp.MustCompile(`style-src 'nonce-([A-Z2-7]+)'`).FindStringSubmatch(csp)
		if nonce == nil || !strings.Contains(page, `<style nonce="`+nonce[1]+`">`) || !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("policy %q", csp)
		}
		for _, bad := range []string{"<script>", "http://", "https://", "src=", "href=", "style=\"", "ZgotmplZ", "<no value>"} {
			if strings.Contains(page, bad) {
				t.Errorf("%d devices: the page holds %q", devices, bad)
			}
		}
		if n := strings.Count(page, "<script"); n != 1 || !strings.Contains(page, `<script nonce="`+nonce[1]+`">`) {
			t.Errorf("%d devices: %d scripts", devices, n)
		}
		if strings.Count(page, `class="dev `) != min(devices-devices/4, maxRim) {
			t.Errorf("%d devices: %d on the rim", devices, strings.Count(page, `class="dev `))
		}
		for _, part := range []string{"mesh of tests", "alpha/small", "default, place 1 of 2", "an alarm", "dials asked", "42 in the ledger", "not_member", "second"} {
			if !strings.Contains(page, part) {
				t.Errorf("the page lacks %q", part)
			}
		}
	}
	if page := text(t, do(New(&hub{devices: 4}).Web(nil, nil), call{path: "/"})); strings.Count(page, `class="chord"`) != 1 || !strings.Contains(page, "other end</td><td class=\"n\">1.25</td>") {
		t.Error("the page shows no chord")
	}
	a, b := text(t, do(New(&hub{}).Web(nil, nil), call{path: "/"})), text(t, do(New(&hub{}).Web(nil, nil), call{path: "/"}))
	if a == b {
		t.Error("two pages have the same nonce")
	}
}

// TestQuestions: what reaches the hub, and how answers and errors look.
func TestQuestions(t *testing.T) {
	for _, c := range []struct {
		name   string
		call   call
		web    int // status on the web listener
		socket int // status on the control socket
		asked  string
		body   string // part of the socket's answer
	}{
		{"status", call{path: "/api/v1/status"}, 200, 200, "", `"kind":"hub"`},
		{"kind", call{path: "/api/v1/kind"}, 200, 200, "", `{"kind":"hub"}`},
		{"chords, also of one claimant", call{path: "/api/v1/chords"}, 200, 200, "", `{"chords":[{"a":"a","b":"b","name_a":`},
		{"chains", call{path: "/api/v1/chains"}, 200, 200, "", `{"chains":[{"scope":"workspace:home"`},
		{"chains of the next page", call{path: "/api/v1/chains?after=workspace:home%20llm.chat&limit=1"}, 200, 200, "workspace:home/llm.chat 1", `{"chains":[`},
		{"chain", call{path: "/api/v1/chain?scope=workspace:lab&primitive=llm.chat"}, 200, 200, "workspace:lab/llm.chat", `"source":"hub"`},
		{"explain, default scope", call{path: "/api/v1/explain?primitive=llm.chat"}, 200, 200, "workspace:home/llm.chat", `"options":[{"option":"alpha/small"`},
		{"operations", call{path: "/api/v1/operations"}, 200, 200, "operations 0 100", `{"operations":[{"id":1`},
		{"operations after", call{path: "/api/v1/operations?after=41&limit=7"}, 200, 200, "operations 41 7", ""},
		{"operations without end", call{path: "/api/v1/operations?limit=100000"}, 400, 400, "", "limit must be"},
		{"operations after nothing", call{path: "/api/v1/operations?after=x"}, 400, 400, "", "after must be"},
		{"invite", call{method: "POST", path: "/api/v1/invite", body: `{"scope":"workspace:home","uses":2,"ttl":"2h","grant":["execute:*"]}`}, 404, 200, "invite workspace:home 2 2h0m0s [execute:*]", `"invitation":"chordwheel1:x"`},
		{"invite with all defaults", call{method: "POST", path: "/api/v1/invite", body: `{}`}, 404, 200, "invite  0 0s []", `"warnings":["w"]`},
		{"invite for how long", call{method: "POST", path: "/api/v1/invite", body: `{"ttl":"long"}`}, 404, 400, "", "ttl must be a duration"},
		{"invite with an unknown field", call{method: "POST", path: "/api/v1/invite", body: `{"use":2}`}, 404, 400, "", "one JSON object"},
		{"invite twice in one body", call{method: "POST", path: "/api/v1/invite", body: `{}{}`}, 404, 400, "", "one JSON object"},
		{"invite as a form", call{method: "POST", path: "/api/v1/invite", body: `{}`, header: map[string]string{"Content-Type": "text/plain"}}, 404, 415, "", "application/json"},
		{"invite with a book", call{method: "POST", path: "/api/v1/invite", body: `{"scope":"` + strings.Repeat("x", 1<<17) + `"}`}, 404, 400, "", "one JSON object"},
		{"invite by GET", call{path: "/api/v1/invite"}, 404, 405, "", "wants POST"},
		{"revoke", call{method: "POST", path: "/api/v1/revoke", body: `{"device":"laptop"}`}, 404, 200, "revoke laptop", `{"revoked":"12D3KooWGone"}`},
		{"approve", call{method: "POST", path: "/api/v1/approve", body: `{"peer_id":"p"}`}, 404, 200, "approve p", `{"approved":"p"}`},
		{"status by POST", call{method: "POST", path: "/api/v1/status", body: "{}"}, 405, 405, "", "wants GET"},
		{"nowhere", call{path: "/nowhere"}, 404, 404, "", "nothing here"},
		{"nowhere behind slashes", call{path: "//api/v1/status"}, 404, 404, "", "nothing here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := do(New(&hub{}).Web(nil, nil), c.call)
			if w.StatusCode != c.web {
				t.Errorf("web: %d, want %d", w.StatusCode, c.web)
			}
			h := &hub{}
			s := do(New(h).Socket(), c.call)
			answer := text(t, s)
			if s.StatusCode != c.socket || !strings.Contains(answer, c.body) {
				t.Errorf("socket: %d %s, want %d with %q", s.StatusCode, answer, c.socket, c.body)
			}
			if got := strings.Join(h.asked, ";"); got != c.asked {
				t.Errorf("asked %q, want %q", got, c.asked)
			}
			if s.Header.Get("Content-Type") != "application/json" || s.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", s.Header)
			}
			if s.StatusCode >= 400 {
				var shape struct {
					Error struct{ Message, Type, Code string } `json:"error"`
				}
				if err := json.Unmarshal([]byte(answer), &shape); err != nil || shape.Error.Message == "" || shape.Error.Code == "" || shape.Error.Type == "" {
					t.Errorf("the error's shape: %s", answer)
				}
			}
		})
	}
}

// TestErrorTable: codes, statuses and kinds are those of the hub's other services.
func TestErrorTable(t *testing.T) {
	web := New(&hub{err: fmt.Errorf("no such thing: %w", orchestrator.ErrAsked)}).Web(nil, nil)
	local := map[string]string{"Host": "localhost"}
	for _, c := range []struct {
		call
		status     int
		code, kind string
	}{
		{call{path: "/api/v1/status", header: map[string]string{"Host": "evil.example"}}, 403, "forbidden", "permission_error"},
		{call{path: "/nothing", header: local}, 404, "not_found", "invalid_request_error"},
		{call{path: "/api/v1/status", method: "DELETE", header: local}, 405, "method_not_allowed", "invalid_request_error"},
		{call{path: "/api/v1/chain?primitive=llm.chat", header: local}, 422, "invalid_request", "invalid_request_error"},
	} {
		r := do(web, c.call)
		var got authority.ErrorResponse
		if err := json.Unmarshal([]byte(text(t, r)), &got); err != nil {
			t.Fatal(err)
		}
		if e := got.Error; r.StatusCode != c.status || string(e.Code) != c.code || string(e.Type) != c.kind || e.Message == "" || e.RequestID == "" || e.RequestID != r.Header.Get("X-Chordwheel-Request-Id") {
			t.Errorf("%s %s: %d %+v", c.method, c.path, r.StatusCode, got)
		}
		if r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", c.path, r.Header)
		}
	}
}

// TestErrors: what the asker can mend is said, the rest is not.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		holds  string
	}{
		{fmt.Errorf("no such thing: %w", orchestrator.ErrAsked), 422, "no such thing"},
		{errors.Join(orchestrator.ErrAsked, orchestrator.ErrNothing), 404, ""},
		{errors.New("/var/lib/secret: disk full"), 503, "try again"},
		{context.DeadlineExceeded, 503, "try again"},
	} {
		r := do(New(&hub{err: c.err}).Socket(), call{path: "/api/v1/chain?primitive=llm.chat"})
		body := text(t, r)
		if r.StatusCode != c.status || !strings.Contains(body, c.holds) || strings.Contains(body, "secret") {
			t.Errorf("%v: %d %s", c.err, r.StatusCode, body)
		}
	}
}

func BenchmarkPage(b *testing.B) {
	web := New(&hub{devices: 50}).Web(nil, nil)
	for b.Loop() {
		if r := do(web, call{path: "/"}); r.StatusCode != 200 {
			b.Fatal(r.Status)
		}
	}
}

func (h *hub) Chords(context.Context) ([]orchestrator.ChordView, error) {
	return []orchestrator.ChordView{{A: "a", B: "b", NameA: hostile, By: "a"}}, h.err
}
