package spool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/store/spool"
)

func TestAppendKeepsALineAsItIs(t *testing.T) {
	dir := tempDir(t)
	s := open(t, dir)
	line := []byte(`{"id":"a" , "b":[1.0,"é\u00e9"]}`)
	must(t, s.Append(t.Context(), "a", line))
	if got := read(t, dir, "spool.jsonl"); string(got) != string(line)+"\n" {
		t.Errorf("the spool has %q", got)
	}
	if st := s.Status(); st.Depth != 1 || !st.Writable || st.Again != "" {
		t.Errorf("status %+v", st)
	}
}

func TestWhatIsNoLine(t *testing.T) {
	dir := tempDir(t)
	s := open(t, dir)
	long := `{"id":"` + strings.Repeat("x", spool.MaxLine-9) + `"}`
	for name, line := range map[string]string{
		"empty": "", "two lines": "{\n}", "no JSON": "{", "no object": "[]", "trailing": "{} x", "one byte too long": long + " ", "far too long": strings.Repeat(long, 3),
	} {
		if err := s.Append(t.Context(), name, []byte(line)); !errors.Is(err, spool.ErrLine) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, s.Append(t.Context(), "longest", []byte(long)))
	if got := read(t, dir, "spool.jsonl"); len(got) != spool.MaxLine+1 {
		t.Errorf("the spool has %d bytes", len(got))
	}
}

// The first of several lines under one ID is kept, also when they come at once,
// and after a restart.
func TestAnIDIsKeptOnce(t *testing.T) {
	dir := tempDir(t)
	s := open(t, dir)
	var group sync.WaitGroup
	for n := range 50 {
		group.Go(func() {
			if err := s.Append(t.Context(), "a", lineOf("a", fmt.Sprint(n))); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	first := read(t, dir, "spool.jsonl")
	if bytes.Count(first, []byte{'\n'}) != 1 {
		t.Fatalf("the spool has %q", first)
	}
	must(t, s.Close())
	recalled := 0
	for _, quick := range []func(*spool.Config){func(*spool.Config) {}, func(c *spool.Config) {
		c.Recall = func(line []byte) (spool.Label, error) { recalled++; return label(line) }
	}} {
		s = open(t, dir, quick)
		must(t, s.Append(t.Context(), "a", lineOf("a", "later")))
		if got := read(t, dir, "spool.jsonl"); string(got) != string(first) {
			t.Errorf("after a restart the spool has %q", got)
		}
		must(t, s.Close())
	}
	if recalled != 1 {
		t.Errorf("one line was recalled %d times", recalled)
	}
}

// An ID is known for a day at least, and for two at most.
func TestAnIDIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, tempDir(t))
		appended := func() bool {
			before := s.Status().Depth
			must(t, s.Append(t.Context(), "a", lineOf("a", "")))
			return s.Status().Depth > before
		}
		if !appended() {
			t.Fatal("not kept")
		}
		other := 0
		for range 47 {
			time.Sleep(time.Hour)
			other++
			must(t, s.Append(t.Context(), idOf(other), lineOf(idOf(other), "")))
			if other <= 24 && appended() {
				t.Fatalf("forgotten after %d h", other)
			}
		}
		time.Sleep(2 * time.Hour)
		must(t, s.Append(t.Context(), "z", lineOf("z", "")))
		if !appended() {
			t.Error("known after 49 h")
		}
	})
}

// Lines that come while the disk syncs share the next sync.
func TestCallersShareASync(t *testing.T) {
	dir := tempDir(t)
	disk, faulty := spool.Faulty(dir)
	s := open(t, dir, faulty)
	var syncs atomic.Int32
	started, release := make(chan struct{}), make(chan struct{})
	disk.Before(func(op, name string) error {
		if op == "sync" && name == "spool.jsonl" && syncs.Add(1) == 1 {
			close(started)
			<-release
		}
		return nil
	})
	var group sync.WaitGroup
	appendOne := func(n int) {
		group.Go(func() {
			if err := s.Append(some(t, n), idOf(n), lineOf(idOf(n), "")); err != nil {
				t.Error(err)
			}
		})
	}
	appendOne(0)
	<-started
	for n := 1; n <= 500; n++ {
		appendOne(n)
	}
	for s.Waiting() < 501 {
		runtime.Gosched()
	}
	if s.Status().Depth != 0 {
		t.Error("acknowledged before the sync")
	}
	close(release)
	group.Wait()
	if n := syncs.Load(); n != 2 {
		t.Errorf("%d syncs for 501 lines, want 2", n)
	}
	if d := s.Status().Depth; d != 501 {
		t.Errorf("depth %d", d)
	}
}

