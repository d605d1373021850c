package spool_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/store/spool"
	"github.com/chordwheel/chordwheel/store/storetest"
)

// fileLedger takes lines into a file, which outlives the process that is
// killed. What it took twice stands there twice.
type fileLedger struct{ file *os.File }

func (l fileLedger) Send(_ context.Context, line []byte) spool.Outcome {
	if _, err := l.file.Write(append(bytes.Clone(line), '\n')); err != nil {
		return spool.Outcome{Reason: err.Error()}
	}
	return spool.Outcome{Verdict: spool.Accepted}
}

// openLedger opens the ledger's file in dir. A kill in the middle of a write leaves a line
// by halves, which the ledger never said that it has: it is cut off.
func openLedger(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "ledger"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	end, err := f.Seek(0, io.SeekEnd)
	tail := make([]byte, min(end, spool.MaxLine))
	if err == nil {
		_, err = f.ReadAt(tail, end-int64(len(tail)))
	}
	if err == nil {
		err = f.Truncate(end - int64(len(tail)-bytes.LastIndexByte(tail, '\n')-1))
	}
	return f, err
}

const killSegment = 20 << 10

// work appends from several goroutines for ever, also IDs of before with other
// bytes, says what was acknowledged, and hands lines on meanwhile: DIR.
func work(args []string) int {
	if err := os.MkdirAll(args[0], 0o700); err != nil {
		return fail(err)
	}
	f, err := openLedger(args[0])
	if err != nil {
		return fail(err)
	}
	s, err := spool.Open(config(filepath.Join(args[0], "spool"), spool.SegmentsOf(killSegment)))
	if err != nil {
		return fail(err)
	}
	run := time.Now().UnixNano()
	var group sync.WaitGroup
	failed := make(chan error, 20)
	for g := range 8 {
		group.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("%d-%d-%d", run, g, n)
				if n%5 == 4 {
					id = fmt.Sprintf("%d-%d-%d", run, g, n-3) // again, with other bytes
				}
				if err := s.Append(context.Background(), id, lineOf(id, fmt.Sprint(n))); err != nil {
					failed <- err
					return
				}
				storetest.Ack("%s", id)
			}
		})
	}
	group.Go(func() { failed <- s.Drain(context.Background(), fileLedger{f}) })
	return fail(<-failed)
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// promises are the IDs that were acknowledged.
type promises map[string]bool

func (p promises) hear(line string) error {
	if strings.Count(line, "-") != 2 {
		return fmt.Errorf("line %q", line)
	}
	p[line] = true
	return nil
}

// books is what a ledger file was found to have: rows by their IDs, as hashes, and how far
// it was read. Only what came since then is read next time.
type books struct {
	rows map[string][sha256.Size]byte
	read int64
}

// kept opens the spool that is left in dir, hands on what waits, and checks that the ledger
// has every acknowledged line, and that no ID came with different bytes.
func (p promises) kept(dir string) error {
	return p.keptIn(dir, &books{rows: make(map[string][sha256.Size]byte)})
}

