package spool_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/store/spool"
)

// half makes a spool of ten lines, five of them sent.
func half(t *testing.T, dir string, with ...func(*spool.Config)) *ledger {
	t.Helper()
	s := open(t, dir, with...)
	l := newLedger()
	put(t, s, 0, 5)
	drain(t, s, l)
	put(t, s, 5, 10)
	must(t, s.Close())
	return l
}

func TestARestartGoesOn(t *testing.T) {
	dir := tempDir(t)
	l := half(t, dir)
	s := open(t, dir)
	if st := s.Status(); st.Depth != 5 || st.Again != "" {
		t.Fatalf("status %+v", st)
	}
	drain(t, s, l)
	wantIDs(t, l, 0, 10)
	if l.attempts != 10 {
		t.Errorf("%d attempts for 10 lines", l.attempts)
	}
}

// Wherever a crash cut the last line: what was whole before is sent, the rest
// is kept apart, and new lines are whole.
func TestTornLastLine(t *testing.T) {
	whole := tempDir(t)
	l := half(t, whole)
	b := read(t, whole, "spool.jsonl")
	last := bytes.LastIndexByte(b[:len(b)-1], '\n') + 1
	for at := last; at <= len(b); at++ {
		dir := filepath.Join(tempDir(t), "d")
		must(t, os.CopyFS(dir, os.DirFS(whole)))
		write(t, b[:at], dir, "spool.jsonl")
		s := open(t, dir)
		l := &ledger{rows: make(map[string]string), order: l.ids()}
		for _, id := range l.order {
			l.rows[id] = ""
		}
		want := 9
		if at == len(b) {
			want = 10
		}
		st := s.Status()
		if torn := at - last; want == 9 && (st.Torn != int64(torn) || torn > 0 && string(read(t, dir, "spool.torn")) != string(b[last:at])+"\n") {
			t.Fatalf("cut at %d: status %+v, kept apart %q", at, st, read(t, dir, "spool.torn"))
		}
		must(t, s.Append(t.Context(), "new", lineOf("new", "")))
		drain(t, s, l)
		if got := l.ids(); len(got) != want+1 || got[want] != "new" || st.Again != "" {
			t.Fatalf("cut at %d: the ledger has %v; status %+v", at, got, st)
		}
		must(t, s.Close())
	}
}

// A checkpoint that does not fit means that all is sent again. New lines never
// land where it says "sent".
func TestCheckpoints(t *testing.T) {
	sum := func(text string) []byte { return spool.WithSum(text) }
	for name, spoil := range map[string]func(dir string, checkpoint []byte) []byte{
		"missing":               func(string, []byte) []byte { return nil },
		"empty":                 func(string, []byte) []byte { return []byte{} },
		"torn":                  func(_ string, c []byte) []byte { return c[:len(c)/2] },
		"of another version":    func(_ string, c []byte) []byte { return sum(strings.Replace(string(c), `"format":1`, `"format":2`, 1)) },
		"of another first line": func(_ string, c []byte) []byte { return sum(strings.Replace(string(c), `"000001-`, `"000001-0`, 1)) },
		"of another last line":  func(_ string, c []byte) []byte { return sum(strings.Replace(string(c), `"last":"`, `"last":"0`, 1)) },
		"inside a line": func(_ string, c []byte) []byte {
			return sum(strings.Replace(string(c), `"offset":`, `"offset":1`, 1))
		},
		"ahead: the spool was shortened": func(dir string, c []byte) []byte {
			b := read(t, dir, "spool.jsonl")
			write(t, b[:bytes.IndexByte(b, '\n')+1], dir, "spool.jsonl")
			return c
		},
		"of another spool": func(dir string, c []byte) []byte {
			write(t, append(lineOf("other", ""), '\n'), dir, "spool.jsonl")
			return c
		},
		"of another spool, as long": func(dir string, c []byte) []byte {
			b := read(t, dir, "spool.jsonl")
			write(t, bytes.ReplaceAll(b, []byte("n0"), []byte("m0")), dir, "spool.jsonl")
			return c
		},
		"the spool is empty": func(dir string, c []byte) []byte { write(t, nil, dir, "spool.jsonl"); return c },
		"the spool is gone":  func(dir string, c []byte) []byte { must(t, os.Remove(filepath.Join(dir, "spool.jsonl"))); return c },
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			half(t, dir)
			c := spoil(dir, read(t, dir, "spool.checkpoint"))
			if c == nil {
				must(t, os.Remove(filepath.Join(dir, "spool.checkpoint")))
			} else {
				write(t, c, dir, "spool.checkpoint")
			}
			lines := bytes.Count(read(t, dir, "spool.jsonl"), []byte{'\n'})
			var said log
			s := open(t, dir, said.into)
			if st := s.Status(); st.Depth != int64(lines) || lines > 0 && (st.Again == "" || said.count("everything is sent again") != 1) {
				t.Fatalf("status %+v; log %s", st, said.String())
			}
			// New lines, then a restart without having sent any: the mark was
			// mended before they were written.
			put(t, s, 20, 40)
			must(t, s.Close())
			s = open(t, dir)
			l := newLedger()
			drain(t, s, l)
			if got := l.ids(); len(got) != lines+20 {
				t.Errorf("of %d lines the ledger has %d: %v", lines+20, len(got), got)
			}
		})
	}
}

// Every changed byte of a checkpoint, and every shorter one, is noticed.
func TestEveryByteOfACheckpoint(t *testing.T) {
	dir := tempDir(t)
	half(t, dir)
	c := read(t, dir, "spool.checkpoint")
	if again, err := spool.DecodeCheckpoint(c); err != nil || !bytes.Equal(again, c) {
		t.Fatalf("%s: %v", c, err)
	}
	for i := range c {
		changed := bytes.Clone(c)
		changed[i] ^= 4
		for _, b := range [][]byte{changed, c[:i]} {
			if _, err := spool.DecodeCheckpoint(b); err == nil {
				t.Errorf("accepted %s", b)
			}
		}
	}
}

