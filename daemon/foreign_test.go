package daemon_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	"github.com/chordwheel/chordwheel/daemon/sharing"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

const shared = "local/own/m | peer requires=model:m | alpha/big keys=alpha | wide kind=peer via=local,provider"

func TestAPeersWorkIsRunAndSigned(t *testing.T) {
	inTheShop(t, shared, nil, func(t *testing.T, r *shop) {
		g := r.guest(t, 1)
		for body, stream := range map[string]bool{streamed: true, plain: false} {
			chunks, request, trailer, err := g.do(t.Context(), body, func(q *wire.ExecRequest) { q.Stream = stream })
			if err != nil || trailer.Class != chain.OK || trailer.Used != 1 || trailer.Option != "local/own/m" || trailer.Model != "m" || trailer.Input != 3 || trailer.Output != 2 {
				t.Fatalf("%+v, %v", trailer, err)
			}
			answer := receipt.NewResponse(chain.LLMChat, stream)
			for _, c := range chunks {
				answer.Add([]byte(c))
			}
			says := receipt.Statement{TransactionID: "t", Nonce: request.Nonce, SeekerDID: g.key.PeerID().DID(), AgentDID: chaintest.PeerID(device).DID(),
				RequestHash: request.RequestHash, ResponseHash: answer.Hash()}
			if trailer.ResponseHash != receipt.ResponseHash("hello", nil) || says.Verify(chaintest.PeerID(device), string(trailer.Signature)) != nil {
				t.Errorf("what reached the submitter is not what was signed: %+v of %q", trailer, chunks)
			}
		}
		if calls := r.play.made(); len(calls) != 2 || calls[0].Request.ID != "req-7" || string(calls[0].Request.Body) != map[bool]string{true: streamed, false: plain}[calls[0].Request.Stream] {
			t.Errorf("the adapter was called with %+v", calls)
		}
		synctest.Wait()
		if f := r.Status().Foreign; f.Answered != 2 || f.Running != 0 || len(f.Sharing) != 1 || !f.Sharing[0].On || f.Sharing[0].Jobs != sharing.DefaultJobs {
			t.Errorf("status: %+v", f)
		}
		for _, want := range []string{"ran work of a peer", "request_id=req-7", "name=guest-1", "slot=peer", "option=local/own/m"} {
			if !strings.Contains(r.log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, r.log)
			}
		}
		if strings.Contains(r.log.String(), canaryPayload) {
			t.Error("the payload is in the log")
		}
	})
}