// Lines that come together share a sync, whatever the callers do; what is kept already, or
// comes twice among them, is kept once.
func TestManyLinesShareASync(t *testing.T) {
	dir := tempDir(t)
	disk, faulty := spool.Faulty(dir)
	s := open(t, dir, faulty)
	put(t, s, 3, 4)
	var syncs atomic.Int32
	disk.Before(func(op, name string) error {
		if op == "sync" && name == "spool.jsonl" {
			syncs.Add(1)
		}
		return nil
	})
	var lines []spool.Line
	for n := range 40 {
		lines = append(lines, spool.Line{ID: idOf(n % 20), Text: lineOf(idOf(n%20), fmt.Sprint(n/20))})
	}
	for _, ctx := range []context.Context{context.Background(), t.Context()} {
		must(t, s.AppendAll(ctx, lines))
	}
	if n, d := syncs.Load(), s.Status().Depth; n != 1 || d != 20 {
		t.Errorf("%d syncs for a depth of %d, want 1 for 20", n, d)
	}
	if err := s.AppendAll(t.Context(), []spool.Line{{ID: "good", Text: lineOf("good", "")}, {ID: "bad", Text: []byte("bad")}}); !errors.Is(err, spool.ErrLine) || s.Status().Depth != 20 {
		t.Errorf("with one that is no line: %v, depth %d", err, s.Status().Depth)
	}
	must(t, s.AppendAll(t.Context(), nil))
}

// Lines of which only some fit into the queue are an error; the same call again keeps them
// all, and each once.
func TestManyLinesAndAFullQueue(t *testing.T) {
	dir := tempDir(t)
	disk, faulty := spool.Faulty(dir)
	s := open(t, dir, faulty)
	release := make(chan struct{})
	disk.Before(func(op, _ string) error {
		if op == "sync" {
			<-release
		}
		return nil
	})
	var lines []spool.Line
	for n := range spool.MaxWaiting + 1 {
		lines = append(lines, spool.Line{ID: idOf(n), Text: lineOf(idOf(n), "")})
	}
	if err := s.AppendAll(context.Background(), lines); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("more than may wait: %v", err)
	}
	close(release)
	for s.AppendAll(context.Background(), lines) != nil {
		runtime.Gosched()
	}
	if d := s.Status().Depth; d != spool.MaxWaiting+1 {
		t.Errorf("depth %d", d)
	}
}

