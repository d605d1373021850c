package daemon_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/apps"
	"github.com/chordwheel/chordwheel/daemon/edge"
)

// A stream is run once for all who ask for it while it lasts. Who joins gets what was said
// at once, then what follows as it comes; each has a receipt of what they were sent.
func TestEqualStreamsRunOnce(t *testing.T) {
	inTheHall(t, func(t *testing.T, h *hall) {
		first := h.listen(&listener{})
		time.Sleep(3500 * time.Millisecond)
		second := h.listen(&listener{Work: edge.Work{Body: []byte(` { "stream" : true }`), Transaction: "t"}})
		if n := second.has(); n != 4 {
			t.Errorf("on its arrival the second has %d words", n)
		}
		if time.Sleep(time.Second); second.has() != 5 || first.has() != 5 {
			t.Errorf("a second later they have %d and %d words", first.has(), second.has())
		}
		h.wg.Wait()
		if first.deliveries != 10 || second.deliveries != 7 {
			t.Errorf("they took %d and %d deliveries", first.deliveries, second.deliveries)
		}
		for who, l := range map[string]*listener{"first": first, "second": second} {
			l.got(t, who, 10, walk.Answered)
			if l.attempt.Number != 1 || l.attempt.Option.ID != "local/own/m" || l.Agent == "" || l.result.Attempts != 1 || l.result.Output != 10 {
				t.Errorf("%s is told %+v %+v %q", who, l.attempt, l.result, l.Agent)
			}
		}
		if n := len(h.play.made()); n != 1 {
			t.Errorf("%d calls", n)
		}
		_, text := words(10)
		seen := map[string]bool{}
		for _, q := range h.shelf.take(t) {
			seen[q.TransactionID] = true
			if q.Status != receipt.OK || q.ResponseHash != receipt.ResponseHash(text, nil) || q.AgentDID == "" || q.Capability != "llm.chat" {
				t.Errorf("%s", q.Line)
			}
		}
		if len(seen) != 2 || !seen["t"] {
			t.Errorf("receipts of %v", seen)
		}
		h.listen(&listener{})
		h.wg.Wait()
		if n := len(h.play.made()); n != 2 {
			t.Errorf("an equal stream afterwards: %d calls in all", n)
		}
	})
}

// A stream and a plain answer are two, whatever their bodies say; so are streams that tell
// of their progress in another way.
func TestOtherStreamsRunByThemselves(t *testing.T) {
	for name, w := range map[string]edge.Work{"another body": {Body: []byte(`{}`)}, "another progress": {Reasoning: true}, "an application": {App: &apps.App{Rule: apps.Rule{Name: "notes"}}}} {
		t.Run(name, func(t *testing.T) {
			inTheHall(t, func(t *testing.T, h *hall) {
				h.listen(&listener{})
				h.listen(&listener{Work: w}).leave()
				h.wg.Wait()
				if n := len(h.play.made()); n != 2 {
					t.Errorf("%d calls", n)
				}
			})
		})
	}
}

// Who leaves a stream leaves alone, the first one too, and has a receipt of what they had.
// With the last one the run ends, and nobody joins it any more.
func TestCallersOfAStreamLeave(t *testing.T) {
	inTheHall(t, func(t *testing.T, h *hall) {
		var cancelled atomic.Int64
		h.play.run = func(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
			o := speaks(10, chain.OK)(ctx, c, emit)
			if o.Class == chain.Canceled {
				cancelled.Add(1)
				time.Sleep(500 * time.Millisecond) // it does not end at once
			}
			return o
		}
		first, second, third := h.listen(&listener{}), h.listen(&listener{}), h.listen(&listener{refuse: 6})
		time.Sleep(2500 * time.Millisecond)
		first.leave()
		h.wg.Wait()
		first.got(t, "who left", 3, walk.Left)
		second.got(t, "who stayed", 10, walk.Answered)
		third.got(t, "who could not be written to", 5, walk.Left)
		if n := len(h.play.made()); n != 1 || first.result.Attempts != 1 || first.result.Option == "" {
			t.Errorf("%d calls, %+v", n, first.result)
		}
		got := map[string]receipt.Status{}
		for _, q := range h.shelf.take(t) {
			got[q.ResponseHash] = q.Status
			if q.AgentDID == "" {
				t.Errorf("%s", q.Line)
			}
		}
		for n, status := range map[int]receipt.Status{3: receipt.ClientAborted, 5: receipt.ClientAborted, 10: receipt.OK} {
			if _, text := words(n); got[receipt.ResponseHash(text, nil)] != status {
				t.Errorf("no receipt %s of %d words: %v", status, n, got)
			}
		}
		a, b := h.listen(&listener{}), h.listen(&listener{})
		time.Sleep(1500 * time.Millisecond)
		a.leave()
		synctest.Wait()
		b.leave()
		synctest.Wait()
		next := h.listen(&listener{})
		h.wg.Wait()
		next.got(t, "who came while the run ended", 10, walk.Answered)
		a.got(t, "one of the last", 2, walk.Left)
		b.got(t, "the very last", 2, walk.Left)
		if b.took != 2*time.Second || cancelled.Load() != 1 || len(h.play.made()) != 3 {
			t.Errorf("%d cancelled of %d, after %s", cancelled.Load(), len(h.play.made()), b.took)
		}
	})
}

