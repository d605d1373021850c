package spool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/store/spool"
	"github.com/chordwheel/chordwheel/store/storetest"
)

var (
	kills = flag.Int("kills", 50, "how often to kill a writer")
	seed  = flag.Uint64("seed", 0, "seed of random tests; 0: the clock's")
)

var verbs = map[string]storetest.Verb{}

func TestMain(m *testing.M) { storetest.Main(m, verbs) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// note is what the lines of these tests are.
type note struct {
	ID   string    `json:"id"`
	At   time.Time `json:"at"`
	Text string    `json:"text,omitempty"`
}

func label(line []byte) (spool.Label, error) {
	var n note
	if err := json.Unmarshal(line, &n); err != nil || n.ID == "" {
		return spool.Label{}, errors.New("no note")
	}
	return spool.Label{ID: n.ID, At: n.At}, nil
}

func lineOf(id, text string) []byte {
	b, err := json.Marshal(note{ID: id, At: time.Now().UTC(), Text: text})
	if err != nil {
		panic(err)
	}
	return b
}

func idOf(n int) string { return fmt.Sprintf("n%05d", n) }

// tempDir gives a directory in memory where there is one: a sync costs nothing
// there, and most tests are not about the disk.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "spool")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// open opens the spool in dir and closes it at the end of the test.
func open(t testing.TB, dir string, with ...func(*spool.Config)) *spool.Spool {
	t.Helper()
	s, err := spool.Open(config(dir, with...))
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func config(dir string, with ...func(*spool.Config)) spool.Config {
	c := spool.Config{Dir: dir, Label: label}
	for _, w := range with {
		w(&c)
	}
	return c
}

// put appends the notes from..to-1.
func put(t testing.TB, s *spool.Spool, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		must(t, s.Append(t.Context(), idOf(n), lineOf(idOf(n), "")))
	}
}

// ledger takes lines as an idempotent intake does. Before that, script may answer instead.
type ledger struct {
	script func(id string, line []byte) *spool.Outcome

	mu       sync.Mutex
	rows     map[string]string
	order    []string // IDs in which rows came
	attempts int
}

func newLedger() *ledger { return &ledger{rows: make(map[string]string)} }

func (l *ledger) Send(_ context.Context, line []byte) spool.Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts++
	lab, err := label(line)
	if err != nil {
		return spool.Outcome{Verdict: spool.Rejected, Reason: "no note"}
	}
	if l.script != nil {
		if out := l.script(lab.ID, line); out != nil {
			return *out
		}
	}
	if row, ok := l.rows[lab.ID]; ok && row != string(line) {
		return spool.Outcome{Verdict: spool.Conflict, Reason: "conflict"}
	} else if !ok {
		l.rows[lab.ID] = string(line)
		l.order = append(l.order, lab.ID)
	}
	return spool.Outcome{Verdict: spool.Accepted}
}

func (l *ledger) ids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.order)
}

// drain hands everything on and stops. It needs no clock: it ends when the
// depth is 0.
func drain(t testing.TB, s *spool.Spool, to spool.Sender) {
	t.Helper()
	if s.Status().Depth == 0 {
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := s.Drain(ctx, until{to, func() bool { return s.Status().Depth <= 1 }, cancel})
	must(t, err)
	if d := s.Status().Depth; d != 0 {
		t.Fatalf("%d lines are left", d)
	}
}

// until ends a drain with the line at which last reports true; where there is
// none, the test's end does.
type until struct {
	spool.Sender
	last   func() bool
	cancel func()
}

func (u until) Send(ctx context.Context, line []byte) spool.Outcome {
	out := u.Sender.Send(ctx, line)
	if out.Verdict == spool.Accepted && u.last() {
		u.cancel()
	}
	return out
}

func wantIDs(t testing.TB, l *ledger, from, to int) {
	t.Helper()
	var want []string
	for n := from; n < to; n++ {
		want = append(want, idOf(n))
	}
	if got := l.ids(); !slices.Equal(got, want) {
		t.Fatalf("the ledger has %d rows %s, want %d", len(got), clipped(got), len(want))
	}
}

func clipped(ids []string) string {
	text := strings.Join(ids, " ")
	return text[:min(len(text), 300)]
}

func read(t testing.TB, parts ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parts...))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, b []byte, parts ...string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(parts...), b, 0o600))
}

// log collects what a spool says, one line per message.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *log) into(c *spool.Config) { c.Log = slog.New(slog.NewTextHandler(l, nil)) }

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// drainSome hands n lines on and stops.
func drainSome(t testing.TB, s *spool.Spool, to spool.Sender, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	must(t, s.Drain(ctx, until{to, func() bool { n--; return n == 0 }, cancel}))
}

// longAgo is when files were written that nobody remembers.
func longAgo() time.Time { return time.Now().Add(-2 * spool.KeepIDs) }
