package walk

import (
	"context"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

var eight = numbered(8)

// BenchmarkMachine walks eight failing options; figures are per attempt.
func BenchmarkMachine(b *testing.B) {
	s := standing()
	p := Plan{Options: eight, Stream: true}
	b.ReportAllocs()
	for i := 0; i < b.N; i += 8 {
		m := New(p, s, epoch)
		for a := m.Next(epoch).Attempt; a != nil; a = m.Next(epoch).Attempt {
			m.End(Outcome{Class: chain.Internal}, epoch)
		}
	}
}

// BenchmarkMachineAnswer is a request whose first option answers with one chunk.
func BenchmarkMachineAnswer(b *testing.B) {
	s := standing()
	p := Plan{Options: eight, Stream: true}
	c := text("x")
	b.ReportAllocs()
	for b.Loop() {
		m := New(p, s, epoch)
		m.Next(epoch)
		m.Feed(c, epoch)
		m.Delivered(epoch)
		m.End(Outcome{Class: chain.OK}, epoch)
	}
}

// BenchmarkRun is the same as BenchmarkMachine with goroutine, timer and context.
func BenchmarkRun(b *testing.B) {
	s := standing()
	p := Plan{Options: eight, Stream: true}
	r := runner(func(context.Context, Attempt, func(Chunk) error) Outcome { return Outcome{Class: chain.Internal} })
	b.ReportAllocs()
	for i := 0; i < b.N; i += 8 {
		Run(context.Background(), p, s, r, func(Attempt, [][]byte) error { return nil })
	}
}

// BenchmarkRunAnswer is a whole request: one attempt, one chunk, delivered.
func BenchmarkRunAnswer(b *testing.B) {
	s := standing()
	p := Plan{Options: eight, Stream: true}
	c := text("x")
	r := runner(func(_ context.Context, _ Attempt, emit func(Chunk) error) Outcome {
		_ = emit(c)
		return Outcome{Class: chain.OK}
	})
	b.ReportAllocs()
	for b.Loop() {
		Run(context.Background(), p, s, r, func(Attempt, [][]byte) error { return nil })
	}
}

// BenchmarkRunChunk is one more chunk of a stream.
func BenchmarkRunChunk(b *testing.B) {
	c := text("x")
	r := runner(func(_ context.Context, _ Attempt, emit func(Chunk) error) Outcome {
		for range b.N {
			_ = emit(c)
		}
		return Outcome{Class: chain.OK}
	})
	b.ReportAllocs()
	Run(context.Background(), Plan{Options: eight, Stream: true, Budget: time.Hour}, standing(), r, func(Attempt, [][]byte) error { return nil })
}
