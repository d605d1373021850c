package walk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

var errGone = errors.New("the caller is gone")

// walked runs p with the real driver in a time bubble. The bubble fails the test
// if a goroutine is left.
func walked(ctx context.Context, p Plan, s *Standing, r Runner, deliver func(string) error) *log {
	l := &log{}
	l.watch(&p)
	inner := r
	r = runner(func(ctx context.Context, a Attempt, emit func(Chunk) error) Outcome { return inner.Run(ctx, a, emit) })
	last := 0
	l.result = Run(ctx, p, s, r, func(a Attempt, data [][]byte) error {
		if a.Number != last {
			l.note(a)
			last = a.Number
		}
		l.take(a, data)
		if deliver == nil {
			return nil
		}
		return deliver(l.delivered)
	})
	return l
}

type runner func(context.Context, Attempt, func(Chunk) error) Outcome

func (r runner) Run(ctx context.Context, a Attempt, emit func(Chunk) error) Outcome {
	return r(ctx, a, emit)
}

func TestRunFailover(t *testing.T) {
	for _, stream := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := Plan{Options: options("refuses", "empties", "hangs", "alpha"), Stream: stream, Budget: 10 * time.Minute,
				Limits: chain.Limits{FirstOutput: 2000, Total: 5000}}
			empties := turn{gap: 100 * time.Millisecond}
			for range 1000 {
				empties.chunks = append(empties.chunks, role())
			}
			began := time.Now()
			l := walked(t.Context(), p, standing(), script{"refuses": fails(chain.Unreachable), "empties": empties, "hangs": {hang: true},
				"alpha": answer("hel", "lo")}, nil)
			want(t, l, Answered, "alpha", "refuses:unreachable empties:timeout hangs:timeout")
			took := 2*2*time.Second + 40*time.Millisecond
			if !stream {
				took = 2*5*time.Second + 40*time.Millisecond
			}
			if l.delivered != "hello" || time.Since(began) != took || l.result.Attempts != 4 || l.result.Output != 3 {
				t.Errorf("%q after %v, %+v", l.delivered, time.Since(began), l.result)
			}
			if m := l.measured[3]; m.Bytes != 5 || stream != (m.FirstOutput == 10*time.Millisecond) || m.Total != 30*time.Millisecond {
				t.Errorf("measured %+v", m)
			}
		})
	}
}

func TestRunBreaksMidAnswer(t *testing.T) {
	for name, first := range map[string]turn{
		"fails":  {chunks: []Chunk{role(), text("half")}, gap: time.Second, end: Outcome{Class: chain.Unreachable}},
		"stalls": {chunks: []Chunk{role(), text("half")}, gap: time.Second, hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := Plan{Options: options("alpha", "beta"), Stream: true, Budget: time.Hour}
				l := walked(t.Context(), p, standing(), script{"alpha": first, "beta": answer("other")}, nil)
				want(t, l, Broken, "alpha", "alpha:cut")
				if l.delivered != "rolehalf" || !l.result.Delivered {
					t.Errorf("delivered %q", l.delivered)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				p := Plan{Options: options("alpha", "beta"), Budget: time.Hour}
				l := walked(t.Context(), p, standing(), script{"alpha": first, "beta": answer("other")}, nil)
				if l.result.End != Answered || l.delivered != "other" {
					t.Errorf("plain: %s, delivered %q", l.result.End, l.delivered)
				}
			})
		})
	}
}

// Limits that become nearer than the one before are kept to the instant.
func TestRunNearerDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Plan{Options: options("alpha", "beta"), Stream: true, Budget: time.Hour}
		p.Options[0].Limits = chain.Limits{FirstOutput: 30000}
		p.Options[1].Limits = chain.Limits{FirstOutput: 3000, Idle: 1000}
		began := time.Now()
		l := walked(t.Context(), p, standing(), script{"alpha": {hang: true}, "beta": {chunks: []Chunk{text("x")}, gap: 500 * time.Millisecond, hang: true}}, nil)
		want(t, l, Broken, "beta", "alpha:timeout beta:cut")
		if took := time.Since(began); took != 31500*time.Millisecond {
			t.Errorf("over after %v", took)
		}
	})
}

