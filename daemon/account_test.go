package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/store/spool"
)

// shelf is a spool in memory.
type shelf struct {
	mu    sync.Mutex
	lines []receipt.Signed
	open  map[string]bool
	fails int  // so many appends fail first
	full  bool // Full
	stuck bool // not writable
	tries int
}

func (s *shelf) Append(ctx context.Context, id string, line []byte) error {
	return s.AppendAll(ctx, []spool.Line{{ID: id, Text: line}})
}

func (s *shelf) AppendAll(_ context.Context, lines []spool.Line) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tries++; s.tries <= s.fails {
		return spool.ErrNotStored
	}
	for _, l := range lines {
		got, err := receipt.Parse(l.Text)
		if err != nil || got.ID() != l.ID {
			return errors.Join(spool.ErrLine, err)
		}
		s.lines = append(s.lines, got)
	}
	return nil
}

func (s *shelf) Begin(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]bool{}
	}
	s.open[id] = true
	return nil
}

func (s *shelf) End(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.open, id)
	}
}

func (s *shelf) Full() bool { return s.full }
func (s *shelf) Status() spool.Status {
	return spool.Status{Writable: !s.stuck, Depth: 7, Fault: "full"}
}
func (s *shelf) Drain(ctx context.Context, _ spool.Sender) error {
	<-ctx.Done()
	return nil
}

// take gives the receipts since the last call; no request may be open.
func (s *shelf) take(t *testing.T) []receipt.Signed {
	t.Helper()
	time.Sleep(10 * time.Millisecond) // of the bubble: receipts of a moment are kept together
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) > 0 {
		t.Errorf("still open: %v", slices.Collect(maps.Keys(s.open)))
	}
	lines := s.lines
	s.lines = nil
	return lines
}

func withShelf(s *shelf) func(*daemon.Config) { return func(c *daemon.Config) { c.Spool = s } }

// However a request ends, it has one receipt, which says so and is signed.
func TestEveryEndHasAReceipt(t *testing.T) {
	s := &shelf{}
	inTheShop(t, "local/own/m | alpha/big keys=alpha agent=did:key:z6MkeXBLjYiSvqnhFb6D7sHm8yKm4jV45wwBFRaatf1cfZ76", withShelf(s), func(t *testing.T, r *shop) {
		fails := func(class chain.Class) func(context.Context, adapter.Call, func(walk.Chunk) error) walk.Outcome {
			return func(context.Context, adapter.Call, func(walk.Chunk) error) walk.Outcome {
				return walk.Outcome{Class: class, Answer: &walk.Answer{Status: 400}}
			}
		}
		own := chaintest.PeerID(device).DID()
		for _, c := range []struct {
			name   string
			run    func(context.Context, adapter.Call, func(walk.Chunk) error) walk.Outcome
			work   edge.Work
			status receipt.Status
			answer string
			agent  string
		}{
			{"plain", says("hel", "lo"), edge.Work{}, receipt.OK, "hello", own},
			{"streamed", says("hel", "lo"), edge.Work{Stream: true}, receipt.OK, "hello", own},
			{"the caller's error", fails(chain.CallerError), edge.Work{}, receipt.Rejected, "", own},
			{"a model that nobody has", nil, edge.Work{Model: "nobody"}, receipt.Rejected, "", ""},
			{"work without a chain", nil, edge.Work{Primitive: "render.pdf"}, receipt.Rejected, "", ""},
			{"all failed", fails(chain.Timeout), edge.Work{}, receipt.UpstreamError, "", "did:key:z6MkeXBLjYiSvqnhFb6D7sHm8yKm4jV45wwBFRaatf1cfZ76"},
		} {
			if c.run != nil {
				r.play.run = c.run
			}
			_, _, _ = r.ask(c.work)
			got := s.take(t)
			if len(got) != 1 {
				t.Fatalf("%s: %d receipts", c.name, len(got))
			}
			public, _ := chaintest.PeerID(device).Public()
			q := got[0]
			want := receipt.ResponseHash(c.answer, nil)
			if q.Capability == "render.pdf" {
				want = receipt.NewResponse("render.pdf", false).Hash()
			}
			request, _ := receipt.RequestHash([]byte(`{}`))
			if err := q.Verify(public); err != nil || q.Status != c.status || q.ResponseHash != want || q.RequestHash != request || q.SeekerDID != own || q.AgentDID != c.agent {
				t.Errorf("%s: %s, %v", c.name, q.Line, err)
			}
			if q.MessageID != receipt.MessageID(q.TransactionID, receipt.RoleRoot) {
				t.Errorf("%s: message %s", c.name, q.MessageID)
			}
		}
	})
}

func TestACallerWhoLeavesHasAReceipt(t *testing.T) {
	s := &shelf{}
	inTheShop(t, "local/own/m", withShelf(s), func(t *testing.T, r *shop) {
		ctx, leave := context.WithCancel(t.Context())
		r.play.run = func(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
			says("half")(ctx, c, emit)
			leave()
			<-ctx.Done()
			return walk.Outcome{Class: chain.Canceled}
		}
		_, _ = r.Do(ctx, &edge.Work{ID: "r", Primitive: chain.LLMChat, Model: edge.Auto, Body: []byte(`{}`), Stream: true}, func(walk.Attempt, [][]byte) error { return nil })
		got := s.take(t)
		if len(got) != 1 || got[0].Status != receipt.ClientAborted || got[0].ResponseHash != receipt.ResponseHash("half", nil) {
			t.Errorf("%d receipts", len(got))
		}
	})
}

