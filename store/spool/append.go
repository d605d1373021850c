package spool

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

// batch is what one sync makes durable.
type batch struct {
	buf  []byte // the writer's, to use again, once the batch is stored
	keys []key
	done chan struct{} // closed when err says how it went
	err  error
}

func newBatch(buf []byte) *batch { return &batch{buf: buf[:0], done: make(chan struct{})} }

// Line is one JSON object of at most MaxLine bytes without a line feed, and the ID that it
// is known by.
type Line struct {
	ID   string
	Text []byte
}

// Append keeps a line and returns nil when it is on disk. Many callers at once share a sync.
// That the line is JSON is the caller's word: only its ends are looked at.
// A line whose ID was kept within the last 24 h is acknowledged and not kept again: the first
// one wins. The bytes are copied. With ErrBusy the line is not in the spool, with
// ErrNotStored neither, unless the process ends while the disk still fails; when ctx
// ends first, nobody knows. In each case the same call again is right. A caller that finds
// nobody writing may write for all, and then waits for the disk whatever becomes of ctx.
func (s *Spool) Append(ctx context.Context, id string, line []byte) error {
	return s.AppendAll(ctx, []Line{{id, line}})
}

// AppendAll is Append of many lines, which share a sync. After an error some of them may be
// in the spool: the same call again is right here as well.
func (s *Spool) AppendAll(ctx context.Context, lines []Line) error {
	for _, l := range lines {
		if !fits(l.Text) {
			return fmt.Errorf("append to the spool: %w, of %d bytes", ErrLine, len(l.Text))
		}
	}
	batches, err := s.enqueue(lines)
	if len(batches) > 0 && (err != nil || ctx.Err() != nil || !s.lead(ctx.Done() != nil)) {
		poke(s.wake)
	}
	if err != nil {
		return err
	}
	for _, b := range batches {
		if err := b.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// wait gives what became of b. What is done counts, whether or not ctx ended.
func (b *batch) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return b.err
	default:
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return fmt.Errorf("append to the spool: %w", ctx.Err())
	}
}

// fits reports whether a line can stand among others.
func fits(line []byte) bool {
	n := len(line)
	return n >= 2 && n <= MaxLine && line[0] == '{' && line[n-1] == '}' && bytes.IndexByte(line, '\n') < 0
}

// enqueue puts lines into the next batch, and gives the batches that will hold them: that
// one, and the one that is being stored if it has one of them already. No batch and no
// error mean that all are on disk.
func (s *Spool) enqueue(lines []Line) ([]*batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	var batches []*batch
	for _, l := range lines {
		k := keyOf(l.ID)
		if s.known.has(k) {
			continue
		}
		b := s.waiting[k]
		if b == nil {
			if len(s.next.keys)+s.inFlight >= maxWaiting {
				return batches, fmt.Errorf("append to the spool: %w: %d lines wait for the disk", ErrBusy, maxWaiting)
			}
			b = s.next
			b.buf = append(append(b.buf, l.Text...), '\n')
			b.keys = append(b.keys, k)
			s.waiting[k] = b
		}
		if !slices.Contains(batches, b) {
			batches = append(batches, b)
		}
	}
	return batches, nil
}

// lead writes what waits in the caller's goroutine, which spares two changes of it,
// unless somebody writes just now. The disk decides how long that takes: a caller that may
// leave does it only while the disk was quick last, so that one that stalls holds up one of
// them at most. Nor does it where the last batch was of several: the writer waits for those
// who come along with the next one.
func (s *Spool) lead(mayLeave bool) bool {
	select {
	case s.turn <- struct{}{}:
	default:
		return false
	}
	if mayLeave && (s.w.slow || s.w.crowd || s.w.fault != nil) {
		<-s.turn
		return false
	}
	s.commit()
	fault := s.w.fault
	<-s.turn
	if fault != nil { // the writer tries the disk from now on
		poke(s.wake)
	}
	return true
}