// A run goes at the pace of the fastest: alone, a slow reader has the upstream wait, as
// without sharing; beside others it holds up nobody and has it all later.
func TestASlowReaderOfAStream(t *testing.T) {
	inTheHall(t, func(t *testing.T, h *hall) {
		slow := h.listen(&listener{reads: 5 * time.Second})
		h.wg.Wait()
		if slow.got(t, "alone", 10, walk.Answered); slow.deliveries != 10 || slow.took != 60*time.Second {
			t.Errorf("alone: %d deliveries in %s", slow.deliveries, slow.took)
		}
		slow = h.listen(&listener{reads: 20 * time.Second})
		fast := h.listen(&listener{})
		h.wg.Wait()
		fast.got(t, "fast", 10, walk.Answered)
		slow.got(t, "slow", 10, walk.Answered)
		if fast.took != 10*time.Second || slow.took != 40*time.Second {
			t.Errorf("fast took %s, slow %s", fast.took, slow.took)
		}
		slow = h.listen(&listener{reads: 20 * time.Second})
		fast = h.listen(&listener{})
		time.Sleep(2500 * time.Millisecond)
		fast.leave()
		h.wg.Wait()
		slow.got(t, "left alone", 10, walk.Answered)
	})
}

// No more than so much is kept of an answer: who is behind by more is cut, and who comes
// then begins anew. Alone nobody is behind.
func TestALongStream(t *testing.T) {
	inTheHall(t, func(t *testing.T, h *hall) {
		const pieces = 20
		piece := []byte(`{"choices":[]` + strings.Repeat(" ", 256<<10) + `}`)
		var sent atomic.Int64
		h.play.run = func(ctx context.Context, _ adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
			for range pieces {
				if emit(walk.Chunk{Data: piece, Meaningful: true}) != nil || !passes(ctx, time.Second) {
					return walk.Outcome{Class: chain.Canceled}
				}
				sent.Add(1)
			}
			return walk.Outcome{Class: chain.OK}
		}
		fast, slow, behind := h.listen(&listener{}), h.listen(&listener{reads: 30 * time.Second}), h.listen(&listener{reads: 1500 * time.Millisecond})
		time.Sleep(17 * time.Second)
		h.listen(&listener{}).leave()
		if n := len(h.play.made()); n != 2 {
			t.Errorf("%d calls: who came late did not get a run of its own", n)
		}
		h.wg.Wait()
		for who, l := range map[string]*listener{"fast": fast, "not far behind": behind} {
			if l.result.End != walk.Answered || len(l.events) != pieces {
				t.Errorf("%s: %s after %d", who, l.result.End, len(l.events))
			}
		}
		if slow.result.End != walk.Left || len(slow.events) != 1 || slow.took != 30*time.Second {
			t.Errorf("slow: %s after %d, %s", slow.result.End, len(slow.events), slow.took)
		}
		slow, fast = h.listen(&listener{reads: 20 * time.Second}), h.listen(&listener{})
		time.Sleep(15500 * time.Millisecond)
		fast.leave()
		h.wg.Wait()
		if slow.result.End != walk.Answered || len(slow.events) != pieces {
			t.Errorf("slow, and left alone: %s after %d", slow.result.End, len(slow.events))
		}
		sent.Store(0)
		alone := h.listen(&listener{reads: 30 * time.Second})
		if time.Sleep(25 * time.Second); sent.Load() != 0 {
			t.Errorf("%d ahead of the only reader", sent.Load())
		}
		h.wg.Wait()
		if alone.result.End != walk.Answered || len(alone.events) != pieces {
			t.Errorf("alone: %s after %d", alone.result.End, len(alone.events))
		}
	})
}

