package control_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
)

// The routes below /admin/ are for who has the service token, and are what
// openapi.yaml says.
func TestTheServiceRoutes(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	age := 1.5
	full := control.Status{Receipts: &control.Receipts{Waiting: 7, Oldest: &at, Writable: true, LastError: "answered 503"},
		Gating: &control.Gating{Snapshot: &control.Snapshot{Registry: "hub", Source: "registry", FetchedAt: &at, Age: &age, Agents: 3}}}
	const right = "Bearer the-service-token"
	for name, c := range map[string]struct {
		method, path, key string
		device            device
		status            int
		says              string
	}{
		"refresh":                    {"POST", "/admin/snapshot/refresh", right, device{status: full}, 200, `"source":"registry"`},
		"a registry that is away":    {"POST", "/admin/snapshot/refresh", right, device{refuse: errors.New("connection refused")}, 502, `"code":"upstream_error"`},
		"the spool":                  {"GET", "/admin/spool", right, device{status: full}, 200, `"waiting":7`},
		"no spool":                   {"GET", "/admin/spool", right, device{}, 404, `"code":"not_found"`},
		"no token":                   {"GET", "/admin/spool", "", device{status: full}, 401, `"code":"unauthorized"`},
		"another token":              {"GET", "/admin/spool", "Bearer the-service-tokem", device{status: full}, 401, `"code":"unauthorized"`},
		"another scheme":             {"GET", "/admin/spool", "Basic the-service-token", device{status: full}, 401, `"code":"unauthorized"`},
		"another method":             {"GET", "/admin/snapshot/refresh", right, device{status: full}, 405, `"code":"method_not_allowed"`},
		"a path that is not there":   {"GET", "/admin/spool/", right, device{status: full}, 404, `"code":"not_found"`},
		"and none of it without one": {"GET", "/admin/secrets", "", device{status: full}, 401, `"code":"unauthorized"`},
	} {
		r := httptest.NewRequest(c.method, "http://localhost:7421"+c.path, nil)
		if c.key != "" {
			r.Header.Set("Authorization", c.key)
		}
		w := httptest.NewRecorder()
		control.Service(&c.device, "the-service-token").ServeHTTP(w, r)
		body := w.Body.String()
		if w.Code != c.status || !strings.Contains(body, c.says) || strings.Contains(body, "the-service-token") {
			t.Errorf("%s: %d %s", name, w.Code, body)
		}
		if w.Code >= 400 && (!strings.Contains(body, `"request_id":"req-`) || w.Header().Get("X-Chordwheel-Request-Id") == "") {
			t.Errorf("%s: an error without an id: %s", name, body)
		}
		route, params, err := router.FindRoute(r)
		if err != nil {
			continue // no path of the document
		}
		in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: &openapi3filter.Options{IncludeResponseStatus: true}}
		if err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: w.Code, Header: w.Header(),
			Body: io.NopCloser(strings.NewReader(body)), Options: in.Options}); err != nil {
			t.Errorf("%s is not what the document says: %v", name, err)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(method, path, nil)
			r.Header.Set("Authorization", right)
			control.Service(&device{status: full}, "the-service-token").ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Errorf("%s %s of the document answers %d", method, path, w.Code)
			}
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/admin/spool", nil)
	r.Header.Set("Authorization", "Bearer ")
	if control.Service(&device{status: full}, chain.Secret("")).ServeHTTP(w, r); w.Code != http.StatusUnauthorized {
		t.Errorf("without a token everybody is the owner: %d", w.Code)
	}
}
