package spool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/store/spool"
)

// run lets a worker run for a span of virtual time, in a bubble.
func run(t *testing.T, s *spool.Spool, to spool.Sender, span time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	must(t, s.Drain(ctx, to))
}

func answer(v spool.Verdict, reason string) *spool.Outcome {
	return &spool.Outcome{Verdict: v, Reason: reason}
}

// times notes when each attempt came.
type times struct {
	start time.Time
	at    []time.Duration
	do    func(n int, line []byte) spool.Outcome
}

func (s *times) Send(_ context.Context, line []byte) spool.Outcome {
	if s.start.IsZero() {
		s.start = time.Now()
	}
	s.at = append(s.at, time.Since(s.start))
	return s.do(len(s.at)-1, line)
}

// While the other side takes nothing, the same line is offered again, ever
// more rarely, and no other.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, tempDir(t))
		put(t, s, 0, 3)
		sender := &times{do: func(_ int, line []byte) spool.Outcome {
			if l, _ := label(line); l.ID != idOf(0) {
				t.Errorf("offered %s", l.ID)
			}
			return spool.Outcome{Reason: "status 503"}
		}}
		run(t, s, sender, 24*time.Hour)
		if n := len(sender.at); n < 288 || n > 24*60*60/30+20 {
			t.Errorf("%d attempts in a day", n)
		}
		for n := 1; n < len(sender.at); n++ {
			most := min(time.Second<<min(n-1, 20), spool.MaxPause)
			if pause := sender.at[n] - sender.at[n-1]; pause > most || pause < most/10 {
				t.Errorf("pause %d is %v, want at most %v", n, pause, most)
			}
		}
		if st := s.Status(); st.Depth != 3 || st.Reason != "status 503" {
			t.Errorf("status %+v", st)
		}
	})
}

// What the other side asks for is waited, up to five minutes; what nobody can mean
// is not taken for a wish.
func TestRetryAfter(t *testing.T) {
	for after, want := range map[time.Duration][2]time.Duration{
		3 * time.Second:        {3 * time.Second, 3 * time.Second},
		time.Hour:              {spool.MaxPause, spool.MaxPause},
		-time.Second:           {100 * time.Millisecond, time.Second},
		400 * 24 * time.Hour:   {100 * time.Millisecond, time.Second},
		200 * time.Millisecond: {200 * time.Millisecond, 200 * time.Millisecond},
	} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, tempDir(t))
				put(t, s, 0, 1)
				sender := &times{do: func(n int, _ []byte) spool.Outcome {
					if n == 0 {
						return spool.Outcome{After: after, Reason: "status 429"}
					}
					return spool.Outcome{Verdict: spool.Accepted}
				}}
				run(t, s, sender, time.Hour)
				if len(sender.at) != 2 || sender.at[1] < want[0] || sender.at[1] > want[1] {
					t.Errorf("attempts at %v, want %v", sender.at, want)
				}
				if st := s.Status(); st.Depth != 0 || st.Reason != "" {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// A line that the other side calls invalid five times is set aside, and one in
// conflict at once; the others go out.
func TestSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := tempDir(t)
		var said log
		s := open(t, dir, said.into)
		put(t, s, 0, 5)
		l, tries := newLedger(), map[string]int{}
		l.script = func(id string, _ []byte) *spool.Outcome {
			tries[id]++
			switch id {
			case idOf(1):
				return answer(spool.Rejected, "status 400\ninvalid_signature \x1b[31m"+strings.Repeat("x", 500))
			case idOf(3):
				return answer(spool.Conflict, "status 409")
			}
			return nil
		}
		run(t, s, l, time.Hour)
		if got := fmt.Sprint(l.ids()); got != "[n00000 n00002 n00004]" {
			t.Errorf("the ledger has %s", got)
		}
		if tries[idOf(1)] != spool.Rejections || tries[idOf(3)] != 1 {
			t.Errorf("tries %v", tries)
		}
		type row struct {
			Line, Offset, Size  int64
			Spool, Reason, Text string
			At                  time.Time
		}
		var rows []row
		for line := range bytes.Lines(read(t, dir, "spool.rejected.jsonl")) {
			var r row
			must(t, json.Unmarshal(line, &r))
			rows = append(rows, r)
		}
		all := read(t, dir, "spool.jsonl")
		if len(rows) != 2 || rows[0].Line != 2 || rows[1].Line != 4 || rows[1].Reason != "status 409" {
			t.Fatalf("set aside: %+v", rows)
		}
		for _, r := range rows {
			if r.Text+"\n" != string(all[r.Offset:r.Offset+r.Size]) || !strings.HasPrefix(r.Spool, "000001-") || r.At.IsZero() {
				t.Errorf("set aside: %+v", r)
			}
		}
		if r := rows[0].Reason; len(r) > 210 || strings.ContainsAny(r, "\n\x1b") {
			t.Errorf("reason %q", r)
		}
		if st := s.Status(); st.Depth != 0 || st.Rejected != 2 || st.Sent != 3 || said.count("level=ERROR") != 2 {
			t.Errorf("status %+v; log %s", st, said.String())
		}
	})
}

