package control

import (
	"net/http"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Trace is what became of one finished request on this device: names, classes and
// times, and nothing of its content. A request that was handed on has one on each
// device, under one request ID.
type Trace struct {
	RequestID   string          `json:"request_id"`
	Transaction string          `json:"transaction_id"` // of its receipts
	Began       time.Time       `json:"began"`
	Took        float64         `json:"took_ms"`
	Scope       chain.ScopeID   `json:"scope"`
	Primitive   chain.Primitive `json:"primitive"`
	For         chain.PeerID    `json:"for,omitempty"` // whose work it was; absent: this device's own
	ForName     string          `json:"for_name,omitempty"`
	End         string          `json:"end"`                   // docs/walk.md lists them
	Option      chain.OptionID  `json:"option,omitempty"`      // that answered, or was tried last
	Why         string          `json:"why,omitempty"`         // of an end over_budget: whose budget, and until when
	Attempts    []TraceAttempt  `json:"attempts"`              // in the order they ended
	PassedOver  []chain.Failure `json:"passed_over,omitempty"` // without an attempt, and why
}

// TraceAttempt is one attempt of a trace.
type TraceAttempt struct {
	Option      chain.OptionID `json:"option"`
	Peer        chain.PeerID   `json:"peer,omitempty"` // that ran it, for a slot
	Name        string         `json:"name,omitempty"` // of the peer
	Class       chain.Class    `json:"class"`
	Ended       time.Time      `json:"ended"`
	FirstOutput float64        `json:"first_output_ms,omitempty"`
	Took        float64        `json:"took_ms"`
}

// serveTraces answers what became of the last requests, or of one.
func serveTraces(mux *http.ServeMux, d Device) {
	mux.HandleFunc("GET /api/v1/traces", func(w http.ResponseWriter, r *http.Request) {
		answer(w, map[string][]Trace{"traces": append([]Trace{}, d.Traces(r.URL.Query().Get("request"))...)})
	})
}