// A caller beyond what may wait is told at once; one that goes away leaves its line.
func TestTheQueueHasAnEnd(t *testing.T) {
	dir := tempDir(t)
	disk, faulty := spool.Faulty(dir)
	s := open(t, dir, faulty)
	release := make(chan struct{})
	disk.Before(func(op, name string) error {
		if op == "sync" {
			<-release
		}
		return nil
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for n := range spool.MaxWaiting {
		if err := s.Append(gone, idOf(n), lineOf(idOf(n), "")); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if err := s.Append(t.Context(), "more", lineOf("more", "")); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	close(release)
	must(t, s.Append(t.Context(), idOf(7), lineOf(idOf(7), "")))
	must(t, s.Close())
	if d := s.Status().Depth; d != spool.MaxWaiting {
		t.Errorf("depth %d after the close", d)
	}
	if err := s.Append(t.Context(), "x", lineOf("x", "")); !errors.Is(err, spool.ErrClosed) {
		t.Errorf("after the close: %v", err)
	}
	must(t, s.Close())
}

// A disk that stalls holds up the one caller who writes for all; others leave when they may.
// While it is slow, nobody writes who may leave.
func TestASlowDiskAndCallersThatLeave(t *testing.T) {
	dir := tempDir(t)
	disk, faulty := spool.Faulty(dir)
	synctest.Test(t, func(t *testing.T) {
		s := open(t, dir, faulty)
		var stall atomic.Int64
		stall.Store(int64(time.Hour))
		disk.Before(func(op, name string) error {
			if op == "sync" && name == "spool.jsonl" {
				time.Sleep(time.Duration(stall.Load()))
			}
			return nil
		})
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		first := make(chan error, 1)
		go func() { first <- s.Append(soon, idOf(0), lineOf(idOf(0), "")) }()
		synctest.Wait()
		if err := s.Append(soon, idOf(1), lineOf(idOf(1), "")); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("the second caller after %s: %v", time.Since(began), err)
		}
		if err := <-first; err != nil || time.Since(began) != time.Hour {
			t.Errorf("who writes, after %s: %v", time.Since(began), err)
		}
		must(t, s.Append(context.Background(), idOf(2), lineOf(idOf(2), ""))) // alone again
		soon, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if err := s.Append(soon, idOf(3), lineOf(idOf(3), "")); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("a caller who knows that the disk is slow, after %s: %v", time.Since(began), err)
		}
		stall.Store(0)
		must(t, s.Append(context.Background(), idOf(3), lineOf(idOf(3), "")))
		must(t, s.Close())
		if d := s.Status().Depth; d != 4 {
			t.Errorf("depth %d", d)
		}
	})
}

// Full is about what waits for the other side, and takes nothing away.
func TestFull(t *testing.T) {
	s := open(t, tempDir(t), func(c *spool.Config) { c.Max = 3 })
	put(t, s, 0, 2)
	if s.Full() {
		t.Error("full below the limit")
	}
	put(t, s, 2, 5)
	if !s.Full() {
		t.Error("not full above the limit")
	}
	drain(t, s, newLedger())
	if s.Full() {
		t.Error("full when nothing waits")
	}
}

func TestOneOwner(t *testing.T) {
	dir := tempDir(t)
	s := open(t, dir)
	if _, err := spool.Open(config(dir)); !errors.Is(err, spool.ErrInUse) {
		t.Errorf("a second owner: %v", err)
	}
	must(t, s.Close())
	open(t, dir)
	if _, err := spool.Open(spool.Config{Dir: dir}); err == nil {
		t.Error("opened without a label")
	}
}

// A segment ends by size; its lines wait in their order, and go when they were
// sent and seven days have passed.
func TestSegments(t *testing.T) {
	dir := tempDir(t)
	small := spool.SegmentsOf(500)
	s := open(t, dir, small)
	put(t, s, 0, 60)
	must(t, s.Close())
	names := segments(t, dir)
	if len(names) < 5 || names[0] != "spool-000001.jsonl" {
		t.Fatalf("segments %v", names)
	}
	old := time.Now().Add(-spool.KeepSent - time.Minute)
	for _, name := range names {
		must(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	s = open(t, dir, small)
	if got := segments(t, dir); len(got) < len(names) || s.Status().Depth != 60 {
		t.Fatalf("unsent lines are gone: %v, depth %d", got, s.Status().Depth)
	}
	l := newLedger()
	drain(t, s, l)
	wantIDs(t, l, 0, 60)
	put(t, s, 60, 70)
	drain(t, s, l)
	wantIDs(t, l, 0, 70)
	must(t, s.Close())
	s = open(t, dir, small)
	for _, name := range segments(t, dir) {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.ModTime().Before(old.Add(time.Second)) {
			t.Errorf("%s was sent long ago and is still there (%v)", name, err)
		}
	}
	put(t, s, 70, 80)
	drain(t, s, l)
	wantIDs(t, l, 0, 80)
}

func segments(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "spool-*.jsonl"))
	must(t, err)
	var names []string
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return names
}
