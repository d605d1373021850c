package did

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// maxMarks is how many logs a Memory remembers; about 150 bytes each.
const maxMarks = 10_000

// ErrRewritten: a log holds, and is not what it was when it was last read, nor goes on from there. A
// server that lags behind may be all there is to it: asking again later is right.
var ErrRewritten = errors.New("the log was cut back or rewritten since it was last read")

// Memory is a Fetcher with which [Resolve] notices a log that was cut back or rewritten since
// it was last read: whoever has the web server alone can do that, and nothing in the log
// would show it. It remembers how far each log had come, for as long as the process runs. Its
// methods may be called at once from several goroutines.
type Memory struct {
	next Fetcher

	mu      sync.Mutex
	marks   map[string]mark      // by SCID: also where a DID moved
	doubted map[string]time.Time // by DID
}

// mark is the last version of a log that was read.
type mark struct {
	number int
	id     string
}

var _ Keeper = (*Memory)(nil)

// Remember gives a fetcher that gets what next gets.
func Remember(next Fetcher) *Memory {
	return &Memory{next: next, marks: map[string]mark{}, doubted: map[string]time.Time{}}
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

// grew fails unless the log, which holds, is what it was or goes on from there.
func (m *Memory) grew(all []version) error {
	last := all[len(all)-1]
	m.mu.Lock()
	defer m.mu.Unlock()
	seen, known := m.marks[last.after.scid]
	if known && (seen.number > len(all) || all[seen.number-1].id != seen.id) {
		return fmt.Errorf("%w: it had version %s", ErrRewritten, seen.id)
	}
	if !known && len(m.marks) >= maxMarks {
		for scid := range m.marks { // any one: the next reading begins anew
			delete(m.marks, scid)
			break
		}
	}
	m.marks[last.after.scid] = mark{len(all), last.id}
	return nil
}
