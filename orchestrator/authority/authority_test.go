package authority

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
)

func TestMux(t *testing.T) {
	m := NewMux(
		Route{http.MethodGet, "/a", func(http.ResponseWriter, *http.Request) (any, error) { return map[string]int{"n": 1}, nil }},
		Route{http.MethodPost, "/a", func(http.ResponseWriter, *http.Request) (any, error) { return nil, errors.New("secret: canary") }},
		Route{http.MethodGet, "/tiles/*", func(_ http.ResponseWriter, r *http.Request) (any, error) { return r.URL.Path, nil }},
		Route{http.MethodGet, "/panic", func(http.ResponseWriter, *http.Request) (any, error) { panic("canary") }},
		Route{http.MethodGet, "/busy", func(http.ResponseWriter, *http.Request) (any, error) {
			return nil, &Refusal{Code: "overloaded", Message: "busy", RetryAfter: 1500 * time.Millisecond}
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

var update = flag.Bool("update", false, "rewrite the golden file")

// Each code of openapi.yaml has one status and one type, and is on the wire as here.
func TestEachCodeHasOneStatus(t *testing.T) {
	var codes []string
	for code := range statuses {
		if !code.Valid() {
			t.Errorf("%s is not in openapi.yaml", code)
		}
		codes = append(codes, string(code))
	}
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if all := doc.Components.Schemas["Code"].Value.Enum; len(all) != len(codes) {
		t.Errorf("%d codes in openapi.yaml, %d in the table", len(all), len(codes))
	}
	slices.Sort(codes)
	var b strings.Builder
	for _, code := range codes {
		w := httptest.NewRecorder()
		Fail(w, &Refusal{Code: Code(code), Message: "a message", RetryAfter: time.Second})
		text := strings.Replace(w.Body.String(), w.Header().Get("X-Chordwheel-Request-Id"), "r1", 1)
		fmt.Fprintf(&b, "%s\n  %d\n  %s\n\n", code, w.Code, text)
	}
	const file = "testdata/codes.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || b.String() != string(want) {
		t.Errorf("%v; got\n%s", err, b.String())
	}
}
