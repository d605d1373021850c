package spool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// batch is what one sync makes durable.
type batch struct {
	buf  []byte // the writer's, to use again, once the batch is stored
	keys []key
	done chan struct{} // closed when err says how it went
	err  error
}

func newBatch(buf []byte) *batch { return &batch{buf: buf[:0], done: make(chan struct{})} }

// Append keeps a line, one JSON object of at most MaxLine bytes without a line
// feed, and returns nil when it is on disk. Many callers at once share a sync.
// A line whose ID was kept within the last 24 h is acknowledged and not kept again: the first
// one wins. The bytes are copied. With ErrBusy the line is not in the spool, with
// ErrNotStored neither, unless the process ends while the disk still fails; when ctx
// ends first, nobody knows. In each case the same call again is right.
func (s *Spool) Append(ctx context.Context, id string, line []byte) error {
	if len(line) > MaxLine || len(line) == 0 || line[0] != '{' || bytes.IndexByte(line, '\n') >= 0 || !json.Valid(line) {
		return fmt.Errorf("append to the spool: %w, of %d bytes", ErrLine, len(line))
	}
	b, err := s.enqueue(keyOf(id), line)
	if b == nil {
		return err
	}
	if ctx.Done() != nil || !s.lead() {
		poke(s.wake)
	}
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

// enqueue puts a line into the next batch, and gives the batch that will hold it. No
// batch and no error means that the line is on disk already.
func (s *Spool) enqueue(k key, line []byte) (*batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.known.has(k) {
		return nil, nil
	}
	if b := s.waiting[k]; b != nil {
		return b, nil
	}
	if len(s.next.keys)+s.inFlight >= maxWaiting {
		return nil, fmt.Errorf("append to the spool: %w: %d lines wait for the disk", ErrBusy, maxWaiting)
	}
	b := s.next
	b.buf = append(append(b.buf, line...), '\n')
	b.keys = append(b.keys, k)
	s.waiting[k] = b
	return b, nil
}

// lead writes what waits in the caller's goroutine, which spares two changes of it,
// unless somebody writes just now. Only a caller that would wait without end may: the
// disk decides how long it takes.
func (s *Spool) lead() bool {
	select {
	case s.turn <- struct{}{}:
	default:
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
