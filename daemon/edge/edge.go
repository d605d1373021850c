// Package edge owns the HTTP surface that applications talk to: the OpenAI
// dialect and POST /api/v1/work. It authenticates, checks every byte of a request
// before anything acts on it, hands the work to a [Worker] that it declares, and
// writes what comes back, plain or as server-sent events. openapi.yaml is the
// source of truth of the surface, docs/edge.md tells its rules.
//
// It must not know options, providers, peers or retries: what an answer cost and
// who gave it is the walk's matter. It decodes no chat: bodies are scanned, not
// parsed, and passed on as they came. It logs no content.
package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/apps"
)

//go:generate go tool -modfile=../../tools/go.mod oapi-codegen --config oapi.yaml openapi.yaml

// Worker is what an Edge needs of the device behind it. Its methods are called
// from many goroutines at once.
type Worker interface {
	// Do runs w to its end and hands each piece of the answer to deliver: the
	// data of one event each for a stream, the whole answer in one call
	// otherwise. It calls deliver from one goroutine at a time and never after it
	// returned, and ends soon after ctx does, which is how it learns that the
	// caller left. It keeps nothing of w but w.Body, which nobody changes.
	//
	// An error says that no walk took place, or that its gate let nothing through;
	// one that wraps a [*Refusal] decides what the caller is told, any other is an
	// internal_error.
	Do(ctx context.Context, w *Work, deliver walk.Deliver) (walk.Result, error)

	// Models gives what a request of app, nil for the device's own key, may name. It
	// answers from memory and the edge changes nothing in it.
	Models(app *apps.App) Models

	// PeerName gives what people call the peer p, "" if nobody knows.
	PeerName(p chain.PeerID) string

	// Ready is nil when work can be taken, else says why not, best as a [*Refusal].
	Ready() error
}

// Auto is the model that leaves the choice to the chain.
const Auto = "auto"

// Work is one request that passed every check of the edge.
type Work struct {
	ID        string // request_id of headers, errors and logs
	Primitive chain.Primitive
	Body      []byte // llm.*: the chat completion request, byte for byte; else the body of the work call as it came. Never reused by the edge
	Received  []byte // the body as it came, where Body was made of it; nil where it is Body. Kept as Body is
	Model     string // llm.*: the name the caller asked for; "" for other primitives
	Stream    bool   // the answer goes out event by event
	Usage     bool   // the caller asked for the usage event
	Budget    Budget
	Async     bool // do not wait for an extension: end as walk.Escalating
	Reasoning bool // progress as reasoning deltas rather than comments
	Share     bool // may share one run with equal work in flight whose callers allow it too

	// Names of the conversation and of who asks; "" if not given.
	Session, Stage, Consumer, Instance string

	App *apps.App // who asks; nil for the device's own key

	Transaction string // of the inlet that let this chat in: its receipt has it; "" for one of its own

	Ask []byte // of a chat: the last text of the last message of a user, as a JSON string; `""` without one. Nil for other work
	// Comment, where the edge sets it, tells a caller who takes a stream something
	// beside the answer: one line. Calls of it and of deliver take turns.
	Comment func(line string)

	Complexity string // what the worker found of the request, and why: set like Method
	Job        string // the worker's record of how it was worked on: set like Method

	Method string // how the worker came to its options: selection_method. It sets it before it delivers; "" says nothing

	// What the worker found, for the log; it sets them before it returns.
	Agent, Gate, TokenID string // of the last attempt: its DID, allow or deny, the token's id
}

// Budget is how long a caller wants to wait at most. The zero Budget is
// "interactive".
type Budget struct {
	Named    bool          // the caller said it; work that takes long may take more otherwise
	Batch    bool          // "batch"
	Duration time.Duration // a length of its own; 0 if it was named
}

// Within gives the length of b under the rules of a chain. Defaults must be
// filled in.
func (b Budget) Within(rules chain.Budgets) time.Duration {
	d := rules.Interactive.Duration()
	switch {
	case b.Duration > 0:
		d = b.Duration
	case b.Batch:
		d = rules.Batch.Duration()
	}
	return min(d, rules.Max.Duration())
}