// A failure is that of all: before the first word, and after it.
func TestAStreamFailsForAll(t *testing.T) {
	for name, c := range map[string]struct {
		run    func(context.Context, adapter.Call, func(walk.Chunk) error) walk.Outcome
		words  int
		end    walk.End
		status receipt.Status
	}{
		"before the first word": {func(ctx context.Context, _ adapter.Call, _ func(walk.Chunk) error) walk.Outcome {
			passes(ctx, 3*time.Second)
			return walk.Outcome{Class: chain.Status, Status: 500}
		}, 0, walk.AllFailed, receipt.UpstreamError},
		"after it": {speaks(5, chain.Status), 5, walk.Broken, receipt.UpstreamError},
		"the caller's error": {func(ctx context.Context, _ adapter.Call, _ func(walk.Chunk) error) walk.Outcome {
			passes(ctx, 3*time.Second)
			return walk.Outcome{Class: chain.CallerError, Status: 400, Answer: &walk.Answer{Status: 400}}
		}, 0, walk.Refused, receipt.Rejected},
	} {
		t.Run(name, func(t *testing.T) {
			inTheHall(t, func(t *testing.T, h *hall) {
				h.play.run = c.run
				first := h.listen(&listener{})
				time.Sleep(2500 * time.Millisecond)
				second := h.listen(&listener{})
				h.wg.Wait()
				first.got(t, "first", c.words, c.end)
				second.got(t, "second", c.words, c.end)
				if n := len(h.play.made()); n != 1 {
					t.Errorf("%d calls", n)
				}
				_, text := words(c.words)
				for _, q := range h.shelf.take(t) {
					if q.Status != c.status || q.ResponseHash != receipt.ResponseHash(text, nil) {
						t.Errorf("%s", q.Line)
					}
				}
			})
		})
	}
}

// A budget is each caller's own: who comes late to a run that spends its own in silence
// has another one, as long as the latest may wait. Who came with the first waits no longer for that.
func TestTheBudgetOfALateCaller(t *testing.T) {
	budget := edge.Work{Budget: edge.Budget{Named: true, Duration: 10 * time.Second}}
	inTheHall(t, func(t *testing.T, h *hall) {
		began := time.Now()
		h.play.run = func(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
			if !passes(ctx, time.Until(began.Add(15*time.Second))) {
				return walk.Outcome{Class: chain.Canceled}
			}
			return speaks(10, chain.OK)(ctx, c, emit)
		}
		var all []*listener
		for _, at := range []time.Duration{0, 500 * time.Millisecond, 4 * time.Second, 8 * time.Second} {
			time.Sleep(time.Until(began.Add(at)))
			all = append(all, h.listen(&listener{Work: budget}))
		}
		h.wg.Wait()
		for i, l := range all[:3] {
			if l.got(t, fmt.Sprint("caller ", i), 0, walk.AllTimedOut); l.took != 10*time.Second || len(l.result.Failures) != 1 {
				t.Errorf("caller %d waited %s: %+v", i, l.took, l.result)
			}
		}
		if all[3].got(t, "the latest", 10, walk.Answered); all[3].first != 7*time.Second {
			t.Errorf("the latest waited %s", all[3].first)
		}
		if n := len(h.play.made()); n != 2 {
			t.Errorf("%d calls", n)
		}
	})
	inTheHall(t, func(t *testing.T, h *hall) {
		h.play.run = func(ctx context.Context, _ adapter.Call, _ func(walk.Chunk) error) walk.Outcome {
			<-ctx.Done()
			return walk.Outcome{Class: chain.Canceled}
		}
		first := h.listen(&listener{Work: budget})
		time.Sleep(time.Second)
		second := h.listen(&listener{Work: budget})
		h.wg.Wait()
		first.got(t, "first", 0, walk.AllTimedOut)
		if second.got(t, "hardly later", 0, walk.AllTimedOut); second.took >= first.took || len(h.play.made()) != 1 {
			t.Errorf("they waited %s and %s, for %d calls", first.took, second.took, len(h.play.made()))
		}
	})
}

