package edge

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

func TestHostAndOrigin(t *testing.T) {
	change := func(c *Config) {
		c.Hosts = []string{"Box.lan", "[fd00::7]:80"}
		c.Origins = []string{"https://app.example:8443"}
	}
	for _, c := range []struct {
		name, host, origin string
		loopback           bool
		ok                 bool
		cors               string
	}{
		{"address", "127.0.0.1:7420", "", true, true, ""},
		{"address without port", "127.0.0.1", "", true, true, ""},
		{"another loopback address", "127.9.9.9:1", "", true, true, ""},
		{"name", "localhost:7420", "", true, true, ""},
		{"name in capitals with the root's dot", "LOCALHOST.:7420", "", true, true, ""},
		{"IPv6", "[::1]:7420", "", true, true, ""},
		{"IPv6 without port", "[::1]", "", true, true, ""},
		{"listed", "box.lan:7420", "", true, true, ""},
		{"listed address", "[fd00::7]:7420", "", true, true, ""},
		{"none", "", "", true, false, ""},
		{"foreign", "evil.example", "", true, false, ""},
		{"foreign that begins well", "127.0.0.1.evil.example", "", true, false, ""},
		{"foreign that ends well", "evil.localhost", "", true, false, ""},
		{"short form of an address", "127.1", "", true, false, ""},
		{"octal form of an address", "0177.0.0.1", "", true, false, ""},
		{"mapped address", "[::ffff:127.0.0.1]", "", true, false, ""},
		{"any address", "0.0.0.0:7420", "", true, false, ""},
		{"foreign on a public listener", "evil.example", "", false, true, ""},

		{"own origin", "127.0.0.1:7420", "http://127.0.0.1:7420", true, true, ""},
		{"own origin behind TLS", "box.lan", "https://box.lan", true, true, ""},
		{"own origin, another port", "127.0.0.1:7420", "http://127.0.0.1:9999", true, false, ""},
		{"listed origin", "127.0.0.1:7420", "https://app.example:8443", true, true, "https://app.example:8443"},
		{"listed origin, another port", "127.0.0.1:7420", "https://app.example", true, false, ""},
		{"foreign origin", "127.0.0.1:7420", "https://evil.example", true, false, ""},
		{"null origin", "127.0.0.1:7420", "null", true, false, ""},
		{"foreign origin on a public listener", "box.lan", "https://evil.example", false, true, ""},
		{"listed origin on a public listener", "box.lan", "https://app.example:8443", false, true, "https://app.example:8443"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEdge(t, answering(), change)
			r := ask("POST", "/v1/chat/completions", helloReq, "Origin", c.origin)
			r.Host = c.host
			w := httptest.NewRecorder()
			e.serve(w, r, c.loopback)
			if got := w.Header().Get("Access-Control-Allow-Origin"); got != c.cors {
				t.Errorf("allows origin %q, want %q", got, c.cors)
			}
			if c.ok {
				if w.Code != 200 {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				return
			}
			if e := errorOf(t, w); w.Code != 400 || e.Code != "invalid_request" {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

func TestPreflight(t *testing.T) {
	e := newEdge(t, answering(), func(c *Config) { c.Origins = []string{"https://app.example"} })
	asking := func(origin string) *http.Request {
		return ask("OPTIONS", "/v1/chat/completions", "", "Authorization", "", "Origin", origin,
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,x-stainless-lang", "Access-Control-Request-Private-Network", "true")
	}
	w := do(e, asking("https://app.example"))
	if w.Code != 204 || w.Body.Len() != 0 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for name, want := range map[string]string{"Access-Control-Allow-Origin": "https://app.example", "Access-Control-Allow-Methods": "POST", "Vary": "Origin",
		"Access-Control-Allow-Headers": "authorization,x-stainless-lang", "Access-Control-Allow-Private-Network": "true", "Access-Control-Max-Age": "600"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if w := do(e, asking("https://evil.example")); w.Code != 400 || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("foreign origin: %d %v", w.Code, w.Header())
	}
	public := httptest.NewRecorder()
	e.serve(public, asking("https://evil.example"), false)
	if public.Code != 405 || public.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("foreign origin on a public listener: %d %v", public.Code, public.Header())
	}
}

func TestWishes(t *testing.T) {
	for _, c := range []struct {
		header, value string
		want          Work // "" in refusal means accepted
		refusal       string
	}{
		{"Budget", "interactive", Work{Budget: Budget{Named: true}}, ""},
		{"Budget", "batch", Work{Budget: Budget{Named: true, Batch: true}}, ""},
		{"Budget", "90s", Work{Budget: Budget{Named: true, Duration: 90 * time.Second}}, ""},
		{"Budget", "24h", Work{Budget: Budget{Named: true, Duration: 24 * time.Hour}}, ""},
		{"Budget", "25h", Work{}, "X-Chordwheel-Budget: want interactive, batch, or a duration such as 90s, at most 24h"},
		{"Budget", "-1s", Work{}, "X-Chordwheel-Budget: want interactive, batch, or a duration such as 90s, at most 24h"},
		{"Budget", "90", Work{}, "X-Chordwheel-Budget: want interactive, batch, or a duration such as 90s, at most 24h"},
		{"Budget", "", Work{}, "X-Chordwheel-Budget: want interactive, batch, or a duration such as 90s, at most 24h"},
		{"Session", "chat/7", Work{Session: "chat/7"}, ""},
		{"Session", "", Work{}, "X-Chordwheel-Session: want 1 to 128 printable ASCII characters without spaces"},
		{"Session", "a b", Work{}, "X-Chordwheel-Session: want 1 to 128 printable ASCII characters without spaces"},
		{"Session", "é", Work{}, "X-Chordwheel-Session: want 1 to 128 printable ASCII characters without spaces"},
		{"Session", strings.Repeat("s", 128), Work{Session: strings.Repeat("s", 128)}, ""},
		{"Session", strings.Repeat("s", 129), Work{}, "X-Chordwheel-Session: want 1 to 128 printable ASCII characters without spaces"},
		{"Stage", "draft", Work{Stage: "draft"}, ""},
		{"Consumer", "editor", Work{Consumer: "editor"}, ""},
		{"Instance", "7", Work{Instance: "7"}, ""},
		{"Escalate", "async", Work{Async: true}, ""},
		{"Escalate", "sync", Work{}, ""},
		{"Escalate", "no", Work{}, "X-Chordwheel-Escalate: want sync or async"},
		{"Progress", "reasoning", Work{Reasoning: true}, ""},
		{"Progress", "comments", Work{}, ""},
		{"Progress", "all", Work{}, "X-Chordwheel-Progress: want comments or reasoning"},
		{"Share", "1", Work{Share: true}, ""},
		{"Share", "0", Work{}, ""},
		{"Share", "yes", Work{}, "X-Chordwheel-Share: want 1 or 0"},
		{"Bugdet", "batch", Work{}, "X-Chordwheel-Bugdet: unknown header: docs/edge.md lists the known ones"},
		{"", "x", Work{}, "X-Chordwheel-: unknown header: docs/edge.md lists the known ones"},
	} {
		t.Run(c.header+" "+c.value, func(t *testing.T) {
			var got Work
			r := readWishes(http.Header{"X-Chordwheel-" + c.header: {c.value}, "X-Other": {"a", "b"}, "X-Chordwheel-Request-Id": {"a", "b"}}, &got)
			switch {
			case c.refusal == "" && (r != nil || fmt.Sprint(got) != fmt.Sprint(c.want)):
				t.Errorf("got %+v, %v", got, r)
			case c.refusal != "" && (r == nil || r.Message != c.refusal || r.Code != InvalidRequest):
				t.Errorf("got %v, want %s", r, c.refusal)
			}
		})
	}
	if r := readWishes(http.Header{"X-Chordwheel-Session": {"a", "b"}}, new(Work)); r == nil || !strings.Contains(r.Message, "more than one value") {
		t.Errorf("two values: %v", r)
	}
	for _, path := range []string{"/v1/models", "/v1/models/auto"} {
		w := do(newEdge(t, answering()), ask("GET", path, "", "X-Chordwheel-Foo", "1"))
		if e := errorOf(t, w); w.Code != 400 || e.Code != "invalid_request" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestBudgetWithin(t *testing.T) {
	rules := chain.DefaultRules().Budgets
	for _, c := range []struct {
		b    Budget
		want time.Duration
	}{
		{Budget{}, time.Minute},
		{Budget{Batch: true}, 10 * time.Minute},
		{Budget{Duration: 5 * time.Second}, 5 * time.Second},
		{Budget{Duration: 24 * time.Hour}, time.Hour},
	} {
		if got := c.b.Within(rules); got != c.want {
			t.Errorf("%+v: %s, want %s", c.b, got, c.want)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	e := newEdge(t, answering())
	for _, in := range []string{"", "a b", "a\r\nb", "a\x00", "\x1b[31m", "é", strings.Repeat("a", 65), "a/b", "a;b"} {
		r := ask("GET", "/healthz", "")
		r.Header["X-Chordwheel-Request-Id"] = []string{in}
		if got := do(e, r).Header().Get(headerRequestID); got == in || !fitsRequestID(got) {
			t.Errorf("%q became %q", in, got)
		}
	}
	for _, in := range []string{"a", "A.b_c-9", strings.Repeat("a", 64)} {
		if got := do(e, ask("GET", "/healthz", "", headerRequestID, in)).Header().Get(headerRequestID); got != in {
			t.Errorf("%q became %q", in, got)
		}
	}
	r := ask("GET", "/healthz", "")
	r.Header["X-Chordwheel-Request-Id"] = []string{"a", "b"}
	if got := do(e, r).Header().Get(headerRequestID); got == "a" || got == "b" {
		t.Errorf("two ids became %q", got)
	}
}

// Another handler of this machine is guarded like the edge, and refuses like it.
func TestGuard(t *testing.T) {
	e := newEdge(t, answering(), func(c *Config) { c.Hosts, c.Origins = []string{"box.lan"}, []string{"https://app.example"} })
	h := e.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for _, c := range []struct {
		host, origin, body, kind string
		status                   int
	}{
		{"127.0.0.1:7421", "", "", "", 418},
		{"box.lan", "https://app.example", "", "", 418},
		{"127.0.0.1:7421", "", "{}", "application/json", 418},
		{"evil.example", "", "", "", 400},
		{"127.0.0.1:7421", "https://evil.example", "", "", 400},
		{"127.0.0.1:7421", "", "{}", "text/plain", 415},
		{"127.0.0.1:7421", "", "a=b", "application/x-www-form-urlencoded", 415},
	} {
		r := ask("POST", "/", c.body, "Origin", c.origin, "Content-Type", c.kind)
		r.Host = c.host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("Host %s, Origin %s, %s: %d, want %d", c.host, c.origin, c.kind, w.Code, c.status)
		}
		if w.Code != http.StatusTeapot {
			errorOf(t, w)
		}
	}
}
