package main

import (
	"bytes"
	"testing"
	"time"
)

// TestProgress: one line, written over itself a few times a second, gone in the end; where
// nobody looks at a terminal, nothing.
func TestProgress(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(1e9, 0)
	p := &progress{out: &b, now: func() time.Time { return now }}
	p.begin("close/storm, 1 of 2", 4)
	p.reached(0, 0.5) // too soon
	now = now.Add(time.Second)
	p.reached(2, 0.5)
	p.end()
	const line = "\r\x1b[K"
	if got, want := b.String(), line+"close/storm, 1 of 2  0 %"+line+"close/storm, 1 of 2  25 %"+line; got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	b.Reset()
	none := (&app{err: &b}).progress()
	none.begin("x", 1)
	none.reached(0, 1)
	none.end()
	if none != nil || b.Len() > 0 {
		t.Errorf("said %q to no terminal", b.String())
	}
}
