// Package control owns what a device tells its owner: the answers of the local
// socket that the command speaks to, and the device's own page on the admin
// listener. It changes nothing itself: the daemon does, through [Device]. It
// knows neither mesh nor store. Answers never hold content, keys or tokens.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// Device is the daemon as this package sees it. Its methods may be called from
// many goroutines.
type Device interface {
	Applications
	Gatekeeper
	Workers
	Status() Status
	Chain(slot chain.Slot) (ChainView, error)    // ErrNotFound if the device holds none
	Join(ctx context.Context, text string) error // an invitation; errors are for people
	Keys() []Key                                 // sorted by name
	Pause(until time.Time) error                 // of work for others; zero: until Resume
	Resume() error
	Peers() []Peer // sorted by name
	Chords() []Chord
	Jobs() *job.Table
	Traces(id string) []Trace                           // of one request, or with "" of the last; the newest first
	Ping(ctx context.Context, who string) (Pong, error) // a name, a device ID, a peer ID or a part of it that no other has; Asked if nobody has it
	Network(ctx context.Context) Network                // looks now, also by dialling the hub; judged
}

// Key is what may be told about a provider key.
type Key struct {
	Name   string `json:"name"`
	Source string `json:"source"` // environment, system or file
}

// ErrNotFound is returned for a chain that the device does not hold.
var ErrNotFound = errors.New("this device holds no such chain")

// Asked is the error of a question that has no answer: nothing has that name,
// say. It is the asker's, and says what to ask instead.
type Asked string

// Error implements error.
func (a Asked) Error() string { return string(a) }

// ErrRefused marks errors of Join that say no, as against being out of reach.
var ErrRefused = errors.New("refused")

// Status is what `chordwheel status` shows of a device.
type Status struct {
	Kind         string             `json:"kind"` // "device"
	Version      string             `json:"version"`
	Name         string             `json:"name"`
	DeviceID     chain.DeviceID     `json:"device_id"`
	PeerID       chain.PeerID       `json:"peer_id"`
	Started      time.Time          `json:"started"`
	Edge         string             `json:"edge"` // URL, ends in /v1
	Admin        string             `json:"admin"`
	DataDir      string             `json:"data_dir"`
	Addresses    []string           `json:"addresses"`
	Ready        bool               `json:"ready"`
	Problems     []string           `json:"problems,omitempty"` // why it is not ready, or not whole
	Hub          HubStatus          `json:"hub"`
	Capabilities []chain.Capability `json:"capabilities"`
	Peers        PeerCount          `json:"peers"`
	Chains       []ChainSummary     `json:"chains"`
	Resting      []Resting          `json:"resting,omitempty"` // options and keys left alone for now
	Requests     Requests           `json:"requests"`
	Pipeline     Pipeline           `json:"pipeline"`
	Providers    *Providers         `json:"providers,omitempty"` // that work over HTTP; absent where none ever called
	Traffic      []Traffic          `json:"traffic,omitempty"`
	Foreign      Foreign            `json:"foreign"`
	Receipts     *Receipts          `json:"receipts,omitempty"` // nil: none are kept
	Gating       *Gating            `json:"gating,omitempty"`   // nil: there is no gate
}

// Gating is what the gate decided since the start, about this device's own work and
// that of peers, and what it goes by.
type Gating struct {
	Mode      string    `json:"mode"`    // observe or enforce
	Allowed   uint64    `json:"allowed"` // verdicts, whatever the mode
	Denied    uint64    `json:"denied"`
	Tokenless uint64    `json:"tokenless"` // of the denied: there was no token
	Snapshot  *Snapshot `json:"snapshot,omitempty"`
}

// Snapshot is what the device knows of the registry.
type Snapshot struct {
	Registry  string     `json:"registry"`             // hub or external
	Source    string     `json:"source,omitempty"`     // registry, last-good or seed; "" without one
	FetchedAt *time.Time `json:"fetched_at,omitempty"` // or the seed's date
	Age       *float64   `json:"age_s,omitempty"`
	Agents    int        `json:"agents"`
	Empty     bool       `json:"empty,omitempty"`      // the registry said that it lists no agents: nothing is selected until it does
	Truncated bool       `json:"truncated,omitempty"`  // the registry has more
	Skipped   int        `json:"skipped,omitempty"`    // records that could not be used
	Conflicts int        `json:"conflicts,omitempty"`  // agents that came twice and differently
	Problem   string     `json:"problem,omitempty"`    // no_snapshot or snapshot_stale
	LastError string     `json:"last_error,omitempty"` // of the last refresh
}

