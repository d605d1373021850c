package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/apps"
)

// statusLeft is the status in the log of a request whose caller went away.
const statusLeft = 499

// longAgo as a deadline ends what waits.
var longAgo = time.Unix(1, 0)

// exchange is one request and its answer.
type exchange struct {
	edge  *Edge
	w     http.ResponseWriter
	r     *http.Request
	rc    *http.ResponseController
	id    string
	began time.Time

	app      *apps.App // nil for the device's own key
	provider string    // that calls, on its routes
	wishes   *Work     // what the headers say; the routes that do work fill in the rest
	work     *Work     // nil on routes that do none
	blank    bool      // a body without a byte is the route's matter
	bodyRead bool      // the request's body was read to its end
	stream   *events   // set once the answer is a stream
	wrote    bool      // the status of a plain answer is out
	spoilt   *Refusal  // why an answer could not be written though the caller is there

	// For the log.
	route    string
	status   int
	code     string
	option   string
	agent    string // DID of who ran it, was chosen at an inlet, or reported by an outlet
	gateWord string
	tokenID  string
	peer     string // NAME/ID of the peer that answered
	attempts int
	end      walk.End
	in, out  int64
	first    time.Duration // to the first byte of the answer
}

// serve answers one request on any route.
func (e *Edge) serve(w http.ResponseWriter, r *http.Request, loopback bool) {
	x := &exchange{edge: e, w: w, r: r, rc: http.NewResponseController(w), id: requestID(r.Header), began: time.Now(), route: "none"}
	h := w.Header()
	h[headerRequestID] = []string{x.id}
	frame(h, r)
	defer x.close()
	if refusal := x.admit(loopback); refusal != nil {
		x.refuse(refusal.fail())
	}
}

// admit makes the checks that hold on every route, then goes to the route.
func (x *exchange) admit(loopback bool) *Refusal {
	if loopback {
		if refusal := x.edge.checkHost(x.r); refusal != nil {
			return refusal
		}
	}
	listed, refusal := x.edge.checkOrigin(x.r, loopback)
	if refusal != nil {
		return refusal
	}
	if listed != "" {
		allowCORS(x.w.Header(), listed)
	}
	to, arg := find(x.r)
	if to == nil {
		return Refuse(NotFound, "there is nothing at this path")
	}
	x.route = to.name
	if x.r.Method != to.method && !(x.r.Method == http.MethodHead && to.method == http.MethodGet && !to.provider) {
		if x.r.Method == http.MethodOptions && listed != "" && x.r.Header.Get("Access-Control-Request-Method") != "" {
			preflight(x.w.Header(), x.r, to.allow)
			x.status = http.StatusNoContent
			x.w.WriteHeader(x.status)
			return nil
		}
		x.w.Header().Set("Allow", to.allow)
		return Refuse(MethodNotAllowed, "%s is not allowed here: use %s", chain.ClipTo(x.r.Method, 16), to.allow)
	}
	switch {
	case to.open:
	case to.provider:
		if refusal := x.authenticateProvider(); refusal != nil {
			x.w.Header().Set("WWW-Authenticate", "Bearer")
			return refusal
		}
	default:
		var refusal *Refusal
		if x.app, refusal = x.edge.keys.check(x.r.Header, x.edge.apps); refusal != nil {
			x.w.Header().Set("WWW-Authenticate", "Bearer")
			return refusal
		}
		if wait, ok := x.app.Admit(x.began); !ok {
			return &Refusal{Code: RateLimited, Message: "this application sends more requests a minute than it may", RetryAfter: wait}
		}
	}
	x.wishes = new(Work)
	if refusal := readWishes(x.r.Header, x.wishes); refusal != nil {
		return refusal
	}
	return to.serve(x, arg)
}