// TestHostileSubmitters is refused, each by a code of its own, with not one byte of
// a payload on the way; and all the while a second peer's job runs, and finishes.
func TestHostileSubmitters(t *testing.T) {
	inTheShop(t, shared, nil, func(t *testing.T, r *shop) {
		release := make(chan struct{})
		r.play.run = func(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
			<-release
			return says("done")(ctx, c, emit)
		}
		decent := r.guest(t, 2)
		var chunks []string
		var trailer wire.ExecTrailer
		var failed error
		var running sync.WaitGroup
		running.Go(func() { chunks, _, trailer, failed = decent.do(t.Context(), streamed, nil) })
		time.Sleep(time.Second)
		if n := r.Status().Foreign.Running; n != 1 {
			t.Fatalf("%d jobs run", n)
		}
		g := r.guest(t, 1)
		hostile := []struct {
			name   string
			want   wire.ExecCode
			spoil  func(g *guest)
			change func(*wire.ExecRequest)
			twist  func(o *wire.ExecOpen)
		}{
			{name: "no membership", want: wire.ExecNoMembership, change: func(q *wire.ExecRequest) { q.Membership = wire.EnvelopeHash(nil) }, twist: func(o *wire.ExecOpen) { o.Membership = nil }},
			{name: "a membership that is named and not shown", want: wire.ExecNeed, twist: func(o *wire.ExecOpen) { o.Membership = nil }},
			{name: "a membership that nobody signed", want: wire.ExecNoMembership, spoil: func(g *guest) { g.issuer = g.key }},
			{name: "another peer's membership", want: wire.ExecWrongPeer, spoil: func(g *guest) { g.member.Peer = decent.key.PeerID() }},
			{name: "another scope's chain", want: wire.ExecForeignChain, spoil: func(g *guest) { g.head.Scope = "workspace:far" }},
			{name: "an expired chain", want: wire.ExecChainOver, spoil: func(g *guest) { g.head = g.policy.HeadOf(g.body, time.Now().Add(-8*24*time.Hour)) }},
			{name: "a chain without a slot", want: wire.ExecNoSlot, spoil: func(g *guest) {
				g.body = g.policy.Body(t, "local/own/m")
				g.head = g.policy.HeadOf(g.body, time.Now().Add(time.Second))
			}},
			{name: "a slot whose capability is lacking", want: wire.ExecLacksCapability, spoil: func(g *guest) {
				g.body = g.policy.Body(t, "peer requires=model:colossus")
				g.head = g.policy.HeadOf(g.body, time.Now().Add(time.Second))
			}},
			{name: "a header for another executor", want: wire.ExecWrongExecutor, change: func(q *wire.ExecRequest) { q.Executor = decent.key.PeerID() }},
			{name: "a payload over the limit", want: wire.ExecTooLarge, change: func(q *wire.ExecRequest) { q.PayloadBytes = 32 << 20 }},
			{name: "a request that has expired", want: wire.ExecExpired, change: func(q *wire.ExecRequest) { q.Expires = chain.InstantOf(time.Now()) }},
			{name: "a second hop", want: wire.ExecProtocol, change: func(q *wire.ExecRequest) { q.Hop = 2 }},
			{name: "garbage", want: wire.ExecProtocol, twist: func(o *wire.ExecOpen) { o.Request = []byte("garbage") }},
		}
		for _, h := range hostile {
			spoilt := *g
			if h.spoil != nil {
				h.spoil(&spoilt)
			}
			open, _ := spoilt.ask("payload", h.change)
			if h.twist != nil {
				h.twist(open)
			}
			if reply := spoilt.first(open); reply.Refusal == nil || reply.Refusal.Code != h.want {
				t.Errorf("%s: %+v, want %s", h.name, reply.Refusal, h.want)
			}
		}
		open, _ := g.ask("payload", nil)
		s := g.stream()
		if err := wire.Write(s, open); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // it was admitted and waits for the payload
		if reply := g.first(open); reply.Refusal == nil || reply.Refusal.Code != wire.ExecReplayed {
			t.Errorf("a replayed header: %+v", reply.Refusal)
		}
		s.Reset()
		open, _ = g.ask("payload", nil)
		_, err := exec.Do(t.Context(), g.stream(), open, []byte("PAYLOAD"), func([]byte, bool, bool) error { return nil })
		if !errors.Is(err, &wire.ExecRefusal{Code: wire.ExecPayloadMismatch}) {
			t.Errorf("a payload that was not signed: %v", err)
		}
		r.hub.events.Revoked(g.revocation())
		synctest.Wait()
		open, _ = g.ask("payload", nil)
		if reply := g.first(open); reply.Refusal == nil || reply.Refusal.Code != wire.ExecRevoked {
			t.Errorf("a revoked membership: %+v", reply.Refusal)
		}
		if calls := r.play.made(); len(calls) != 1 {
			t.Errorf("%d calls: something of a stranger's reached an adapter", len(calls))
		}
		close(release)
		running.Wait()
		if failed != nil || trailer.Class != chain.OK || !strings.Contains(strings.Join(chunks, ""), "done") {
			t.Errorf("the second peer's job: %q, %+v, %v", chunks, trailer, failed)
		}
		f := r.Status().Foreign
		for _, h := range hostile {
			if (f.Refused[string(h.want)] == 0) != (h.want == wire.ExecNeed) { // a question is no refusal
				t.Errorf("status does not count %s: %v", h.want, f.Refused)
			}
		}
	})
}

