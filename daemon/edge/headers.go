package edge

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

// Names of the product's own header fields, in canonical form.
const (
	prefix          = "X-Chordwheel-"
	headerRequestID = prefix + "Request-Id"
	headerOption    = prefix + "Option"
	headerAttempts  = prefix + "Attempts"
	headerPeer      = prefix + "Peer"
	headerSelection = prefix + "Selection"

	headerComplexity = prefix + "Complexity"
	headerJob        = prefix + "Job"
)

// Bounds of what headers may ask for.
const (
	maxLabel     = 128
	maxRequestID = 64
	maxBudget    = 24 * time.Hour // anything longer is a mistake; the chain's rules cut lower
)

// Values that never change, shared by all answers: net/http reads them only.
var (
	jsonType    = []string{"application/json"}
	streamType  = []string{"text/event-stream"}
	noStore     = []string{"no-store"}
	noBuffering = []string{"no"}
	noSniff     = []string{"nosniff"}
	connClose   = []string{"close"}
)

// requestID gives the caller's request id where it is fit for logs and headers,
// else a new one.
func requestID(h http.Header) string {
	if v := h[headerRequestID]; len(v) == 1 && fitsRequestID(v[0]) {
		return v[0]
	}
	return "req-" + rand.Text()
}

func fitsRequestID(s string) bool {
	if s == "" || len(s) > maxRequestID {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c-'a' >= 26 && c-'A' >= 26 && c-'0' >= 10 && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// readWishes reads the product's own header fields into w. One that is unknown,
// repeated or malformed is refused: a misspelt wish must not be lost in silence.
func readWishes(h http.Header, w *Work) *Refusal {
	for name, values := range h {
		if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) || name == headerRequestID {
			continue
		}
		if len(values) != 1 {
			return invalid("%s: more than one value: send one", name)
		}
		if r := readWish(name, values[0], w); r != nil {
			return r
		}
	}
	return nil
}

func readWish(name, v string, w *Work) *Refusal {
	ok, want := true, ""
	switch name[len(prefix):] {
	case "Budget":
		w.Budget, ok = parseBudget(v)
		w.Budget.Named = true
		want = "interactive, batch, or a duration such as 90s, at most 24h"
	case "Session":
		w.Session, ok = label(v)
	case "Stage":
		w.Stage, ok = label(v)
	case "Consumer":
		w.Consumer, ok = label(v)
	case "Instance":
		w.Instance, ok = label(v)
	case "Escalate":
		w.Async, ok = v == "async", v == "async" || v == "sync"
		want = "sync or async"
	case "Progress":
		w.Reasoning, ok = v == "reasoning", v == "reasoning" || v == "comments"
		want = "comments or reasoning"
	case "Share":
		w.Share, ok = v == "1", v == "1" || v == "0"
		want = "1 or 0"
	default:
		return invalid("%s: unknown header: docs/edge.md lists the known ones", chain.Clip(name))
	}
	if ok {
		return nil
	}
	if want == "" {
		want = "1 to 128 printable ASCII characters without spaces"
	}
	return invalid("%s: want %s", name, want)
}

func parseBudget(s string) (Budget, bool) {
	switch s {
	case "interactive":
		return Budget{}, true
	case "batch":
		return Budget{Batch: true}, true
	}
	d, err := time.ParseDuration(s)
	return Budget{Duration: d}, err == nil && d >= time.Millisecond && d <= maxBudget
}

func label(s string) (string, bool) {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return "", false
		}
	}
	return s, s != "" && len(s) <= maxLabel
}

// nameRunner puts what answers into the header and the log: the option, the
// calls made until then, and the peer where the option is a slot.
func (x *exchange) nameRunner(a walk.Attempt) {
	h := x.w.Header()
	x.option = string(a.Option.ID)
	h[headerOption] = []string{x.option}
	h[headerAttempts] = []string{strconv.Itoa(a.Number)}
	x.nameMethod()
	if a.Peer != "" {
		x.peer = string(a.Peer)
		if name, ok := label(x.edge.worker.PeerName(a.Peer)); ok && !strings.Contains(name, "/") { // it must not look like an ID of its own
			x.peer = name + "/" + x.peer
		}
		h[headerPeer] = []string{x.peer}
	}
}

// nameMethod says in the header how the options were come by, and how the request
// is worked on.
func (x *exchange) nameMethod() {
	if x.work == nil {
		return
	}
	for _, f := range []struct{ name, value string }{{headerSelection, x.work.Method}, {headerComplexity, x.work.Complexity}, {headerJob, x.work.Job}} {
		if f.value != "" {
			x.w.Header()[f.name] = []string{f.value}
		}
	}
}

// allowCORS names the origin that may read the answer.
func allowCORS(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", headerRequestID+", "+headerOption+", "+headerAttempts+", "+headerPeer+", "+headerSelection+", "+headerComplexity+", "+headerJob+", Retry-After")
}

// preflight answers a browser's question before a request from a listed origin.
// Foreign headers are tolerated on requests, so those asked for are allowed.
func preflight(h http.Header, r *http.Request, allow string) {
	h.Set("Access-Control-Allow-Methods", allow)
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" && len(asked) <= 2048 && isFieldList(asked) {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
}

func isFieldList(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c-'a' >= 26 && c-'A' >= 26 && c-'0' >= 10 && c != '-' && c != '_' && c != ',' && c != ' ' {
			return false
		}
	}
	return true
}
