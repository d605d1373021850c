package spool_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/store/spool"
)

// bare is the floor: one file, one write and one sync for all who wait, and
// nothing else. No IDs, no look at the line, no end of a segment.
type bare struct {
	file *os.File
	mu   sync.Mutex
	next *bareBatch
	wake chan struct{}
}

type bareBatch struct {
	buf  []byte
	done chan struct{}
}

func newBare(path string) (*bare, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	b := &bare{file: f, wake: make(chan struct{}, 1), next: &bareBatch{done: make(chan struct{})}}
	go b.write()
	return b, nil
}

func (b *bare) write() {
	at := int64(0)
	for range b.wake {
		b.mu.Lock()
		batch := b.next
		b.next = &bareBatch{done: make(chan struct{})}
		b.mu.Unlock()
		if _, err := b.file.WriteAt(batch.buf, at); err != nil {
			panic(err)
		}
		if err := b.file.Sync(); err != nil {
			panic(err)
		}
		at += int64(len(batch.buf))
		close(batch.done)
	}
}

func (b *bare) append(line []byte) {
	b.mu.Lock()
	batch := b.next
	batch.buf = append(append(batch.buf, line...), '\n')
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	<-batch.done
}

// BenchmarkAppend compares appending with the floor at the same number of
// callers, both in turn in the same run: x-floor is the spool's rate over the
// floor's.
func BenchmarkAppend(b *testing.B) {
	text := strings.Repeat("h", 800)
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			dir := b.TempDir()
			s := open(b, dir)
			floor, err := newBare(filepath.Join(dir, "bare"))
			must(b, err)
			defer close(floor.wake)
			var serial atomic.Int64
			const each = 16
			round := func(do func(id string, line []byte)) float64 {
				start := time.Now()
				var group sync.WaitGroup
				for range callers {
					group.Go(func() {
						for range each {
							id := fmt.Sprint(serial.Add(1))
							do(id, fmt.Appendf(nil, `{"id":%q,"text":%q}`, id, text))
						}
					})
				}
				group.Wait()
				return float64(time.Since(start).Nanoseconds()) / 1e3 / float64(callers*each)
			}
			var ratios, spent, least []float64
			for b.Loop() {
				l := round(func(_ string, line []byte) { floor.append(line) })
				s := round(func(id string, line []byte) {
					if err := s.Append(context.Background(), id, line); err != nil {
						b.Error(err)
					}
				})
				ratios, spent, least = append(ratios, float64(l)/float64(s)), append(spent, s), append(least, l)
			}
			// Medians: what others do on the machine hits one of a pair.
			b.ReportMetric(median(spent), "µs/line")
			b.ReportMetric(median(least), "floor-µs/line")
			b.ReportMetric(median(ratios), "x-floor")
		})
	}
}

func median(l []float64) float64 {
	slices.Sort(l)
	return l[len(l)/2]
}

// BenchmarkDrain hands lines on to a ledger that takes them at once.
func BenchmarkDrain(b *testing.B) {
	const lines = 20_000
	var text bytes.Buffer
	for n := range lines {
		fmt.Fprintf(&text, "%s\n", lineOf(idOf(n), strings.Repeat("h", 500)))
	}
	for b.Loop() {
		dir := b.TempDir()
		must(b, os.WriteFile(filepath.Join(dir, "spool.jsonl"), text.Bytes(), 0o600))
		s := open(b, dir)
		drain(b, s, accepting{})
		must(b, s.Close())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*lines), "ns/line")
}

type accepting struct{}

func (accepting) Send(context.Context, []byte) spool.Outcome {
	return spool.Outcome{Verdict: spool.Accepted}
}

// BenchmarkOpenRequest is what every request pays for being counted after a crash.
func BenchmarkOpenRequest(b *testing.B) {
	s := open(b, b.TempDir())
	for b.Loop() {
		must(b, s.Begin("a"))
		s.End("a")
	}
}