// do runs w and writes its answer.
func (x *exchange) do(w *Work, read func(w *Work) *Refusal, deliver func(w *Work) walk.Deliver) *Refusal {
	return x.inside(w, x.edge.limits.Body, func() *Refusal {
		if refusal := read(w); refusal != nil {
			return refusal
		}
		x.run(w, deliver(w))
		return nil
	})
}

// inside reads the body for then, which has a place among the requests in work while
// it runs. The body has at most so many bytes.
func (x *exchange) inside(w *Work, most int64, then func() *Refusal) *Refusal {
	w.ID, w.App, x.work = x.id, x.app, w
	place := x.edge.places.enter(time.Now(), func() { x.rc.SetReadDeadline(longAgo) })
	if place == nil {
		return Refuse(Overloaded, "the edge works on as many requests as it may: try again")
	}
	defer place.leave()
	refusal := x.readBody(w, most)
	if !place.arrived() {
		return Refuse(Overloaded, "the body came slowly, and others waited for the place: try again")
	}
	if refusal != nil {
		return refusal
	}
	return then()
}

// run has the worker answer.
func (x *exchange) run(w *Work, put walk.Deliver) {
	ctx := x.r.Context()
	if x.stream != nil {
		ctx = x.stream.start(ctx)
	}
	// A write to a caller who is gone must not wait for its deadline.
	stop := context.AfterFunc(x.r.Context(), func() { x.rc.SetWriteDeadline(longAgo) })
	defer stop()
	res, err := x.edge.worker.Do(ctx, w, put)
	x.finish(res, err)
}

// finish writes what is still owed after the worker returned.
func (x *exchange) finish(res walk.Result, err error) {
	x.end, x.attempts = res.End, res.Attempts
	x.agent, x.gateWord, x.tokenID = x.work.Agent, x.work.Gate, x.work.TokenID
	if res.Option != "" {
		x.option = string(res.Option)
	}
	switch {
	case err == nil && res.End == walk.Answered && x.wrote:
	case err == nil && res.End == walk.Answered && x.stream != nil && x.stream.delivered():
		x.stream.finish(nil)
	case x.spoilt != nil:
		x.refuse(x.spoilt.fail())
	case x.r.Context().Err() != nil || res.End == walk.Left && x.begun():
		x.leave()
	case err != nil:
		f := failureOf(err)
		if f.status == http.StatusInternalServerError {
			x.edge.log.Error("work ended with an error of ours", "request_id", x.id, "route", x.route, "error_type", fmt.Sprintf("%T", err))
		}
		x.refuse(f)
	case res.End == walk.Answered:
		x.refuse(Refuse(InternalError, "the work ended without an answer").fail())
	default:
		x.refuse(failureOfResult(res))
	}
}

// leave ends an exchange whose caller is gone. The answer is not ended as a
// whole one would be.
func (x *exchange) leave() {
	x.code = "client_aborted"
	if x.begun() {
		panic(http.ErrAbortHandler)
	}
	x.status = statusLeft
	x.w.WriteHeader(statusLeft) // for nobody
}

// begun reports whether a part of the answer may have reached the caller.
func (x *exchange) begun() bool { return x.wrote || x.stream != nil && x.stream.hasBegun() }