// broken is a registry with a defect.
type broken struct{}

func (broken) Active(string, string) bool { panic("a defect") }

// A request that a defect of this device's ends has a receipt as any that failed; the edge
// answers it with 500.
func TestADefectHasAReceipt(t *testing.T) {
	s := &shelf{}
	inTheShop(t, "local/own/m", func(c *daemon.Config) { c.Spool, c.Selection.Agents = s, broken{} }, func(t *testing.T, r *shop) {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the edge is not told")
				}
			}()
			_, _, _ = r.ask(edge.Work{})
		}()
		if got := s.take(t); len(got) != 1 || got[0].Status != receipt.UpstreamError {
			t.Errorf("%d receipts", len(got))
		}
		if got := r.Status().Requests; got.Failed != 1 || got.InFlight != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// What ran for a peer is accounted for by the device that ran it.
func TestForeignWorkHasAReceiptOfItsOwn(t *testing.T) {
	s := &shelf{}
	inTheShop(t, shared, withShelf(s), func(t *testing.T, r *shop) {
		g := r.guest(t, 1)
		for _, class := range []chain.Class{chain.OK, chain.Status} {
			if class != chain.OK {
				r.play.run = func(context.Context, adapter.Call, func(walk.Chunk) error) walk.Outcome {
					return walk.Outcome{Class: class}
				}
			}
			_, request, trailer, err := g.do(t.Context(), streamed, nil)
			if err != nil || trailer.Class != class {
				t.Fatalf("%+v, %v", trailer, err)
			}
			got := s.take(t)
			if len(got) != 1 {
				t.Fatalf("%d receipts", len(got))
			}
			q := got[0]
			public, _ := chaintest.PeerID(device).Public()
			if err := q.Verify(public); err != nil || q.Signer() != chaintest.PeerID(device).DID() || q.SeekerDID != g.key.PeerID().DID() || q.RequestHash != request.RequestHash ||
				q.MessageID != receipt.MessageID("t", receipt.RoleExec(request.Nonce)) || (q.Status == receipt.OK) != (class == chain.OK) {
				t.Errorf("%s, %v", q.Line, err)
			}
		}
	})
}

// defective are keys that break once they are told to.
type defective struct {
	daemon.Keys
	broken atomic.Bool
}

func (k *defective) Get(name string) (chain.Secret, bool) {
	if k.broken.Load() {
		panic("a defect, and " + canaryPayload)
	}
	return k.Keys.Get(name)
}

// A defect of ours ends a peer's work and not the device, and is accounted for.
func TestADefectEndsForeignWorkAlone(t *testing.T) {
	s, keys := &shelf{}, &defective{}
	inTheShop(t, shared, func(c *daemon.Config) { keys.Keys = c.Keys; c.Spool, c.Keys = s, keys }, func(t *testing.T, r *shop) {
		g := r.guest(t, 1)
		run := r.play.run
		r.play.run = func(context.Context, adapter.Call, func(walk.Chunk) error) walk.Outcome {
			return walk.Outcome{Class: chain.Status} // so that the option with a key is next
		}
		keys.broken.Store(true)
		_, _, trailer, err := g.do(t.Context(), streamed, func(q *wire.ExecRequest) { q.Option = "wide" })
		if err != nil || trailer.Class != chain.Internal {
			t.Errorf("%+v, %v", trailer, err)
		}
		if got := s.take(t); len(got) != 1 || got[0].Status != receipt.UpstreamError {
			t.Errorf("%d receipts", len(got))
		}
		if log := r.log.String(); !strings.Contains(log, "msg=panic") || strings.Contains(log, canaryPayload) {
			t.Errorf("log %s", log)
		}
		keys.broken.Store(false)
		r.play.run = run
		if _, _, trailer, err = g.do(t.Context(), streamed, nil); err != nil || trailer.Class != chain.OK {
			t.Errorf("afterwards: %+v, %v", trailer, err)
		}
	})
}

// What leaves together after a first output is all output: the submitter's walk
// holds back, and in the end drops, what is none.
func TestNoPieceOfAPeersAnswerPassesForNoOutput(t *testing.T) {
	inTheShop(t, shared, nil, func(t *testing.T, r *shop) {
		r.play.run = func(_ context.Context, _ adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
			for i := range 40 {
				if err := emit(walk.Chunk{Data: fmt.Appendf(nil, `{"choices":[{"delta":{"content":"%d"}}]}`, i), Meaningful: i > 0, More: true}); err != nil {
					return walk.Outcome{Class: chain.Canceled}
				}
			}
			return walk.Outcome{Class: chain.OK}
		}
		g := r.guest(t, 1)
		open, _ := g.ask(streamed, nil)
		n := 0
		_, err := exec.Do(t.Context(), g.stream(), open, []byte(streamed), func(_ []byte, meaningful, _ bool) error {
			if n++; !meaningful {
				t.Errorf("piece %d counts as no output", n)
			}
			return nil
		})
		if err != nil || n != 40 {
			t.Errorf("%d pieces, %v", n, err)
		}
	})
}