// The caller leaves at every stage; the upstream learns of it within 100 ms and
// nothing is held against anybody.
func TestRunCallerLeaves(t *testing.T) {
	for _, stream := range []bool{true, false} {
		for _, at := range []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond, 9500 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				left := time.Now().Add(at)
				time.AfterFunc(at, cancel)
				var seen time.Time
				r := runner(func(ctx context.Context, _ Attempt, emit func(Chunk) error) Outcome {
					for pause(ctx, time.Second) && emit(text("x")) == nil {
					}
					seen = time.Now()
					return Outcome{Class: chain.Unreachable}
				})
				s := standing()
				l := walked(ctx, Plan{Options: options("alpha", "beta"), Stream: stream}, s, r, nil)
				if l.result.End != Left || len(s.options) != 0 {
					t.Errorf("stream %v, left at %v: %s, standing %v", stream, at, l.result.End, s.options)
				}
				if at > 0 && seen.Sub(left) > 100*time.Millisecond {
					t.Errorf("the upstream learnt of it after %v", seen.Sub(left))
				}
			})
		}
	}
}

func TestRunDeliverFails(t *testing.T) {
	for _, stream := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := standing()
			l := walked(t.Context(), Plan{Options: options("alpha", "beta"), Stream: stream}, s,
				script{"alpha": answer("a", "b", "c")}, func(string) error { return errGone })
			if l.result.End != Left || l.result.Delivered || len(s.options) != 0 {
				t.Errorf("%+v, standing %v", l.result, s.options)
			}
		})
	}
}

// A caller that reads slowly is not an upstream that stalls.
func TestRunSlowCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Plan{Options: options("alpha"), Stream: true, Budget: time.Hour, Limits: chain.Limits{Idle: 1000, Total: 3000}}
		l := walked(t.Context(), p, standing(), script{"alpha": answer("a", "b", "c")}, func(string) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		want(t, l, Answered, "alpha", "")
		if m := l.measured[0]; l.delivered != "abc" || m.Total > time.Second {
			t.Errorf("delivered %q, measured %+v", l.delivered, m)
		}
	})
}

// What a runner has at hand goes out in one write, all of it and in order; what
// it waits after goes out before.
func TestRunPutsTogetherWhatIsAtHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds, each = 50, 20
		var want strings.Builder
		var writes []int
		var delivered strings.Builder
		r := runner(func(_ context.Context, _ Attempt, emit func(Chunk) error) Outcome {
			for i := range rounds * each {
				c := Chunk{Data: fmt.Appendf(nil, "%d,", i), Meaningful: true, More: true}
				want.Write(c.Data)
				if emit(c) != nil {
					return Outcome{Class: chain.Canceled}
				}
				if (i+1)%each == 0 && i+1 < rounds*each {
					_ = emit(Chunk{})
					if delivered.String() != want.String() {
						t.Errorf("after %d chunks %d of %d bytes were delivered", i+1, delivered.Len(), want.Len())
					}
				}
			}
			return Outcome{Class: chain.OK}
		})
		p := Plan{Options: options("alpha"), Stream: true, Budget: time.Hour}
		result := Run(t.Context(), p, standing(), r, func(a Attempt, data [][]byte) error {
			for _, d := range data {
				delivered.Write(d)
			}
			writes = append(writes, len(data))
			if last := delivered.Len() == want.Len() && len(writes) == rounds; a.Ended != last {
				t.Errorf("write %d: ended %v", len(writes), a.Ended)
			}
			return nil
		})
		if result.End != Answered || delivered.String() != want.String() {
			t.Fatalf("result %+v, %d bytes delivered, want %d in order", result, delivered.Len(), want.Len())
		}
		if len(writes) != rounds {
			t.Errorf("writes of %v chunks, want %d writes", writes, rounds)
		}
	})
}

