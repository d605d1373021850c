package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/edge"
)

// hall is a device whose one option speaks for a while, to callers who come and go.
type hall struct {
	*bench
	play  *play
	shelf *shelf
	wg    sync.WaitGroup
}

func inTheHall(t *testing.T, story func(t *testing.T, h *hall)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { story(t, newHall(t)) })
}

func newHall(t *testing.T) *hall {
	m := newMemory()
	h := &hall{play: &play{run: speaks(10, chain.OK)}, shelf: &shelf{}}
	h.bench = assemble(t, h.play, func(c *daemon.Config) { c.Chains, c.Marks, c.State, c.Spool = chains{m}, marks{m}, m, h.shelf })
	h.hub.serve("local/own/m")
	if err := h.Join(t.Context(), h.invitation()); err != nil {
		t.Fatal(err)
	}
	<-h.Visited()
	return h
}

// event is word i of a stream.
func event(i int) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":"w%d "}}]}`, i)
}

// words are the first n of a stream, and what they say.
func words(n int) (events []string, text string) {
	for i := range n {
		events, text = append(events, event(i)), text+fmt.Sprintf("w%d ", i)
	}
	return events, text
}

// speaks says a word at once and one every second after that, n in all, and ends.
func speaks(n int, end chain.Class) func(context.Context, adapter.Call, func(walk.Chunk) error) walk.Outcome {
	return func(ctx context.Context, _ adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
		for i := range n {
			if emit(walk.Chunk{Data: []byte(event(i)), Meaningful: true}) != nil || !passes(ctx, time.Second) {
				return walk.Outcome{Class: chain.Canceled}
			}
		}
		return walk.Outcome{Class: end, Input: 3, Output: int64(n)}
	}
}

// passes waits, and says whether that was not in vain.
func passes(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// listener is a caller who takes a stream.
type listener struct {
	edge.Work

	reads  time.Duration // that it takes for a delivery
	refuse int           // the delivery that it does not take, from 1; 0: it takes all
	leave  context.CancelFunc

	mu     sync.Mutex
	events []string

	// Once it has ended.
	deliveries int
	attempt    walk.Attempt // of the last one
	first      time.Duration
	took       time.Duration
	result     walk.Result
	err        error
}

// listen has l ask, and waits until nothing moves.
func (h *hall) listen(l *listener) *listener {
	defer synctest.Wait()
	return h.begin(l)
}

func (h *hall) begin(l *listener) *listener {
	l.ID, l.Primitive, l.Model, l.Stream, l.Share = "r", chain.LLMChat, edge.Auto, true, true
	if l.Body == nil {
		l.Body = []byte(`{"stream":true}`)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	l.leave = cancel
	began := time.Now()
	h.wg.Go(func() {
		defer cancel()
		l.result, l.err = h.Do(ctx, &l.Work, func(by walk.Attempt, data [][]byte) error {
			if l.Method == "" {
				h.t.Error("a caller is not told how its options were come by before it gets a word")
			}
			if l.deliveries++; l.deliveries == 1 {
				l.first = time.Since(began)
			}
			if l.deliveries == l.refuse || !passes(ctx, l.reads) {
				return errors.New("gone")
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.attempt = by
			for _, b := range data {
				l.events = append(l.events, string(b))
			}
			return nil
		})
		l.took = time.Since(began)
	})
	return l
}

// has gives how many words l has by now.
func (l *listener) has() int {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// got holds l to its having taken the first n words, and how that ended.
func (l *listener) got(t *testing.T, who string, n int, end walk.End) {
	t.Helper()
	if want, _ := words(n); !slices.Equal(l.events, want) || l.result.End != end || l.err != nil {
		t.Errorf("%s has %d words %q, %s, %v; want %d, %s", who, len(l.events), l.events, l.result.End, l.err, n, end)
	}
}
