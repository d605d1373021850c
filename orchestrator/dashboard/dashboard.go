// Package dashboard owns what the hub shows its owner: one page, rendered on the
// server, and the JSON beside it, which the command reads too. It decides nothing
// and keeps nothing. The page changes nothing; what does (invitations,
// revocations, approvals) is served to the control socket only. It must not know
// listeners: it gives handlers.
package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/authority"
)

// Hub is the orchestrator as this package sees it. Errors that wrap
// orchestrator.ErrAsked are the asker's.
type Hub interface {
	Status(ctx context.Context) (orchestrator.Status, error)
	ChainsAfter(ctx context.Context, after chain.Slot, most int) (list []orchestrator.ChainSummary, more bool, err error)
	Show(ctx context.Context, slot chain.Slot) (orchestrator.ChainView, error)
	Explain(ctx context.Context, slot chain.Slot) (orchestrator.Explanation, error)
	Chords(ctx context.Context) ([]orchestrator.ChordView, error)
	Operations(after uint64, limit int) []orchestrator.Operation
	Invite(ctx context.Context, q orchestrator.Invite) (orchestrator.Invited, error)
	Revoke(ctx context.Context, who string) (chain.PeerID, error)
	Approve(ctx context.Context, peer chain.PeerID) error
}

// Pages serves one hub.
type Pages struct{ hub Hub }

// New gives the pages of a hub.
func New(hub Hub) *Pages { return &Pages{hub} }

// Limits of requests.
const (
	maxRequest    = 64 << 10
	maxOperations = 1000
	patience      = 10 * time.Second // for the hub's loop
)

// Web serves the page and the reading half of the API, to browsers whose Host is
// this machine's loopback, the address they connected to, or one of hosts, and
// whose Origin, if any, is the same host or one of origins.
func (p *Pages) Web(hosts, origins []string) http.Handler {
	mux := http.NewServeMux()
	p.reads(mux)
	mux.HandleFunc("GET /{$}", p.page)
	return guard(bounded(known(mux)), hosts, origins)
}

// Socket serves the whole API, to whoever can open the control socket: the owner.
func (p *Pages) Socket() http.Handler {
	mux := http.NewServeMux()
	p.reads(mux)
	mux.HandleFunc("GET /{$}", p.page)
	mux.HandleFunc("POST /api/v1/invite", p.invite)
	mux.HandleFunc("POST /api/v1/revoke", p.revoke)
	mux.HandleFunc("POST /api/v1/approve", p.approve)
	return bounded(known(mux))
}

func (p *Pages) reads(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, r *http.Request) {
		v, err := p.hub.Status(r.Context())
		answer(w, v, err)
	})
	mux.HandleFunc("GET /api/v1/kind", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]string{"kind": "hub"}, nil) })
	mux.HandleFunc("GET /api/v1/chords", func(w http.ResponseWriter, r *http.Request) {
		v, err := p.hub.Chords(r.Context())
		answer(w, map[string]any{"chords": v}, err)
	})
	mux.HandleFunc("GET /api/v1/chains", p.chains)
	mux.HandleFunc("GET /api/v1/chain", func(w http.ResponseWriter, r *http.Request) {
		v, err := p.hub.Show(r.Context(), slotOf(r))
		answer(w, v, err)
	})
	mux.HandleFunc("GET /api/v1/explain", func(w http.ResponseWriter, r *http.Request) {
		v, err := p.hub.Explain(r.Context(), slotOf(r))
		answer(w, v, err)
	})
	mux.HandleFunc("GET /api/v1/operations", p.operations)
}

// Chains of one answer.
const (
	usualChains = 1000
	mostChains  = 10_000
)

// chains answers page by page: ?after=SCOPE PRIMITIVE goes on behind a chain, as "next"
// of the page before says, and ?limit=N sets how many.
func (p *Pages) chains(w http.ResponseWriter, r *http.Request) {
	var after chain.Slot
	scope, primitive, _ := strings.Cut(r.URL.Query().Get("after"), " ")
	after.Scope, after.Primitive = chain.ScopeID(scope), chain.Primitive(primitive)
	limit := usualChains
	if n, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && n > 0 {
		limit = min(n, mostChains)
	}
	list, more, err := p.hub.ChainsAfter(r.Context(), after, limit)
	v := map[string]any{"chains": list}
	if more {
		last := &list[len(list)-1]
		v["next"] = string(last.Scope) + " " + string(last.Primitive)
	}
	answer(w, v, err)
}

