package spool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/store/spool"
)

// failing makes the n-th call (from 1) of an operation on a file fail, and the
// most-1 calls behind it.
func failing(op, name string, n, most int, err error) func(string, string) error {
	var calls atomic.Int32
	return func(o, f string) error {
		if o != op || f != name {
			return nil
		}
		if c := int(calls.Add(1)); c >= n && c < n+most {
			return err
		}
		return nil
	}
}

// some is the context of a caller who may leave, or for every second n of one who
// cannot: that one writes itself where nobody else does.
func some(t *testing.T, n int) context.Context {
	if n%2 == 0 {
		return context.WithoutCancel(t.Context())
	}
	return t.Context()
}

// A sync or a write that fails acknowledges nothing and leaves nothing; the
// descriptor is not asked again (the disk of these tests panics then), and the next
// line that is appended finds a sound file.
func TestAFailedWrite(t *testing.T) {
	for _, op := range []string{"sync", "write"} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprint(op, n), func(t *testing.T) {
				dir := tempDir(t)
				disk, faulty := spool.Faulty(dir)
				var said log
				s := open(t, dir, faulty, said.into)
				disk.Before(failing(op, "spool.jsonl", n, 1, syscall.EIO))
				var kept []string
				for i := range 6 {
					err := s.Append(some(t, (i+n)/2), idOf(i), lineOf(idOf(i), ""))
					if failed := i == n-1; failed != (err != nil) || failed && !errors.Is(err, spool.ErrNotStored) {
						t.Fatalf("line %d: %v", i, err)
					} else if failed {
						if st := s.Status(); st.Writable || st.Fault != "input/output error" {
							t.Errorf("status %+v", st)
						}
						if b := read(t, dir, "spool.jsonl"); bytes.Count(b, []byte{'\n'}) != len(kept) || len(b) > 0 && b[len(b)-1] != '\n' {
							t.Errorf("left behind: %q", b)
						}
						continue
					}
					kept = append(kept, idOf(i))
				}
				if st := s.Status(); !st.Writable || st.Fault != "" || st.Depth != 5 {
					t.Errorf("status %+v", st)
				}
				// The one that failed may come again.
				must(t, s.Append(t.Context(), idOf(n-1), lineOf(idOf(n-1), "")))
				must(t, s.Close())
				s = open(t, dir)
				l := newLedger()
				drain(t, s, l)
				if got := fmt.Sprint(l.ids()); got != fmt.Sprint(append(kept, idOf(n-1))) {
					t.Errorf("the ledger has %s, want %v and %s", got, kept, idOf(n-1))
				}
				if said.count("takes nothing") != 1 || said.count("takes lines again") != 1 {
					t.Errorf("log %s", said.String())
				}
			})
		}
	}
}

// While the disk goes on failing, nothing is acknowledged, and nothing of it
// stays, whatever else fails along with the sync. The spool finds out by itself
// when it is over.
func TestADiskThatGoesOnFailing(t *testing.T) {
	for i, also := range []string{"", "truncate", "open", "write"} {
		t.Run("sync and "+also, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := tempDir(t)
				disk, faulty := spool.Faulty(dir)
				s := open(t, dir, faulty)
				put(t, s, 0, 3)
				want := read(t, dir, "spool.jsonl")
				disk.Before(func(op, name string) error {
					if name == "spool.jsonl" && (op == "sync" || op == also) {
						return syscall.EIO
					}
					return nil
				})
				for n := range 5 {
					if err := s.Append(some(t, i), idOf(10+n), lineOf(idOf(10+n), "")); !errors.Is(err, spool.ErrNotStored) {
						t.Fatalf("line %d: %v", n, err)
					}
				}
				time.Sleep(time.Minute)
				if st := s.Status(); st.Writable || st.Depth != 3 {
					t.Errorf("status %+v", st)
				}
				disk.Before(nil)
				time.Sleep(spool.ProbeEvery)
				synctest.Wait()
				if st := s.Status(); !st.Writable || st.Depth != 3 {
					t.Errorf("after the disk is sound: status %+v", st)
				}
				if got := read(t, dir, "spool.jsonl"); !bytes.Equal(got, want) {
					t.Errorf("the spool has %q, want %q", got, want)
				}
				put(t, s, 3, 5)
				l := newLedger()
				drain(t, s, l)
				wantIDs(t, l, 0, 5)
			})
		})
	}
}

