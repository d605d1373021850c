package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// device answers as the test says.
type device struct {
	status control.Status
	joined string
	refuse error
	paused time.Time
	jobs   *job.Table
	control.Applications
}

func (d *device) Pause(until time.Time) error { d.paused = until; return d.refuse }
func (d *device) Resume() error               { d.paused = time.Time{}; return d.refuse }

func (d *device) Status() control.Status { return d.status }
func (d *device) Peers() []control.Peer {
	return []control.Peer{{PeerID: "12D3KooWBoxBoxBox", Name: "box<script>alert(2)", State: "live", Way: &control.Way{Path: "direct", Transport: "quic-v1"},
		Slots: []control.PeerSlot{{Scope: "workspace:home", Primitive: "llm.chat", Option: "peer", Verdict: control.Verdict{Why: "declines", Detail: "<script>alert(3)"}}}}}
}
func (d *device) Chords() []control.Chord {
	return []control.Chord{{A: "12D3a", B: "12D3b", NameB: "box", By: "12D3a"}}
}
func (d *device) Traces(id string) []control.Trace {
	if id != "" && id != "r1" {
		return nil
	}
	return []control.Trace{{RequestID: "r1", End: "answered", Attempts: []control.TraceAttempt{{Option: "peer", Name: "box", Class: chain.OK}}}}
}
func (d *device) Workers() []job.Provider { return []job.Provider{{ID: "tab", Class: job.Browser}} }
func (d *device) DropWorker(id string) error {
	if id != "tab" {
		return control.Asked("no provider of that ID")
	}
	return nil
}
func (d *device) Jobs() *job.Table {
	if d.jobs == nil {
		d.jobs = job.NewTable(nil)
	}
	return d.jobs
}
func (d *device) Refresh(context.Context) error { return d.refuse }
func (d *device) CheckToken(_ context.Context, q control.TokenQuestion) (control.TokenVerdict, error) {
	if q.Token != "a.b.c" {
		return control.TokenVerdict{}, control.Asked("there is no gate")
	}
	return control.TokenVerdict{Verdict: "deny", Code: "invalid_token", Audience: q.Agent}, nil
}
func (d *device) Network(context.Context) control.Network { return control.Network{Reachable: true} }
func (d *device) Ping(_ context.Context, who string) (control.Pong, error) {
	switch who {
	case "box":
		return control.Pong{PeerID: "12D3b", Name: who, RTT: 1.5, Way: control.Way{Path: "direct", Transport: "tcp"}}, nil
	case "gone":
		return control.Pong{}, errors.New("gone is not reached")
	}
	return control.Pong{}, control.Asked("no device of that name")
}
func (d *device) Keys() []control.Key { return []control.Key{{Name: "groq", Source: "file"}} }
func (d *device) Chain(slot chain.Slot) (control.ChainView, error) {
	if slot.Primitive != chain.LLMChat {
		return control.ChainView{}, fmt.Errorf("%w: %s", control.ErrNotFound, slot)
	}
	return control.ChainView{Source: "device", Head: chain.Head{Scope: slot.Scope, Primitive: slot.Primitive, Seq: 7},
		Own: []delta.Row{{Option: "beta/small", Place: 1, HubAt: 2, Why: "it answers faster here"}}}, nil
}

func (d *device) Join(_ context.Context, text string) error {
	d.joined = text
	return d.refuse
}

var edge = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "edge ", r.URL.Path) })

func ask(t *testing.T, h http.Handler, method, path, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	b, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(b)
}

