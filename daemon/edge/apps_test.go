package edge

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/apps"
)

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read before the key was checked")
	return 0, io.EOF
}

// An application has a key of its own beside the device's, and what is done for it
// says so.
func TestApplications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no second passes between its requests
		book := apps.New()
		key, err := book.Add(apps.Rule{Name: "notes", Models: []string{"alpha/*"}, Rate: 2}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		f := answering()
		var got *apps.App
		inner := f.do
		f.do = func(ctx context.Context, w *Work, d walk.Deliver) (walk.Result, error) {
			got = w.App
			return inner(ctx, w, d)
		}
		e := newEdge(t, f, func(c *Config) { c.Apps, c.ListAgents = book, true })
		with := func(token string) *http.Request {
			return ask("POST", "/v1/chat/completions", helloReq, "Authorization", "Bearer "+token)
		}
		if w := do(e, with(key.Reveal())); w.Code != 200 || got == nil || got.Name != "notes" {
			t.Fatalf("%d %s, for %v", w.Code, w.Body, got)
		}
		if w := do(e, with(testKey)); w.Code != 200 || got != nil {
			t.Errorf("the device's own key: %d, for %v", w.Code, got)
		}
		w := do(e, ask("GET", "/v1/models", "", "Authorization", "Bearer "+key.Reveal()))
		if w.Code != 200 || !strings.Contains(w.Body.String(), "alpha/small") || strings.Contains(w.Body.String(), "qwen") {
			t.Errorf("its models: %s", w.Body)
		}
		r := with(key.Reveal())
		r.Body = io.NopCloser(unread{t})
		w = do(e, r)
		if e := errorOf(t, w); w.Code != 429 || e.Code != "rate_limited" || w.Header().Get("Retry-After") != "30" {
			t.Errorf("the third request of a minute: %d %+v, Retry-After %s", w.Code, e, w.Header().Get("Retry-After"))
		}
		for _, bad := range []string{key.Reveal() + " ", key.Reveal()[1:], "cw-app-", ""} {
			r := with(bad)
			r.Body = io.NopCloser(unread{t})
			if w := do(e, r); w.Code != 401 {
				t.Errorf("%q: %d", bad, w.Code)
			}
		}
		if err := book.Remove("notes"); err != nil {
			t.Fatal(err)
		}
		if w := do(e, with(key.Reveal())); w.Code != 401 {
			t.Errorf("after it was removed: %d", w.Code)
		}
	})
}

// Where no key is asked for, an application's own still counts.
func TestApplicationsWithoutADeviceKey(t *testing.T) {
	book := apps.New()
	key, err := book.Add(apps.Rule{Name: "notes", Rate: 1}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	e := newEdge(t, answering(), func(c *Config) { c.Apps, c.Key = book, "" })
	for i, want := range []int{200, 429} {
		if w := do(e, ask("POST", "/v1/chat/completions", helloReq, "Authorization", "Bearer "+key.Reveal())); w.Code != want {
			t.Errorf("request %d: %d", i, w.Code)
		}
	}
	for _, token := range []string{"", "Bearer whatever"} {
		if w := do(e, ask("POST", "/v1/chat/completions", helloReq, "Authorization", token)); w.Code != 200 {
			t.Errorf("%q: %d", token, w.Code)
		}
	}
}