// A line that cannot be set aside, because the disk takes nothing, stays in hand.
func TestSetAsideLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := tempDir(t)
		disk, faulty := spool.Faulty(dir)
		s := open(t, dir, faulty)
		put(t, s, 0, 2)
		l := newLedger()
		l.script = func(id string, _ []byte) *spool.Outcome {
			if id == idOf(0) {
				return answer(spool.Conflict, "status 409")
			}
			return nil
		}
		disk.Before(func(op, name string) error {
			if op == "write" && strings.HasPrefix(name, "spool.rejected") {
				return errors.New("no space")
			}
			return nil
		})
		run(t, s, l, time.Hour)
		if len(l.ids()) != 0 || s.Status().Depth != 2 || s.Status().Reason != "no space" {
			t.Fatalf("the ledger has %v, status %+v", l.ids(), s.Status())
		}
		disk.Before(nil)
		run(t, s, l, time.Hour)
		rows := bytes.Split(bytes.TrimSpace(read(t, dir, "spool.rejected.jsonl")), []byte("\n"))
		if fmt.Sprint(l.ids()) != "[n00001]" || !json.Valid(rows[len(rows)-1]) {
			t.Errorf("the ledger has %v; set aside %s", l.ids(), rows)
		}
	})
}

// What was damaged on disk is not sent, not skipped in silence, and keeps nothing else
// from going out.
func TestDamagedLines(t *testing.T) {
	for name, damage := range map[string]string{
		"flipped":    "\x00{broken",
		"empty":      "",
		"no text":    "\xff\xfe\xfd",
		"a number":   "17",
		"not ours":   `{"other":1}`,
		"cut":        `{"id":"n0`,
		"zeros":      strings.Repeat("\x00", 5000),
		"very long":  `{"id":"` + strings.Repeat("x", spool.MaxLine) + `"}`,
		"endless":    strings.Repeat("x", 1<<20),
		"just right": "",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := tempDir(t)
				var b bytes.Buffer
				for n := range 3 {
					fmt.Fprintf(&b, "%s\n", lineOf(idOf(n), ""))
					if n == 0 && name != "just right" {
						fmt.Fprintf(&b, "%s\n", damage)
					}
				}
				write(t, b.Bytes(), dir, "spool.jsonl")
				var said log
				s := open(t, dir, said.into)
				l := newLedger()
				run(t, s, l, time.Hour)
				wantIDs(t, l, 0, 3)
				rows := bytes.Count(read(t, dir, "spool.rejected.jsonl"), []byte("damaged"))
				if want := map[bool]int{true: 0, false: 1}[name == "just right"]; rows != want || said.count("set aside") != want || s.Status().Depth != 0 {
					t.Errorf("%d set aside, status %+v, log %s", rows, s.Status(), said.String())
				}
			})
		})
	}
}