func TestTheSocketAnswersItsOwner(t *testing.T) {
	d := &device{status: control.Status{Kind: "device", Name: "laptop"}}
	h := control.Socket(d, edge)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/api/v1/status", "", 200, `"name":"laptop"`},
		{"GET", "/api/v1/chain?scope=workspace:home&primitive=llm.chat", "", 200, `"seq":7`},
		{"GET", "/api/v1/chain?scope=workspace:home&primitive=embed.text", "", 404, "holds no such chain"},
		{"GET", "/api/v1/keys", "", 200, `"name":"groq","source":"file"`},
		{"POST", "/api/v1/join", `{"invitation":"chordwheel1:x"}`, 200, `"name":"laptop"`},
		{"POST", "/api/v1/join", `not JSON`, 400, "not the JSON of a join"},
		{"POST", "/api/v1/pause", `{"until":"2026-03-01T12:00:00Z"}`, 200, `"name":"laptop"`},
		{"POST", "/api/v1/pause", `{"until":"noon"}`, 400, "not the JSON of a pause"},
		{"GET", "/api/v1/kind", "", 200, `"kind":"device"`},
		{"GET", "/api/v1/chords", "", 200, `"claimed_by":"12D3a"`},
		{"POST", "/api/v1/ping", `{"device":"box"}`, 200, `"rtt_ms":1.5,"path":"direct","transport":"tcp"`},
		{"POST", "/api/v1/ping", `{"device":"gone"}`, 502, "not reached"},
		{"POST", "/api/v1/ping", `{"device":"bax"}`, 422, "no device"},
		{"POST", "/api/v1/ping", `box`, 400, "not the JSON of a ping"},
		{"POST", "/api/v1/netcheck", ``, 200, `"hub_reachable":true`},
		{"POST", "/api/v1/gate/check", `{"token":"a.b.c","agent":"did:web:a"}`, 200, `"code":"invalid_token","mode":"","signed":false,"aud":"did:web:a"`},
		{"POST", "/api/v1/gate/check", `{"token":"x"}`, 422, "no gate"},
		{"POST", "/api/v1/gate/check", `x`, 400, "not the JSON of a token"},
		{"GET", "/api/v1/providers", "", 200, `{"providers":[{"id":"tab","worker_class":"browser"`},
		{"DELETE", "/api/v1/providers/tab", "", 200, `{"dropped":"tab"}`},
		{"DELETE", "/api/v1/providers/x", "", 422, "no provider of that ID"},
		{"GET", "/v1/models", "", 200, "edge /v1/models"},
		{"POST", "/api/v1/work/llm.chat", `{}`, 200, "edge /api/v1/work/llm.chat"},
		{"GET", "/readyz", "", 200, "edge /readyz"},
		{"GET", "/api/v1/join", "", 405, ""},
	} {
		status, body := ask(t, h, c.method, c.path, c.body)
		if status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %s: %d %s, want %d and %q", c.method, c.path, status, body, c.status, c.says)
		}
	}
	if d.paused.IsZero() {
		t.Error("not paused")
	}
	if status, _ := ask(t, h, "POST", "/api/v1/resume", ""); status != 200 || !d.paused.IsZero() {
		t.Errorf("resumed with %d, paused until %v", status, d.paused)
	}
	if d.joined != "chordwheel1:x" {
		t.Errorf("joined with %q", d.joined)
	}
}

func TestARefusedJoinIsToldFromOneThatReachedNobody(t *testing.T) {
	for status, err := range map[int]error{403: fmt.Errorf("%w: used up", control.ErrRefused), 502: errors.New("nobody answers")} {
		h := control.Socket(&device{refuse: err}, edge)
		got, body := ask(t, h, "POST", "/api/v1/join", `{"invitation":"x"}`)
		var answer struct {
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.Unmarshal([]byte(body), &answer) != nil || got != status || answer.Error.Message != err.Error() {
			t.Errorf("%v: %d %s, want %d and the reason", err, got, body, status)
		}
	}
}

// TestTheAdminListenerChangesNothing: it serves reads and the page, behind the
// guard that it was given.
func TestTheAdminListenerChangesNothing(t *testing.T) {
	until := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	d := &device{status: control.Status{Name: `<script>alert(1)</script>`, Problems: []string{"the hub is out of reach"},
		Chains:   []control.ChainSummary{{Scope: "workspace:home", Primitive: "llm.chat", Seq: 7, Expires: until}},
		Receipts: &control.Receipts{Sent: 5, Waiting: 2, Oldest: &until, LastError: "connection refused", Writable: true},
		Gating:   &control.Gating{Mode: "enforce", Allowed: 9, Denied: 6, Tokenless: 1, Snapshot: &control.Snapshot{Registry: "hub", Source: "last-good", FetchedAt: &until, Agents: 3}},
		Resting:  []control.Resting{{Option: "alpha/small", Why: chain.Status, Until: until}},
		Foreign:  control.Foreign{Answered: 4, Refused: map[string]uint64{"busy": 3}, Sharing: []control.Sharing{{Scope: "workspace:home", Why: "sharing is paused", Jobs: 8}}}}}
	guarded := 0
	h := control.Admin(d, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { guarded++; next.ServeHTTP(w, r) })
	})
	status, page := ask(t, h, "GET", "/", "")
	if status != 200 || strings.Contains(page, "<script>alert") {
		t.Errorf("%d; a device's name is not markup", status)
	}
	for _, want := range []string{"the hub is out of reach", "workspace:home", "alpha/small", "2030-01-02 03:04:05Z", "4 answered", "3 refused: busy", "sharing is paused",
		"5 sent · 2 waiting for the ledger, the oldest for", "connection refused", "enforce · 9 allowed · 6 denied, 1 of them without a token", "agents: 3 · heard", "the hub's, last-good",
		"in contact", "direct, quic-v1", "no: declines", "it answers faster here", "beta/small"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	for _, c := range [][2]string{{"POST", "/api/v1/join"}, {"POST", "/api/v1/pause"}, {"POST", "/api/v1/resume"}, {"GET", "/api/v1/keys"}, {"POST", "/v1/chat/completions"}} {
		if status, _ := ask(t, h, c[0], c[1], `{"invitation":"x"}`); status < 400 {
			t.Errorf("%s %s answers %d on the admin listener", c[0], c[1], status)
		}
	}
	if d.joined != "" {
		t.Error("it joined")
	}
	if guarded != 6 {
		t.Errorf("the guard saw %d of 6 requests", guarded)
	}
}