// However much is at hand, what is held for one write is bounded.
func TestRunBoundsABatch(t *testing.T) {
	for _, size := range []int{1, maxBatchBytes/3 + 1, maxBatchBytes} {
		r := runner(func(_ context.Context, _ Attempt, emit func(Chunk) error) Outcome {
			for range 100 {
				_ = emit(Chunk{Data: make([]byte, size), Meaningful: true, More: true})
			}
			return Outcome{Class: chain.OK}
		})
		total := 0
		Run(t.Context(), Plan{Options: options("alpha"), Stream: true}, standing(), r, func(_ Attempt, data [][]byte) error {
			if total += len(data); len(data) > maxBatch || len(data)*size > maxBatchBytes+size {
				t.Errorf("%d chunks of %d bytes in one write", len(data), size)
			}
			return nil
		})
		if total != 100 {
			t.Errorf("%d chunks of %d bytes delivered, want 100", total, size)
		}
	}
}

// What was held is delivered before an attempt is given up, and never after.
func TestRunDeliversWhatWasHeldBeforeATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runner(func(ctx context.Context, _ Attempt, emit func(Chunk) error) Outcome {
			_ = emit(Chunk{Data: []byte("a"), Meaningful: true})
			_ = emit(Chunk{Data: []byte("b"), Meaningful: true, More: true})
			<-ctx.Done() // against its contract
			return Outcome{Class: chain.OK}
		})
		p := Plan{Options: options("alpha", "beta"), Stream: true, Limits: chain.Limits{Idle: 1000}}
		l := walked(t.Context(), p, standing(), r, nil)
		want(t, l, Broken, "alpha", "alpha:cut")
		if l.delivered != "ab" {
			t.Errorf("delivered %q", l.delivered)
		}
	})
}

// A caller who left is not an option's time-out, however long its runner lingers.
func TestRunCallerLeavesALingeringRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := runner(func(ctx context.Context, _ Attempt, _ func(Chunk) error) Outcome {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return Outcome{Class: chain.Unreachable}
		})
		s := standing()
		l := walked(ctx, Plan{Options: options("alpha", "beta"), Stream: true, Limits: chain.Limits{FirstOutput: 2000}}, s, r, nil)
		if l.result.End != Left || len(s.options) != 0 || l.result.Attempts != 1 {
			t.Errorf("%+v, standing %v", l.result, s.options)
		}
	})
}

// A runner that panics takes the walk with it: nothing goes on behind the caller.
func TestRunPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := 0
		r := runner(func(context.Context, Attempt, func(Chunk) error) Outcome {
			tried++
			panic("a bug")
		})
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was lost")
				}
			}()
			Run(t.Context(), Plan{Options: options("alpha", "beta"), Stream: true, Limits: chain.Limits{FirstOutput: 1000}}, standing(), r,
				func(Attempt, [][]byte) error { return nil })
		}()
		time.Sleep(time.Hour)
		if tried != 1 {
			t.Errorf("%d attempts", tried)
		}
	})
}

// A runner that panics after another was given up does so on the timer's
// goroutine; it reaches the caller all the same, and not the process.
func TestRunPanicsBehindAnAttemptThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runner(func(ctx context.Context, a Attempt, _ func(Chunk) error) Outcome {
			if a.Option.ID == "alpha" {
				<-ctx.Done()
				return Outcome{Class: chain.Canceled}
			}
			panic("a bug")
		})
		defer func() {
			if defect := recover(); defect != "a bug" {
				t.Errorf("recovered %v", defect)
			}
		}()
		Run(t.Context(), Plan{Options: options("alpha", "beta"), Stream: true, Limits: chain.Limits{FirstOutput: 1000}}, standing(), r,
			func(Attempt, [][]byte) error { return nil })
		t.Error("the panic was lost")
	})
}

