package fetch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/did"
)

// slow answers after a second, and counts.
type slow struct {
	mu    sync.Mutex
	calls int
	size  int
	err   error
}

func (s *slow) Fetch(ctx context.Context, url string, _ int64) ([]byte, error) {
	s.mu.Lock()
	s.calls++
	b, err := make([]byte, max(s.size, 1)), s.err
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Second):
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (s *slow) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func TestACacheAsksOnceInAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		c := NewCache(s)
		get := func(want int, wantErr error) {
			t.Helper()
			if _, err := c.Fetch(t.Context(), "https://a.example/x", did.MaxLog); !errors.Is(err, wantErr) || s.count() != want {
				t.Errorf("%v after %d calls, want %v after %d", err, s.count(), wantErr, want)
			}
		}
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() { get(1, nil) })
		}
		group.Wait()
		time.Sleep(59 * time.Second)
		get(1, nil)
		time.Sleep(2 * time.Second)
		get(2, nil)
		s.err = did.ErrNotFound
		time.Sleep(time.Minute)
		get(3, did.ErrNotFound)
		time.Sleep(8 * time.Second)
		get(3, did.ErrNotFound)
		time.Sleep(3 * time.Second)
		s.err = nil
		get(4, nil)
	})
}

// Who leaves takes nobody along, and what he leaves behind is no answer.
func TestWhoFetchesMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		c := NewCache(s)
		first, leave := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := c.Fetch(first, "https://a.example/x", 1); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		for range 3 {
			group.Go(func() {
				if _, err := c.Fetch(t.Context(), "https://a.example/x", 1); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		leave()
		group.Wait()
		if s.count() != 2 {
			t.Errorf("%d calls, want that of who left and one for all others", s.count())
		}
	})
}

func TestACacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{1, 1 << 20} {
			c := NewCache(&slow{size: size})
			var group sync.WaitGroup
			for i := range 2000 / min(size, 20) {
				group.Go(func() { _, _ = c.Fetch(t.Context(), fmt.Sprintf("https://a.example/%d", i), 1) })
			}
			group.Wait()
			held := 0
			for _, a := range c.kept {
				held += len(a.b)
			}
			if len(c.kept) > maxKept || c.bytes > maxBytes || held != c.bytes || len(c.kept) == 0 {
				t.Errorf("%d kept, %d bytes, %d counted", len(c.kept), held, c.bytes)
			}
		}
	})
}

// An answer is remembered for no longer than whoever read it says, and answers that belong
// together until the same instant.
func TestKeep(t *testing.T) {
	const log, approvals = "https://a.example/did.jsonl", "https://a.example/did-witness.json"
	for name, c := range map[string]struct {
		atMost time.Duration
		until  time.Duration // of both, from when the second one came
	}{
		"as its owner wants it": {20 * time.Second, 20*time.Second - time.Second},
		"not at all":            {0, 0},
		"longer than is kept":   {time.Hour, keepAnswer - time.Second}, // since the first one came
		"already over":          {time.Second / 2, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &slow{}
			c2 := NewCache(s)
			get := func(url string) {
				t.Helper()
				if _, err := c2.Fetch(t.Context(), url, 1); err != nil {
					t.Fatal(err)
				}
			}
			get(log)
			get(approvals) // a second later
			c2.Keep(c.atMost, log, approvals, "https://b.example/did.jsonl")
			if c.until > 0 {
				time.Sleep(c.until - 1)
				get(log)
				get(approvals)
				if s.count() != 2 {
					t.Errorf("%s: %d fetches before its time is over", name, s.count())
				}
				time.Sleep(time.Nanosecond)
			}
			get(approvals)
			get(log)
			if s.count() != 4 {
				t.Errorf("%s: %d fetches in all", name, s.count())
			}
			if c2.bytes != 2 || len(c2.kept) != 2 {
				t.Errorf("%s: %d bytes in %d answers", name, c2.bytes, len(c2.kept))
			}
		})
	}
}

// Who says so while the next fetch is under way ends nothing.
func TestKeepWhileItIsFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		c := NewCache(s)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if _, err := c.Fetch(t.Context(), "https://a.example/x", 1); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		c.Keep(0, "https://a.example/x")
		group.Wait()
		if s.count() != 1 {
			t.Errorf("%d fetches", s.count())
		}
	})
}