// slotOf reads ?scope= and ?primitive=; the scope may be left out.
func slotOf(r *http.Request) chain.Slot {
	s := chain.Slot{Scope: chain.ScopeID(r.URL.Query().Get("scope")), Primitive: chain.Primitive(r.URL.Query().Get("primitive"))}
	if s.Scope == "" {
		s.Scope = chain.DefaultScope
	}
	return s
}

// operations reads ?after= (an ID; default: the newest) and ?limit= (default 100).
func (p *Pages) operations(w http.ResponseWriter, r *http.Request) {
	after, limit := uint64(0), 100
	var err error
	if s := r.URL.Query().Get("after"); s != "" {
		if after, err = strconv.ParseUint(s, 10, 64); err != nil {
			fail(w, authority.InvalidRequest, "after must be the id of an operation")
			return
		}
	}
	if s := r.URL.Query().Get("limit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < 1 || limit > maxOperations {
			fail(w, authority.InvalidRequest, "limit must be 1 to "+strconv.Itoa(maxOperations))
			return
		}
	}
	answer(w, map[string]any{"operations": p.hub.Operations(after, limit)}, nil)
}

func (p *Pages) invite(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Scope chain.ScopeID    `json:"scope"`
		Uses  int              `json:"uses"`
		TTL   string           `json:"ttl"` // "24h"
		Grant []member.Pattern `json:"grant"`
	}
	if !read(w, r, &q) {
		return
	}
	invite := orchestrator.Invite{Scope: q.Scope, Uses: q.Uses, Grant: q.Grant}
	if q.TTL != "" {
		ttl, err := time.ParseDuration(q.TTL)
		if err != nil {
			fail(w, authority.InvalidRequest, "ttl must be a duration, such as 24h")
			return
		}
		invite.TTL = ttl
	}
	v, err := p.hub.Invite(r.Context(), invite)
	answer(w, v, err)
}

func (p *Pages) revoke(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Device string `json:"device"` // peer ID, device ID or name
	}
	if !read(w, r, &q) {
		return
	}
	peer, err := p.hub.Revoke(r.Context(), q.Device)
	answer(w, map[string]any{"revoked": peer}, err)
}

func (p *Pages) approve(w http.ResponseWriter, r *http.Request) {
	var q struct {
		PeerID chain.PeerID `json:"peer_id"` // the one that came second
	}
	if !read(w, r, &q) {
		return
	}
	err := p.hub.Approve(r.Context(), q.PeerID)
	answer(w, map[string]any{"approved": q.PeerID}, err)
}

// read takes one JSON object without unknown fields.
func read(w http.ResponseWriter, r *http.Request, v any) bool {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(kind) != "application/json" {
		fail(w, authority.UnsupportedMediaType, "want Content-Type: application/json")
		return false
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil || d.Decode(&struct{}{}) != io.EOF {
		fail(w, authority.InvalidRequest, "the body is not one JSON object with the fields of this request")
		return false
	}
	return true
}

// bounded ends what waits too long for the hub.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// known answers unknown paths and methods in the shape of all errors.
func known(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Clean(r.URL.Path) != r.URL.Path { // the mux would redirect
			fail(w, authority.NotFound, "there is nothing here")
			return
		}
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := mux.Handler(other); pattern != "" {
				w.Header().Set("Allow", method)
				fail(w, authority.MethodNotAllowed, "this path wants "+method)
				return
			}
		}
		fail(w, authority.NotFound, "there is nothing here")
	})
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		r := &authority.Refusal{Code: authority.Overloaded, Message: "the hub cannot answer now: try again"} // it stops, or is busy
		switch asked := errors.Is(err, orchestrator.ErrAsked); {
		case asked && errors.Is(err, orchestrator.ErrNothing):
			r.Code, r.Message = authority.NotFound, err.Error()
		case asked:
			r.Code, r.Message, r.As = authority.InvalidRequest, err.Error(), http.StatusUnprocessableEntity
		}
		refuse(w, r)
		return
	}
	headers(w, "application/json")
	_ = json.NewEncoder(w).Encode(v) // the reader left: nothing to be done
}

// forbidden is the one code that the authority services have no use for: a page of elsewhere asks.
const forbidden authority.Code = "forbidden"

// fail answers as the hub's other services do, and with the status and the kind that they have for a code.
func fail(w http.ResponseWriter, code authority.Code, message string) {
	refuse(w, &authority.Refusal{Code: code, Message: message})
}

func refuse(w http.ResponseWriter, r *authority.Refusal) {
	headers(w, "application/json")
	authority.Fail(w, r)
}

func headers(w http.ResponseWriter, kind string) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
