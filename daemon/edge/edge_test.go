package edge

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/apps"
)

// fake is a Worker made of functions.
type fake struct {
	do     func(ctx context.Context, w *Work, deliver walk.Deliver) (walk.Result, error)
	models Models
	ready  error
}

func (f *fake) Do(ctx context.Context, w *Work, deliver walk.Deliver) (walk.Result, error) {
	return f.do(ctx, w, deliver)
}
func (f *fake) Models(app *apps.App) Models {
	m := f.models
	m.Agents = nil
	for _, a := range f.models.Agents {
		if app.Allows(a.ID) {
			m.Agents = append(m.Agents, a)
		}
	}
	return m
}
func (f *fake) Ready() error { return f.ready }
func (f *fake) PeerName(p chain.PeerID) string {
	return map[chain.PeerID]string{"12D3b": "box", "12D3c": "my box", "12D3d": "a/b"}[p]
}

const (
	testKey  = "sk-test-0123456789"
	helloReq = `{"model":"auto","messages":[{"role":"user","content":"hello"}]}`
	whole    = `{"id":"c1","object":"chat.completion","created":1,"model":"auto","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`
)

func attempt(n int) walk.Attempt {
	return walk.Attempt{Number: n, Option: chain.Option{ID: "alpha/small"}}
}

// answering is a Worker that gives one whole answer or a few events.
func answering() *fake {
	return &fake{
		models: Models{Issued: time.Unix(1700000000, 0), Agents: []Model{{ID: "alpha/small", Name: "Small", OwnedBy: "alpha"}, {ID: "qwen2.5:7b", OwnedBy: "local"}}},
		do: func(_ context.Context, w *Work, deliver walk.Deliver) (walk.Result, error) {
			res := walk.Result{End: walk.Answered, Option: "alpha/small", Attempts: 2, Delivered: true}
			pieces := []string{whole}
			if w.Stream {
				pieces = []string{`{"choices":[{"index":0,"delta":{"role":"assistant","content":"h"}}]}`, `{"choices":[{"index":0,"delta":{"content":"i"},"finish_reason":"stop"}]}`}
			}
			for _, p := range pieces {
				if err := deliver(attempt(2), [][]byte{[]byte(p)}); err != nil {
					return walk.Result{End: walk.Left}, nil
				}
			}
			return res, nil
		},
	}
}

func newEdge(t testing.TB, w Worker, change ...func(*Config)) *Edge {
	t.Helper()
	cfg := Config{Worker: w, Key: testKey}
	for _, c := range change {
		c(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// ask makes a request with the key, as from this machine.
func ask(method, path, body string, header ...string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequest(method, path, nil)
	}
	r.Host = "127.0.0.1:7420"
	r.Header.Set("Authorization", "Bearer "+testKey)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "" {
			r.Header.Del(header[i])
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func do(e *Edge, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

// errorOf decodes an answer in the error shape.
func errorOf(t testing.TB, w *httptest.ResponseRecorder) ErrorDetail {
	t.Helper()
	var e ErrorResponse
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
		t.Fatalf("status %d, not the error shape: %v: %s", w.Code, err, w.Body)
	}
	if e.Error.Message == "" || e.Error.Type == "" || e.Error.Code == "" || e.Error.RequestID == "" {
		t.Errorf("incomplete error: %s", w.Body)
	}
	if got := w.Header().Get(headerRequestID); got != e.Error.RequestID {
		t.Errorf("request id %q in the header, %q in the body", got, e.Error.RequestID)
	}
	return e.Error
}

func TestPlainChat(t *testing.T) {
	var got *Work
	f := answering()
	inner := f.do
	f.do = func(ctx context.Context, w *Work, d walk.Deliver) (walk.Result, error) {
		got = w
		return inner(ctx, w, d)
	}
	w := do(newEdge(t, f), ask("POST", "/v1/chat/completions", helloReq, "X-Chordwheel-Request-Id", "r.1"))
	if w.Code != 200 || w.Body.String() != whole {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for name, want := range map[string]string{"Content-Type": "application/json", headerRequestID: "r.1", headerOption: "alpha/small", headerAttempts: "2"} {
		if w.Header().Get(name) != want {
			t.Errorf("%s: %q, want %q", name, w.Header().Get(name), want)
		}
	}
	if string(got.Body) != helloReq || got.Model != "auto" || got.Stream || got.Primitive != chain.LLMChat || got.ID != "r.1" {
		t.Errorf("work is %+v", got)
	}
}

func TestStreamedChat(t *testing.T) {
	w := do(newEdge(t, answering()), ask("POST", "/v1/chat/completions", `{"stream":true,`+helloReq[1:]))
	want := "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"h\"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"i\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	if w.Code != 200 || w.Body.String() != want {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no", headerOption: "alpha/small", headerAttempts: "2"} {
		if w.Header().Get(name) != want {
			t.Errorf("%s: %q, want %q", name, w.Header().Get(name), want)
		}
	}
}

// sortedMembers gives JSON with the members of objects in order.
func sortedMembers(s string) string {
	var v any
	if json.Unmarshal([]byte(s), &v) != nil {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return s
	}
	return string(b)
}