// Depth and age warn, once per interval.
func TestAlerts(t *testing.T) {
	down := &times{do: func(int, []byte) spool.Outcome { return spool.Outcome{Reason: "status 500"} }}
	for name, with := range map[string]func(*spool.Config){
		"depth": func(c *spool.Config) { c.Alert, c.AlertAge = 3, 1000*time.Hour },
		"age":   func(c *spool.Config) { c.Alert, c.AlertAge = 100, 30*time.Second },
		"none":  func(c *spool.Config) { c.Alert, c.AlertAge = 4, 1000*time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said log
				s := open(t, tempDir(t), with, said.into)
				put(t, s, 0, 4)
				run(t, s, down, 10*time.Minute)
				n := said.count("lines wait in the spool")
				if name == "none" && n != 0 || name != "none" && (n < 8 || n > 11 || said.count("depth=4") != n || said.count("age=") != n || name == "age" && said.count("age=0s") > 0 || !strings.Contains(said.String(), `reason="status 500"`)) {
					t.Errorf("%d warnings: %s", n, said.String())
				}
				if st := s.Status(); st.Oldest.IsZero() {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// A sender that hangs is ended; appending goes on meanwhile.
func TestAHangingSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, tempDir(t))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		hang := hanging{begun: make(chan struct{}, 1000)}
		put(t, s, 0, 1)
		go func() { ended <- s.Drain(ctx, hang) }()
		<-hang.begun
		before := time.Now()
		put(t, s, 1, 100)
		if d := time.Since(before); d > 0 {
			t.Errorf("appending waited %v for the other side", d)
		}
		if err := s.Drain(t.Context(), hang); !errors.Is(err, spool.ErrDraining) {
			t.Errorf("a second worker: %v", err)
		}
		<-hang.begun
		if d := time.Since(before); d < spool.SendTimeout || d > spool.SendTimeout+time.Second {
			t.Errorf("the next attempt came after %v", d)
		}
		cancel()
		must(t, <-ended)
		if d := s.Status().Depth; d != 100 {
			t.Errorf("depth %d", d)
		}
	})
}

type hanging struct{ begun chan struct{} }

func (h hanging) Send(ctx context.Context, _ []byte) spool.Outcome {
	h.begun <- struct{}{}
	<-ctx.Done()
	return spool.Outcome{Reason: "timeout"}
}

// A hundred thousand lines wait for an hour: memory stays flat, and all go out. The hour is
// virtual, what comes behind it is not, and its rate is printed.
func TestDownForAnHour(t *testing.T) {
	dir := tempDir(t)
	lines := 100_000
	if underRace {
		lines = 10_000 // it takes a minute there
	}
	var b bytes.Buffer
	for n := range lines {
		fmt.Fprintf(&b, "%s\n", lineOf(idOf(n), strings.Repeat("h", 500)))
	}
	write(t, b.Bytes(), dir, "spool.jsonl")
	size := b.Len()
	b = bytes.Buffer{}
	synctest.Test(t, func(t *testing.T) {
		s := open(t, dir)
		before := heap()
		refusing := &times{do: func(int, []byte) spool.Outcome { return spool.Outcome{Reason: "refused"} }}
		run(t, s, refusing, time.Hour)
		if d := s.Status().Depth; d != int64(lines) {
			t.Fatalf("depth %d", d)
		}
		if after := heap(); after > before+1<<20 {
			t.Errorf("heap %d before the hour, %d behind it", before, after)
		}
	})
	s := open(t, dir)
	before, most, taken := heap(), uint64(0), 0
	began := time.Now()
	drain(t, s, taking(func() {
		if taken++; taken%20_000 == 0 {
			most = max(most, heap())
		}
	}))
	if st := s.Status(); st.Depth != 0 || st.Sent != int64(lines) {
		t.Fatalf("status %+v", st)
	}
	if most > before+4<<20 {
		t.Errorf("heap %d before, %d while %d bytes went out", before, most, size)
	}
	t.Logf("%d lines went out, %.0f a second, to somebody who takes them at once", lines, float64(lines)/time.Since(began).Seconds())
}

// taking takes every line and is told of each.
type taking func()

func (f taking) Send(context.Context, []byte) spool.Outcome {
	f()
	return spool.Outcome{Verdict: spool.Accepted}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The checkpoint may fail for as long as it likes: lines go out all the same,
// and it is said once.
func TestACheckpointThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := tempDir(t)
		disk, faulty := spool.Faulty(dir)
		var said log
		s := open(t, dir, faulty, said.into)
		put(t, s, 0, 2*spool.SaveLines)
		disk.Before(func(op, name string) error {
			if op == "rename" {
				return os.ErrPermission
			}
			return nil
		})
		l := newLedger()
		run(t, s, l, time.Hour)
		wantIDs(t, l, 0, 2*spool.SaveLines)
		if n := said.count("cannot write the spool's checkpoint"); n != 1 {
			t.Errorf("said %d times", n)
		}
		disk.Before(nil)
		put(t, s, 2*spool.SaveLines, 2*spool.SaveLines+1)
		run(t, s, l, time.Hour)
		must(t, s.Close())
		if d := open(t, dir).Status().Depth; d != 0 {
			t.Errorf("depth %d after a restart", d)
		}
	})
}
