package edge

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

// verdict is what a code looks like on the wire.
type verdict struct {
	status int
	kind   string        // error.type
	retry  time.Duration // Retry-After where nobody knows better
}

// Families of codes, in the dialect's words.
const (
	kindRequest    = "invalid_request_error"
	kindAuth       = "authentication_error"
	kindPermission = "permission_error"
	kindRate       = "rate_limit_error"
	kindUpstream   = "upstream_error"
	kindService    = "service_unavailable"
	kindServer     = "server_error"
)

// verdicts is the one table of what a code means in HTTP.
var verdicts = map[Code]verdict{
	InvalidRequest:        {http.StatusBadRequest, kindRequest, 0},
	InvalidDID:            {http.StatusBadRequest, kindRequest, 0},
	Unauthorized:          {http.StatusUnauthorized, kindAuth, 0},
	AgentSuspended:        {http.StatusForbidden, kindPermission, 0},
	TokenMissing:          {http.StatusForbidden, kindPermission, 0},
	InvalidToken:          {http.StatusForbidden, kindPermission, 0},
	TokenAudienceMismatch: {http.StatusForbidden, kindPermission, 0},
	ModelNotFound:         {http.StatusNotFound, kindRequest, 0},
	NotFound:              {http.StatusNotFound, kindRequest, 0},
	MethodNotAllowed:      {http.StatusMethodNotAllowed, kindRequest, 0},
	Conflict:              {http.StatusConflict, kindRequest, 0},
	RequestTooLarge:       {http.StatusRequestEntityTooLarge, kindRequest, 0},
	UnsupportedMediaType:  {http.StatusUnsupportedMediaType, kindRequest, 0},
	RateLimited:           {http.StatusTooManyRequests, kindRate, time.Second},
	InternalError:         {http.StatusInternalServerError, kindServer, 0},
	UpstreamError:         {http.StatusBadGateway, kindUpstream, 0},
	UpstreamCredentials:   {http.StatusBadGateway, kindUpstream, 0},
	ProofOfControlFailed:  {http.StatusBadGateway, kindUpstream, 0},
	UnresolvableDID:       {http.StatusBadGateway, kindUpstream, 0},
	NoChain:               {http.StatusServiceUnavailable, kindService, 5 * time.Second},
	ChainExpired:          {http.StatusServiceUnavailable, kindService, 30 * time.Second},
	NoSnapshot:            {http.StatusServiceUnavailable, kindService, 5 * time.Second},
	SnapshotStale:         {http.StatusServiceUnavailable, kindService, 30 * time.Second},
	NoAgent:               {http.StatusServiceUnavailable, kindService, 30 * time.Second},
	SpoolFull:             {http.StatusServiceUnavailable, kindService, 30 * time.Second},
	NoModels:              {http.StatusServiceUnavailable, kindService, 5 * time.Second},
	Overloaded:            {http.StatusServiceUnavailable, kindService, time.Second},
	HubUnreachable:        {http.StatusServiceUnavailable, kindService, 5 * time.Second},
	UpstreamTimeout:       {http.StatusGatewayTimeout, kindUpstream, 0},
}

// Refusal is an error that knows what the caller is told. A Worker returns one
// for work that it does not begin.
type Refusal struct {
	Code       Code          // decides status and type
	Message    string        // one line for a person; no content
	RetryAfter time.Duration // with a 429 or 503; 0 means the code's own
}

// Error gives code and message.
func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Message }

// Refuse makes a Refusal.
func Refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *Refusal { return Refuse(InvalidRequest, format, args...) }

// failure is an error answer, ready to be written: as the whole answer, or as
// the last event of a stream that had begun.
type failure struct {
	status int
	retry  time.Duration // Retry-After; 0 for none
	code   Code          // ours, for the log; detail.Code may be an upstream's
	detail ErrorDetail   // without request_id
}

// fail looks a refusal up in the table.
func (r *Refusal) fail() failure {
	v, ok := verdicts[r.Code]
	if !ok {
		v = verdicts[InternalError]
	}
	f := failure{status: v.status, code: r.Code, detail: ErrorDetail{Message: chain.ClipTo(r.Message, 1024), Type: v.kind, Code: string(r.Code)}}
	if v.retry > 0 {
		f.retry = v.retry
		if r.RetryAfter > 0 {
			f.retry = r.RetryAfter
		}
	}
	return f
}

// failureOf turns any error into an answer. What a foreign error says may hold
// content: it is neither shown nor logged.
func failureOf(err error) failure {
	var r *Refusal
	if errors.As(err, &r) {
		return r.fail()
	}
	return Refuse(InternalError, "an error of the edge itself; the log has it under this request_id").fail()
}

