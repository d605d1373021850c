package spool_test

import (
	"bytes"
	"context"
	"fmt"
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

const killSegment = 20 << 10

// work appends from several goroutines for ever, also IDs of before with other
// bytes, says what was acknowledged, and hands lines on meanwhile: DIR.
func work(args []string) int {
	if err := os.MkdirAll(args[0], 0o700); err != nil {
		return fail(err)
	}
	f, err := os.OpenFile(filepath.Join(args[0], "ledger"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
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

// kept opens the spool that is left in dir, hands on what waits, and checks that the ledger
// has every acknowledged line, and that no ID came with different bytes.
func (p promises) kept(dir string) error {
	s, err := spool.Open(config(filepath.Join(dir, "spool"), spool.SegmentsOf(killSegment)))
	if err != nil {
		return err
	}
	defer s.Close()
	f, err := os.OpenFile(filepath.Join(dir, "ledger"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
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
	b, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	rows := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		l, err := label([]byte(line))
		if err != nil {
			return fmt.Errorf("the ledger has %q", line)
		}
		if row, ok := rows[l.ID]; ok && row != line {
			return fmt.Errorf("the ledger has %q and %q", row, line)
		}
		rows[l.ID] = line
	}
	for id := range p {
		if _, ok := rows[id]; !ok {
			return fmt.Errorf("%s was acknowledged and is not in the ledger", id)
		}
	}
	return nil
}

// A writer with a worker is killed at random moments, its first start among them. Every
// acknowledged line is in an idempotent ledger exactly once.
func TestKilledAtRandomMoments(t *testing.T) {
	random := storetest.Random(t, *seed)
	dir := filepath.Join(tempDir(t), "data")
	promised := make(promises)
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
			if err := promised.kept(dir); err != nil {
				t.Fatalf("round %d: %v", round, err)
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
	f, err := os.OpenFile(filepath.Join(args[1], "ledger"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
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
