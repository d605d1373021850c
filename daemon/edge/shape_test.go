package edge

import (
	"net/http"
	"strings"
	"testing"
)

// On every route every error has the one shape, its code's one status, and leads nowhere.
func TestErrorsHaveOneShapeOnEveryRoute(t *testing.T) {
	c := newCounter()
	e := newEdge(t, answering(), func(cfg *Config) { cfg.Desk = c.desk() })
	huge := `{"model":"auto","messages":[{"role":"user","content":"` + strings.Repeat("x", int(max(e.limits.Body, e.limits.Outlet))) + `"}]}`
	for name, to := range routes {
		path := strings.NewReplacer("{id}", "7", "{primitive}", "embed.text").Replace(name)
		for what, change := range map[string]struct {
			method, path, body string
			header             []string
			code               Code // "" for any
			post               bool // on routes that take a body
		}{
			"another method":      {"PATCH", path, "{}", nil, MethodNotAllowed, false},
			"a method of its own": {"BREW", path, "", nil, MethodNotAllowed, false},
			"a path below":        {to.method, path + "/x/../y", "{}", nil, NotFound, false},
			"a slash at the end":  {to.method, path + "/", "{}", nil, NotFound, false},
			"another host":        {to.method, path, "{}", []string{"Host", "evil.example"}, InvalidRequest, false},
			"another origin":      {to.method, path, "{}", []string{"Origin", "https://evil.example"}, "", false},
			"no key":              {to.method, path, "{}", []string{"Authorization", ""}, "", false},
			"a header of ours":    {to.method, path, "{}", []string{"X-Chordwheel-Misspelt", "1"}, "", true},
			"another type":        {to.method, path, "{}", []string{"Content-Type", "text/plain"}, "", true},
			"packed":              {to.method, path, "{}", []string{"Content-Encoding", "gzip"}, "", true},
			"too large":           {to.method, path, huge, nil, "", true},
			"no JSON":             {to.method, path, "{", nil, "", true},
		} {
			if change.post && to.method != http.MethodPost {
				continue
			}
			r := ask(change.method, change.path, change.body, change.header...)
			if what == "another host" {
				r.Host = "evil.example"
			}
			w := do(e, r)
			if w.Code == http.StatusOK { // health needs no key; a report is taken however it is
				if !(to.open && !change.post || name == routeOutlet && what == "no JSON") {
					t.Errorf("%s, %s: %d %s", name, what, w.Code, w.Body)
				}
				continue
			}
			got := errorOf(t, w)
			if v, ok := verdicts[Code(got.Code)]; !ok || v.status != w.Code || change.code != "" && got.Code != string(change.code) {
				t.Errorf("%s, %s: %d %s", name, what, w.Code, w.Body)
			}
			if w.Header().Get("Location") != "" || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s, %s: headers %v", name, what, w.Header())
			}
		}
	}
}
