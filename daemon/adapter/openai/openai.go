package openai

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
)

// Config says how an [Adapter] reaches its servers. The zero value is fine.
type Config struct {
	Log            *slog.Logger   // one debug line for each failed attempt, without content; nil: none
	ConnectTimeout time.Duration  // for the connection and, again, for the TLS handshake; 0: 5 s
	Roots          *x509.CertPool // who may sign servers' certificates; nil: the system's
	MaxAnswer      int64          // bytes of a plain answer, decompressed; a stream may have four times as many; 0: 64 MiB
}

// Adapter runs calls against OpenAI-compatible servers. Make one with [New]
// and share it: it holds the connections. It starts no goroutines of its own.
type Adapter struct {
	config    Config
	transport *transport
	urls      sync.Map // endpoint -> *url.URL of its chat completions
	shy       sync.Map // endpoints that refuse to be asked for the usage event -> struct{}
}

var _ adapter.Adapter = (*Adapter)(nil)

// New makes an adapter. Close it when nothing runs any more.
func New(c Config) *Adapter {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = 5 * time.Second
	}
	if c.MaxAnswer <= 0 {
		c.MaxAnswer = 64 << 20
	}
	return &Adapter{config: c, transport: newTransport(c.ConnectTimeout, c.Roots)}
}

// Close closes the idle connections.
func (a *Adapter) Close() { a.transport.close() }

// Waits inside an attempt that the walk's limits do not fit.
const (
	errorBodyWait = 2 * time.Second        // for the text of a refusal, once its status is there
	tailWait      = 2 * time.Second        // for [DONE] and the usage, once every choice is finished
	drainWait     = 100 * time.Millisecond // for the end of a body that said [DONE], so that its connection can be used again
)

// Run implements [adapter.Adapter].
func (a *Adapter) Run(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
	o, err := a.run(ctx, c, emit)
	if o.Class != chain.OK {
		if ctx.Err() != nil || errors.Is(err, errGivenUp) {
			o = walk.Outcome{Class: chain.Canceled, Status: o.Status, Input: o.Input, Output: o.Output}
		}
		a.config.Log.LogAttrs(ctx, slog.LevelDebug, "attempt failed", slog.String("request_id", c.Request.ID),
			slog.String("option", string(c.Attempt.Option.ID)), slog.String("class", string(o.Class)), slog.Int("status", o.Status), slog.String("error", unquoted(err)))
	}
	return o
}

// quoted is what the libraries quote of what they cannot read, or append to a line that is none.
var quoted = regexp.MustCompile(`(?s)"(\\.|[^"\\])*("|$)|line: .*`)

// unquoted says what went wrong without a word of the upstream's, which may be the
// caller's or an answer.
func unquoted(err error) string {
	if err == nil {
		return ""
	}
	return chain.ClipTo(quoted.ReplaceAllString(err.Error(), "…"), 200)
}

// Calls that are refused before anything is sent.
var (
	errPrimitive = errors.New("the openai adapter runs llm primitives only")
	errSecret    = errors.New("the key holds line ends or control characters: set it again")
)

// sendable reports whether s can stand in a header.
func sendable(s chain.Secret) bool {
	return !strings.ContainsFunc(s.Reveal(), func(r rune) bool { return r < ' ' || r == 0x7f })
}

// errGivenUp means that emit failed: the walk wants no more of this attempt.
var errGivenUp = errors.New("the attempt was given up")

func (a *Adapter) run(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) (walk.Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connection of an answer that was not read to its end
	wait := patience{cancel: cancel}
	defer wait.stop()

	if p := c.Request.Primitive; p != "" && !p.LLM() {
		return walk.Outcome{Class: chain.Feature}, errPrimitive
	}
	if !sendable(c.Secret) {
		return walk.Outcome{Class: chain.Credentials}, errSecret
	}
	u, err := a.completions(c.Attempt.Option.Endpoint)
	if err != nil {
		return walk.Outcome{Class: chain.Unreachable}, err
	}
	_, shy := a.shy.Load(c.Attempt.Option.Endpoint)
	changes, n, err := prepare(c.Request.Body, quote(c.Attempt.Option.Model), c.Request.Stream, !shy || c.Request.Usage)
	if err != nil {
		return walk.Outcome{Class: chain.CallerError, Answer: refusal(http.StatusBadRequest, err.Error(), "invalid_request")}, err
	}
	request := newRequest(&c, u, &changes)
	resp, err := a.transport.roundTrip(request.WithContext(ctx))
	if err != nil {
		return walk.Outcome{Class: chain.Unreachable}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return a.refused(resp, &c, &wait), nil
	}
	w := answer{call: &c, emit: emit, wait: &wait, n: n,
		reading: reading{part: "message", model: quote(c.Request.Model)}}
	most := a.config.MaxAnswer
	if c.Request.MaxAnswer > 0 {
		most = min(most, c.Request.MaxAnswer)
	}
	if c.Request.Stream {
		err = w.stream(resp, 4*most)
	} else {
		err = w.plain(resp, most)
	}
	w.outcome.Status = resp.StatusCode
	return w.outcome, err
}

// newRequest builds the upstream's request.
func newRequest(c *adapter.Call, u *url.URL, changes *edits) *http.Request {
	accept := acceptPlain
	if c.Request.Stream {
		accept = acceptStream
	}
	h := http.Header{"Content-Type": contentType, "Accept": accept, "Accept-Encoding": identity, "User-Agent": userAgent, resend: nil}
	if c.Secret != "" {
		h["Authorization"] = []string{"Bearer " + c.Secret.Reveal()}
	}
	bodies := bodyMaker(c.Request.Body, changes)
	resent := false
	return &http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(changes.size(len(c.Request.Body))), Body: bodies(),
		GetBody: func() (io.ReadCloser, error) {
			if resent {
				return nil, errResent
			}
			resent = true
			return bodies(), nil
		}}
}