// What no edge would let through reaches no adapter, and is held against nobody.
func TestAPayloadIsReadLikeAnOwnRequest(t *testing.T) {
	inTheShop(t, shared, nil, func(t *testing.T, r *shop) {
		g := r.guest(t, 1)
		for _, payload := range []string{"", "{}", "not JSON", plain, `{"model":"a","model":"b","stream":true,"messages":[{"role":"user"}]}`} { // plain is no stream
			_, _, trailer, err := g.do(t.Context(), payload, nil)
			if err != nil || trailer.Class != chain.Status || trailer.Used != 0 {
				t.Errorf("%q: %+v, %v", payload, trailer, err)
			}
		}
		if s := r.Status(); len(r.play.made()) != 0 || len(s.Resting) != 0 {
			t.Errorf("%d calls, resting %v", len(r.play.made()), s.Resting)
		}
	})
}

// A provider's key goes to the provider. It is in no frame, no trailer and no log.
func TestKeysNeverTravel(t *testing.T) {
	inTheShop(t, shared, nil, func(t *testing.T, r *shop) {
		g := r.guest(t, 1)
		r.play.run = func(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
			if c.Attempt.Option.Kind == chain.Local {
				return walk.Outcome{Class: chain.Status, Status: 503}
			}
			if c.Secret != alphaSecret {
				t.Errorf("the provider got key %q", c.Secret.Reveal())
			}
			return says(canaryAnswer)(ctx, c, emit)
		}
		open, _ := g.ask(plain, func(q *wire.ExecRequest) { q.Option, q.Stream = "wide", false })
		s := g.stream()
		if err := wire.Write(s, open); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte(plain)); err != nil {
			t.Fatal(err)
		}
		s.SetReadDeadline(time.Now().Add(10 * time.Second))
		var all bytes.Buffer
		in := bufio.NewReader(s)
		for {
			frame, err := wire.ReadFrame(in, wire.MaxExecReply)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(frame)
			var reply wire.ExecReply
			if err := wire.Decode(frame, &reply); err != nil {
				t.Fatal(err)
			}
			if reply.Trailer != nil {
				if reply.Trailer.Class != chain.OK || reply.Trailer.Option != "alpha/big" || reply.Trailer.Used != 2 {
					t.Errorf("%+v", reply.Trailer)
				}
				break
			}
		}
		s.Close()
		synctest.Wait()
		if !strings.Contains(all.String(), canaryAnswer) || strings.Contains(all.String(), alphaSecret.Reveal()) {
			t.Error("the key is on the stream, or the answer is not")
		}
		for _, canary := range []string{alphaSecret.Reveal(), canaryAnswer, canaryPayload} {
			if strings.Contains(r.log.String(), canary) {
				t.Errorf("%s is in the log", canary)
			}
		}
	})
}

