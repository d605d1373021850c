package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/receipt"
)

// counter is everything behind a desk, and a record of what was asked of it.
type counter struct {
	mu        sync.Mutex
	steps     []string
	fresh     error
	truncated bool
	selected  Selected
	selects   error
	decision  Decision
	keep      error
	kept      map[string]receipt.Receipt
}

func (c *counter) step(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = append(c.steps, s)
}

func (c *counter) Fresh(time.Time) error { c.step("snapshot"); return c.fresh }

func (c *counter) Truncated(time.Time) bool { return c.truncated }

func (c *counter) Select(w *Work) (Selected, error) {
	c.step("select " + w.Model + " " + string(w.Ask))
	return c.selected, c.selects
}

func (c *counter) Agent(model string) (string, string) {
	if model == "alpha/small" {
		return "did:web:found.example", "llm.chat"
	}
	return "", ""
}

func (c *counter) Pass(_ context.Context, agent, capability string) Decision {
	c.step("gate " + agent + " " + capability)
	return c.decision
}

func (c *counter) Keep(_ context.Context, r receipt.Receipt) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keep != nil {
		return c.keep
	}
	if _, ok := c.kept[r.ID()]; !ok {
		c.kept[r.ID()] = r
	}
	return nil
}

func newCounter() *counter {
	return &counter{selected: Selected{Agent: "did:web:alpha.example", Model: "alpha/small", Capability: "translate", Method: "matched"},
		decision: Decision{Word: "allow", TokenID: "jti-1"}, kept: map[string]receipt.Receipt{}}
}

func (c *counter) desk() *Desk {
	return &Desk{Select: c, Snapshot: c, Gate: c, Receipts: c, Secret: []byte("0123456789abcdef0123456789abcdef")}
}

func deskEdge(t testing.TB, c *counter) *Edge {
	return newEdge(t, answering(), func(cfg *Config) { cfg.Desk = c.desk() })
}

const inletReq = `{"mode":"auto","messages":[{"role":"user","content":"translate this"}],"request_hash":"sha256:made-up"}`

func letIn(t testing.TB, e *Edge, body string) InletResponse {
	t.Helper()
	w := do(e, ask("POST", "/v1/inlet", body))
	var a InletResponse
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return a
}

