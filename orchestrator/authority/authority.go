// Package authority is the frame of the hub's HTTP services for devices: registry,
// trust and ledger share one listener, one shape of errors and one set of limits. It
// owns routing by exact path, the reading of request bodies, and how answers and
// errors are written. openapi.yaml is the surface of all three; what they write has its
// types from there (types.gen.go). It must not know what a service does.
//
// Every error has the shape {"error":{"message","type","code","request_id"}}, also
// for unknown paths and methods. Nothing is redirected.
package authority

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
)

//go:generate go tool -modfile=../../tools/go.mod oapi-codegen --config oapi.yaml openapi.yaml

// Refusal is an error that knows what the caller is told.
type Refusal struct {
	Code       Code          // decides status and type
	Message    string        // one line for a person; nothing secret
	RetryAfter time.Duration // 0: no such header
	As         int           // its status, where that is not the one of the code; 0: it is
}

// Error gives code and message.
func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Message }

// Refuse makes a Refusal.
func Refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Status is what r is in HTTP.
func (r *Refusal) Status() int {
	if r.As != 0 {
		return r.As
	}
	if status, ok := statuses[r.Code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// statuses is the one table of what a code means in HTTP.
var statuses = map[Code]int{
	InvalidRequest: http.StatusBadRequest, InvalidDID: http.StatusBadRequest, Unauthorized: http.StatusUnauthorized,
	AgentSuspended: http.StatusForbidden, ProofOfControlFailed: http.StatusForbidden, UnknownSeeker: http.StatusForbidden, UnknownSender: http.StatusForbidden,
	NotFound: http.StatusNotFound, NoAgent: http.StatusNotFound, MethodNotAllowed: http.StatusMethodNotAllowed, Conflict: http.StatusConflict,
	RequestTooLarge: http.StatusRequestEntityTooLarge, UnsupportedMediaType: http.StatusUnsupportedMediaType, TooEarly: http.StatusTooEarly,
	RateLimited: http.StatusTooManyRequests, InternalError: http.StatusInternalServerError, UnresolvableDID: http.StatusBadGateway, Overloaded: http.StatusServiceUnavailable,
}

// kinds are the families of codes, by status.
var kinds = map[int]ErrorType{
	http.StatusUnauthorized: AuthenticationError, http.StatusForbidden: PermissionError, http.StatusTooManyRequests: RateLimitError,
	http.StatusBadGateway: UpstreamError, http.StatusServiceUnavailable: ServiceUnavailable, http.StatusInternalServerError: ServerError,
}

// Handler answers one request with a value that becomes JSON, or with an error.
// What is no [*Refusal] is answered as internal_error, without its text. A nil value
// without an error means that the handler wrote the answer itself.
type Handler func(w http.ResponseWriter, r *http.Request) (any, error)

// Route is one path with one method.
type Route struct {
	Method, Path string // a path that ends in /* takes in all below it
	Handler      Handler
}

// Mux serves routes. It is immutable and may be used at once from several
// goroutines.
type Mux struct {
	exact map[string][]Route
	below []Route
}

// NewMux makes a mux.
func NewMux(routes ...Route) *Mux {
	m := &Mux{exact: map[string][]Route{}}
	for _, r := range routes {
		if stem, ok := strings.CutSuffix(r.Path, "*"); ok {
			r.Path = stem
			m.below = append(m.below, r)
		} else {
			m.exact[r.Path] = append(m.exact[r.Path], r)
		}
	}
	return m
}

// ServeHTTP answers one request.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	routes := m.exact[r.URL.Path]
	for _, b := range m.below {
		if strings.HasPrefix(r.URL.Path, b.Path) {
			routes = append(slices.Clip(routes), b)
		}
	}
	if len(routes) == 0 || r.URL.RawPath != "" {
		Fail(w, Refuse(NotFound, "no such path"))
		return
	}
	var allowed []string
	for _, route := range routes {
		if route.Method == r.Method {
			m.run(w, r, route.Handler)
			return
		}
		allowed = append(allowed, route.Method)
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	Fail(w, Refuse(MethodNotAllowed, "want %s", strings.Join(allowed, " or ")))
}

func (m *Mux) run(w http.ResponseWriter, r *http.Request, h Handler) {
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			Fail(w, errors.New("panic"))
		}
	}()
	value, err := h(w, r)
	if err != nil {
		Fail(w, err)
		return
	}
	if value != nil {
		Answer(w, http.StatusOK, value)
	}
}

// Answer writes a value as JSON.
func Answer(w http.ResponseWriter, status int, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		Fail(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // a caller who left is no error of ours
}

// Fail writes an error in its one shape.
func Fail(w http.ResponseWriter, err error) {
	var r *Refusal
	if !errors.As(err, &r) {
		r = Refuse(InternalError, "an error of the hub itself")
	}
	kind, ok := kinds[r.Status()]
	if !ok {
		kind = InvalidRequestError
	}
	if r.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((r.RetryAfter+time.Second-1)/time.Second)))
	}
	w.Header().Del("ETag")
	id := rand.Text()
	w.Header().Set("X-Chordwheel-Request-Id", id)
	Answer(w, r.Status(), ErrorResponse{ErrorDetail{Message: chain.ClipTo(r.Message, 512), Type: kind, Code: r.Code, RequestID: id}})
}

// Decode reads a JSON body of at most limit bytes into v, strictly: names are
// unique, nothing stands behind it. Members that v does not have are ignored.
func Decode(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return Refuse(UnsupportedMediaType, "want Content-Type: application/json")
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return Refuse(UnsupportedMediaType, "want a body without Content-Encoding")
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		return Refuse(RequestTooLarge, "at most %d bytes", limit)
	}
	if err != nil {
		return Refuse(InvalidRequest, "the body ended early")
	}
	if _, err := receipt.Canonical(b); err != nil {
		return Refuse(InvalidRequest, "the body: %v", err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return Refuse(InvalidRequest, "the body has not the members and kinds that are wanted")
	}
	return nil
}