func TestTheWalkForAPeer(t *testing.T) {
	const five = "local/own/m | alpha/1 | alpha/2 | alpha/3 | alpha/4 | alpha/5 | peer requires=model:m | wide kind=peer via=local,provider"
	t.Run("spends what it was lent and no more, and never protests", func(t *testing.T) {
		inTheShop(t, five, nil, func(t *testing.T, r *shop) {
			r.play.run = func(context.Context, adapter.Call, func(walk.Chunk) error) walk.Outcome {
				return walk.Outcome{Class: chain.Status, Status: 503}
			}
			g := r.guest(t, 1)
			_, _, trailer, err := g.do(t.Context(), streamed, func(q *wire.ExecRequest) { q.Option, q.Attempts = "wide", 3 })
			if err != nil || trailer.Class != chain.Status || trailer.Used != 3 || len(r.play.made()) != 3 || trailer.Signature != nil {
				t.Errorf("%+v after %d calls, %v", trailer, len(r.play.made()), err)
			}
			if _, protests, _ := r.hub.take(); len(protests) != 0 {
				t.Errorf("%d protests for others' work", len(protests))
			}
		})
	})
	t.Run("passes the caller's own error on", func(t *testing.T) {
		inTheShop(t, five, nil, func(t *testing.T, r *shop) {
			r.play.run = func(context.Context, adapter.Call, func(walk.Chunk) error) walk.Outcome {
				return walk.Outcome{Class: chain.CallerError, Status: 400, Answer: &walk.Answer{Status: 400, ContentType: "application/json\n", Body: bytes.Repeat([]byte("x"), 100<<10)}}
			}
			g := r.guest(t, 1)
			_, _, trailer, err := g.do(t.Context(), streamed, nil)
			if err != nil || trailer.Class != chain.CallerError || trailer.Answer == nil || trailer.Answer.Status != 400 || trailer.Answer.ContentType != "application/json" || len(trailer.Answer.Body) != wire.MaxExecAnswer {
				t.Errorf("%+v, %v", trailer.Class, err)
			}
		})
	})
	t.Run("does not use what is for its own data", func(t *testing.T) {
		inTheShop(t, "local/own/m local-only | alpha/1 | wide kind=peer via=local,provider | peer requires=model:m", nil, func(t *testing.T, r *shop) {
			g := r.guest(t, 1)
			_, _, trailer, err := g.do(t.Context(), streamed, func(q *wire.ExecRequest) { q.Option = "wide" })
			if err != nil || trailer.Option != "alpha/1" {
				t.Errorf("%+v, %v", trailer, err)
			}
			open, _ := g.ask("{}", nil)
			if reply := g.first(open); reply.Refusal == nil || reply.Refusal.Code != wire.ExecNothingToRun {
				t.Errorf("%+v", reply)
			}
		})
	})
	t.Run("breaks off where its provider does, and signs nothing", func(t *testing.T) {
		inTheShop(t, five, nil, func(t *testing.T, r *shop) {
			r.play.run = func(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
				says("half")(ctx, c, emit)
				return walk.Outcome{Class: chain.Unreachable}
			}
			chunks, _, trailer, err := r.guest(t, 1).do(t.Context(), streamed, nil)
			if err != nil || trailer.Class != chain.Cut || trailer.Signature != nil || trailer.ResponseHash != "" || len(chunks) != 1 || len(r.play.made()) != 1 {
				t.Errorf("%q, %+v, %v", chunks, trailer, err)
			}
		})
	})
	t.Run("passes each event on before the next is there", func(t *testing.T) {
		inTheShop(t, five, nil, func(t *testing.T, r *shop) {
			r.play.run = func(_ context.Context, _ adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
				for i := range 10 {
					if i > 0 {
						time.Sleep(100 * time.Millisecond)
					}
					if err := emit(walk.Chunk{Data: fmt.Appendf(nil, `{"choices":[{"delta":{"content":"%d"}}]}`, i), Meaningful: true}); err != nil {
						return walk.Outcome{Class: chain.Canceled}
					}
				}
				return walk.Outcome{Class: chain.OK}
			}
			g := r.guest(t, 1)
			open, _ := g.ask(streamed, nil)
			var at []time.Time
			_, err := exec.Do(t.Context(), g.stream(), open, []byte(streamed), func([]byte, bool, bool) error {
				at = append(at, time.Now())
				return nil
			})
			if err != nil || len(at) != 10 {
				t.Fatalf("%d events, %v", len(at), err)
			}
			for i := 1; i < len(at); i++ {
				if gap := at[i].Sub(at[i-1]); gap < 90*time.Millisecond || gap > 110*time.Millisecond { // the network's jitter
					t.Errorf("event %d came %v after the one before", i, gap)
				}
			}
		})
	})
	t.Run("keeps to the time that it was left, but for an answer under way", func(t *testing.T) {
		inTheShop(t, "local/own/m | peer requires=model:m", nil, func(t *testing.T, r *shop) {
			silence := 500 * time.Millisecond
			r.play.run = func(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
				select {
				case <-ctx.Done():
					return walk.Outcome{Class: chain.Canceled}
				case <-time.After(silence):
				}
				says("first")(ctx, c, emit)
				time.Sleep(3 * time.Second)
				return says("last")(ctx, c, emit)
			}
			g := r.guest(t, 1)
			short := func(q *wire.ExecRequest) { q.Budget = 1000 }
			if chunks, _, trailer, err := g.do(t.Context(), streamed, short); err != nil || trailer.Class != chain.OK || len(chunks) != 2 || trailer.FirstOutput < 500 || trailer.FirstOutput > 600 {
				t.Errorf("%q, %+v, %v", chunks, trailer, err)
			}
			silence = time.Minute
			began := time.Now()
			_, _, trailer, err := g.do(t.Context(), streamed, short)
			if took := time.Since(began); err != nil || trailer.Class != chain.Timeout || took > 1100*time.Millisecond {
				t.Errorf("after %v: %+v, %v", took, trailer, err)
			}
			if s := r.Status(); len(s.Resting) != 0 {
				t.Errorf("a submitter in a hurry lets options rest: %v", s.Resting)
			}
		})
	})
	t.Run("takes this device's own order", func(t *testing.T) {
		inTheShop(t, "alpha/small p=.99 s=1 | beta/small p=.99 s=2 | wide kind=peer via=local,provider", nil, func(t *testing.T, r *shop) {
			r.play.run = func(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
				time.Sleep(map[chain.OptionID]time.Duration{"alpha/small": 10 * time.Second, "beta/small": 2 * time.Second}[c.Attempt.Option.ID])
				return says("x")(ctx, c, emit)
			}
			g := r.guest(t, 1)
			first := func() chain.OptionID {
				_, _, trailer, err := g.do(t.Context(), plain, func(q *wire.ExecRequest) { q.Option, q.Stream = "wide", false })
				if err != nil {
					t.Fatal(err)
				}
				return trailer.Option
			}
			if o := first(); o != "alpha/small" {
				t.Fatalf("at first %s", o)
			}
			for n := 0; n < 20; n++ { // the owner's own requests
				r.ask(edge.Work{})
				time.Sleep(time.Minute)
			}
			if o := first(); o != "beta/small" {
				t.Errorf("far from alpha, a peer's work still goes to %s first", o)
			}
		})
	})
	t.Run("says how long everything cools down", func(t *testing.T) {
		inTheShop(t, five, nil, func(t *testing.T, r *shop) {
			r.play.run = func(context.Context, adapter.Call, func(walk.Chunk) error) walk.Outcome {
				return walk.Outcome{Class: chain.RateLimited, Status: 429, RetryAfter: 90 * time.Second, HasRetryAfter: true}
			}
			g := r.guest(t, 1)
			_, _, trailer, err := g.do(t.Context(), streamed, nil)
			if err != nil || trailer.Class != chain.RateLimited || !trailer.HasRetryAfter || trailer.RetryAfter.Duration() != 90*time.Second || trailer.Used != 1 {
				t.Errorf("%+v, %v", trailer, err)
			}
			_, _, trailer, err = g.do(t.Context(), streamed, nil)
			if err != nil || trailer.Class != chain.Cooling || trailer.Used != 0 || trailer.RetryAfter <= 0 {
				t.Errorf("a second time: %+v, %v", trailer, err)
			}
		})
	})
}