// Receipts is what became of the receipts of finished requests.
type Receipts struct {
	Waiting   int64      `json:"waiting"`              // for the ledger
	Oldest    *time.Time `json:"oldest,omitempty"`     // when the first of those was made
	Pending   int64      `json:"pending"`              // made and not on disk yet
	Sent      int64      `json:"sent"`                 // taken by the ledger since the start
	Rejected  int64      `json:"rejected"`             // set aside since the start: it called them invalid
	Lost      int        `json:"lost"`                 // requests that were open when the last run ended, without a receipt
	Writable  bool       `json:"writable"`             // the disk takes them
	Fault     string     `json:"fault,omitempty"`      // why it does not
	LastError string     `json:"last_error,omitempty"` // why the ledger did not take the last one

	Inlets     int    `json:"inlets"`     // chats let in that wait for their outlet
	Unreported uint64 `json:"unreported"` // chats let in whose outlet never came, since the start
}

// Foreign is the work of other devices that this one runs, since the start.
type Foreign struct {
	Sharing  []Sharing         `json:"sharing"` // by scope
	Running  int               `json:"running"`
	Answered uint64            `json:"answered"`
	Failed   uint64            `json:"failed"`
	Left     uint64            `json:"left"`    // their callers left
	Refused  map[string]uint64 `json:"refused"` // by code
}

// Sharing says whether the device works for others in a scope now.
type Sharing struct {
	Scope chain.ScopeID `json:"scope"`
	On    bool          `json:"on"`
	Why   string        `json:"why,omitempty"`  // why not
	Back  *time.Time    `json:"back,omitempty"` // when that may change by itself
	Jobs  int           `json:"jobs"`           // at once
}

// HubStatus is the device's side of its spoke.
type HubStatus struct {
	Joined            bool            `json:"joined"`
	Mesh              chain.MeshID    `json:"mesh,omitempty"`
	PeerID            chain.PeerID    `json:"peer_id,omitempty"`
	Addresses         []string        `json:"addresses,omitempty"`
	Reachable         bool            `json:"reachable"`
	LastVisit         *time.Time      `json:"last_visit,omitempty"`
	LastError         string          `json:"last_error,omitempty"` // of the visits since the last good one
	NextVisit         *time.Time      `json:"next_visit,omitempty"`
	MembershipExpires *time.Time      `json:"membership_expires,omitempty"`
	Scopes            []chain.ScopeID `json:"scopes,omitempty"`
	ReportsWaiting    bool            `json:"reports_waiting"`
}

// ChainSummary is one held chain in a line.
type ChainSummary struct {
	Scope     chain.ScopeID   `json:"scope"`
	Primitive chain.Primitive `json:"primitive"`
	Seq       uint64          `json:"seq"`
	Body      chain.CID       `json:"body"`
	Options   int             `json:"options"`
	Expires   time.Time       `json:"expires"`
	Stale     bool            `json:"stale"`
	Expired   bool            `json:"expired"`
}

// ChainView is one held chain in full, with what the device makes of it.
type ChainView struct {
	Source  string       `json:"source"` // "device"
	Head    chain.Head   `json:"head"`
	Options []OptionView `json:"options"`       // in the order the device would try them now
	Own     []delta.Row  `json:"own,omitempty"` // the hub's order and values beside the device's own, and why
	Rules   chain.Rules  `json:"rules"`
	Signed  chain.Signed `json:"signed"` // as it was received
	Stale   bool         `json:"stale"`
	Expired bool         `json:"expired"`
}

// OptionView is an option and whether this device can try it now.
type OptionView struct {
	chain.Option
	Usable bool        `json:"usable"`
	Why    chain.Class `json:"why,omitempty"` // why not: absent, cooling, key_missing, no_peer, ceiling, busy; denied: its agent is not active in the registry
	Until  *time.Time  `json:"until,omitempty"`
	Peers  []Candidate `json:"peers,omitempty"` // of a slot: the known peers, those that can fill it first, the best first
}

// Resting is an option or key that is left alone until a moment.
type Resting struct {
	Option chain.OptionID `json:"option,omitempty"`
	Key    string         `json:"key,omitempty"`
	Peer   chain.PeerID   `json:"peer,omitempty"`
	Until  time.Time      `json:"until"`
	Why    chain.Class    `json:"why,omitempty"`
}

// Requests counts what the edge was asked since the start.
type Requests struct {
	Total    uint64 `json:"total"`
	Failed   uint64 `json:"failed"`
	Protests uint64 `json:"protests"`
	Extended uint64 `json:"extended"`
	InFlight int64  `json:"in_flight"`
	Attempts uint64 `json:"attempts"`
	Dropped  uint64 `json:"measurements_dropped"`
	Probes   uint64 `json:"probes"`   // sent while idle
	Unproven uint64 `json:"unproven"` // answers of peers whose signed statement did not hold
}

