package edge

import (
	"net/http"
	"strings"
	"testing"
)

// On every route every error has the one shape, its code's one status, and leads nowhere;
// what is wrong with a request has the same code whatever it is for.
func TestErrorsHaveOneShapeOnEveryRoute(t *testing.T) {
	e, _ := boarded(t, func(cfg *Config) { cfg.Desk = newCounter().desk() })
	provider := registered(t, e)
	huge := `{"model":"auto","messages":[{"role":"user","content":"` + strings.Repeat("x", int(max(e.limits.Body, e.limits.Outlet))) + `"}]}`
	for name, to := range routes {
		path := strings.NewReplacer("{id}", provider.ID, "{primitive}", "embed.text").Replace(name)
		key := "Bearer " + testKey
		if to.provider {
			key = "Bearer " + provider.Key
		}
		for what, change := range map[string]struct {
			method, path, body string
			header             []string
			code               Code
			post               bool // on routes that take a body
		}{
			"another method":      {"PATCH", path, "{}", nil, MethodNotAllowed, false},
			"a method of its own": {"BREW", path, "", nil, MethodNotAllowed, false},
			"a path below":        {to.method, path + "/x/../y", "{}", nil, NotFound, false},
			"a slash at the end":  {to.method, path + "/", "{}", nil, NotFound, false},
			"another host":        {to.method, path, "{}", []string{"Host", "evil.example"}, InvalidRequest, false},
			"another origin":      {to.method, path, "{}", []string{"Origin", "https://evil.example"}, InvalidRequest, false},
			"no key":              {to.method, path, "{}", []string{"Authorization", ""}, Unauthorized, false},
			"a header of ours":    {to.method, path, "", []string{"X-Chordwheel-Misspelt", "1"}, InvalidRequest, false},
			"another type":        {to.method, path, "{}", []string{"Content-Type", "text/plain"}, UnsupportedMediaType, true},
			"packed":              {to.method, path, "{}", []string{"Content-Encoding", "gzip"}, UnsupportedMediaType, true},
			"too large":           {to.method, path, huge, nil, RequestTooLarge, true},
			"no JSON":             {to.method, path, "{", nil, InvalidRequest, true},
		} {
			if change.post && to.method != http.MethodPost {
				continue
			}
			want := change.code
			switch {
			case what == "no key" && to.open && to.method == http.MethodGet, what == "no JSON" && name == routeOutlet: // a report is taken however it is
				want = ""
			case what == "no key" && to.open:
				want = InvalidRequest // of the body
			case what == "no JSON" && name == routeHeartbeat: // its body says nothing
				want = NotFound
			}
			r := ask(change.method, change.path, change.body, append([]string{"Authorization", key}, change.header...)...)
			if what == "another host" {
				r.Host = "evil.example"
			}
			w := do(e, r)
			if want == "" {
				if w.Code != http.StatusOK {
					t.Errorf("%s, %s: %d %s", name, what, w.Code, w.Body)
				}
				continue
			}
			if got := errorOf(t, w); got.Code != string(want) || w.Code != verdicts[want].status {
				t.Errorf("%s, %s: %d %s, want %s", name, what, w.Code, w.Body, want)
			}
			if w.Header().Get("Location") != "" || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s, %s: headers %v", name, what, w.Header())
			}
		}
	}
}
