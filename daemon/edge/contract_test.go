package edge

import (
	"context"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// The routes are those of openapi.yaml, with its methods and its need of a key.
func TestRoutesAreTheDocuments(t *testing.T) {
	got, want := map[string]string{}, map[string]string{}
	for name, r := range routes {
		got[name] = r.method
		if r.open {
			got[name] += " open"
		}
	}
	for path, item := range document(t).Paths.Map() {
		for method, op := range item.Operations() {
			want[path] += method
			if op.Security != nil && len(*op.Security) == 0 {
				want[path] += " open"
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("routes %v\nopenapi.yaml %v", got, want)
	}
}

// The header fields that are read are those of openapi.yaml.
func TestHeadersAreTheDocuments(t *testing.T) {
	doc := document(t)
	for _, path := range []string{routeChat, routeWork} {
		for _, p := range doc.Paths.Value(path).Post.Parameters {
			if p.Value.Name == headerRequestID {
				continue
			}
			// An unknown name is refused as unknown, a known one for its value at most.
			if r := readWishes(http.Header{p.Value.Name: {"\x00"}}, new(Work)); r == nil || strings.Contains(r.Message, "unknown") {
				t.Errorf("%s: %v", p.Value.Name, r)
			}
		}
	}
}

// The generated types are those of openapi.yaml: a change of one without the
// other fails here, also where the generator is not at hand (`make drift` runs it).
func TestTypesAreTheDocuments(t *testing.T) {
	doc := document(t)
	var codes []string
	for _, v := range doc.Components.Schemas["Code"].Value.Enum {
		codes = append(codes, v.(string))
	}
	for _, c := range codes {
		if _, ok := verdicts[Code(c)]; !ok || !Code(c).Valid() {
			t.Errorf("code %s is not in the table or not in types.gen.go", c)
		}
	}
	if len(codes) != len(verdicts) {
		t.Errorf("%d codes in openapi.yaml, %d in the table", len(codes), len(verdicts))
	}
	for name, v := range map[string]any{"ErrorResponse": ErrorResponse{}, "ErrorDetail": ErrorDetail{}, "FailedOption": FailedOption{}, "ModelList": ModelList{},
		"ModelObject": ModelObject{}, "Health": Health{}, "WorkResponse": WorkResponse{}, "ProviderResponse": ProviderResponse{},
		"JobList": JobList{}, "LeasedJob": LeasedJob{}, "JobLease": JobLease{}, "JobAck": JobAck{}, "JobResult": JobResult{}, "ProviderRequest": ProviderRequest{}} {
		schema := doc.Components.Schemas[name].Value
		got, want := map[string]bool{}, map[string]bool{} // required
		for i := range reflect.TypeOf(v).NumField() {
			tag, rest, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			got[tag] = !strings.Contains(rest, "omitempty")
		}
		for field := range schema.Properties {
			want[field] = slices.Contains(schema.Required, field)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: types.gen.go has %v, openapi.yaml %v", name, got, want)
		}
	}
}

// Real requests and answers, good and bad ones, are what openapi.yaml says.
func TestAnswersAreTheDocuments(t *testing.T) {
	openapi3filter.RegisterBodyDecoder("text/event-stream", func(r io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
		b, err := io.ReadAll(r)
		return string(b), err
	})
	router, err := gorillamux.NewRouter(document(t))
	if err != nil {
		t.Fatal(err)
	}
	failures := []chain.Failure{{Option: "alpha/small", Class: chain.Timeout}}
	work := answering()
	work.do = func(_ context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
		_ = deliver(attempt(1), event(`[1,2]`))
		return answered()
	}
	listing := answering()
	listing.ready = Refuse(NoChain, "no chain yet")
	for _, c := range []struct {
		name   string
		worker *fake
		r      func() *http.Request
		status int
	}{
		{"models", answering(), func() *http.Request { return ask("GET", "/v1/models", "") }, 200},
		{"model", answering(), func() *http.Request { return ask("GET", "/v1/models/auto", "") }, 200},
		{"unknown model", answering(), func() *http.Request { return ask("GET", "/v1/models/nobody", "") }, 404},
		{"chat", answering(), func() *http.Request { return ask("POST", "/v1/chat/completions", helloReq) }, 200},
		{"stream", answering(), func() *http.Request { return ask("POST", "/v1/chat/completions", streamReq) }, 200},
		{"every wish", answering(), func() *http.Request {
			return ask("POST", "/v1/chat/completions", helloReq, headerRequestID, "r1", "X-Chordwheel-Budget", "90s", "X-Chordwheel-Session", "s", "X-Chordwheel-Stage", "s",
				"X-Chordwheel-Consumer", "c", "X-Chordwheel-Instance", "i", "X-Chordwheel-Escalate", "async", "X-Chordwheel-Progress", "reasoning", "X-Chordwheel-Share", "1")
		}, 200},
		{"work", work, func() *http.Request { return ask("POST", "/api/v1/work/embed.text", `{"input":"x","options":{"a":1}}`) }, 200},
		{"health", answering(), func() *http.Request { return ask("GET", "/healthz", "") }, 200},
		{"ready", answering(), func() *http.Request { return ask("GET", "/readyz", "") }, 200},
		{"not ready", listing, func() *http.Request { return ask("GET", "/readyz", "") }, 503},
		{"all failed", failing(walk.Result{End: walk.AllTimedOut, Attempts: 1, Option: "alpha/small", Failures: failures}, nil), func() *http.Request { return ask("POST", "/v1/chat/completions", helloReq) }, 504},
		{"all cooling", failing(walk.Result{End: walk.AllCooling, Failures: failures}, nil), func() *http.Request { return ask("POST", "/v1/chat/completions", streamReq) }, 429},
		{"the upstream's refusal", failing(walk.Result{End: walk.Refused, Answer: &walk.Answer{Status: 422, Body: []byte(`{"error":{"message":"no","param":"n"}}`)}}, nil), func() *http.Request { return ask("POST", "/v1/chat/completions", helloReq) }, 422},
		{"wrong key", answering(), func() *http.Request {
			return ask("POST", "/v1/chat/completions", helloReq, "Authorization", "Bearer no")
		}, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			check(t, router, newEdge(t, c.worker, func(c *Config) { c.ListAgents = true }), c.r, c.status)
		})
	}
}

// check sends one request and holds it and its answer against the document.
func check(t *testing.T, router routers.Router, e *Edge, request func() *http.Request, status int) {
	t.Helper()
	r := request()
	route, params, err := router.FindRoute(r)
	if err != nil {
		t.Fatal(err)
	}
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if err := openapi3filter.ValidateRequest(t.Context(), in); err != nil {
		t.Errorf("request: %v", err)
	}
	w := do(e, request())
	if w.Code != status {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: w.Code, Header: w.Header(), Body: io.NopCloser(w.Body)}
	if err := openapi3filter.ValidateResponse(t.Context(), out); err != nil {
		t.Errorf("answer: %v", err)
	}
	if (w.Code == 429 || w.Code == 503) && w.Header().Get("Retry-After") == "" {
		t.Errorf("%d without Retry-After", w.Code)
	}
}