// Traffic is the byte meter of one protocol.
type Traffic struct {
	Protocol string `json:"protocol"`
	In       int64  `json:"in"`
	Out      int64  `json:"out"`
}

// maxRequest bounds what the socket reads of a body.
const maxRequest = 64 << 10

// Socket serves the local socket: who can open it owns the device. edge is the
// device's edge, already authenticated.
func Socket(d Device, edge http.Handler) http.Handler {
	mux := http.NewServeMux()
	reads(mux, d)
	mux.HandleFunc("POST /api/v1/join", func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Invitation string `json:"invitation"`
		}
		if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&request); err != nil {
			fail(w, http.StatusBadRequest, "the body is not the JSON of a join")
			return
		}
		told(w, d, d.Join(r.Context(), request.Invitation))
	})
	mux.HandleFunc("POST /api/v1/pause", func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Until time.Time `json:"until"` // absent: until resumed
		}
		if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&request); err != nil {
			fail(w, http.StatusBadRequest, "the body is not the JSON of a pause")
			return
		}
		told(w, d, d.Pause(request.Until))
	})
	mux.HandleFunc("POST /api/v1/resume", func(w http.ResponseWriter, _ *http.Request) { told(w, d, d.Resume()) })
	mux.HandleFunc("GET /api/v1/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string][]Key{"keys": append([]Key{}, d.Keys()...)})
	})
	mux.HandleFunc("POST /api/v1/ping", func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Device string `json:"device"`
		}
		if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&request); err != nil {
			fail(w, http.StatusBadRequest, "the body is not the JSON of a ping")
			return
		}
		pong, err := d.Ping(r.Context(), request.Device)
		if err != nil {
			fail(w, statusOf(err), err.Error())
			return
		}
		answer(w, pong)
	})
	mux.HandleFunc("POST /api/v1/netcheck", func(w http.ResponseWriter, r *http.Request) { answer(w, d.Network(r.Context())) })
	serveApps(mux, d)
	serveProviders(mux, d)
	serveGate(mux, d)
	mux.Handle("/v1/", edge)
	mux.Handle("/api/v1/work/", edge)
	mux.Handle("/healthz", edge)
	mux.Handle("/readyz", edge)
	return mux
}

// Admin serves the admin listener: the device's page and its status, read-only.
func Admin(d Device, guard func(http.Handler) http.Handler) http.Handler {
	mux := http.NewServeMux()
	reads(mux, d)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { page(w, d) })
	return guard(known(mux))
}

// known answers unknown paths and methods in the shape of errors, and redirects nobody.
func known(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Clean(r.URL.Path) == r.URL.Path { // the mux would redirect
			if _, pattern := mux.Handler(r); pattern != "" {
				mux.ServeHTTP(w, r)
				return
			}
			other := r.Clone(r.Context())
			other.Method = http.MethodGet // all that there is
			if _, pattern := mux.Handler(other); pattern != "" {
				w.Header().Set("Allow", http.MethodGet)
				fail(w, http.StatusMethodNotAllowed, "want GET")
				return
			}
		}
		fail(w, http.StatusNotFound, "there is nothing at this path")
	})
}

func reads(mux *http.ServeMux, d Device) {
	mux.HandleFunc("GET /api/v1/kind", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]string{"kind": "device"})
	})
	mux.HandleFunc("GET /api/v1/chords", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string][]Chord{"chords": append([]Chord{}, d.Chords()...)})
	})
	serveTraces(mux, d)
	serveJobs(mux, d)
	serveMetrics(mux, d)
	mux.HandleFunc("GET /api/v1/peers", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string][]Peer{"peers": append([]Peer{}, d.Peers()...)})
	})
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, d.Status()) })
	mux.HandleFunc("GET /api/v1/chain", func(w http.ResponseWriter, r *http.Request) {
		slot := chain.Slot{Scope: chain.ScopeID(r.URL.Query().Get("scope")), Primitive: chain.Primitive(r.URL.Query().Get("primitive"))}
		view, err := d.Chain(slot)
		if err != nil {
			fail(w, statusOf(err), err.Error())
			return
		}
		answer(w, view)
	})
}

// told answers a change with what has become of the device.
func told(w http.ResponseWriter, d Device, err error) {
	if err != nil {
		fail(w, statusOf(err), err.Error())
		return
	}
	answer(w, d.Status())
}

func statusOf(err error) int {
	var asked Asked
	switch {
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.As(err, &asked):
		return http.StatusUnprocessableEntity
	case errors.Is(err, ErrRefused):
		return http.StatusForbidden
	}
	return http.StatusBadGateway
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v) // the reader left: nothing to be done
}
