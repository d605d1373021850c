package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

func TestKeys(t *testing.T) {
	rotating := func(c *Config) { c.NextKey = "sk-next" }
	for _, c := range []struct {
		name   string
		change func(*Config)
		auth   []string
		ok     bool
	}{
		{"the key", nil, []string{"Bearer " + testKey}, true},
		{"scheme in small letters", nil, []string{"bearer " + testKey}, true},
		{"the next key", rotating, []string{"Bearer sk-next"}, true},
		{"the key during a rotation", rotating, []string{"Bearer " + testKey}, true},
		{"the next key without a rotation", nil, []string{"Bearer sk-next"}, false},
		{"none", nil, nil, false},
		{"empty", nil, []string{""}, false},
		{"bare scheme", nil, []string{"Bearer"}, false},
		{"empty key", nil, []string{"Bearer "}, false},
		{"key without scheme", nil, []string{testKey}, false},
		{"other scheme", nil, []string{"Basic " + testKey}, false},
		{"prefix of the key", nil, []string{"Bearer " + testKey[:8]}, false},
		{"key and more", nil, []string{"Bearer " + testKey + "0"}, false},
		{"two spaces", nil, []string{"Bearer  " + testKey}, false},
		{"trailing blank", nil, []string{"Bearer " + testKey + " "}, false},
		{"twice the same", nil, []string{"Bearer " + testKey, "Bearer " + testKey}, false},
		{"right then wrong", nil, []string{"Bearer " + testKey, "Bearer x"}, false},
		{"no key configured", func(c *Config) { c.Key = "" }, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := c.change
			if change == nil {
				change = func(*Config) {}
			}
			r := ask("GET", "/v1/models", "", "Authorization", "")
			if c.auth != nil {
				r.Header["Authorization"] = c.auth
			}
			w := do(newEdge(t, answering(), change), r)
			if c.ok {
				if w.Code != 200 {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				return
			}
			if e := errorOf(t, w); w.Code != 401 || e.Code != "unauthorized" || e.Type != "authentication_error" || w.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if strings.Contains(w.Body.String(), "sk-") {
				t.Errorf("the answer shows a key: %s", w.Body)
			}
		})
	}
}