// refuse writes a failure: as the whole answer, or as a stream's last event.
func (x *exchange) refuse(f failure) {
	x.code = string(f.code)
	if x.option == "" && len(f.detail.Attempts) > 0 {
		x.option = f.detail.Attempts[len(f.detail.Attempts)-1].Option
	}
	if x.stream != nil && x.stream.finish(&f) {
		return
	}
	if x.wrote {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	h := x.w.Header()
	if f.retry > 0 {
		h.Set("Retry-After", seconds(f.retry))
	}
	if x.attempts > 0 && x.option != "" {
		h.Set(headerOption, x.option)
		h.Set(headerAttempts, strconv.Itoa(x.attempts))
		x.nameMethod()
	} else if x.work != nil && x.work.Complexity != "" {
		x.nameMethod()
	}
	x.json(f.status, f.body(x.id))
}

// json writes a whole answer.
func (x *exchange) json(status int, body []byte) {
	h := x.w.Header()
	h["Content-Type"] = jsonType
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	if !x.bodyRead && x.r.ContentLength != 0 {
		// net/http would read the body before it sends the header, which is what
		// an early answer avoids. After the answer it still takes what is under
		// way, so that the caller sees the answer and not a reset.
		h["Connection"] = connClose
		x.rc.SetReadDeadline(time.Now().Add(linger))
	}
	x.status, x.wrote = status, true
	x.w.WriteHeader(status)
	if x.r.Method != http.MethodHead {
		x.write(body)
	}
}

// write writes b in pieces with a deadline each and flushes.
func (x *exchange) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), writePiece)
		x.rc.SetWriteDeadline(time.Now().Add(x.edge.limits.Write)) // unsupported only in tests
		if _, err := x.w.Write(b[:n]); err != nil {
			return err
		}
		x.out += int64(n)
		b = b[n:]
	}
	err := x.rc.Flush()
	if errors.Is(err, http.ErrNotSupported) {
		err = nil
	}
	if x.first == 0 {
		x.first = time.Since(x.began)
	}
	return err
}

// close recovers from a panic of a handler or worker, and logs the request.
func (x *exchange) close() {
	v := recover()
	if v != nil && v != http.ErrAbortHandler { //nolint:errorlint // the sentinel is compared by net/http as well
		// The value may hold content; its type and the stack do not.
		x.edge.log.Error("panic", "request_id", x.id, "route", x.route, "panic_type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
		v = x.afterPanic()
	}
	if x.stream != nil && x.stream.stop() {
		x.out, x.first = x.stream.bytes, x.stream.first
		x.status = http.StatusOK
	}
	x.logRequest()
	if v != nil {
		panic(v)
	}
}

// afterPanic answers as for any other error of ours; if even that panics, the
// connection is cut.
func (x *exchange) afterPanic() (v any) {
	defer func() {
		if recover() != nil {
			v = http.ErrAbortHandler
		}
	}()
	x.refuse(failureOf(nil))
	return nil
}

func (x *exchange) logRequest() {
	level := slog.LevelInfo
	if x.route == routeHealth || x.route == routeReady {
		level = slog.LevelDebug
	}
	ctx := x.r.Context()
	if !x.edge.log.Enabled(ctx, level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 24),
		slog.String("request_id", x.id),
		slog.String("route", x.route),
		slog.Int("status", x.status),
		slog.String("code", x.code),
		slog.String("selection_method", x.method()),
		slog.String("option", x.option),
		slog.String("peer", x.peer),
		slog.Int("attempts", x.attempts),
		slog.String("end", string(x.end)),
		slog.Bool("stream", x.stream != nil),
		slog.Int64("bytes_in", x.in),
		slog.Int64("bytes_out", x.out),
		slog.Float64("first_ms", ms(x.first)),
		slog.Float64("total_ms", ms(time.Since(x.began))),
	)
	if x.provider != "" {
		attrs = append(attrs, slog.String("provider", x.provider))
	}
	if x.app != nil {
		attrs = append(attrs, slog.String("app", x.app.Name))
	}
	if x.work != nil && x.work.Complexity != "" {
		attrs = append(attrs, slog.String("complexity", x.work.Complexity), slog.String("job", x.work.Job))
	}
	if x.work != nil {
		attrs = append(attrs, slog.String("agent_did", x.agent), slog.String("gate_decision", x.gateWord), slog.String("token_id", x.tokenID))
	}
	// Straight to the handler: a logger would look for the line of code first.
	r := slog.NewRecord(time.Now(), level, "request", 0)
	r.AddAttrs(attrs...)
	_ = x.edge.log.Handler().Handle(ctx, r)
}

func (x *exchange) method() string {
	if x.work == nil {
		return ""
	}
	return x.work.Method
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
