package exec_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// silent is a job that begins to answer, and then waits for its upstream.
type silent struct {
	begun chan struct{}
	ended chan error // the cause of its end
	at    time.Time
}

// newSilent makes one; call it where the test's bubble is.
func newSilent() *silent { return &silent{begun: make(chan struct{}), ended: make(chan error, 1)} }

func (s *silent) run(ctx context.Context, _ []byte, _ exec.Emit) wire.ExecTrailer {
	close(s.begun)
	<-ctx.Done()
	s.at = time.Now()
	s.ended <- context.Cause(ctx)
	return wire.ExecTrailer{Class: chain.Canceled}
}

// start makes an attempt whose end goes to the channel.
func (p *pair) start(ctx context.Context) chan error {
	done := make(chan error, 1)
	go func() {
		_, _, err := p.do(ctx, []byte("wait"))
		done <- err
	}()
	return done
}

func TestASilentExecutorSeesACancel(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		job := newSilent()
		d.answer(job.run)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := p.start(ctx)
		<-job.begun
		time.Sleep(time.Minute) // nothing is said for long
		left := time.Now()
		why := errors.New("the caller left")
		cancel(why)
		var reset *network.StreamError
		if err := <-job.ended; !errors.As(err, &reset) || !reset.Remote || reset.ErrorCode != 0x2001 {
			t.Errorf("the job ended of %v", err)
		}
		if took := job.at.Sub(left); took > 100*time.Millisecond {
			t.Errorf("the executor noticed after %s", took)
		}
		if err := <-done; err != why {
			t.Errorf("the submitter gets %v", err)
		}
		p.settled(time.Second)
	})
}

// The same on real sockets, where nothing may hold a reset back.
func TestASilentExecutorSeesACancelOnRealSockets(t *testing.T) {
	real(t, func() *desk { return &desk{} }, func(t *testing.T, p *pair) {
		job := newSilent()
		p.desk.answer(job.run)
		ctx, cancel := context.WithCancel(t.Context())
		done := p.start(ctx)
		<-job.begun
		left := time.Now()
		cancel()
		<-job.ended
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		t.Logf("seen after %s", job.at.Sub(left))
	})
}

func TestADeadConnectionEndsTheJob(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		job := newSilent()
		d.answer(job.run)
		done := p.start(t.Context())
		<-job.begun
		_ = p.executor.Network().ClosePeer(p.submitter.ID())
		<-job.ended
		if err := <-done; !errors.Is(err, exec.ErrBroken) {
			t.Errorf("%v", err)
		}
		p.settled(time.Second)
	})
}

func TestCloseEndsJobsAndSaysSo(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		job := newSilent()
		d.answer(job.run)
		done := p.start(t.Context())
		<-job.begun
		p.server.Close()
		if len(job.ended) != 1 {
			t.Error("Close does not wait for jobs")
		}
		var reset *network.StreamError
		if err := <-done; !errors.Is(err, exec.ErrBroken) || !errors.As(err, &reset) || reset.ErrorCode != network.StreamShutdown {
			t.Errorf("%v", err)
		}
		if _, _, err := p.do(t.Context(), nil); !errors.Is(err, &wire.ExecRefusal{Code: wire.ExecBusy}) {
			t.Errorf("afterwards, when nothing can run: %v", err)
		}
	})
}

func TestTheDeadlineEndsTheJob(t *testing.T) {
	d := &desk{terms: func(t *exec.Terms) { t.Until = time.Now().Add(3 * time.Second) }}
	simulated(t, d, func(t *testing.T, p *pair) {
		job := newSilent()
		d.answer(job.run)
		begun := time.Now()
		_, trailer, err := p.do(t.Context(), nil)
		if err != nil || trailer.Class != chain.Canceled { // what the job made of it
			t.Errorf("%+v %v", trailer, err)
		}
		if err := <-job.ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := job.at.Sub(begun).Round(time.Second); took != 3*time.Second {
			t.Errorf("after %s", took)
		}
	})
}

// A caller whose writes fail gives up in the middle, and the executor is told.
func TestACallerThatFailsEndsTheJob(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		ended := make(chan error, 1)
		d.answer(func(ctx context.Context, _ []byte, emit exec.Emit) wire.ExecTrailer {
			for {
				if err := emit([]byte("more"), true, false); err != nil {
					ended <- err
					return wire.ExecTrailer{Class: chain.Canceled}
				}
				time.Sleep(time.Second)
			}
		})
		gone := errors.New("broken pipe")
		_, err := exec.Do(t.Context(), p.stream(), opening(t, nil), nil, func([]byte, bool, bool) error { return gone })
		if err != gone {
			t.Errorf("%v", err)
		}
		if err := <-ended; err == nil {
			t.Error("the job goes on")
		}
		p.settled(time.Second)
	})
}

