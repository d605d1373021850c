package spool_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/store/spool"
)

// slow is a ledger that takes a line a second, and notes how many it was given at once.
type slow struct {
	*ledger
	open, most int
}

func (l *slow) Send(ctx context.Context, line []byte) spool.Outcome {
	l.mu.Lock()
	l.open++
	l.most = max(l.most, l.open)
	l.mu.Unlock()
	time.Sleep(time.Second)
	l.mu.Lock()
	l.open--
	l.mu.Unlock()
	return l.ledger.Send(ctx, line)
}

// Ten thousand receipts in a hundred seconds, against a ledger that takes one a second: whoever appends
// never waits for it, it is given one at a time, how much waits and since when shows, a
// warning comes once a minute, and after nearly three hours it has them all, in their order.
func TestALedgerThatIsSlowForHours(t *testing.T) {
	const lines, second = 10_000, 100
	synctest.Test(t, func(t *testing.T) {
		var said log
		s := open(t, tempDir(t), said.into)
		l := &slow{ledger: newLedger()}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		began := time.Now()
		go func() { ended <- s.Drain(ctx, l) }()
		for n := 0; n < lines; n += second {
			before := time.Now()
			put(t, s, n, n+second)
			if d := time.Since(before); d > 0 {
				t.Fatalf("appending waited %v for the ledger", d)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if st := s.Status(); st.Depth < lines-second-1 || st.Depth > lines-second+1 || st.Oldest.Sub(began).Abs() > 2*time.Second || !st.Writable {
			t.Errorf("after the rush: %+v", st)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if st := s.Status(); st.Depth < lines-second-3602 || st.Depth > lines-second-3598 || st.Oldest.Sub(began) < 30*time.Second {
			t.Errorf("an hour later: %+v", st)
		}
		time.Sleep(time.Until(began.Add((lines + 5) * time.Second)))
		synctest.Wait()
		if st := s.Status(); st.Depth != 0 || st.Sent != lines {
			t.Errorf("in the end: %+v", st)
		}
		cancel()
		must(t, <-ended)
		wantIDs(t, l.ledger, 0, lines)
		if l.most != 1 || l.attempts != lines {
			t.Errorf("%d at once, %d attempts", l.most, l.attempts)
		}
		if n, minutes := said.count("lines wait in the spool"), lines/60; n < minutes/2 || n > minutes+1 {
			t.Errorf("%d warnings in %d minutes", n, minutes)
		}
	})
}