// outletOf is the report that belongs to an inlet's answer.
func outletOf(a InletResponse, change ...string) string {
	m := map[string]any{"token_id": a.TokenID, "request_hash": a.RequestHash, "response": "bonjour", "agent_model_id": a.AgentModelID, "status": "ok",
		"transaction_id": a.TransactionID, "response_hash": "sha256:made-up"}
	for i := 0; i+1 < len(change); i += 2 {
		m[change[i]] = json.RawMessage(change[i+1])
		if change[i+1] == "" {
			delete(m, change[i])
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// The steps of an inlet stand in one order, and nothing is written.
func TestInlet(t *testing.T) {
	c := newCounter()
	a := letIn(t, deskEdge(t, c), inletReq)
	want := `snapshot|select auto "translate this"|gate did:web:alpha.example translate`
	if got := strings.Join(c.steps, "|"); got != want {
		t.Errorf("steps %s\nwant  %s", got, want)
	}
	hash, err := receipt.RequestHash([]byte(`{"mode":"auto","messages":[{"role":"user","content":"translate this"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if a.AgentModelID != "alpha/small" || a.TokenID != "jti-1" || a.RequestHash != hash || a.Status != "ok" || a.SelectionMethod != "matched" || len(a.TransactionID) != 75 {
		t.Errorf("%+v", a)
	}
	if len(c.kept) != 0 {
		t.Error("an inlet was written down")
	}
}

// A step that says no ends the inlet there, with its own code.
func TestInletRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		change func(*counter)
		code   Code
		status int
		steps  int // that were asked
	}{
		"no JSON":             {`{`, func(*counter) {}, InvalidRequest, 400, 0},
		"no messages":         {`{"mode":"auto"}`, func(*counter) {}, InvalidRequest, 400, 0},
		"another mode":        {`{"mode":"fast","messages":[{"role":"user"}]}`, func(*counter) {}, InvalidRequest, 400, 0},
		"a mode that is none": {`{"mode":1,"messages":[{"role":"user"}]}`, func(*counter) {}, InvalidRequest, 400, 0},
		"direct to nobody":    {`{"mode":"direct","messages":[{"role":"user"}]}`, func(*counter) {}, InvalidRequest, 400, 0},
		"direct to auto":      {`{"mode":"direct","model":"auto","messages":[{"role":"user"}]}`, func(*counter) {}, InvalidRequest, 400, 0},
		"no snapshot":         {inletReq, func(c *counter) { c.fresh = Refuse(NoSnapshot, "none yet") }, NoSnapshot, 503, 1},
		"a stale snapshot":    {inletReq, func(c *counter) { c.fresh = Refuse(SnapshotStale, "old") }, SnapshotStale, 503, 1},
		"no agent":            {inletReq, func(c *counter) { c.selects = Refuse(NoAgent, "nobody") }, NoAgent, 503, 2},
		"an unknown model":    {inletReq, func(c *counter) { c.selects = Refuse(ModelNotFound, "who?") }, ModelNotFound, 404, 2},
		"a gate that enforces": {inletReq, func(c *counter) {
			c.decision = Decision{Word: "deny", Err: Refuse(TokenMissing, "no token")}
		}, TokenMissing, 403, 3},
		"a suspended agent":    {inletReq, func(c *counter) { c.decision = Decision{Word: "deny", Err: Refuse(AgentSuspended, "no")} }, AgentSuspended, 403, 3},
		"an error without one": {inletReq, func(c *counter) { c.selects = errors.New("secret words") }, InternalError, 500, 2},
	} {
		t.Run(name, func(t *testing.T) {
			counter := newCounter()
			c.change(counter)
			w := do(deskEdge(t, counter), ask("POST", "/v1/inlet", c.body))
			if e := errorOf(t, w); w.Code != c.status || e.Code != string(c.code) || len(counter.steps) != c.steps || strings.Contains(e.Message, "secret") {
				t.Errorf("%d %+v after %v", w.Code, e, counter.steps)
			}
		})
	}
}

// A gate that observes lets work go on without a token, and says so by an empty id.
func TestInletGoesOnTokenless(t *testing.T) {
	c := newCounter()
	c.decision = Decision{Word: "deny"}
	a := letIn(t, deskEdge(t, c), inletReq)
	if a.TokenID != "" || len(c.steps) != 3 {
		t.Errorf("%+v %v", a, c.steps)
	}
}

// Where only peers could run a chat, nobody is known yet who could be judged.
func TestInletForNobodyYet(t *testing.T) {
	c := newCounter()
	c.selected.Agent, c.selected.Model, c.decision = "", Auto, Decision{Word: "deny", Err: Refuse(TokenMissing, "no token")}
	if a := letIn(t, deskEdge(t, c), inletReq); a.AgentModelID != Auto || a.TokenID != "" || len(c.steps) != 2 {
		t.Errorf("%+v %v", a, c.steps)
	}
}

// A device is ready while its snapshot may be used; nobody is asked for that.
func TestReadinessNeedsTheSnapshot(t *testing.T) {
	c := newCounter()
	e := deskEdge(t, c)
	if w := do(e, ask("GET", "/readyz", "")); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	c.truncated = true
	if w := do(e, ask("GET", "/readyz", "")); w.Code != 200 || w.Body.String() != `{"status":"ready","truncated":true}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	c.fresh = Refuse(SnapshotStale, "old")
	if w := do(e, ask("GET", "/readyz", "")); w.Code != 503 || errorOf(t, w).Code != "snapshot_stale" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got := strings.Join(c.steps, "|"); got != "snapshot|snapshot|snapshot" {
		t.Errorf("asked %s", got)
	}
}

// The mode follows from the model where it is not said.
func TestInletModes(t *testing.T) {
	for body, want := range map[string]string{
		`{"messages":[{"role":"user"}]}`:                               `select auto ""`,
		`{"model":"auto","messages":[{"role":"user"}]}`:                `select auto ""`,
		`{"model":"x","mode":"auto","messages":[{"role":"user"}]}`:     `select auto ""`,
		`{"model":"a/b:c","messages":[{"role":"user"}]}`:               `select a/b:c ""`,
		`{"messages":[{"role":"user"}],"mode":"direct","model":"a/b"}`: `select a/b ""`,
	} {
		c := newCounter()
		letIn(t, deskEdge(t, c), body)
		if c.steps[1] != want {
			t.Errorf("%s: %s", body, c.steps[1])
		}
	}
}

func TestOutlet(t *testing.T) {
	c := newCounter()
	e := deskEdge(t, c)
	a := letIn(t, e, inletReq)
	if open, _ := e.Inlets(time.Now()); open != 1 {
		t.Errorf("%d inlets are open", open)
	}
	for range 2 { // the second is acknowledged as well
		w := do(e, ask("POST", "/v1/outlet", outletOf(a)))
		if w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"ack":true,"transaction_id":"`+a.TransactionID+`"}` {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if len(c.kept) != 1 {
		t.Fatalf("%d receipts, want 1", len(c.kept))
	}
	for _, r := range c.kept {
		at, _ := openTransaction(c.desk().Secret, a.TransactionID, a.RequestHash, a.TokenID, a.AgentModelID)
		want := receipt.Receipt{TransactionID: a.TransactionID, MessageID: receipt.MessageID(a.TransactionID, receipt.RoleRoot), AgentDID: "did:web:alpha.example",
			Capability: "translate", RequestHash: a.RequestHash, ResponseHash: receipt.ResponseHash("bonjour", nil), TokenID: "jti-1", RequestAt: at, ResponseAt: r.ResponseAt, Status: receipt.OK}
		if r != want {
			t.Errorf("receipt %+v\nwant %+v", r, want)
		}
	}
	if open, lost := e.Inlets(time.Now()); open != 0 || lost != 0 {
		t.Errorf("%d inlets are open, %d unreported", open, lost)
	}
}

// An outlet never rejects a chat that was answered: the receipt is the best that
// can be made, and one that does not fit its inlet says so in its transaction.
func TestOutletTakesEverything(t *testing.T) {
	e0 := receipt.OutputHash(nil)
	for name, c := range map[string]struct {
		change   []string // of a good report
		body     string   // instead of one
		linked   bool
		want     func(*receipt.Receipt) // of a good receipt, besides a transaction of its own
		problems string
	}{
		"an upstream error": {change: []string{"status", `"upstream_error"`, "response", `null`}, linked: true, want: func(r *receipt.Receipt) {
			r.Status, r.ResponseHash = receipt.UpstreamError, receipt.OutputHash([]byte("null"))
		}},
		"calls of tools":          {change: []string{"response", `{"role":"assistant","content":"ok","tool_calls":[{"id":"1"}]}`}, linked: true, want: func(r *receipt.Receipt) { r.ResponseHash = receipt.ResponseHash("ok", []byte(`[{"id":"1"}]`)) }},
		"only calls of tools":     {change: []string{"response", `{"content":null,"tool_calls":[{"id":"1"}]}`}, linked: true, want: func(r *receipt.Receipt) { r.ResponseHash = receipt.ResponseHash("", []byte(`[{"id":"1"}]`)) }},
		"no transaction":          {change: []string{"transaction_id", ""}},
		"another's transaction":   {change: []string{"transaction_id", `"AAAA"`}, problems: "transaction_id"},
		"another token":           {change: []string{"token_id", `"jti-2"`}, want: func(r *receipt.Receipt) { r.TokenID = "jti-2" }, problems: "transaction_id"},
		"another request":         {change: []string{"request_hash", `"` + e0 + `"`}, want: func(r *receipt.Receipt) { r.RequestHash = e0 }, problems: "transaction_id"},
		"a hash that is none":     {change: []string{"request_hash", `"md5:1"`}, want: func(r *receipt.Receipt) { r.RequestHash = e0 }, problems: "transaction_id request_hash"},
		"an unknown status":       {change: []string{"status", `"great"`}, linked: true, problems: "status"},
		"no response":             {change: []string{"response", ""}, linked: true, want: func(r *receipt.Receipt) { r.ResponseHash = e0 }, problems: "response"},
		"a response of numbers":   {change: []string{"response", `[1]`}, linked: true, want: func(r *receipt.Receipt) { r.ResponseHash = receipt.OutputHash([]byte(`[1]`)) }, problems: "response"},
		"a token with line feeds": {change: []string{"token_id", `"a\nb"`}, want: func(r *receipt.Receipt) { r.TokenID = "" }, problems: "token_id transaction_id"},
		"no JSON":                 {body: `{"response":`, want: func(r *receipt.Receipt) { r.RequestHash, r.ResponseHash, r.TokenID, r.AgentDID = e0, e0, "", "" }, problems: "body request_hash agent_model_id response"},
		"a list":                  {body: `[]`, want: func(r *receipt.Receipt) { r.RequestHash, r.ResponseHash, r.TokenID, r.AgentDID = e0, e0, "", "" }, problems: "body request_hash agent_model_id response"},
		"numbers for texts": {body: `{"request_hash":1,"agent_model_id":2,"token_id":3,"status":4,"transaction_id":5,"response":6}`, want: func(r *receipt.Receipt) {
			r.RequestHash, r.ResponseHash, r.TokenID, r.AgentDID = e0, receipt.OutputHash([]byte("6")), "", ""
		}, problems: "token_id request_hash agent_model_id transaction_id status response"},
	} {
		t.Run(name, func(t *testing.T) {
			counter := newCounter()
			log := new(strings.Builder)
			e := newEdge(t, answering(), func(cfg *Config) { cfg.Desk, cfg.Log = counter.desk(), slog.New(slog.NewJSONHandler(log, nil)) })
			a := letIn(t, e, inletReq)
			body := c.body
			if body == "" {
				body = outletOf(a, c.change...)
			}
			w := do(e, ask("POST", "/v1/outlet", body))
			var answer OutletResponse
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 || !answer.Ack || len(counter.kept) != 1 {
				t.Fatalf("%d %s, %d receipts", w.Code, w.Body, len(counter.kept))
			}
			for _, got := range counter.kept {
				want := receipt.Receipt{TransactionID: a.TransactionID, AgentDID: "did:web:alpha.example", Capability: "translate", RequestHash: a.RequestHash,
					ResponseHash: receipt.ResponseHash("bonjour", nil), TokenID: "jti-1", Status: receipt.OK}
				if !c.linked {
					want.TransactionID, want.AgentDID, want.Capability = got.TransactionID, "did:web:found.example", "llm.chat"
					if !strings.HasPrefix(got.TransactionID, unlinked) || answer.TransactionID != got.TransactionID {
						t.Errorf("transaction %s", got.TransactionID)
					}
				}
				if c.want != nil {
					c.want(&want)
				}
				want.MessageID, want.RequestAt, want.ResponseAt = receipt.MessageID(want.TransactionID, receipt.RoleRoot), got.RequestAt, got.ResponseAt
				if got != want {
					t.Errorf("receipt %+v\nwant    %+v", got, want)
				}
				key := chaintest.Key(1)
				got.SeekerDID = key.PeerID().DID()
				if _, err := got.Sign(key); err != nil {
					t.Errorf("no receipt: %v", err)
				}
			}
			if said := strings.Contains(log.String(), "members"); said != (c.problems != "") || !strings.Contains(log.String(), c.problems) {
				t.Errorf("want %q said: %s", c.problems, log)
			}
			if strings.Contains(log.String(), "bonjour") {
				t.Error("the log has content")
			}
		})
	}
}

// A spool that is full is an error to the caller: no acknowledgement without a disk.
func TestOutletSaysWhenNothingWasKept(t *testing.T) {
	c := newCounter()
	e := deskEdge(t, c)
	a := letIn(t, e, inletReq)
	c.keep = Refuse(SpoolFull, "no room")
	if w := do(e, ask("POST", "/v1/outlet", outletOf(a))); w.Code != 503 || errorOf(t, w).Code != "spool_full" || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if open, _ := e.Inlets(time.Now()); open != 1 {
		t.Error("the inlet counts as reported")
	}
	c.keep = nil
	if w := do(e, ask("POST", "/v1/outlet", outletOf(a))); w.Code != 200 || len(c.kept) != 1 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A report without a word is one that cannot be read, as any other.
func TestAnEmptyOutlet(t *testing.T) {
	c := newCounter()
	r := ask("POST", "/v1/outlet", "")
	r.Header.Set("Content-Type", "application/json")
	if w := do(deskEdge(t, c), r); w.Code != 200 || len(c.kept) != 1 {
		t.Errorf("%d %s, %d receipts", w.Code, w.Body, len(c.kept))
	}
}

// An outlet holds a whole answer, which may be longer than any request.
func TestOutletOf20MiB(t *testing.T) {
	c := newCounter()
	e := deskEdge(t, c)
	text := strings.Repeat("words ", 20<<20/6)
	body := outletOf(letIn(t, e, inletReq), "response", `"`+text+`"`)
	if w := do(e, ask("POST", "/v1/outlet", body)); w.Code != 200 {
		t.Fatalf("%d %.200s", w.Code, w.Body)
	}
	for _, r := range c.kept {
		if r.ResponseHash != receipt.ResponseHash(text, nil) {
			t.Error("another hash")
		}
	}
}

// Inlets whose outlet never came are counted.
func TestUnreportedInlets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := deskEdge(t, newCounter())
		a := letIn(t, e, inletReq)
		letIn(t, e, inletReq)
		do(e, ask("POST", "/v1/outlet", outletOf(a)))
		time.Sleep(outletWait)
		letIn(t, e, inletReq)
		if open, lost := e.Inlets(time.Now()); open != 1 || lost != 1 {
			t.Errorf("%d open, %d unreported", open, lost)
		}
	})
	e := deskEdge(t, newCounter())
	now := time.Now()
	for i := range maxInlets + 10 {
		e.inlets.begin(fmt.Sprint(i), Selected{}, now)
	}
	if open, lost := e.Inlets(now); open != maxInlets || lost != 10 {
		t.Errorf("%d open, %d unreported", open, lost)
	}
	for i := range 4 * maxInlets { // each is reported at once
		e.inlets.begin(fmt.Sprint("x", i), Selected{}, now)
		e.inlets.end(fmt.Sprint("x", i))
	}
	if n := len(e.inlets.order); n > 3*maxInlets {
		t.Errorf("%d places for %d open inlets", n, maxInlets)
	}
}

// A transaction id holds for what it was made for, and for nothing else.
func TestTransactions(t *testing.T) {
	secret, now := []byte("s"), time.UnixMilli(1764460800123)
	id := newTransaction(secret, now, "h", "t", "m")
	if at, ok := openTransaction(secret, id, "h", "t", "m"); !ok || !at.Equal(now) {
		t.Errorf("%v %v", at, ok)
	}
	for _, c := range [][4]string{{"z", "h", "t", "m"}, {"s", "", "t", "m"}, {"s", "h", "tm", ""}, {"s", "ht", "", "m"}, {"s", "h", "t", "n"}} {
		if _, ok := openTransaction([]byte(c[0]), id, c[1], c[2], c[3]); ok {
			t.Errorf("holds for %v", c)
		}
	}
	for i := range id {
		other := []byte(id)
		other[i] ^= 1
		if _, ok := openTransaction(secret, string(other), "h", "t", "m"); ok {
			t.Errorf("holds with another byte %d", i)
		}
	}
	for _, bad := range []string{"", "AAAA", id + "A", id[1:], id + "=", id + "\n"} {
		if _, ok := openTransaction(secret, bad, "h", "t", "m"); ok {
			t.Errorf("%q holds", bad)
		}
	}
}

// A device that keeps no receipts says so.
func TestNoDesk(t *testing.T) {
	e := newEdge(t, answering())
	for path, code := range map[string]string{"/v1/inlet": "no_snapshot", "/v1/outlet": "spool_full"} {
		if w := do(e, ask("POST", path, `{}`)); w.Code != 503 || errorOf(t, w).Code != code {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if _, err := New(Config{Worker: answering(), Desk: &Desk{}}); err == nil {
		t.Error("an empty desk was taken")
	}
}

func TestDeskIsTheDocuments(t *testing.T) {
	router, err := gorillamux.NewRouter(document(t))
	if err != nil {
		t.Fatal(err)
	}
	e := deskEdge(t, newCounter())
	a := letIn(t, e, inletReq)
	full := newCounter()
	full.keep = Refuse(SpoolFull, "no room")
	for _, c := range []struct {
		e          *Edge
		path, body string
		status     int
	}{
		{e, "/v1/inlet", inletReq, 200}, {e, "/v1/outlet", outletOf(a), 200}, {deskEdge(t, full), "/v1/outlet", outletOf(a), 503},
		{e, "/v1/outlet", outletOf(a, "response", `{"content":"x","tool_calls":[]}`, "transaction_id", ""), 200},
	} {
		check(t, router, c.e, func() *http.Request { return ask("POST", c.path, c.body) }, c.status)
	}
	for name, v := range map[string]any{"InletResponse": InletResponse{}, "OutletResponse": OutletResponse{}} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{}
		for _, field := range document(t).Components.Schemas[name].Value.Required {
			want[field] = true
		}
		if have := maps.Collect(func(yield func(string, bool) bool) {
			for k := range got {
				if !yield(k, true) {
					return
				}
			}
		}); !maps.Equal(have, want) {
			t.Errorf("%s: %v, openapi.yaml %v", name, have, want)
		}
	}
}

func FuzzReport(f *testing.F) {
	e := deskEdge(f, newCounter())
	f.Add([]byte(outletOf(letIn(f, e, inletReq))))
	f.Add([]byte(`{"response":{"content":[1],"tool_calls":{}}}`))
	key := chaintest.Key(1)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := e.readReport(b, time.Now())
		r.SeekerDID = key.PeerID().DID()
		if _, err := r.Sign(key); err != nil {
			t.Errorf("%q makes no receipt: %v", b, err)
		}
	})
}