func TestChunksArriveOneByOne(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		var mu sync.Mutex
		var sent, got int
		d.answer(func(_ context.Context, _ []byte, emit exec.Emit) wire.ExecTrailer {
			for range 10 {
				mu.Lock()
				if got != sent {
					t.Errorf("chunk %d is sent when %d have arrived", sent+1, got)
				}
				sent++
				mu.Unlock()
				if err := emit([]byte("data"), true, false); err != nil {
					t.Error(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			return wire.ExecTrailer{Class: chain.OK}
		})
		_, err := exec.Do(t.Context(), p.stream(), opening(t, nil), nil, func([]byte, bool, bool) error {
			mu.Lock()
			defer mu.Unlock()
			got++
			return nil
		})
		if err != nil || got != 10 {
			t.Errorf("%d chunks, %v", got, err)
		}
	})
}

// The last chunk is with the caller while the executor still signs.
func TestTheLastChunkDoesNotWaitForTheSignature(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		taken := make(chan struct{})
		d.answer(func(_ context.Context, _ []byte, emit exec.Emit) wire.ExecTrailer {
			if err := emit([]byte("a"), true, true); err != nil { // said to have more, and has none
				t.Error(err)
			}
			return wire.ExecTrailer{Class: chain.OK}
		})
		d.change(func() { d.sign = func(t *wire.ExecTrailer) { <-taken; t.Signature = []byte("s") } })
		trailer, err := exec.Do(t.Context(), p.stream(), opening(t, nil), nil, func([]byte, bool, bool) error { close(taken); return nil })
		if err != nil || string(trailer.Signature) != "s" {
			t.Errorf("%+v %v", trailer, err)
		}
	})
}

// Chunks cross as they are: their borders, flags and bytes, also where one cuts
// a character.
func TestChunksCrossUnchanged(t *testing.T) {
	type chunk struct {
		data             string
		meaningful, more bool
	}
	text := "aé漢🎡é漢🎡z"
	var all []chunk
	for cut := range len(text) + 1 {
		all = append(all, chunk{text[:cut], cut%2 == 0, true}, chunk{text[cut:], true, cut%3 == 0})
	}
	all = append(all, chunk{"", false, false}, chunk{strings.Repeat(text, 4000), true, true}, chunk{"", false, false}, chunk{"end", true, false})
	d := &desk{run: func(_ context.Context, _ []byte, emit exec.Emit) wire.ExecTrailer {
		for _, c := range all {
			if err := emit([]byte(c.data), c.meaningful, c.more); err != nil {
				return wire.ExecTrailer{Class: chain.Internal}
			}
		}
		return wire.ExecTrailer{Class: chain.OK}
	}}
	simulated(t, d, func(t *testing.T, p *pair) {
		var got []chunk
		_, err := exec.Do(t.Context(), p.stream(), opening(t, nil), nil, func(data []byte, meaningful, more bool) error {
			got = append(got, chunk{string(data), meaningful, more})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		for _, c := range all {
			if c.data == "" && c.more {
				continue // nothing at all
			}
			if want >= len(got) || got[want] != c {
				t.Fatalf("chunk %d differs", want)
			}
			want++
		}
		if want != len(got) {
			t.Errorf("%d chunks of %d", len(got), want)
		}
	})
}

// A caller that takes nothing is waited for, and not for ever.
func TestACallerThatTakesNothing(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		ended := make(chan time.Time, 1)
		d.answer(func(_ context.Context, _ []byte, emit exec.Emit) wire.ExecTrailer {
			for emit(make([]byte, 4096), true, false) == nil {
			}
			ended <- time.Now()
			return wire.ExecTrailer{Class: chain.Canceled}
		})
		begun, taken := time.Now(), make(chan struct{})
		done := make(chan error, 1)
		go func() {
			_, err := exec.Do(t.Context(), p.stream(), opening(t, nil), nil, func([]byte, bool, bool) error { <-taken; return nil })
			done <- err
		}()
		if took := (<-ended).Sub(begun).Round(time.Second); took != 2*time.Minute {
			t.Errorf("given up after %s", took)
		}
		close(taken)
		if err := <-done; !errors.Is(err, exec.ErrBroken) {
			t.Errorf("%v", err)
		}
		p.settled(time.Second)
	})
}

// What a job gives and no submitter takes does not leave the executor.
func TestJobsThatGiveTheImpossible(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		d.answer(func(context.Context, []byte, exec.Emit) wire.ExecTrailer {
			return wire.ExecTrailer{Class: "melted", Used: 5000, Answer: &wire.ExecAnswer{Body: make([]byte, 1<<20)}}
		})
		if _, trailer, err := p.do(t.Context(), nil); err != nil || trailer.Class != chain.Internal || trailer.Answer != nil {
			t.Errorf("%+v %v", trailer, err)
		}
		d.answer(func(_ context.Context, _ []byte, emit exec.Emit) wire.ExecTrailer {
			if emit(make([]byte, wire.MaxExecChunk+1), true, false) == nil {
				t.Error("a chunk without limit was sent")
			}
			return wire.ExecTrailer{Class: chain.OK}
		})
		if chunks, _, err := p.do(t.Context(), nil); !errors.Is(err, exec.ErrBroken) || len(chunks) > 0 {
			t.Errorf("%d chunks, %v", len(chunks), err)
		}
		if _, err := exec.Do(t.Context(), p.stream(), &wire.ExecOpen{}, nil, nil); !errors.Is(err, wire.ErrMessage) {
			t.Errorf("a request that nobody would read: %v", err)
		}
		p.settled(10 * time.Second)
	})
}
