// Package registry is the hub's registry: it lists the agents of the mesh, those of
// the catalogue and the enrolled devices, page by page, with a validator for each
// page. It owns the pages, their order and their cursors. It must not know where
// agents come from, or why one is suspended: that is behind [Source].
//
// # HTTP
//
//	GET /registry/v1/agents?page_size=100&cursor=…
//	  → {"agents":[{"did","capability","endpoint","status","model_id"}],"next_cursor"}
//
// status is active, suspended or deregistered. next_cursor is "" on the last page; a
// cursor is opaque, and stays good when agents come and go. The ETag is a hash of the
// page: If-None-Match with it is answered with 304 until the page reads differently.
package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/chordwheel/chordwheel/orchestrator/authority"
)

// MaxPage is the most agents on a page, and how many there are unless fewer are
// asked for.
const MaxPage = 100

const maxCursor = 1 << 10 // bytes

// Status is how an agent stands.
type Status string

// Statuses.
const (
	Active       Status = "active"
	Suspended    Status = "suspended"
	Deregistered Status = "deregistered"
)

// Class decides which agents come first: a device reads 1,000 at most.
type Class byte

// Classes, in their order.
const (
	Provider Class = iota // of the catalogue
	Device                // enrolled
	Former                // devices that may be asked for nothing any more
)

// Agent is a registered provider of one capability. DID and capability name it.
type Agent struct {
	DID        string `json:"did"`
	Capability string `json:"capability"`
	Endpoint   string `json:"endpoint"` // "" for a device, which is reached as a peer
	Status     Status `json:"status"`
	ModelID    string `json:"model_id"`
	Class      Class  `json:"-"`
}

// Source has the agents. Its methods may be called at once from several goroutines.
type Source interface {
	// Version changes whenever Agents would give something else.
	Version() uint64
	// Agents gives all agents in any order; the list becomes the caller's. Of two with
	// one DID and capability the first in the order of the list, providers before
	// devices, is listed. An error means that nobody knows now: an empty list would
	// say that there are none, and devices would forget those that they have.
	Agents(ctx context.Context) ([]Agent, error)
}

// Server is the registry. It is an [http.Handler] whose calls may overlap.
type Server struct {
	source Source
	mux    *authority.Mux

	mu      sync.Mutex
	version uint64
	sorted  []Agent // nil: not read yet; immutable
}

// New makes a server.
func New(source Source) (*Server, error) {
	if source == nil {
		return nil, errors.New("registry: want a source of agents")
	}
	s := &Server{source: source}
	s.mux = authority.NewMux(s.Routes()...)
	return s, nil
}

// Routes are the server's, for a listener that it shares.
func (s *Server) Routes() []authority.Route {
	return []authority.Route{{Method: http.MethodGet, Path: "/registry/v1/agents", Handler: s.agents}}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// list gives the agents in their order.
func (s *Server) list(ctx context.Context) ([]Agent, error) {
	version := s.source.Version() // before the list: what changes in between is read again
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sorted != nil && s.version == version {
		return s.sorted, nil
	}
	all, err := s.source.Agents(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, compare)
	all = slices.CompactFunc(all, func(a, b Agent) bool { return a.DID == b.DID && a.Capability == b.Capability })
	seen := make(map[[2]string]bool, len(all))
	all = slices.DeleteFunc(all, func(a Agent) bool { // of another class
		k := [2]string{a.DID, a.Capability}
		again := seen[k]
		seen[k] = true
		return again
	})
	if all == nil {
		all = []Agent{}
	}
	s.version, s.sorted = version, all
	return all, nil
}

// compare is the order of the list.
func compare(a, b Agent) int {
	return cmp.Or(cmp.Compare(a.Class, b.Class), strings.Compare(a.DID, b.DID), strings.Compare(a.Capability, b.Capability))
}

func (s *Server) agents(w http.ResponseWriter, r *http.Request) (any, error) {
	size, after, err := query(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	list, err := s.list(r.Context())
	if err != nil {
		return nil, err
	}
	from := 0
	if after != nil {
		at, found := slices.BinarySearchFunc(list, *after, compare)
		if from = at; found {
			from++
		}
	}
	page := list[from:min(from+size, len(list))]
	next := ""
	if from+size < len(list) {
		next = cursor(page[len(page)-1])
	}
	body, err := json.Marshal(map[string]any{"agents": page, "next_cursor": next})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	etag := `"` + hex.EncodeToString(sum[:16]) + `"`
	w.Header().Set("ETag", etag)
	w.Header().Set("Cache-Control", "no-cache")
	if matches(r.Header.Values("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil, nil
	}
	return json.RawMessage(body), nil
}

// query reads page_size and cursor.
func query(raw string) (size int, after *Agent, err error) {
	q, err := url.ParseQuery(raw)
	if err != nil || len(raw) > 4*maxCursor {
		return 0, nil, authority.Refuse(authority.InvalidRequest, "the query cannot be read")
	}
	size = MaxPage
	if q.Has("page_size") {
		if size, err = strconv.Atoi(q.Get("page_size")); err != nil || size < 1 {
			return 0, nil, authority.Refuse(authority.InvalidRequest, "page_size: want 1 to %d", MaxPage)
		}
		size = min(size, MaxPage)
	}
	if c := q.Get("cursor"); c != "" {
		if after, err = readCursor(c); err != nil {
			return 0, nil, err
		}
	}
	return size, after, nil
}

// cursor names the agent that a page ends with: the next one begins behind it,
// whatever came or went meanwhile.
func cursor(a Agent) string {
	return base64.RawURLEncoding.EncodeToString([]byte(string('0'+a.Class) + a.DID + "\n" + a.Capability))
}

func readCursor(c string) (*Agent, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(c)
	did, capability, ok := strings.Cut(string(b), "\n")
	if err != nil || len(c) > maxCursor || !ok || did == "" || did[0] < '0' || did[0] > '0'+byte(Former) {
		return nil, authority.Refuse(authority.InvalidRequest, "cursor: want the next_cursor of a page")
	}
	return &Agent{Class: Class(did[0] - '0'), DID: did[1:], Capability: capability}, nil
}

// matches reports whether an If-None-Match names the page (RFC 9110, weak comparison).
func matches(values []string, etag string) bool {
	for _, v := range values {
		for tag := range strings.SplitSeq(v, ",") { // our tags have no commas
			if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == etag || tag == "*" {
				return true
			}
		}
	}
	return false
}