func (p promises) keptIn(dir string, b *books) error {
	s, err := spool.Open(config(filepath.Join(dir, "spool"), spool.SegmentsOf(killSegment)))
	if err != nil {
		return err
	}
	defer s.Close()
	f, err := openLedger(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if st := s.Status(); st.Depth > 0 {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if err := s.Drain(ctx, until{fileLedger{f}, func() bool { return s.Status().Depth <= 1 }, cancel}); err != nil {
			return err
		}
	}
	if st := s.Status(); st.Depth != 0 || st.Rejected != 0 {
		return fmt.Errorf("status %+v", st)
	}
	if err := b.readOn(f); err != nil {
		return err
	}
	for id := range p {
		if _, ok := b.rows[id]; !ok {
			return fmt.Errorf("%s was acknowledged and is not in the ledger", id)
		}
	}
	return nil
}

// readOn takes what the ledger file has got since the last time.
func (b *books) readOn(f *os.File) error {
	text, err := io.ReadAll(io.NewSectionReader(f, b.read, 1<<40))
	if err != nil {
		return err
	}
	b.read += int64(len(text))
	for line := range bytes.Lines(text) {
		l, err := label(line)
		if err != nil {
			return fmt.Errorf("the ledger has %q", line)
		}
		sum := sha256.Sum256(line)
		if row, ok := b.rows[l.ID]; ok && row != sum {
			return fmt.Errorf("the ledger has %q, and had other bytes of that ID", line)
		}
		b.rows[l.ID] = sum
	}
	return nil
}

// A writer with a worker is killed at random moments, its first start among them. Every
// acknowledged line is in an idempotent ledger exactly once.
func TestKilledAtRandomMoments(t *testing.T) {
	random := storetest.Random(t, *seed)
	dir := filepath.Join(tempDir(t), "data")
	promised, ledger := make(promises), &books{rows: make(map[string][sha256.Size]byte)}
	for round := range *kills {
		most := 60 * time.Millisecond
		if round%10 == 0 {
			most = 500 * time.Millisecond
		}
		for _, line := range storetest.Kill(t, random, most, "work", dir) {
			must(t, promised.hear(line))
		}
		if round%5 == 4 || round == *kills-1 {
			must(t, os.MkdirAll(dir, 0o700))
			if err := promised.keptIn(dir, ledger); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			// All of it was sent. Eight days later a start drops the full segments; else each one
			// would read the IDs of all rounds before it is killed.
			for _, name := range segments(t, filepath.Join(dir, "spool")) {
				ago := time.Now().Add(-spool.KeepSent - 24*time.Hour)
				must(t, os.Chtimes(filepath.Join(dir, "spool", name), ago, ago))
			}
		}
	}
	t.Logf("%d kills, %d lines acknowledged", *kills, len(promised))
}

// few appends ten lines into small segments, hands them on, and stops: N DIR. It dies
// at its n-th durable step.
func few(args []string) int {
	var n int
	if _, err := fmt.Sscan(args[0], &n); err != nil {
		return fail(err)
	}
	storetest.DieAt(n)
	f, err := openLedger(args[1])
	if err != nil {
		return fail(err)
	}
	s, err := spool.Open(config(filepath.Join(args[1], "spool"), spool.SegmentsOf(200)))
	if err != nil {
		return fail(err)
	}
	acks, err := os.OpenFile(filepath.Join(args[1], "acks"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fail(err)
	}
	for n := range 10 {
		if err := s.Append(context.Background(), idOf(n), lineOf(idOf(n), "")); err != nil {
			return fail(err)
		}
		if _, err := fmt.Fprintf(acks, "a-b-%s\n", idOf(n)); err != nil {
			return fail(err)
		}
	}
	if s.Status().Depth > 0 {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		conflict := conflictAt{fileLedger{f}, idOf(4)}
		if err := s.Drain(ctx, until{conflict, func() bool { return s.Status().Depth <= 1 }, cancel}); err != nil {
			return fail(err)
		}
	}
	return code(s.Close())
}

func code(err error) int {
	if err != nil {
		return fail(err)
	}
	return 0
}

// conflictAt is a ledger that has other bytes under one ID, so that it is set
// aside.
type conflictAt struct {
	spool.Sender
	id string
}

func (c conflictAt) Send(ctx context.Context, line []byte) spool.Outcome {
	if l, _ := label(line); l.ID == c.id {
		return spool.Outcome{Verdict: spool.Conflict, Reason: "conflict"}
	}
	return c.Sender.Send(ctx, line)
}

// The process dies at each durable step in turn: of the start, of appending, of
// ending a segment, of setting a line aside, of the checkpoint.
func TestDiesAtEveryStep(t *testing.T) {
	var dir string
	prepare := func() []string {
		dir = tempDir(t)
		return []string{dir}
	}
	steps := 0
	storetest.AtEveryStep(t, "few", prepare, func(n int, ended bool) {
		steps = n
		promised := make(promises)
		for line := range strings.Lines(string(read(t, dir, "acks"))) {
			promised[strings.TrimPrefix(strings.TrimSpace(line), "a-b-")] = true
		}
		if ended && len(promised) != 10 {
			t.Errorf("%d lines acknowledged", len(promised))
		}
		aside := string(read(t, dir, "spool", "spool.rejected.jsonl"))
		if strings.Contains(aside, idOf(4)) {
			delete(promised, idOf(4))
		} else if ended {
			t.Errorf("set aside %q", aside)
		}
		if err := promised.kept(dir); err != nil {
			t.Errorf("step %d: %v", n, err)
		}
	})
	t.Logf("%d steps", steps)
}

func init() {
	verbs["work"], verbs["few"] = work, few
}
