package authority

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestMux(t *testing.T) {
	m := NewMux(
		Route{http.MethodGet, "/a", func(http.ResponseWriter, *http.Request) (any, error) { return map[string]int{"n": 1}, nil }},
		Route{http.MethodPost, "/a", func(http.ResponseWriter, *http.Request) (any, error) { return nil, errors.New("secret: canary") }},
		Route{http.MethodGet, "/tiles/*", func(_ http.ResponseWriter, r *http.Request) (any, error) { return r.URL.Path, nil }},
		Route{http.MethodGet, "/panic", func(http.ResponseWriter, *http.Request) (any, error) { panic("canary") }},
		Route{http.MethodGet, "/busy", func(http.ResponseWriter, *http.Request) (any, error) {
			return nil, &Refusal{Status: 503, Code: "overloaded", Message: "busy", RetryAfter: 1500 * time.Millisecond}
		}},
		Route{http.MethodGet, "/unknown", func(http.ResponseWriter, *http.Request) (any, error) { return make(chan int), nil }},
	)
	for _, c := range []struct {
		method, path string
		status       int
		body, header string // a part of the body; NAME=VALUE
	}{
		{"GET", "/a", 200, `{"n":1}`, "Cache-Control=no-store"},
		{"POST", "/a", 500, `"code":"internal_error"`, ""},
		{"PUT", "/a", 405, `"code":"method_not_allowed"`, "Allow=GET, POST"},
		{"get", "/a", 405, `"code":"method_not_allowed"`, ""},
		{"HEAD", "/a", 405, "", ""},
		{"GET", "/a/", 404, `"code":"not_found"`, ""},
		{"GET", "//a", 404, `"code":"not_found"`, ""},
		{"GET", "/b/../a", 404, `"code":"not_found"`, ""},
		{"GET", "/%61", 404, `"code":"not_found"`, ""},
		{"GET", "/tiles%2f0", 404, `"code":"not_found"`, ""},
		{"GET", "/tiles/0/x001/067", 200, `"/tiles/0/x001/067"`, ""},
		{"POST", "/tiles/0", 405, `"code":"method_not_allowed"`, "Allow=GET"},
		{"GET", "/tiles", 404, `"code":"not_found"`, ""},
		{"GET", "/panic", 500, `"type":"server_error"`, ""},
		{"GET", "/busy", 503, `"type":"service_unavailable"`, "Retry-After=2"},
		{"GET", "/unknown", 500, `"code":"internal_error"`, ""},
	} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		name, value, _ := strings.Cut(c.header, "=")
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) || w.Header().Get(name) != value || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %s %v", c.method, c.path, w.Code, w.Body, w.Header())
		}
		if strings.Contains(w.Body.String(), "canary") || w.Code >= 400 && (!strings.Contains(w.Body.String(), `"request_id":"`) || w.Header().Get("X-Chordwheel-Request-Id") == "") {
			t.Errorf("%s %s: %s", c.method, c.path, w.Body)
		}
	}
}