// Nothing of a stream is ahead of a slow caller but the chunk being written.
func TestRunKeepsNothingAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written, furthest atomic.Int64
		r := runner(func(_ context.Context, _ Attempt, emit func(Chunk) error) Outcome {
			for i := range 20 {
				if err := emit(Chunk{Data: make([]byte, 64<<10), Meaningful: true}); err != nil {
					return Outcome{Class: chain.Canceled}
				}
				furthest.Store(max(furthest.Load(), int64(i+1)-written.Load()))
			}
			return Outcome{Class: chain.OK}
		})
		p := Plan{Options: options("alpha"), Stream: true, Budget: time.Hour}
		result := Run(t.Context(), p, standing(), r, func(_ Attempt, data [][]byte) error {
			time.Sleep(time.Second)
			written.Add(int64(len(data)))
			return nil
		})
		if result.End != Answered || written.Load() != 20 || furthest.Load() > 1 {
			t.Errorf("result %+v, %d written, %d ahead: want 20 and at most 1", result, written.Load(), furthest.Load())
		}
	})
}

func TestRunGoesOnBeforeTheOldOneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var second time.Time
		began := time.Now()
		r := runner(func(ctx context.Context, a Attempt, emit func(Chunk) error) Outcome {
			if a.Option.ID == "alpha" {
				<-ctx.Done()
				time.Sleep(time.Minute) // slow to end
				if emit(text("late")) == nil {
					t.Error("a chunk was taken from an attempt that was given up")
				}
				return Outcome{Class: chain.OK}
			}
			second = time.Now()
			_ = emit(text("b"))
			return Outcome{Class: chain.OK}
		})
		p := Plan{Options: options("alpha", "beta"), Stream: true, Limits: chain.Limits{FirstOutput: 1000}}
		l := walked(t.Context(), p, standing(), r, nil)
		want(t, l, Answered, "beta", "alpha:timeout")
		if second.Sub(began) != time.Second || l.delivered != "b" {
			t.Errorf("went on after %v, delivered %q", second.Sub(began), l.delivered)
		}
	})
}

func TestRunProtest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Plan{Options: options("alpha"), Stream: true, Budget: 20 * time.Second}
		var asked []chain.Failure
		p.Hooks.Protest = func(ctx context.Context, f []chain.Failure, budget time.Duration) ([]chain.Option, error) {
			asked = f
			if by, ok := ctx.Deadline(); !ok || time.Until(by) != budget {
				t.Errorf("bounded by %v, told %v", time.Until(by), budget)
			}
			return options("extra"), nil
		}
		l := walked(t.Context(), p, standing(), script{"alpha": fails(chain.Status), "extra": answer("saved")}, nil)
		want(t, l, Answered, "extra", "alpha:status")
		if len(asked) != 1 || asked[0] != (chain.Failure{Option: "alpha", Class: chain.Status}) || !l.result.Extended {
			t.Errorf("asked for %v, %+v", asked, l.result)
		}
	})
	t.Run("the caller leaves meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			p := Plan{Options: options("alpha")}
			p.Hooks.Protest = func(ctx context.Context, _ []chain.Failure, _ time.Duration) ([]chain.Option, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if l := walked(ctx, p, standing(), script{"alpha": fails(chain.Status)}, nil); l.result.End != Left {
				t.Errorf("%+v", l.result)
			}
		})
	})
}

// TestAbortsAndTimeouts: ten callers that leave change nothing, ten time-outs do.
func TestAbortsAndTimeouts(t *testing.T) {
	p := Plan{Options: options("alpha"), Stream: true, Limits: chain.Limits{FirstOutput: 5000}}
	synctest.Test(t, func(t *testing.T) {
		s := standing()
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			l := walked(ctx, p, s, script{"alpha": {hang: true}}, nil)
			cancel()
			if l.result.End != Left || !l.measured[0].Neutral {
				t.Errorf("%s, measured %+v", l.result.End, l.measured)
			}
		}
		if x := s.Snapshot(time.Now()); len(x.Options) != 0 {
			t.Errorf("standing %+v", x)
		}
		for range 10 {
			l := walked(t.Context(), p, s, script{"alpha": {hang: true}}, nil)
			if l.result.End != AllTimedOut || l.measured[0].Neutral {
				t.Errorf("%s, measured %+v", l.result.End, l.measured)
			}
		}
		if x := s.Snapshot(time.Now()); len(x.Options) != 1 || x.Options[0].Failures != 10 {
			t.Errorf("standing %+v", x)
		}
	})
}
