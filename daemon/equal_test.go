package daemon_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/apps"
	"github.com/chordwheel/chordwheel/daemon/edge"
)

// crowd are callers who ask at the same time; the upstream answers once it may.
type crowd struct {
	t       *testing.T
	r       *shop
	release chan struct{}
	wg      sync.WaitGroup

	mu    sync.Mutex
	texts []string
	ends  []walk.End
}

func (c *crowd) ask(ctx context.Context, w edge.Work) {
	if w.Body == nil {
		w.Body = []byte(`{"a":1}`)
	}
	w.ID, w.Primitive, w.Share = "r", chain.LLMChat, true
	c.wg.Go(func() {
		var text string
		result, err := c.r.Do(ctx, &w, func(_ walk.Attempt, data [][]byte) error {
			for _, b := range data {
				text += string(b)
			}
			return nil
		})
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil && result.End == walk.Answered && (w.Method == "" || w.Agent == "") {
			c.t.Errorf("a caller is not told how: %+v", w)
		}
		c.texts, c.ends = append(c.texts, text), append(c.ends, result.End)
	})
	synctest.Wait()
}

// gather lets the upstream answer and gives how often it was asked.
func (c *crowd) gather() int {
	close(c.release)
	c.wg.Wait()
	return len(c.r.play.made())
}

func crowded(t *testing.T, s *shelf, story func(c *crowd)) {
	t.Helper()
	inTheShop(t, "local/own/m", withShelf(s), func(t *testing.T, r *shop) {
		c := &crowd{t: t, r: r, release: make(chan struct{})}
		r.play.run = func(ctx context.Context, call adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
			select {
			case <-c.release:
				return says("hello")(ctx, call, emit)
			case <-ctx.Done():
				return walk.Outcome{Class: chain.Canceled}
			}
		}
		story(c)
	})
}

// Equal requests in flight run once, where their callers allow it. Each caller is answered
// and has a receipt of its own.
func TestEqualRequestsRunOnce(t *testing.T) {
	s := &shelf{}
	crowded(t, s, func(c *crowd) {
		for _, body := range []string{`{"a":1}`, `{"a":1.0}`, ` { "a" : 1 }`} { // equal in their canonical form
			c.ask(c.t.Context(), edge.Work{Body: []byte(body)})
		}
		if n := c.gather(); n != 1 {
			t.Errorf("%d calls", n)
		}
		if len(c.texts) != 3 || !strings.Contains(c.texts[0], "hello") || c.texts[1] != c.texts[0] || c.texts[2] != c.texts[0] {
			t.Errorf("answers %q", c.texts)
		}
		seen := map[string]bool{}
		for _, q := range s.take(t) {
			seen[q.TransactionID] = true
			if q.Status != receipt.OK || q.ResponseHash != receipt.ResponseHash("hello", nil) || q.AgentDID == "" || q.Capability != "llm.chat" {
				t.Errorf("%s", q.Line)
			}
		}
		if len(seen) != 3 {
			t.Errorf("receipts of %d transactions", len(seen))
		}
		c.release = make(chan struct{})
		c.ask(c.t.Context(), edge.Work{})
		if n := c.gather(); n != 2 {
			t.Errorf("an equal request afterwards: %d calls in all", n)
		}
	})
}

// What an answer may depend on, and who pays for it, keeps requests apart.
func TestOtherRequestsRunByThemselves(t *testing.T) {
	for name, w := range map[string]edge.Work{
		"another body": {Body: []byte(`{"a":2}`)}, "no canonical form": {Body: []byte(`{"a":1`)}, "another model": {Model: "m"}, "another session": {Session: "s"},
		"a stage": {Stage: "s"}, "a consumer": {Consumer: "c"}, "an instance": {Instance: "i"}, "another budget": {Budget: edge.Budget{Batch: true}},
		"asynchronous": {Async: true}, "a stream": {Stream: true}, "an application": {App: &apps.App{Rule: apps.Rule{Name: "notes"}}},
	} {
		t.Run(name, func(t *testing.T) {
			crowded(t, &shelf{}, func(c *crowd) {
				c.ask(c.t.Context(), edge.Work{})
				c.ask(c.t.Context(), w)
				if n := c.gather(); n != 2 {
					t.Errorf("%d calls", n)
				}
			})
		})
	}
}

// Who leaves, leaves alone; with the last one the run ends.
func TestCallersOfEqualRequestsLeave(t *testing.T) {
	s := &shelf{}
	crowded(t, s, func(c *crowd) {
		first, leave := context.WithCancel(c.t.Context())
		c.ask(first, edge.Work{})
		c.ask(c.t.Context(), edge.Work{})
		leave()
		synctest.Wait()
		if n := c.gather(); n != 1 || !slices.Equal(c.ends, []walk.End{walk.Left, walk.Answered}) || !strings.Contains(c.texts[1], "hello") {
			t.Errorf("%d calls, %v %q", n, c.ends, c.texts)
		}
		var status []receipt.Status
		for _, q := range s.take(t) {
			status = append(status, q.Status)
		}
		if !slices.Equal(status, []receipt.Status{receipt.ClientAborted, receipt.OK}) {
			t.Errorf("receipts %v", status)
		}
	})
	crowded(t, s, func(c *crowd) {
		all, leave := context.WithCancel(c.t.Context())
		c.ask(all, edge.Work{})
		c.ask(all, edge.Work{})
		leave()
		c.wg.Wait() // nothing released the upstream: it was cancelled
		c.ask(c.t.Context(), edge.Work{})
		if n := c.gather(); n != 2 || !slices.Equal(c.ends, []walk.End{walk.Left, walk.Left, walk.Answered}) {
			t.Errorf("%d calls, %v", n, c.ends)
		}
		s.take(t)
	})
}

// A defect ends the requests of a run, and not the device.
func TestADefectOfAnEqualRequest(t *testing.T) {
	s := &shelf{}
	inTheShop(t, "local/own/m", func(c *daemon.Config) { c.Spool, c.Selection.Agents = s, broken{} }, func(t *testing.T, r *shop) {
		_, _, err := r.ask(edge.Work{Share: true})
		if err == nil || codeOf(err) != "" {
			t.Errorf("%v", err)
		}
		if got := s.take(t); len(got) != 1 || got[0].Status != receipt.UpstreamError {
			t.Errorf("%d receipts", len(got))
		}
		if !strings.Contains(r.log.String(), "panic_type") || strings.Contains(r.log.String(), "a defect") {
			t.Errorf("log %s", r.log)
		}
	})
}