// What the admin listener does not have is an error in the shape of all errors; nothing
// is redirected.
func TestTheAdminListenerRedirectsNobody(t *testing.T) {
	h := control.Admin(&device{}, func(next http.Handler) http.Handler { return next })
	for _, c := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "//api/v1/status", 404, "not_found"}, {"GET", "/api/v1/../v1/status", 404, "not_found"}, {"GET", "/api/v1/./status", 404, "not_found"}, {"GET", "/api/v1/status/", 404, "not_found"},
		{"GET", "/nothing", 404, "not_found"}, {"POST", "/nothing", 404, "not_found"}, {"POST", "/api/v1/status", 405, "method_not_allowed"}, {"DELETE", "/", 405, "method_not_allowed"}, {"GET", "/api/v1/status", 200, ""},
		{"GET", "/api/v1/jobs?n=0", 400, "invalid_request"}, {"GET", "/api/v1/jobs/nobody", 404, "not_found"}, {"GET", "/api/v1/chain", 404, "not_found"},
	} {
		status, body := ask(t, h, c.method, c.path, "")
		var got struct {
			Error struct{ Message, Type, Code, Request_ID string }
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != c.status || got.Error.Code != c.code || (got.Error.Request_ID == "" || got.Error.Message == "" || got.Error.Type == "") != (c.code == "") {
			t.Errorf("%s %s: %d %s, %v", c.method, c.path, status, body, err)
		}
	}
}

func TestJobsAreTold(t *testing.T) {
	d := &device{}
	root, err := d.Jobs().Open(job.Record{RequestID: "req-1", Role: job.Root, Class: "complex"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Jobs().Open(job.Record{Root: root, RequestID: "req-1", Role: job.Subtask, Task: "s1", Wave: 1}); err != nil {
		t.Fatal(err)
	}
	h := control.Socket(d, edge)
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		"/api/v1/jobs": {200, `"class":"complex"`}, "/api/v1/jobs?n=0": {400, "want 1 to 256"}, "/api/v1/jobs/" + root: {200, `"task":"s1"`},
		"/api/v1/jobs/req-1": {200, `"task":"s1"`}, "/api/v1/jobs/nobody": {404, "chordwheel jobs lists"},
	} {
		if status, body := ask(t, h, "GET", path, ""); status != want.status || !strings.Contains(body, want.says) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	guarded := control.Admin(d, func(h http.Handler) http.Handler { return h })
	if _, page := ask(t, guarded, "GET", "/", ""); !strings.Contains(page, root) || !strings.Contains(page, "complex") {
		t.Error("the page does not list the request")
	}
}

// The exposition has one line for each value, and a label is never more than one.
func TestMetricsAreInTheTextFormat(t *testing.T) {
	d := &device{status: control.Status{Version: "1", Ready: true, Requests: control.Requests{Total: 7}, Receipts: &control.Receipts{Waiting: 3},
		Gating:    &control.Gating{Allowed: 5, Denied: 2, Snapshot: &control.Snapshot{Agents: 9}},
		Providers: &control.Providers{Online: 2, Counts: job.BoardCounts{Over: 3}},
		Pipeline:  control.Pipeline{Done: 4, Unscored: map[string]int64{"a\"b\n\\c": 2}}, Traffic: []control.Traffic{{Protocol: "/chordwheel/exec/1.0.0", In: 5, Out: 6}}}}
	_, body := ask(t, control.Admin(d, func(h http.Handler) http.Handler { return h }), "GET", "/metrics", "")
	for _, want := range []string{"chordwheel_requests_total 7", "chordwheel_receipts_waiting 3", `chordwheel_gate_decisions_total{decision="deny"} 2`, "chordwheel_snapshot_agents 9", "chordwheel_providers_online 2", `chordwheel_results_refused_total{reason="over"} 3`, `chordwheel_jobs_ended_total{state="done"} 4`, `chordwheel_info{version="1"} 1`,
		`chordwheel_scores_unread_total{model="a\"b\n\\c"} 2`, `chordwheel_traffic_bytes_total{protocol="/chordwheel/exec/1.0.0",direction="out"} 6`} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("no line %s in\n%s", want, body)
		}
	}
	line := regexp.MustCompile(`^(# (HELP|TYPE) chordwheel_\w+ .+|chordwheel_\w+(\{\w+="([^"\\]|\\.)*"(,\w+="([^"\\]|\\.)*")*\})? [0-9.e+]+)$`)
	for l := range strings.Lines(body) {
		if !line.MatchString(strings.TrimSuffix(l, "\n")) {
			t.Errorf("not a line: %q", l)
		}
	}
}