// ends maps how a walk ended to what the caller sees. Answered, Left and
// Refused are not here: they have no wording of ours.
var ends = map[walk.End]struct {
	code    Code
	message string
}{
	walk.Broken:         {UpstreamError, "the upstream failed in the middle of its answer"},
	walk.AllTimedOut:    {UpstreamTimeout, "no option answered in time"},
	walk.AllCredentials: {UpstreamCredentials, "no key of this device works for what was left to try: `chordwheel keys list` shows those that it has"},
	walk.AllCooling:     {RateLimited, "every option is cooling down after a failure or a rate limit"},
	walk.OverBudget:     {NoModels, "the application's budget is used up"},
	walk.NothingToTry:   {NoModels, "no option could be tried: see `chordwheel chain show`"},
	walk.AllFailed:      {UpstreamError, "every option failed"},
	walk.Escalating:     {NoModels, "every option failed and an extension was asked for: try again"},
}

// failureOfResult is the answer to a walk that did not end well.
func failureOfResult(res walk.Result) failure {
	if res.End == walk.Refused {
		return passThrough(res.Answer)
	}
	e, ok := ends[res.End]
	if !ok {
		return failureOf(nil)
	}
	r := &Refusal{Code: e.code, Message: e.message, RetryAfter: res.RetryAfter}
	notForMoney := func(a chain.Failure) bool { return a.Class != chain.Ceiling }
	if res.End == walk.NothingToTry && len(res.Failures) > 0 && !slices.ContainsFunc(res.Failures, notForMoney) {
		r.Message = "what may still be spent is too little for any option: `chordwheel chain explain` shows the ceilings"
	}
	if res.Why != "" {
		r.Message = res.Why
	}
	if res.End == walk.Escalating {
		r.RetryAfter = max(time.Second, res.RetryAfter)
	}
	f := r.fail()
	for _, a := range res.Failures {
		f.detail.Attempts = append(f.detail.Attempts, FailedOption{Option: string(a.Option), Class: string(a.Class)})
	}
	if n := len(res.Failures); n > 0 && n <= 8 && res.End != walk.Broken {
		f.detail.Message += " (" + inWords(res.Failures) + ")"
	}
	return f
}

// maxWhy bounds what is said beside a class, in bytes.
const maxWhy = 256

func inWords(failures []chain.Failure) string {
	var b strings.Builder
	for i, a := range failures {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s: %s", a.Option, a.Class)
		if a.Why != "" {
			fmt.Fprintf(&b, " (%s)", chain.ClipTo(a.Why, maxWhy))
		}
	}
	return b.String()
}

// passThrough puts an upstream's refusal of the request into the error shape.
// Its words reach the caller, who wrote the request; its status only where it
// says that the request is at fault, never as the caller's missing rights.
func passThrough(a *walk.Answer) failure {
	f := invalid("the upstream refused the request as invalid").fail()
	if a == nil {
		return f
	}
	if a.Status == http.StatusUnprocessableEntity {
		f.status = a.Status
	}
	var shapes struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if len(a.Body) > 64<<10 || json.Unmarshal(a.Body, &shapes) != nil {
		return f
	}
	var inner struct {
		Message string          `json:"message"`
		Type    json.RawMessage `json:"type"`
		Param   json.RawMessage `json:"param"`
		Code    json.RawMessage `json:"code"`
	}
	var text string
	switch {
	case json.Unmarshal(shapes.Error, &text) == nil && text != "":
	case json.Unmarshal(shapes.Error, &inner) == nil && inner.Message != "":
		text = inner.Message
		f.detail.Param = chain.ClipTo(asText(inner.Param, ""), 256)
		f.detail.Type = chain.Clip(asText(inner.Type, f.detail.Type))
		f.detail.Code = chain.Clip(asText(inner.Code, f.detail.Code))
	case shapes.Message != "":
		text = shapes.Message
	case json.Unmarshal(shapes.Detail, &text) == nil && text != "":
	case len(shapes.Detail) > 0:
		text = string(shapes.Detail)
	}
	if text != "" {
		f.detail.Message = chain.ClipTo(text, 4096)
	}
	return f
}

// asText gives raw as a text, or fallback where it is none: upstreams put
// numbers and null into the places of texts.
func asText(raw json.RawMessage, fallback string) string {
	var s string
	if json.Unmarshal(raw, &s) != nil || s == "" {
		return fallback
	}
	return s
}

// body gives the answer's JSON, one line without its end.
func (f failure) body(id string) []byte {
	d := f.detail
	d.RequestID = id
	b, err := json.Marshal(ErrorResponse{Error: d})
	if err != nil { // strings and lists of strings: cannot fail
		return []byte(`{"error":{"message":"","type":"server_error","code":"internal_error","request_id":"` + id + `"}}`)
	}
	return b
}

// seconds gives d as a Retry-After, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(max(time.Second, d+time.Second-1)/time.Second), 10)
}