func TestPathsAndMethods(t *testing.T) {
	for _, c := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/v1/models", 200, "", ""},
		{"HEAD", "/v1/models", 200, "", ""},
		{"GET", "/v1/models?limit=3", 200, "", ""},
		{"GET", "/v1/models/auto", 200, "", ""},
		{"GET", "/v1/models/alpha/small", 200, "", ""},
		{"GET", "/v1/models/alpha%2Fsmall", 200, "", ""},
		{"GET", "/v1/models/alpha%2fsmall", 200, "", ""},
		{"GET", "/v1/models/qwen2.5:7b", 200, "", ""},
		{"GET", "/v1/models/qwen2.5%3A7b", 200, "", ""},
		{"GET", "/v1/models/nobody", 404, "model_not_found", ""},
		{"GET", "/healthz", 200, "", ""},
		{"GET", "/readyz", 200, "", ""},
		{"POST", "/v1/models", 405, "method_not_allowed", "GET, HEAD"},
		{"DELETE", "/v1/models/auto", 405, "method_not_allowed", "GET, HEAD"},
		{"get", "/v1/models", 405, "method_not_allowed", "GET, HEAD"},
		{"GET", "/v1/chat/completions", 405, "method_not_allowed", "POST"},
		{"HEAD", "/v1/chat/completions", 405, "", "POST"},
		{"PUT", "/api/v1/work/embed.text", 405, "method_not_allowed", "POST"},
		{"OPTIONS", "/v1/models", 405, "method_not_allowed", "GET, HEAD"},
		{"TRACE", "/healthz", 405, "method_not_allowed", "GET, HEAD"},
		{"GET", "/", 404, "not_found", ""},
		{"GET", "/v1", 404, "not_found", ""},
		{"GET", "/v1/models/", 404, "not_found", ""},
		{"GET", "//v1/models", 404, "not_found", ""},
		{"GET", "/v1//models", 404, "not_found", ""},
		{"GET", "/v1/models//auto", 404, "not_found", ""},
		{"GET", "/v1/models/../models", 404, "not_found", ""},
		{"GET", "/v1/models/%2e%2e/models", 404, "not_found", ""},
		{"GET", "/v1/models/%2e", 404, "not_found", ""},
		{"GET", "/v1/../healthz", 404, "not_found", ""},
		{"GET", "/v1/%2e%2e/healthz", 404, "not_found", ""},
		{"GET", "/./healthz", 404, "not_found", ""},
		{"GET", "/healthz/", 404, "not_found", ""},
		{"GET", "/Healthz", 404, "not_found", ""},
		{"GET", "/health%7a", 404, "not_found", ""},
		{"GET", "/v1/models/{id}", 404, "model_not_found", ""},
		{"GET", "/api/v1/work/{primitive}", 404, "not_found", ""},
		{"GET", "/debug/pprof/", 404, "not_found", ""},
		{"GET", "/metrics", 404, "not_found", ""},
		{"POST", "/v1/chat/completions/", 404, "not_found", ""},
		{"POST", "/v1/embeddings", 404, "not_found", ""},
		{"POST", "/api/v1/work/", 404, "not_found", ""},
		{"POST", "/api/v1/work/a/b", 404, "not_found", ""},
		{"POST", "/api/v1/work/UPPER", 404, "not_found", ""},
		{"POST", "/api/v1/work/embed%2Etext", 404, "not_found", ""},
		{"OPTIONS", "*", 404, "not_found", ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			r := ask(c.method, "/", "")
			if c.method != "OPTIONS" || c.path != "*" {
				u, err := r.URL.Parse("http://127.0.0.1:7420")
				if err != nil {
					t.Fatal(err)
				}
				path, query, _ := strings.Cut(c.path, "?")
				u.RawPath, u.RawQuery = path, query
				u.Path = unescape(t, path)
				r.URL = u
			} else {
				r.URL.Path = "*"
			}
			w := do(newEdge(t, answering()), r)
			if w.Code != c.status || w.Header().Get("Allow") != c.allow {
				t.Fatalf("%d, Allow %q: %s", w.Code, w.Header().Get("Allow"), w.Body)
			}
			if c.method == "HEAD" && w.Body.Len() > 0 {
				t.Errorf("HEAD got a body: %s", w.Body)
			}
			if c.code != "" {
				if e := errorOf(t, w); e.Code != c.code {
					t.Errorf("code %s, want %s", e.Code, c.code)
				}
			}
			if w.Header().Get("Location") != "" || w.Header().Get(headerRequestID) == "" {
				t.Errorf("headers %v", w.Header())
			}
		})
	}
}

