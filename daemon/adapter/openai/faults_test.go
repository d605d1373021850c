package openai

import (
	"bytes"
	"context"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter/providertest"
)

// TestFaults plays every fault, streamed and plain, and checks the class, what
// was emitted before it, and the wait that the upstream asked for.
func TestFaults(t *testing.T) {
	for _, f := range providertest.Faults() {
		for _, stream := range []bool{true, false} {
			mode, want := "plain", f.Plain
			if stream {
				mode, want = "streamed", f.Streamed
			}
			t.Run(f.Name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				if f.Hangs {
					hangs(t, f, want, stream)
					return
				}
				got, o := collect(t.Context(), newAdapter(t), chat(f.Start(t).Endpoint(), stream))
				if o.Class != want.Class {
					t.Fatalf("class %s, want %s", o.Class, want.Class)
				}
				if o.HasRetryAfter != f.Retry.Given || o.RetryAfter < f.Retry.Least || o.RetryAfter > f.Retry.Most {
					t.Errorf("retry-after %v (given: %v), want %+v", o.RetryAfter, o.HasRetryAfter, f.Retry)
				}
				checkEmitted(t, f, want, got, o)
			})
		}
	}
}

func checkEmitted(t *testing.T, f providertest.Fault, want providertest.Expect, got []walk.Chunk, o walk.Outcome) {
	t.Helper()
	output := 0
	for _, c := range got {
		if c.Meaningful {
			output++
		}
		if bytes.ContainsAny(c.Data, "\n\r") {
			t.Errorf("a chunk is not one line: %.200q", c.Data)
		}
	}
	switch want.Then {
	case providertest.Answers:
		said := f.Text
		if said == "" {
			said = providertest.Text
		}
		if s := text(t, got); s != said {
			t.Errorf("said %.100q, want %.100q", s, said)
		}
		if o.Input != 0 && (o.Input != providertest.InputTokens || o.Output != providertest.OutputTokens) {
			t.Errorf("tokens %d and %d", o.Input, o.Output)
		}
	case providertest.Next:
		if output > 0 {
			t.Errorf("%d meaningful chunks of a failed attempt", output)
		}
	case providertest.Breaks:
		if output == 0 {
			t.Error("no output before the break")
		}
	case providertest.Stops:
		if output > 0 || o.Answer == nil || len(o.Answer.Body) == 0 {
			t.Errorf("%d chunks, answer %+v", output, o.Answer)
		}
	}
}

// hangs checks that a fault which never ends by itself goes on until the walk
// gives it up, that the attempt then ends, and that the upstream sees it.
func hangs(t *testing.T, f providertest.Fault, want providertest.Expect, stream bool) {
	p := f.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	output := make(chan struct{}, 100)
	ended := make(chan walk.Outcome, 1)
	go func() {
		ended <- newAdapter(t).Run(ctx, chat(p.Endpoint(), stream), func(c walk.Chunk) error {
			if c.Meaningful {
				output <- struct{}{}
			}
			return nil
		})
	}()
	p.Wait(1)
	if want.Class == chain.Cut {
		<-output
	}
	select {
	case o := <-ended:
		t.Fatalf("ended by itself with %s", o.Class)
	default:
	}
	cancel()
	if o := <-ended; o.Class != chain.Canceled {
		t.Errorf("class %s after cancellation", o.Class)
	}
	p.WaitClosed(1)
	if want.Class == chain.Timeout && len(output) > 0 {
		t.Error("it emitted output")
	}
}