// A disk that fails holds up no reply; the receipt gets there when it takes some again.
func TestAReplyNeverWaitsForTheDisk(t *testing.T) {
	s := &shelf{fails: 5}
	inTheShop(t, "local/own/m", withShelf(s), func(t *testing.T, r *shop) {
		began := time.Now()
		text, _, err := r.ask(edge.Work{})
		if err != nil || text == "" || time.Since(began) > 0 {
			t.Fatalf("%q after %s, %v", text, time.Since(began), err)
		}
		synctest.Wait()
		if n := r.Status().Receipts.Pending; n != 1 {
			t.Errorf("%d pending, want 1", n)
		}
		time.Sleep(time.Minute) // of the bubble
		if got := s.take(t); len(got) != 1 {
			t.Errorf("%d receipts", len(got))
		}
	})
}

// While the disk takes nothing the bodies of requests that were answered pile up, up to a
// bound of their bytes: few large ones fill a device's memory as many small ones do.
func TestLargeRequestsWhileTheDiskFails(t *testing.T) {
	s := &shelf{fails: 1 << 30}
	inTheShop(t, "local/own/m", withShelf(s), func(t *testing.T, r *shop) {
		body := []byte(strings.Repeat("x", 4<<20))
		ask := func() error {
			_, _, err := r.send(&edge.Work{Primitive: chain.LLMChat, Model: edge.Auto, Body: body})
			return err
		}
		var no *edge.Refusal
		taken := 0
		for ; taken < 200; taken++ {
			if err := ask(); errors.As(err, &no) {
				break
			}
		}
		if taken != 32 || no.Code != edge.SpoolFull {
			t.Errorf("%d requests of 4 MB were taken, then %v", taken, no)
		}
		time.Sleep(10 * time.Millisecond) // of the bubble: a keeper has hashed them
		synctest.Wait()
		if err := ask(); err != nil {
			t.Errorf("nothing of them is held any more: %v", err)
		}
	})
}

// Receipts of a moment share a sync, and a device that closes waits for no moment to end.
func TestReceiptsOfAMomentAreKeptTogether(t *testing.T) {
	s := &shelf{}
	inTheShop(t, "local/own/m", withShelf(s), func(t *testing.T, r *shop) {
		for range 1000 {
			if _, _, err := r.ask(edge.Work{}); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.take(t); len(got) != 1000 || s.tries != 4 {
			t.Errorf("%d receipts in %d parts, want 1000 in 4", len(got), s.tries)
		}
		if _, _, err := r.ask(edge.Work{}); err != nil {
			t.Fatal(err)
		}
		closed := time.Now()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if n := len(s.lines); n != 1 || time.Since(closed) > 0 {
			t.Errorf("%d receipts %s after the close", n, time.Since(closed))
		}
	})
}

func TestBackpressure(t *testing.T) {
	s := &shelf{full: true}
	inTheShop(t, "local/own/m", withShelf(s), func(t *testing.T, r *shop) {
		if _, _, err := r.ask(edge.Work{}); err != nil {
			t.Errorf("off, and refused: %v", err)
		}
		if err := r.Ready(); err != nil {
			t.Errorf("off, and not ready: %v", err)
		}
	})
	inTheShop(t, shared, func(c *daemon.Config) { c.Spool, c.Backpressure = s, true }, func(t *testing.T, r *shop) {
		s.take(t)
		_, _, err := r.ask(edge.Work{})
		var no *edge.Refusal
		if !errors.As(err, &no) || no.Code != edge.SpoolFull {
			t.Errorf("on: %v", err)
		}
		desk, err := r.Desk()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := desk.Select.Select(&edge.Work{Primitive: chain.LLMChat, Model: edge.Auto}); !errors.As(err, &no) || no.Code != edge.SpoolFull {
			t.Errorf("an inlet: %v", err)
		}
		g := r.guest(t, 1)
		open, _ := g.ask(streamed, nil)
		if reply := g.first(open); reply.Refusal == nil || reply.Refusal.Code != wire.ExecBusy {
			t.Errorf("a peer's work, which has a receipt here as well: %+v", reply.Refusal)
		}
		if got := s.take(t); len(got) != 0 {
			t.Errorf("%d receipts of what was never begun", len(got))
		}
		if err := r.Ready(); !errors.As(err, &no) || no.Code != edge.SpoolFull || !strings.Contains(no.Message, "too many receipts") {
			t.Errorf("ready, and takes nothing: %v", err)
		}
		s.stuck = true
		if err := r.Ready(); !errors.As(err, &no) || no.Code != edge.SpoolFull || strings.Contains(no.Message, "too many receipts") {
			t.Errorf("ready without a disk: %v", err)
		}
	})
}