func unescape(t *testing.T, s string) string {
	t.Helper()
	r, err := http.NewRequest("GET", "http://x"+s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.URL.Path
}

func TestBodies(t *testing.T) {
	small := func(c *Config) { c.Limits.Body = int64(len(helloReq)) }
	for _, c := range []struct {
		name, body string
		header     []string
		status     int
		code       string
	}{
		{"at the cap", helloReq, nil, 200, ""},
		{"one over the cap", helloReq + " ", nil, 413, "request_too_large"},
		{"over the cap without a length", helloReq + " ", []string{"chunked", "1"}, 413, "request_too_large"},
		{"at the cap without a length", helloReq, []string{"chunked", "1"}, 200, ""},
		{"with a charset", helloReq, []string{"Content-Type", "application/json; charset=UTF-8"}, 200, ""},
		{"in capitals", helloReq, []string{"Content-Type", "Application/JSON"}, 200, ""},
		{"identity", helloReq, []string{"Content-Encoding", "identity"}, 200, ""},
		{"foreign headers", helloReq, []string{"X-Stainless-Lang", "js"}, 200, ""},
		{"another charset", helloReq, []string{"Content-Type", "application/json; charset=latin1"}, 415, "unsupported_media_type"},
		{"text", helloReq, []string{"Content-Type", "text/plain"}, 415, "unsupported_media_type"},
		{"form", helloReq, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"},
		{"no type", helloReq, []string{"Content-Type", ""}, 415, "unsupported_media_type"},
		{"gzip", helloReq, []string{"Content-Encoding", "gzip"}, 415, "unsupported_media_type"},
		{"not JSON", "hello", nil, 400, "invalid_request"},
		{"empty", "", []string{"Content-Type", "application/json"}, 400, "invalid_request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ask("POST", "/v1/chat/completions", c.body, c.header...)
			if r.Header.Get("chunked") != "" {
				r.Header.Del("chunked")
				r.ContentLength = -1
			}
			w := do(newEdge(t, answering(), small), r)
			if w.Code != c.status {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if c.code != "" {
				if e := errorOf(t, w); e.Code != c.code {
					t.Errorf("code %s, want %s", e.Code, c.code)
				}
			}
		})
	}
}

func TestModels(t *testing.T) {
	get := func(t *testing.T, path string, change ...func(*Config)) string {
		w := do(newEdge(t, answering(), change...), ask("GET", path, ""))
		if w.Code != 200 {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		return sortedMembers(w.Body.String())
	}
	const auto = `{"created":1700000000,"id":"auto","name":"Auto","object":"model","owned_by":"chordwheel"}`
	const small = `{"created":0,"id":"alpha/small","name":"Small","object":"model","owned_by":"alpha"}`
	const qwen = `{"created":0,"id":"qwen2.5:7b","object":"model","owned_by":"local"}`
	listing := func(c *Config) { c.ListAgents = true }
	for _, c := range []struct{ got, want string }{
		{get(t, "/v1/models"), `{"data":[` + auto + `],"object":"list"}`},
		{get(t, "/v1/models", listing), `{"data":[` + auto + `,` + small + `,` + qwen + `],"object":"list"}`},
		{get(t, "/v1/models/auto"), auto},
		{get(t, "/v1/models/alpha/small"), small},
		{get(t, "/v1/models/Small"), strings.Replace(small, `"id":"alpha/small"`, `"id":"Small"`, 1)}, // a chat may name it so as well
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
}

func TestReadiness(t *testing.T) {
	f := answering()
	e := newEdge(t, f)
	if w := do(e, ask("GET", "/readyz", "", "Authorization", "")); w.Code != 200 || w.Body.String() != `{"status":"ready"}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.ready = fmt.Errorf("wrapped: %w", Refuse(ChainExpired, "the chain expired an hour ago"))
	w := do(e, ask("GET", "/readyz", "", "Authorization", ""))
	if d := errorOf(t, w); w.Code != 503 || d.Code != "chain_expired" || w.Header().Get("Retry-After") != "30" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := do(e, ask("GET", "/healthz", "", "Authorization", "")); w.Code != 200 || w.Body.String() != `{"status":"ok"}` {
		t.Errorf("alive: %d %s", w.Code, w.Body)
	}
	f.ready = nil
	if err := e.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if w := do(e, ask("GET", "/readyz", "")); w.Code != 503 {
		t.Errorf("while shutting down: %d %s", w.Code, w.Body)
	}
	if w := do(e, ask("POST", "/v1/chat/completions", helloReq)); w.Code != 503 {
		t.Errorf("work while shutting down: %d %s", w.Code, w.Body)
	}
}

func TestWork(t *testing.T) {
	f := answering()
	f.do = func(_ context.Context, w *Work, deliver walk.Deliver) (walk.Result, error) {
		out := `{"vector": [1, 2], "note":"<&>"}`
		if w.Primitive == "broken" {
			out = "<html>"
		}
		if deliver(attempt(3), [][]byte{[]byte(out)}) != nil {
			return walk.Result{End: walk.Left}, nil
		}
		return walk.Result{End: walk.Answered, Option: "alpha/small", Attempts: 3}, nil
	}
	e := newEdge(t, f)
	w := do(e, ask("POST", "/api/v1/work/embed.text", `{"input":"x"}`, headerRequestID, "r1"))
	want := `{"attempts":3,"option":"alpha/small","output":{"note":"<&>","vector":[1,2]},"request_id":"r1"}`
	if w.Code != 200 || !strings.Contains(w.Body.String(), "<&>") || sortedMembers(w.Body.String()) != sortedMembers(want) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w.Header().Get(headerOption) != "alpha/small" || w.Header().Get(headerAttempts) != "3" {
		t.Errorf("%v", w.Header())
	}
	w = do(e, ask("POST", "/api/v1/work/broken", `{"input":"x"}`))
	if d := errorOf(t, w); w.Code != 502 || d.Code != "upstream_error" || strings.Contains(w.Body.String(), "html") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Panics and errors of ours are answered in the error shape, and neither the
// answer nor the log has their words, which may hold content.
func TestPanicsAndForeignErrors(t *testing.T) {
	const secret = "CANARY-7f3a"
	for _, c := range []struct {
		name   string
		body   string
		do     func(context.Context, *Work, walk.Deliver) (walk.Result, error)
		status int
		body2  string
	}{
		{"panic before the answer", helloReq, func(context.Context, *Work, walk.Deliver) (walk.Result, error) { panic(secret) }, 500, "internal_error"},
		{"panic with an error", helloReq, func(context.Context, *Work, walk.Deliver) (walk.Result, error) { panic(errors.New(secret)) }, 500, "internal_error"},
		{"panic in a stream", streamReq, func(_ context.Context, _ *Work, d walk.Deliver) (walk.Result, error) {
			_ = d(attempt(1), event("{}"))
			panic(secret)
		}, 200, "internal_error"},
		{"foreign error", helloReq, func(context.Context, *Work, walk.Deliver) (walk.Result, error) {
			return walk.Result{}, errors.New(secret)
		}, 500, "internal_error"},
		{"answered without an answer", helloReq, func(context.Context, *Work, walk.Deliver) (walk.Result, error) { return answered() }, 500, "internal_error"},
		{"stream answered without an event", streamReq, func(context.Context, *Work, walk.Deliver) (walk.Result, error) { return answered() }, 500, "internal_error"},
		{"unknown code", helloReq, func(context.Context, *Work, walk.Deliver) (walk.Result, error) {
			return walk.Result{}, Refuse("teapot", "short")
		}, 500, "teapot"},
		{"left, but the caller is there", helloReq, func(context.Context, *Work, walk.Deliver) (walk.Result, error) {
			return walk.Result{End: walk.Left}, nil
		}, 500, "internal_error"},
		{"unknown end", helloReq, func(context.Context, *Work, walk.Deliver) (walk.Result, error) { return walk.Result{End: "odd"}, nil }, 500, "internal_error"},
		{"unknown model", helloReq, func(context.Context, *Work, walk.Deliver) (walk.Result, error) {
			return walk.Result{}, Refuse(ModelNotFound, "no model %q", "x")
		}, 404, "model_not_found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			e := newEdge(t, &fake{do: c.do}, func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
			w := do(e, ask("POST", "/v1/chat/completions", c.body))
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.body2) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if c.status == 200 && !strings.HasSuffix(w.Body.String(), "\n\ndata: [DONE]\n\n") {
				t.Errorf("the stream ends with %s", w.Body)
			}
			if strings.Contains(w.Body.String(), secret) || strings.Contains(log.String(), secret) {
				t.Errorf("the words got out: %s\n%s", w.Body, log.String())
			}
			if strings.HasPrefix(c.name, "panic") && !strings.Contains(log.String(), `"msg":"panic"`) {
				t.Errorf("no trace of the panic: %s", log.String())
			}
		})
	}
}

// One line a request, JSON in every case, no content.
func TestLog(t *testing.T) {
	var log bytes.Buffer
	e := newEdge(t, answering(), func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
	do(e, ask("POST", "/v1/chat/completions", strings.Replace(streamReq, "hello", "CANARY", 1), headerRequestID, "r1", "X-Chordwheel-Session", "CANARY"))
	do(e, ask("POST", "/v1/chat/completions", `{"model":"CANARY"}`, headerRequestID, "r2", "User-Agent", "CANARY"))
	do(e, ask("GET", "/CANARY", "", headerRequestID, "r3", "Authorization", "Bearer CANARY"))
	do(e, ask("GET", "/healthz", "")) // debug level
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	want := []map[string]any{
		{"request_id": "r1", "route": "/v1/chat/completions", "status": 200.0, "code": "", "option": "alpha/small", "attempts": 2.0, "end": "answered", "stream": true},
		{"request_id": "r2", "route": "/v1/chat/completions", "status": 400.0, "code": "invalid_request", "stream": false},
		{"request_id": "r3", "route": "none", "status": 404.0, "code": "not_found"},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %s", len(lines), log.String())
	}
	for i, l := range lines {
		var got map[string]any
		if err := json.Unmarshal([]byte(l), &got); err != nil {
			t.Fatal(err)
		}
		for k, v := range want[i] {
			if got[k] != v {
				t.Errorf("line %d: %s is %v, want %v", i, k, got[k], v)
			}
		}
	}
	if strings.Contains(log.String(), "CANARY") {
		t.Errorf("content in the log: %s", log.String())
	}
}

// No character of any field makes a second line of a log, or moves a terminal's cursor.
func TestNothingIsInjectedIntoTheLog(t *testing.T) {
	var inJSON, inText bytes.Buffer
	for name, log := range map[string]slog.Handler{"JSON": slog.NewJSONHandler(&inJSON, nil), "text": slog.NewTextHandler(&inText, nil)} {
		worker := &fake{do: func(context.Context, *Work, walk.Deliver) (walk.Result, error) {
			return walk.Result{Option: "alpha/\x1b[2J\nsmall", Attempts: 1}, Refuse(NoAgent, "nobody")
		}}
		e := newEdge(t, worker, func(c *Config) { c.Log, c.Desk = slog.New(log), newCounter().desk() })
		asked := 0
		for c := rune(0); c < 0x20; c++ {
			for _, hostile := range []string{"a" + string(c) + `{"level":"ERROR"}`, "a\u2028" + string(c), "\x1b[31m" + string(c) + "\x7f\u0085", strings.Repeat(string(c), 5000)} {
				text, _ := json.Marshal(hostile)
				for _, path := range []string{"/v1/chat/completions", "/v1/inlet", "/v1/outlet", "/api/v1/work/llm.chat"} {
					r := ask("POST", path, fmt.Sprintf(`{"model":%s,"mode":%[1]s,"user":%[1]s,"status":%[1]s,"token_id":%[1]s,"request_hash":%[1]s,"transaction_id":%[1]s,"messages":[{"role":"user","content":"x"}]}`, text))
					r.Header["X-Chordwheel-Request-Id"], r.Header["User-Agent"], r.Header["X-Chordwheel-Session"], r.Header["Origin"] = []string{hostile}, []string{hostile}, []string{hostile}, nil
					do(e, r)
					asked++
				}
				r := ask("GET", "/healthz", "")
				r.Method, r.URL.Path, r.RequestURI, r.Host = "GET"+hostile, "/v1/"+hostile, "/v1/"+hostile, hostile
				do(e, r)
				asked++
			}
		}
		if name == "text" && inText.Len() == 0 || asked != 32*4*5 {
			t.Fatalf("%s: %d asked", name, asked)
		}
	}
	requests := 0
	for line := range strings.Lines(inJSON.String()) {
		var got struct {
			Msg   string `json:"msg"`
			Level string `json:"level"`
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.Level == "ERROR" {
			t.Fatalf("%v: %q", err, line)
		}
		if got.Msg == "request" {
			requests++
		}
	}
	if requests != 32*4*5 {
		t.Errorf("%d lines of requests, want %d", requests, 32*4*5)
	}
	for _, log := range []string{inJSON.String(), inText.String()} {
		if at := strings.IndexFunc(log, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f || r == 0x85 || r == 0x2028 }); at >= 0 {
			t.Errorf("%q", log[max(0, at-200):at+10])
		}
	}
}

// What an upstream calls its refusal is foreign text: it goes to the caller, and
// not to the log.
func TestAnUpstreamsWordsAreNotLogged(t *testing.T) {
	var log bytes.Buffer
	says := &walk.Answer{Status: 422, Body: []byte(`{"error":{"message":"CANARY","type":"CANARY","param":"CANARY","code":"CANARY"}}`)}
	e := newEdge(t, failing(walk.Result{End: walk.Refused, Option: "alpha/small", Attempts: 1, Answer: says}, nil), func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
	for _, body := range []string{helloReq, streamReq} {
		if w := do(e, ask("POST", "/v1/chat/completions", body)); strings.Count(w.Body.String(), "CANARY") != 4 {
			t.Errorf("the caller got %s", w.Body)
		}
	}
	if strings.Contains(log.String(), "CANARY") || strings.Count(log.String(), `"code":"invalid_request"`) != 2 {
		t.Errorf("log: %s", log.String())
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"next key alone", Config{NextKey: "x"}, "ORCH_API_KEY_NEXT"},
		{"host with a path", Config{Hosts: []string{"box/x"}}, "CHORDWHEEL_HOSTS"},
		{"empty host", Config{Hosts: []string{""}}, "CHORDWHEEL_HOSTS"},
		{"any origin", Config{Origins: []string{"*"}}, "CHORDWHEEL_ORIGINS"},
		{"wildcard origin", Config{Origins: []string{"https://*.example"}}, "CHORDWHEEL_ORIGINS"},
		{"origin with a path", Config{Origins: []string{"https://a.example/"}}, "CHORDWHEEL_ORIGINS"},
		{"origin without scheme", Config{Origins: []string{"a.example"}}, "CHORDWHEEL_ORIGINS"},
		{"giant body", Config{Limits: Limits{Body: 1 << 40}}, "body"},
		{"negative limit", Config{Limits: Limits{Idle: -1}}, "negative"},
	} {
		c.cfg.Worker = answering()
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("no worker: no error")
	}
}

// Without a key only loopback is served.
func TestServeWithoutAKey(t *testing.T) {
	e := newEdge(t, answering(), func(c *Config) { c.Key = "" })
	l := &addressed{pipes: newPipes(), addr: &net.TCPAddr{IP: net.IPv4(192, 168, 1, 7), Port: 7420}}
	if err := e.Serve(l); !errors.Is(err, ErrNoKey) {
		t.Errorf("got %v", err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("the listener is open")
	}
	for _, a := range []struct {
		ip   net.IP
		want bool
	}{{net.IPv4(127, 0, 0, 5), true}, {net.IPv6loopback, true}, {net.IPv4zero, false}, {net.IPv6zero, false}, {nil, false}, {net.IPv4(10, 0, 0, 1), false}} {
		if got := isLoopback(&net.TCPAddr{IP: a.ip}); got != a.want {
			t.Errorf("%v: loopback is %v", a.ip, got)
		}
	}
}

type addressed struct {
	*pipes
	addr net.Addr
}

func (a *addressed) Addr() net.Addr { return a.addr }

// TestAPeerThatAnsweredIsNamed: by its name where a header can hold it, and by
// its identity always; in the log as well.
func TestAPeerThatAnsweredIsNamed(t *testing.T) {
	for peer, want := range map[chain.PeerID]string{"": "", "12D3b": "box/12D3b", "12D3c": "12D3c", "12D3d": "12D3d", "12D3x": "12D3x"} {
		for _, body := range []string{helloReq, streamReq} {
			f := answering()
			f.do = func(_ context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
				a := attempt(1)
				a.Peer = peer
				if deliver(a, [][]byte{[]byte(whole)}) != nil {
					return walk.Result{End: walk.Left}, nil
				}
				return walk.Result{End: walk.Answered, Option: "alpha/small", Attempts: 1, Delivered: true}, nil
			}
			var log bytes.Buffer
			e := newEdge(t, f, func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
			w := do(e, ask("POST", "/v1/chat/completions", body))
			if got := w.Header().Get(headerPeer); got != want {
				t.Errorf("peer %q: header %q, want %q", peer, got, want)
			}
			if !strings.Contains(log.String(), `"peer":"`+want+`"`) {
				t.Errorf("peer %q: log %s", peer, log.String())
			}
		}
	}
}
