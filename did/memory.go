package did

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// maxMarks is how many logs a Memory remembers; about 250 bytes each.
const maxMarks = 10_000

const (
	markLife = 400 * 24 * time.Hour // unread for longer, a mark makes room for others
	readStep = 7 * 24 * time.Hour   // how exactly it is kept when a log was read last
)

// ErrRewritten: a log holds, and is not what it was when it was last read, nor goes on from there. A
// server that lags behind may be all there is to it: asking again later is right.
var ErrRewritten = errors.New("the log was cut back or rewritten since it was last read")

// Memory is a Fetcher with which [Resolve] notices a log that was cut back or rewritten since
// it was last read: whoever has the web server alone can do that, and nothing in the log
// would show it. It remembers how far each log had come: 10,000 logs. When there is no room, a
// log that nobody asked for in 400 days is forgotten, else the one that was met last of the site
// with the most: a stranger with names without number takes his own room, and never that of a log
// that was there before. A site is the last two labels of the host that gave the log.
//
// Its methods may be called at once from several goroutines.
type Memory struct {
	next Fetcher
	kept Marks // nil: for as long as the process runs
	most int   // marks

	mu      sync.Mutex
	marks   map[string]mark      // by SCID: also where a DID moved
	sites   map[string]int       // marks of each
	doubted map[string]time.Time // by DID
}

// Marks is where a Memory keeps what it remembers, encoded as deterministic CBOR. A write
// returns when it is durable. A bucket of package store is one.
type Marks interface {
	PutAll(records map[string]any) error
	Delete(keys ...string) error
	Each(f func(key string, decode func(v any) error) error) error
}

// mark is the last version of a log that was read.
type mark struct {
	Number int           `cbor:"number"`
	ID     string        `cbor:"id"`
	Site   string        `cbor:"site"`  // whose room it takes
	Since  chain.Instant `cbor:"since"` // when the log was met
	Read   chain.Instant `cbor:"read"`  // and when it was asked for last, to the week
}

var _ Keeper = (*Memory)(nil)

// Remember gives a fetcher that gets what next gets, and remembers for as long as the process runs.
func Remember(next Fetcher) *Memory {
	return &Memory{next: next, most: maxMarks, marks: map[string]mark{}, sites: map[string]int{}, doubted: map[string]time.Time{}}
}

// Recall is Remember, from what was kept on: what is remembered is kept before it counts. It
// fails if kept cannot be read.
func Recall(next Fetcher, kept Marks) (*Memory, error) {
	m := Remember(next)
	m.kept = kept
	err := kept.Each(func(scid string, decode func(v any) error) error {
		var k mark
		if err := decode(&k); err == nil && k.Number > 0 && validHash(scid) && len(m.marks) < m.most {
			m.set(scid, k)
		}
		return nil // one that cannot be read is one less
	})
	if err != nil {
		return nil, fmt.Errorf("recall how far logs of DIDs had come: %w", err)
	}
	return m, nil
}

// Fetch implements [Fetcher].
func (m *Memory) Fetch(ctx context.Context, url string, limit int64) ([]byte, error) {
	return m.next.Fetch(ctx, url, limit)
}

// Keep implements [Keeper], if next does.
func (m *Memory) Keep(atMost time.Duration, urls ...string) {
	if k, ok := m.next.(Keeper); ok {
		k.Keep(atMost, urls...)
	}
}

// Doubt says that something does not fit what a DID was resolved to, which may have changed
// since its log was fetched. again: what was remembered is forgotten, and the next
// Resolve fetches anew; that is so once in ten seconds for each DID, and asOf is when it last
// was. A did:key does not change: neither.
func (m *Memory) Doubt(did string, now time.Time) (again bool, asOf time.Time) {
	w, err := parseWebVH(did)
	if err != nil {
		return false, time.Time{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if asOf := m.doubted[did]; now.Sub(asOf) < brokenFor {
		return false, asOf
	}
	if len(m.doubted) >= maxMarks {
		clear(m.doubted)
	}
	m.doubted[did] = now
	m.Keep(0, w.url(LogFile), w.url(WitnessFile))
	return true, now
}

// grew fails unless the log, which holds and goes by the name w, is what it was or goes on from
// there. A log that was never met takes room of the site that it was asked for from.
func (m *Memory) grew(w webvh, all []version, now time.Time) error {
	last := all[len(all)-1]
	scid := last.after.scid
	m.mu.Lock()
	defer m.mu.Unlock()
	seen, known := m.marks[scid]
	if known && (seen.Number > len(all) || all[seen.Number-1].id != seen.ID) {
		return fmt.Errorf("%w: it had version %s", ErrRewritten, seen.ID)
	}
	next := seen
	next.Number, next.ID = len(all), last.id
	if !known {
		next.Site, next.Since = w.site(), chain.InstantOf(now)
	}
	if now.Sub(seen.Read.Time()).Abs() >= readStep {
		next.Read = chain.InstantOf(now)
	}
	switch {
	case next == seen:
		return nil
	case !known:
		if room, err := m.room(next.Site, now); err != nil || !room {
			return err
		}
	}
	if m.kept != nil {
		if err := m.kept.PutAll(map[string]any{scid: next}); err != nil {
			return fmt.Errorf("keep how far the log had come: %w", err)
		}
	}
	m.set(scid, next)
	return nil
}

func (m *Memory) set(scid string, k mark) {
	if _, known := m.marks[scid]; !known {
		m.sites[k.Site]++
	}
	m.marks[scid] = k
}

// room makes room for one more mark of site where there is none, and reports whether there is some.
func (m *Memory) room(site string, now time.Time) (bool, error) {
	if len(m.marks) < m.most {
		return true, nil
	}
	scid := m.leastMissed(site, now)
	if scid == "" {
		return false, nil
	}
	if m.kept != nil {
		if err := m.kept.Delete(scid); err != nil {
			return false, fmt.Errorf("forget how far a log had come: %w", err)
		}
	}
	from := m.marks[scid].Site
	delete(m.marks, scid)
	if m.sites[from]--; m.sites[from] == 0 {
		delete(m.sites, from)
	}
	return true, nil
}

// leastMissed gives the mark that one more of site may push out: of those that nobody asked for, the
// one that has been so for longest; else the one that came last of the site with the most, if
// that is another: what is about to come counts, and is the last of its own.
func (m *Memory) leastMissed(site string, now time.Time) string {
	most, n := site, m.sites[site]+1
	for s, c := range m.sites {
		if c > n || c == n && most != site && s < most {
			most, n = s, c
		}
	}
	unread, last := "", ""
	for scid, k := range m.marks {
		if now.Sub(k.Read.Time()) > markLife && (unread == "" || k.Read < m.marks[unread].Read) {
			unread = scid
		}
		if l := m.marks[last]; most != site && k.Site == most && (last == "" || k.Since > l.Since || k.Since == l.Since && scid > last) {
			last = scid
		}
	}
	return cmp.Or(unread, last)
}