// Lines that wait in full segments survive the loss of the checkpoint too.
func TestTheWholeSpoolIsSentAgain(t *testing.T) {
	dir := tempDir(t)
	small := spool.SegmentsOf(300)
	l := half(t, dir, small)
	must(t, os.Remove(filepath.Join(dir, "spool.checkpoint")))
	s := open(t, dir, small)
	if d := s.Status().Depth; d != 10 {
		t.Fatalf("depth %d", d)
	}
	drain(t, s, l)
	wantIDs(t, l, 0, 10)
	if l.attempts != 15 {
		t.Errorf("%d attempts, want the 5 of before and all 10 again", l.attempts)
	}
}

// A start does not read what was sent long ago, nor what waits in full segments.
func TestAStartReadsLittle(t *testing.T) {
	dir := tempDir(t)
	disk, faulty := spool.Faulty(dir)
	small := spool.SegmentsOf(4 << 10)
	s := open(t, dir, small)
	put(t, s, 0, 20)
	drain(t, s, newLedger()) // so that there is a checkpoint
	put(t, s, 20, 2000)
	ledger := newLedger()
	must(t, s.Close())
	// The counts of full segments come with the next checkpoint.
	s = open(t, dir, small)
	drainSome(t, s, ledger, 200)
	must(t, s.Close())
	old := longAgo()
	for _, name := range segments(t, dir) {
		must(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	s = open(t, dir, small, faulty)
	if d := s.Status().Depth; d != 2000-20-200 {
		t.Errorf("depth %d", d)
	}
	took := disk.Read()
	if all := len(read(t, dir, "spool.jsonl")); took > int64(10*all)+200<<10 {
		t.Errorf("read %d bytes; the growing segment has %d", took, all)
	}
	total := int64(0)
	for _, name := range segments(t, dir) {
		total += int64(len(read(t, dir, name)))
	}
	t.Logf("read %d of %d bytes", took, total)
	if took > total/2 {
		t.Errorf("read %d of %d bytes", took, total)
	}
}

// What cannot be a spool is refused, with the reason.
func TestOpenFails(t *testing.T) {
	dir := tempDir(t)
	must(t, os.Mkdir(filepath.Join(dir, "spool.jsonl"), 0o700))
	if _, err := spool.Open(config(dir)); err == nil {
		t.Error("opened a directory")
	}
	for _, op := range []string{"open", "sync", "dir-sync"} {
		dir := tempDir(t)
		disk, faulty := spool.Faulty(dir)
		disk.Before(func(o, _ string) error {
			if o == op {
				return os.ErrPermission
			}
			return nil
		})
		if _, err := spool.Open(config(dir, faulty)); err == nil {
			t.Errorf("opened, though %s failed", op)
		}
		disk.Before(nil)
		put(t, open(t, dir, faulty), 0, 1)
	}
}

// Requests that were open when the process died are counted, unless their line
// is there.
func TestOpenRequests(t *testing.T) {
	dir := tempDir(t)
	s := open(t, dir)
	for n := range 6 {
		must(t, s.Begin(idOf(n)))
		must(t, s.Begin(idOf(n))) // twice is once
	}
	s.End(idOf(1)) // needed no line
	s.End("other")
	put(t, s, 2, 4) // has one, but died before its end
	must(t, s.Begin(idOf(9)))
	if b := read(t, dir, "spool.open"); len(b) != 6*65 || bytes.Contains(b, []byte("n0")) {
		t.Errorf("journal %q", b)
	}
	must(t, s.Close())
	s = open(t, dir)
	if n := s.Status().Lost; n != 4 {
		t.Errorf("%d lost", n)
	}
	put(t, s, 4, 5) // its owner knows how it ended, and says so late
	put(t, s, 4, 5)
	put(t, s, 7, 8) // was not open
	if n := s.Status().Lost; n != 3 {
		t.Errorf("%d lost after one line came late", n)
	}
	must(t, s.Close())
	if n := open(t, dir).Status().Lost; n != 0 {
		t.Errorf("%d lost at the next start", n)
	}
}

// Requests that end together are written together, where they stand close to each other.
func TestManyRequestsEnd(t *testing.T) {
	dir := tempDir(t)
	disk, faulty := spool.Faulty(dir)
	s := open(t, dir, faulty)
	for n := range 300 {
		must(t, s.Begin(idOf(n)))
	}
	writes := 0
	disk.Before(func(op, name string) error {
		if op == "write" && name == "spool.open" {
			writes++
		}
		return nil
	})
	ended := []string{"unknown", idOf(299)}
	for n := 40; n > 0; n -= 2 {
		ended = append(ended, idOf(n), idOf(n))
	}
	s.End(ended...)
	if writes != 2 {
		t.Errorf("%d writes, want 2", writes)
	}
	s.End()
	must(t, s.Begin("next")) // where one has ended
	must(t, s.Close())
	if b := read(t, dir, "spool.open"); len(b) != 300*65 {
		t.Errorf("the journal has %d bytes", len(b))
	}
	if n := open(t, dir).Status().Lost; n != 300-21+1 {
		t.Errorf("%d lost, want 280", n)
	}
}

func TestTheJournalHasAnEnd(t *testing.T) {
	s := open(t, tempDir(t))
	for n := range spool.MaxOpen {
		must(t, s.Begin(fmt.Sprint(n)))
	}
	if err := s.Begin("more"); err == nil {
		t.Error("one more is noted")
	}
	s.End("7")
	must(t, s.Begin("more"))
}
