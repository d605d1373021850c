package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon/authority"
)

// Bounds of a walk over the pages.
const (
	pageSize  = 100
	maxPages  = 10
	maxAgents = maxPages * pageSize
	maxPage   = 4 << 20 // bytes
	maxCursor = 1 << 10 // bytes
	maxETag   = 256     // bytes
)

// Errors of a walk: the registry broke its protocol, and nothing of what it said is
// used.
var (
	ErrUnasked = errors.New("the registry answered 304 to a request without a validator")
	ErrCursor  = errors.New("the registry's cursors lead nowhere")
	ErrPage    = errors.New("the registry's page is not one")
	ErrNothing = errors.New("none of the registry's records can be used")
)

// Server is the registry, as [authority.Client] reaches it.
type Server interface {
	Do(ctx context.Context, method, path string, header http.Header, body []byte, limit int64) (authority.Answer, error)
}

var _ Server = (*authority.Client)(nil)

// page is one page as it was, with its validator.
type page struct {
	etag    string // "" without one that can be used
	agents  []Agent
	records int // that came, also those skipped
	next    string
}

// walked is the result of a walk that reached its end.
type walked struct {
	pages     map[string]page // by cursor; what was not visited is not in it
	changed   bool            // a page was not a 304
	agents    []Agent
	records   int
	conflicts []string
	truncated bool
}

// walk reads the pages from the first on; cache holds those of the last walk.
func walk(ctx context.Context, server Server, cache map[string]page, own bool) (walked, error) {
	w := walked{pages: map[string]page{}}
	var records []Agent
	for cursor := ""; ; {
		if len(w.pages) == maxPages {
			w.truncated = true
			break
		}
		before, known := cache[cursor]
		p, fresh, err := get(ctx, server, cursor, before, known, own)
		if err != nil {
			return walked{}, fmt.Errorf("page %d: %w", len(w.pages)+1, err)
		}
		w.changed = w.changed || fresh
		w.pages[cursor] = p
		w.records += p.records
		records = append(records, p.agents...)
		if p.next == "" {
			break
		}
		if _, again := w.pages[p.next]; again {
			return walked{}, fmt.Errorf("page %d: %w: one comes twice", len(w.pages), ErrCursor)
		}
		cursor = p.next
	}
	if len(w.pages) != len(cache) {
		w.changed = true
	}
	if len(records) > maxAgents {
		records, w.truncated = records[:maxAgents], true
	}
	if w.records == 0 && w.truncated {
		return walked{}, fmt.Errorf("%w: %d pages without a record, and more to come", ErrCursor, maxPages)
	}
	if w.agents, w.conflicts = merge(records); len(w.agents) == 0 && w.records > 0 {
		return walked{}, fmt.Errorf("%w, of %d", ErrNothing, w.records)
	}
	return w, nil
}

// get asks for one page. fresh: it is not the one that was known before.
func get(ctx context.Context, server Server, cursor string, before page, known, own bool) (p page, fresh bool, err error) {
	path := fmt.Sprintf("/registry/v1/agents?page_size=%d", pageSize)
	if cursor != "" {
		path += "&cursor=" + url.QueryEscape(cursor)
	}
	header := http.Header{}
	asked := known && before.etag != ""
	if asked {
		header["If-None-Match"] = []string{before.etag}
	}
	a, err := server.Do(ctx, http.MethodGet, path, header, nil, maxPage)
	switch {
	case err != nil:
		return page{}, false, err
	case a.Status == http.StatusNotModified && asked:
		return before, false, nil
	case a.Status == http.StatusNotModified:
		return page{}, false, ErrUnasked
	case a.Status != http.StatusOK:
		return page{}, false, fmt.Errorf("the registry answered %d", a.Status)
	}
	p, err = readPage(a, own)
	return p, true, err
}

// readPage reads a page. A record that cannot be used is passed over; a page that
// is not one fails the walk.
func readPage(a authority.Answer, own bool) (page, error) {
	if kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return page{}, fmt.Errorf("%w: %q, not JSON", ErrPage, chain.Clip(a.Header.Get("Content-Type")))
	}
	if _, err := receipt.Canonical(a.Body); err != nil {
		return page{}, fmt.Errorf("%w: %w", ErrPage, err)
	}
	var doc map[string]json.RawMessage
	var list []json.RawMessage
	if json.Unmarshal(a.Body, &doc) != nil || json.Unmarshal(doc["agents"], &list) != nil || list == nil {
		return page{}, fmt.Errorf("%w: it has no list of agents", ErrPage)
	}
	p := page{etag: validator(a.Header), records: len(list)}
	if raw, there := doc["next_cursor"]; there {
		if json.Unmarshal(raw, &p.next) != nil || len(p.next) > maxCursor {
			return page{}, fmt.Errorf("%w: want a text of at most %d bytes", ErrCursor, maxCursor)
		}
	}
	for _, raw := range list {
		if agent, ok := readAgent(raw, own); ok {
			p.agents = append(p.agents, agent)
		}
	}
	return p, nil
}

// validator gives the ETag to send back, word for word; "" for none that is fit to.
func validator(h http.Header) string {
	tags := h.Values("ETag")
	if len(tags) != 1 || len(tags[0]) > maxETag || strings.IndexFunc(tags[0], func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
		return ""
	}
	return tags[0]
}

// skipped counts the records that could not be used.
func (w walked) skipped() int {
	n := w.records
	for p := range maps.Values(w.pages) {
		n -= len(p.agents)
	}
	return n
}