// resend is the header by which net/http is told, with an empty value that is
// never sent, that a request may go out again when a pooled connection was dead
// before a byte of the answer came. GetBody allows it once.
const resend = "Idempotency-Key"

var (
	errResent    = errors.New("a pooled connection was dead, and so was the next one")
	contentType  = []string{"application/json"}
	acceptPlain  = contentType
	acceptStream = []string{"text/event-stream"}
	identity     = []string{"identity"}
	userAgent    = []string{"chordwheel"}
)

// completions gives the URL for an endpoint. Endpoints come from signed chains
// and the device's own configuration, so there are few.
func (a *Adapter) completions(endpoint string) (*url.URL, error) {
	if u, ok := a.urls.Load(endpoint); ok {
		return u.(*url.URL), nil
	}
	u, err := join(endpoint, completionsPath)
	if err != nil {
		return nil, err
	}
	a.urls.Store(endpoint, u)
	return u, nil
}

// refused reads as much of an error answer as it takes to classify it.
func (a *Adapter) refused(resp *http.Response, c *adapter.Call, wait *patience) walk.Outcome {
	var text []byte
	if tells(resp.StatusCode) {
		wait.limit(errorBodyWait)
		if r, err := body(resp, maxErrorBody); err == nil {
			if text, err = io.ReadAll(r); err != nil {
				text = nil // half a reason is none
			}
			text = withoutSecret(text, c.Secret)
		}
	} else { // only for the connection's sake
		wait.limit(drainWait)
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	}
	o := refused(resp.StatusCode, resp.Header, text, time.Now())
	if o.Class == chain.CallerError && c.Request.Stream && !c.Request.Usage && strings.Contains(readProblem(text).message, "stream_options") {
		// We asked for the usage, the caller did not: its request is not at
		// fault. This server is asked without from now on.
		a.shy.Store(c.Attempt.Option.Endpoint, struct{}{})
		o.Class, o.Answer = chain.Feature, nil
	}
	return o
}

// answer is an answer with status 200 on its way to the caller.
type answer struct {
	reading
	call    *adapter.Call
	emit    func(walk.Chunk) error
	wait    *patience
	n       int64 // choices asked for
	outcome walk.Outcome
	begun   bool // something meaningful was emitted
	held    bool // the walk may hold what was emitted, for more is at hand
	waits   bool // for the next event, within tailWait
	free    []byte
}

var (
	errNoAnswer = errors.New("a 200 that is no answer")
	errNoFinish = errors.New("the stream ended without a finish reason")
	errReported = errors.New("the upstream reported an error inside its answer")
	errBroken   = errors.New("the answer is not the JSON of a chat completion")
)

// plain reads a whole answer and emits it as one chunk.
func (w *answer) plain(resp *http.Response, limit int64) error {
	w.outcome.Class = chain.BadAnswer
	if !isType(resp.Header, "application/json") {
		return errNoAnswer
	}
	r, err := body(resp, limit)
	if err != nil {
		return err
	}
	into := answers.Get().(*bytes.Buffer)
	defer recycle(into)
	text, err := readAll(into, r, resp.ContentLength, limit)
	if err != nil {
		w.outcome.Class = lost(err)
		return err
	}
	f, ok := w.read(text)
	switch {
	case !ok:
		return errBroken
	case f.failed:
		return w.reported(text)
	case f.choices == 0 || !f.meaningful:
		return w.empty(f.filtered)
	}
	w.outcome.Input, w.outcome.Output = f.input, f.output
	edited := f.apply(make([]byte, 0, f.size(len(text))), text)
	if w.emit(walk.Chunk{Data: edited, Meaningful: true}) != nil {
		return errGivenUp
	}
	w.outcome.Class = chain.OK
	return nil
}

// answers are buffers that plain answers are read into. What is emitted is an
// edited copy, so that they can be used again.
var answers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func recycle(b *bytes.Buffer) {
	if b.Cap() <= keepInPool {
		b.Reset()
		answers.Put(b)
	}
}

// readAll reads r into b, which grows to measure where the size was declared.
func readAll(b *bytes.Buffer, r io.Reader, declared, limit int64) ([]byte, error) {
	size := int64(8 << 10)
	if declared > 0 {
		size = min(declared, limit, 4<<20) + bytes.MinRead
	}
	b.Grow(int(size))
	_, err := b.ReadFrom(r)
	return b.Bytes(), err
}

// lost tells a connection that broke from a server that sent nonsense.
func lost(err error) chain.Class {
	var corrupt flate.CorruptInputError
	for _, fault := range []error{errTooLarge, errRatio, errLine, gzip.ErrHeader, gzip.ErrChecksum, io.ErrNoProgress} {
		if errors.Is(err, fault) {
			return chain.BadAnswer
		}
	}
	if errors.As(err, &corrupt) {
		return chain.BadAnswer
	}
	return chain.Unreachable
}

// reported classifies an error object that stands where an answer should.
func (w *answer) reported(text []byte) error {
	if c, ok := recognise(text); ok {
		w.outcome.Class = c
		w.outcome.Answer = refusal(http.StatusBadRequest, "the upstream refused the request", string(c))
	}
	return errReported
}

// empty classifies an answer without any output.
func (w *answer) empty(filtered bool) error {
	if filtered {
		w.outcome.Class = chain.Filtered
		w.outcome.Answer = refusal(http.StatusBadRequest, "the upstream's content filter held the answer back", "content_filter")
	}
	return errNoAnswer
}