// A submitter that leaves is noticed by a silent adapter at once, and nothing is
// held against the option.
func TestASubmitterLeaves(t *testing.T) {
	for name, stream := range map[string]bool{"before the first word": true, "of a plain answer": false} {
		t.Run(name, func(t *testing.T) {
			inTheShop(t, shared, nil, func(t *testing.T, r *shop) {
				var seen time.Time
				r.play.run = func(ctx context.Context, _ adapter.Call, _ func(walk.Chunk) error) walk.Outcome {
					<-ctx.Done()
					seen = time.Now()
					return walk.Outcome{Class: chain.Canceled}
				}
				g := r.guest(t, 1)
				ctx, leave := context.WithCancel(t.Context())
				var left time.Time
				time.AfterFunc(3*time.Second, func() { left = time.Now(); leave() })
				if _, _, _, err := g.do(ctx, map[bool]string{true: streamed, false: plain}[stream], func(q *wire.ExecRequest) { q.Stream = stream }); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if seen.IsZero() || seen.Sub(left) > time.Second {
					t.Errorf("the adapter saw it %v after", seen.Sub(left))
				}
				s := r.Status()
				if s.Foreign.Left != 1 || s.Foreign.Failed != 0 || s.Foreign.Running != 0 || len(s.Resting) != 0 {
					t.Errorf("%+v, resting %v", s.Foreign, s.Resting)
				}
			})
		})
	}
}