// A file that was changed under a failing disk is not written to.
func TestAFileThatIsNotWhatItWas(t *testing.T) {
	for name, spoil := range map[string]func(b []byte) []byte{
		"shorter": func(b []byte) []byte { return b[:len(b)/2] },
		"another": func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("n0"), []byte("m0")) },
	} {
		dir := tempDir(t)
		disk, faulty := spool.Faulty(dir)
		s := open(t, dir, faulty)
		put(t, s, 0, 3)
		disk.Before(func(op, name string) error {
			if name == "spool.jsonl" && (op == "sync" || op == "open") {
				return syscall.EIO
			}
			return nil
		})
		_ = s.Append(t.Context(), "x", lineOf("x", ""))
		disk.Before(nil)
		spoilt := spoil(read(t, dir, "spool.jsonl"))
		write(t, spoilt, dir, "spool.jsonl")
		if err := s.Append(t.Context(), "y", lineOf("y", "")); !errors.Is(err, spool.ErrNotStored) || !strings.Contains(err.Error(), "restart") {
			t.Errorf("%s: %v", name, err)
		}
		if got := read(t, dir, "spool.jsonl"); !bytes.Equal(got, spoilt) {
			t.Errorf("%s: written to", name)
		}
	}
}

// Wherever ending a segment fails, no acknowledged line is lost and none is
// written into a full one.
func TestAFailedRotation(t *testing.T) {
	for _, fault := range []struct {
		op, name string
		n, most  int
	}{
		{"rename", "spool.jsonl", 1, 3},
		{"dir-sync", "", 1, 2},
		{"dir-sync", "", 2, 1},
		{"open", "spool.jsonl", 1, 2},
		{"truncate", "spool.jsonl", 1, 1},
	} {
		t.Run(fmt.Sprint(fault.op, fault.n), func(t *testing.T) {
			dir := tempDir(t)
			disk, faulty := spool.Faulty(dir)
			small := spool.SegmentsOf(200)
			s := open(t, dir, faulty, small)
			l := newLedger()
			put(t, s, 0, 3)
			disk.Before(failing(fault.op, fault.name, fault.n, fault.most, fs.ErrPermission))
			failed := 0
			for n := 3; n < 30; n++ {
				if err := s.Append(t.Context(), idOf(n), lineOf(idOf(n), "")); err != nil {
					failed++
					n--
				}
				if failed > 5 {
					t.Fatal("the spool does not recover")
				}
			}
			drain(t, s, l)
			wantIDs(t, l, 0, 30)
			must(t, s.Close())
			s = open(t, dir, small)
			put(t, s, 30, 32)
			drain(t, s, l)
			wantIDs(t, l, 0, 32)
			if l.attempts != 32 || len(segments(t, dir)) < 3 {
				t.Errorf("%d attempts; segments %v", l.attempts, segments(t, dir))
			}
		})
	}
}

// Where an open file keeps its name, a segment ends while the worker does not read
// it, and at the next start at the latest.
func TestAStubbornDisk(t *testing.T) {
	dir := tempDir(t)
	disk, faulty := spool.Faulty(dir)
	disk.Stubborn = true
	small := spool.SegmentsOf(300)
	s := open(t, dir, faulty, small, spool.CloseFirst)
	put(t, s, 0, 20)
	if n := len(segments(t, dir)); n < 3 {
		t.Errorf("%d full segments", n)
	}
	l := newLedger()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	must(t, s.Drain(ctx, until{l, func() bool {
		if n++; n == 20 { // the worker has the growing segment open
			put(t, s, 20, 40)
			cancel()
		}
		return false
	}, cancel}))
	if st := s.Status(); !st.Writable || st.Depth != 20 {
		t.Errorf("status %+v", st)
	}
	must(t, s.Close())
	before := len(segments(t, dir))
	s = open(t, dir, faulty, small, spool.CloseFirst)
	if after := len(segments(t, dir)); after != before+1 {
		t.Errorf("%d full segments, then %d", before, after)
	}
	drain(t, s, l)
	wantIDs(t, l, 0, 40)
}

// Reading that fails holds the worker up and loses nothing.
func TestAFailedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := tempDir(t)
		disk, faulty := spool.Faulty(dir)
		var said log
		s := open(t, dir, faulty, said.into)
		put(t, s, 0, 4)
		disk.Before(failing("open", "spool.jsonl", 1, 3, syscall.EIO))
		l := newLedger()
		run(t, s, l, time.Hour)
		wantIDs(t, l, 0, 4)
		if said.count("cannot read the spool") != 3 {
			t.Errorf("log %s", said.String())
		}
	})
}
