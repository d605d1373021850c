package executor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"pgregory.net/rapid"
)

// refusal gives the refusal of err, or an empty one.
func refusal(err error) wire.ExecRefusal {
	var r *wire.ExecRefusal
	if errors.As(err, &r) {
		return *r
	}
	return wire.ExecRefusal{}
}

// A process that is killed writes nothing, and the one that follows it knows nothing of
// what was admitted. It admits none of it again: not while the request lasts, and not once
// it is over.
func TestNothingFromBeforeARestartComesAgain(t *testing.T) {
	w := newWorld(t)
	recorded := w.open(t)
	if _, err := w.executor.Admit(w.from, recorded, w.now); err != nil {
		t.Fatal(err)
	}
	unused := func() *wire.ExecOpen { w.next(); return w.open(t) }() // signed before, and not sent
	w.executor = New(executorKey.PeerID(), "BOOT-2", w.device, w.will, Limits{Payload: 1000})
	for name, open := range map[string]*wire.ExecOpen{"admitted before": recorded, "signed before": unused} {
		if r := refusal(func() error { _, err := w.executor.Admit(w.from, open, w.now); return err }()); r.Code != wire.ExecStaleNonce || r.Boot != "BOOT-2" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if c := w.executor.Counts(); c.Admitted != 0 || len(c.Refused) != 0 || len(w.executor.nonces.nonces) != 0 {
		t.Errorf("a question is no refusal, and leaves no trace: %+v", c)
	}
	w.request.Nonce = wire.ExecNonce("BOOT-2", strings.Repeat("n", 16))
	if _, err := w.admit(t); err != nil {
		t.Errorf("an honest submitter asks again with another nonce: %v", err)
	}
	if _, err := w.admit(t); code(err) != wire.ExecReplayed {
		t.Errorf("and that is remembered: %v", err)
	}
	if _, err := w.executor.Admit(w.from, recorded, w.now.Add(time.Minute)); code(err) != wire.ExecExpired {
		t.Errorf("once it is over: %v", err)
	}
}

func TestANonceOfNoBootIsAsked(t *testing.T) {
	for _, nonce := range []string{"no-boot-at-all-in-it", "BOOT-1-and-no-full-stop", "BOOT-12.sixteen-bytes-and-more", "x.BOOT-1.sixteen-bytes-and-more", "boot-1.sixteen-bytes-and-more"} {
		w := newWorld(t)
		w.request.Nonce = nonce
		if _, err := w.admit(t); refusal(err).Code != wire.ExecStaleNonce || refusal(err).Boot != boot {
			t.Errorf("%s: %v", nonce, err)
		}
	}
}

// What is remembered is forgotten by the clock. So a clock that jumps ends the epoch.
func TestAJumpOfTheClockEndsTheEpoch(t *testing.T) {
	for name, c := range map[string]struct {
		wall, steady time.Duration // that pass
		same         bool
	}{
		"time passes":               {time.Hour, time.Hour, true},
		"a clock that is set right": {time.Hour + maxDrift, time.Hour, true},
		"ten minutes ahead":         {10 * time.Minute, 0, false},
		"ten minutes back":          {-10 * time.Minute, 0, false},
		"ten years ahead":           {87600 * time.Hour, time.Second, false},
		"ten years back":            {-87600 * time.Hour, time.Second, false},
		"a machine that slept":      {8 * time.Hour, time.Second, false},
	} {
		e := New(executorKey.PeerID(), boot, nil, nil, Limits{})
		var steady time.Duration
		e.epoch.steady = func(_, _ time.Time) time.Duration { return steady }
		before := e.boot(chaintest.Start)
		e.nonces.add("a", "n", chaintest.Start.Add(time.Hour), chaintest.Start)
		steady = c.steady
		now := chaintest.Start.Add(c.wall)
		after := e.boot(now)
		if before != boot || (after == before) != c.same || (len(e.nonces.nonces) == 1) != c.same || e.boot(now) != after || after == "" || len(after) > wire.MaxBoot {
			t.Errorf("%s: %q, then %q, %d nonces", name, before, after, len(e.nonces.nonces))
		}
	}
}

// However clocks jump and processes end, no nonce is admitted twice.
func TestNoNonceRunsTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		will := &will{device: 1 << 20, scope: 1 << 20}
		will.decision.OK = true
		var steady, began time.Duration // by the monotonic clock
		now, boots := chaintest.Start, 0
		var e *Executor
		start := func() {
			boots++
			e = New(executorKey.PeerID(), fmt.Sprint("BOOT-", boots), nil, will, Limits{})
			e.epoch.steady = func(_, _ time.Time) time.Duration { return steady - began }
			e.boot(now)
			began = steady
		}
		start()
		var signed []wire.ExecRequest
		ran := map[string]bool{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 30).Draw(t, "what") {
			case 0:
				start()
			case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10: // a jump: a small one as well, at which the epoch goes on
				now = now.Add(time.Duration(rapid.SampledFrom([]int{-1000, -31, -29, -20, 20, 29, 31, 1000}).Draw(t, "jump")) * time.Second)
			default:
				d := time.Duration(rapid.IntRange(0, 15).Draw(t, "passes")) * time.Second
				now, steady = now.Add(d), steady+d
			}
			before := e.epoch.id
			id := e.boot(now)
			if id != before {
				began = steady
			}
			if e.nonces.most == maxNonces {
				e.nonces = newWindow(4) // that forgets whenever it can
			}
			r := wire.ExecRequest{Nonce: wire.ExecNonce(id, rapid.StringMatching("[a-f]{16}").Draw(t, "nonce")),
				Expires: chain.InstantOf(now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "life")) * time.Second))}
			if len(signed) > 0 && rapid.Bool().Draw(t, "again") {
				r = rapid.SampledFrom(signed[max(0, len(signed)-8):]).Draw(t, "which")
			}
			signed = append(signed, r)
			if at := chain.InstantOf(now); at >= r.Expires || r.Expires > chain.InstantOf(now.Add(Ahead)) {
				continue // refused before
			}
			no := e.claim(&Job{From: "a", Request: r, executor: e}, now)
			if no == nil && ran[r.Nonce] {
				t.Fatalf("%s ran twice", r.Nonce)
			}
			if no == nil {
				ran[r.Nonce] = true
			} else if !ran[r.Nonce] && no.Code == wire.ExecReplayed {
				t.Fatalf("%s is no replay", r.Nonce)
			}
		}
	})
}

// BenchmarkBoot is what a request costs more than one whose nonce could be anything.
func BenchmarkBoot(b *testing.B) {
	e := New(executorKey.PeerID(), strings.Repeat("b", 26), nil, nil, Limits{})
	r := wire.ExecRequest{Nonce: wire.ExecNonce(strings.Repeat("b", 26), strings.Repeat("n", 26))}
	for b.Loop() {
		if !r.OfBoot(e.boot(time.Now())) {
			b.Fatal("another boot")
		}
	}
}