// However callers come, read and leave, each has the stream from its beginning on, whole if
// it was answered, and nobody has the upstream asked more than once.
func TestWhatHoldsOfEveryStream(t *testing.T) {
	type part struct {
		comes, stays, reads time.Duration
		refuse              int
	}
	upTo := func(t *rapid.T, name string, d time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(d/(100*time.Millisecond))).Draw(t, name)) * 100 * time.Millisecond
	}
	rapid.Check(t, func(rt *rapid.T) {
		end := rapid.SampledFrom([]chain.Class{chain.OK, chain.OK, chain.Status}).Draw(rt, "end")
		n := rapid.IntRange(1, 6).Draw(rt, "words")
		var parts []part
		for range rapid.IntRange(1, 6).Draw(rt, "callers") {
			p := part{comes: upTo(rt, "comes", 8*time.Second), stays: time.Hour, reads: upTo(rt, "reads", 3*time.Second)}
			if rapid.Bool().Draw(rt, "leaves") {
				p.stays = upTo(rt, "stays", 8*time.Second)
			}
			p.refuse = rapid.IntRange(-6, 4).Draw(rt, "refuses")
			parts = append(parts, p)
		}
		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			h := newHall(t)
			h.play.run = speaks(n, end)
			listeners := make([]*listener, len(parts))
			var coming sync.WaitGroup
			for i, p := range parts {
				coming.Go(func() {
					time.Sleep(p.comes)
					l := &listener{reads: p.reads, refuse: max(0, p.refuse)}
					listeners[i] = h.begin(l)
					time.AfterFunc(p.stays, l.leave)
				})
			}
			coming.Wait()
			h.wg.Wait()
			all, _ := words(n)
			for i, l := range listeners {
				whole := slices.Equal(l.events, all)
				switch {
				case l.err != nil, len(l.events) > n, !slices.Equal(l.events, all[:len(l.events)]):
				case l.result.End == walk.Left && (parts[i].stays < time.Hour || parts[i].refuse > 0):
					continue
				case l.result.End == walk.Answered && end == chain.OK && whole, l.result.End == walk.Broken && end != chain.OK && whole:
					continue
				case end != chain.OK && (l.result.End == walk.AllFailed || l.result.End == walk.AllCooling) && len(l.events) == 0: // it cools down after the first
					continue
				}
				wrong = append(wrong, fmt.Sprintf("caller %d has %q: %+v, %v", i, l.events, l.result, l.err))
			}
			if calls := len(h.play.made()); calls > len(parts) {
				wrong = append(wrong, fmt.Sprintf("%d calls", calls))
			}
			texts := map[string]int{}
			for _, l := range listeners {
				_, text := words(len(l.events))
				texts[receipt.ResponseHash(text, nil)]++
			}
			for _, q := range h.shelf.take(t) {
				if texts[q.ResponseHash]--; texts[q.ResponseHash] < 0 {
					wrong = append(wrong, fmt.Sprintf("a receipt of what nobody was sent: %s", q.Line))
				}
			}
		})
		if len(wrong) > 0 {
			rt.Fatal(strings.Join(wrong, "\n"))
		}
	})
}

// What a hard question's pipeline tells of its progress reaches all who wait for it, and the
// names of the work with it.
func TestAHardQuestionOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		var wg sync.WaitGroup
		comments, answers, works := make([][]string, 2), make([][]string, 2), make([]edge.Work, 2)
		for i := range works {
			w := &works[i]
			w.Stream, w.Share = true, true
			w.Comment = func(line string) {
				if w.Job == "" || w.Complexity == "" {
					t.Errorf("%q before the caller is told of its job", line)
				}
				comments[i] = append(comments[i], line)
				if i == 1 && len(comments[i]) == 1 {
					time.Sleep(time.Minute) // it has the rest at once
				}
			}
			wg.Go(func() {
				var err error
				if answers[i], _, err = s.chat(w, hard); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(350 * time.Millisecond) // the second comes when parts of the first's work are done
		}
		wg.Wait()
		if len(comments[0]) == 0 || !slices.Equal(comments[0], comments[1]) || len(answers[0]) < 2 || !slices.Equal(answers[0], answers[1]) || works[0].Job != works[1].Job {
			t.Errorf("%q and %q: %q and %q", comments[0], comments[1], answers[0], answers[1])
		}
		if n := len(s.tree(&works[0])); n != 6 {
			t.Errorf("%d jobs", n)
		}
	})
}