// Models is what a request may name beside [Auto].
type Models struct {
	Issued time.Time // when the chain of llm.chat was issued; zero without one
	Agents []Model   // in the order to be listed
}

// Model is one name for the model field of a request.
type Model struct {
	ID      string // the catalogue's name, an agent's DID or an option's model id
	Name    string // for people; may be empty
	OwnedBy string // the provider's or device's name
	Created time.Time
}

// Config is what New needs. Worker is required; every other field has a usable zero.
type Config struct {
	Worker     Worker
	Key        chain.Secret // the bearer key; without one Serve takes loopback listeners only
	NextKey    chain.Secret // also accepted, for a rotation
	Hosts      []string     // names beside the loopback ones that a Host header may hold on a loopback listener
	Origins    []string     // web origins, "scheme://host[:port]", that may call and get CORS headers
	ListAgents bool         // /v1/models lists more than auto
	Apps       *apps.Book   // applications with keys of their own; nil: none
	Desk       *Desk        // for inlet and outlet; nil: they refuse
	Jobs       *Jobs        // for providers over HTTP; nil: they are refused
	Limits     Limits
	Log        *slog.Logger // nil discards
}

// Edge serves the surface. Make it with [New], then call [Edge.Serve] for each
// listener; it may also be used as an http.Handler, with a loopback listener's
// checks.
type Edge struct {
	worker  Worker
	keys    keys
	hosts   map[string]bool
	origins map[string]bool
	agents  bool
	apps    *apps.Book
	desk    *Desk
	jobs    *Jobs

	registrations *rate.Limiter
	inlets        inlets
	limits        Limits
	log           *slog.Logger
	places        places
	servers       servers
}

// New checks cfg and makes an Edge. It starts nothing.
func New(cfg Config) (*Edge, error) {
	if cfg.Worker == nil {
		return nil, errors.New("edge: BUG: no worker")
	}
	if cfg.Key == "" && cfg.NextKey != "" {
		return nil, errors.New("edge: ORCH_API_KEY_NEXT is set and ORCH_API_KEY is not: set both during a rotation")
	}
	if cfg.Desk != nil {
		if err := cfg.Desk.check(); err != nil {
			return nil, err
		}
	}
	limits, err := cfg.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Edge{worker: cfg.Worker, keys: newKeys(cfg.Key, cfg.NextKey), agents: cfg.ListAgents, apps: cfg.Apps, desk: cfg.Desk, jobs: cfg.Jobs, registrations: newRegistrations(), limits: limits, log: cfg.Log,
		hosts: make(map[string]bool), origins: make(map[string]bool)}
	e.places.limit, e.places.ending = limits.InFlight, make(chan struct{})
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if wrong := CheckNames(cfg.Hosts, cfg.Origins); len(wrong) > 0 {
		return nil, errors.New("edge: " + strings.Join(wrong, "; "))
	}
	for _, h := range cfg.Hosts {
		e.hosts[hostname(h)] = true
	}
	for _, o := range cfg.Origins {
		e.origins[strings.ToLower(o)] = true
	}
	return e, nil
}

// CheckNames says of each host and origin of a [Config] that is none what to write
// instead.
func CheckNames(hosts, origins []string) (wrong []string) {
	for _, h := range hosts {
		if hostname(h) == "" || strings.ContainsAny(h, "/*@ ") {
			wrong = append(wrong, fmt.Sprintf("CHORDWHEEL_HOSTS: %q is not a host name: write it as in box.lan", chain.Clip(h)))
		}
	}
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || o != u.Scheme+"://"+u.Host || strings.Contains(o, "*") {
			wrong = append(wrong, fmt.Sprintf("CHORDWHEEL_ORIGINS: %q is not an origin: write it as in https://app.example:8443, without a path", chain.Clip(o)))
		}
	}
	return wrong
}

// ServeHTTP answers one request as on a loopback listener.
func (e *Edge) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.serve(w, r, true) }