// A caller that does not read holds the adapter up, and no more than a window is
// ever on its way.
func TestBackpressureReachesTheAdapter(t *testing.T) {
	inTheShop(t, shared, nil, func(t *testing.T, r *shop) {
		emitted := 0
		r.play.run = func(_ context.Context, _ adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
			for range 100 {
				if err := emit(walk.Chunk{Data: bytes.Repeat([]byte("x"), 4<<10), Meaningful: true}); err != nil {
					return walk.Outcome{Class: chain.Canceled}
				}
				emitted++
			}
			return walk.Outcome{Class: chain.OK}
		}
		g := r.guest(t, 1)
		open, _ := g.ask(streamed, nil)
		s := g.stream()
		if err := wire.Write(s, open); err != nil {
			t.Fatal(err)
		}
		s.Write([]byte(streamed)) // and never a grant
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if emitted == 0 || emitted > exec.Window/(4<<10) {
			t.Errorf("%d chunks of 4 KiB were taken from the adapter", emitted)
		}
		s.Reset()
	})
}

func TestTheOwnersWillIsObeyed(t *testing.T) {
	refused := func(t *testing.T, g *guest, want wire.ExecCode) *wire.ExecRefusal {
		t.Helper()
		open, _ := g.ask("{}", nil)
		reply := g.first(open)
		if reply.Refusal == nil || reply.Refusal.Code != want {
			t.Fatalf("%+v, want %s", reply.Refusal, want)
		}
		return reply.Refusal
	}
	t.Run("paused, also after a restart, until resumed", func(t *testing.T) {
		inTheShop(t, shared, nil, func(t *testing.T, r *shop) {
			g := r.guest(t, 1)
			if err := r.Pause(time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			no := refused(t, g, wire.ExecSharingOff)
			if back := no.ComeBack.Duration(); back < 59*time.Minute || back > time.Hour {
				t.Errorf("come back in %v", back)
			}
			if s := r.Status().Foreign.Sharing[0]; s.On || s.Back == nil || !strings.Contains(s.Why, "paused") {
				t.Errorf("%+v", s)
			}
			if err := r.Resume(); err != nil {
				t.Fatal(err)
			}
			if _, _, _, err := g.do(t.Context(), streamed, nil); err != nil {
				t.Error(err)
			}
			if err := r.Pause(time.Now().Add(-time.Hour)); err == nil {
				t.Error("a pause that is over")
			}
			r.Pause(time.Time{})
		})
		synctest.Test(t, func(t *testing.T) {
			b := bare(t, newMemory())
			if err := b.Pause(time.Time{}); err != nil {
				t.Fatal(err)
			}
			b.hub.serve(shared)
			if err := b.Join(t.Context(), b.invitation()); err != nil {
				t.Fatal(err)
			}
			b.memory.files["joined.cbor"] = bytes.Clone(b.memory.files["joined.cbor"])
			if s := restarted(t, b).Status().Foreign.Sharing; len(s) != 1 || s[0].On {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("idle: not while its owner asks something", func(t *testing.T) {
		inTheShop(t, shared, func(c *daemon.Config) { c.Sharing.Mode = sharing.Idle }, func(t *testing.T, r *shop) {
			g := r.guest(t, 1)
			if _, _, _, err := g.do(t.Context(), streamed, nil); err != nil {
				t.Error(err)
			}
			if _, _, err := r.ask(edge.Work{}); err != nil {
				t.Fatal(err)
			}
			refused(t, g, wire.ExecSharingOff)
			time.Sleep(sharing.Patience)
			if _, _, _, err := g.do(t.Context(), streamed, nil); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("no more jobs than it said, busy at once", func(t *testing.T) {
		inTheShop(t, shared, func(c *daemon.Config) { c.Sharing.Jobs = 1 }, func(t *testing.T, r *shop) {
			release := make(chan struct{})
			r.play.run = func(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
				<-release
				return says("x")(ctx, c, emit)
			}
			g, second := r.guest(t, 1), r.guest(t, 2)
			var running sync.WaitGroup
			running.Go(func() {
				if _, _, _, err := g.do(t.Context(), streamed, nil); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
			before := time.Now()
			refused(t, second, wire.ExecBusy)
			if took := time.Since(before); took > 50*time.Millisecond { // of the bubble: round trips alone
				t.Errorf("busy after %v", took)
			}
			close(release)
			running.Wait()
		})
	})
}

// A device that stops finishes what it runs for others, and takes no more.
func TestAStopWaitsForOthersWork(t *testing.T) {
	inTheShop(t, shared, nil, func(t *testing.T, r *shop) {
		r.play.run = func(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
			time.Sleep(5 * time.Second)
			return says("x")(ctx, c, emit)
		}
		g := r.guest(t, 1)
		var running sync.WaitGroup
		running.Go(func() {
			if _, _, trailer, err := g.do(t.Context(), streamed, nil); err != nil || trailer.Class != chain.OK {
				t.Errorf("%+v, %v", trailer, err)
			}
		})
		time.Sleep(time.Second)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		r.Drain(ctx)
		if took := time.Since(began); took < 3*time.Second || took > 6*time.Second {
			t.Errorf("it waited for %v", took)
		}
		running.Wait()
		open, _ := g.ask("{}", nil)
		if reply := g.first(open); reply.Refusal == nil || reply.Refusal.Code != wire.ExecShutdown {
			t.Errorf("%+v", reply)
		}
	})
}

// TestADeviceWithProvidersAloneFillsASlotThatLetsThem: it says that it can, as long
// as a chain lets it and it has a key.
func TestADeviceWithProvidersAloneFillsASlotThatLetsThem(t *testing.T) {
	const execute = chain.Capability("execute:llm.chat")
	bare := func(c *daemon.Config) { c.Locals = nil }
	inTheShop(t, "alpha/big keys=alpha | wide kind=peer requires=execute:llm.chat via=local,provider", bare, func(t *testing.T, r *shop) {
		time.Sleep(5 * time.Second)
		r.hub.mu.Lock()
		said := r.hub.announced[len(r.hub.announced)-1].Capabilities
		r.hub.mu.Unlock()
		if !slices.Contains(said, execute) {
			t.Errorf("it says that it has %v", said)
		}
		g := r.guest(t, 1)
		_, _, trailer, err := g.do(t.Context(), streamed, func(q *wire.ExecRequest) { q.Option = "wide" })
		if err != nil || trailer.Class != chain.OK || trailer.Option != "alpha/big" {
			t.Errorf("%+v, %v", trailer, err)
		}
	})
	for name, options := range map[string]string{
		"a slot for local options": "alpha/big keys=alpha | peer requires=execute:llm.chat",
		"a key that it lacks":      "gamma/big keys=gamma | wide kind=peer via=local,provider",
		"data that stays":          "alpha/big keys=alpha local-only | wide kind=peer via=local,provider",
	} {
		inTheShop(t, options, bare, func(t *testing.T, r *shop) {
			if has := r.Status().Capabilities; slices.Contains(has, execute) {
				t.Errorf("%s: %v", name, has)
			}
		})
	}
}
