package witness_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/daemon/audit"
	"github.com/chordwheel/chordwheel/daemon/witness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const origin = "chordwheel/m/ledger"

var private = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))

// ledger is a tree that says what it wants to whom.
type ledger struct {
	mu     sync.Mutex
	hashes []tlog.Hash
	size   int64
	away   error
	asked  int
}

func (l *ledger) ReadHashes(at []int64) (out []tlog.Hash, err error) {
	for _, i := range at {
		out = append(out, l.hashes[i])
	}
	return out, nil
}

// grown gives a ledger of the lines x0, x1, … where prefix is x until line from.
func grown(n, from int, other string) *ledger {
	l := &ledger{}
	for i := range n {
		line := fmt.Sprint("x", i)
		if i >= from {
			line = other + fmt.Sprint(i)
		}
		more, err := tlog.StoredHashes(int64(i), []byte(line), l)
		if err != nil {
			panic(err)
		}
		l.hashes = append(l.hashes, more...)
		l.size++
	}
	return l
}

func (l *ledger) at(size int64) []byte {
	root, err := tlog.TreeHash(size, l)
	if err != nil {
		panic(err)
	}
	signed, err := merkle.Checkpoint{Origin: origin, Size: size, Root: root}.Sign(private)
	if err != nil {
		panic(err)
	}
	return signed
}

func (l *ledger) Checkpoint(context.Context) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.away != nil {
		return nil, l.away
	}
	return l.at(l.size), nil
}

func (l *ledger) Consistency(_ context.Context, from, to int64) (c merkle.Consistency, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to > l.size {
		return c, audit.ErrNotFound
	}
	p, err := tlog.ProveTree(to, from, l)
	return merkle.Consistency{From: from, To: to, Hashes: p}, err
}

// disk keeps the state in memory.
type disk map[string][]byte

func (d disk) ReadChecked(name string) ([]byte, error) {
	if b, ok := d[name]; ok {
		return b, nil
	}
	return nil, fs.ErrNotExist
}

func (d disk) WriteChecked(name string, b []byte) error { d[name] = b; return nil }

func watch(l *ledger, d disk) *witness.Witness {
	w := witness.New(l, d, slog.New(slog.DiscardHandler))
	w.Watch(origin, private.Public().(ed25519.PublicKey))
	return w
}

func look(t *testing.T, w *witness.Witness) {
	t.Helper()
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A ledger that only grows is no news, whoever saw which of its checkpoints.
func TestALedgerThatGrows(t *testing.T) {
	l, d := grown(20, 20, ""), disk{}
	w := watch(l, d)
	if w.Newest() != nil {
		t.Error("there is a checkpoint before any was seen")
	}
	w.Heard(l.at(5)) // the first is taken as it is
	w.Heard(l.at(3))
	w.Heard(l.at(12))
	w.Heard(l.at(5))
	look(t, w)
	if p := w.Problem(); p != "" || !bytes.Equal(w.Newest(), l.at(20)) || !bytes.Equal(d[witness.SeenFile], l.at(20)) {
		t.Errorf("%s: %s", p, w.Newest())
	}
	if again := watch(l, d); !bytes.Equal(again.Newest(), l.at(20)) {
		t.Error("a restart forgot the newest checkpoint")
	}
	other := witness.New(l, d, slog.New(slog.DiscardHandler))
	other.Watch("chordwheel/other/ledger", private.Public().(ed25519.PublicKey))
	if other.Newest() != nil {
		t.Error("what was seen of another ledger counts")
	}
}

// Two devices that a ledger shows two pasts find out when they meet, and keep both
// checkpoints.
func TestASplitViewShows(t *testing.T) {
	for name, c := range map[string]struct {
		mine, theirs int64 // sizes of what we and a peer saw
		fork         int   // from which line on theirs is another; 99: it is longer and hidden from us
		want         string
	}{
		"the same size":             {10, 10, 7, "two roots for 10 lines"},
		"theirs is larger":          {10, 15, 7, "does not know them"},
		"theirs is smaller":         {15, 10, 7, "forked"},
		"the same past, more of it": {10, 15, 99, "does not know them"},
	} {
		t.Run(name, func(t *testing.T) {
			mine, theirs, d := grown(int(c.mine), 99, ""), grown(int(c.theirs), c.fork, "y"), disk{}
			w := watch(mine, d)
			look(t, w)
			w.Heard(theirs.at(c.theirs))
			look(t, w)
			if p := w.Problem(); !strings.Contains(p, c.want) {
				t.Errorf("%q, want %s", p, c.want)
			}
			var s witness.Split
			if err := json.Unmarshal(d[witness.SplitFile], &s); err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{s.Older, s.Newer} {
				if _, err := merkle.OpenCheckpoint([]byte(text), origin, private.Public().(ed25519.PublicKey)); err != nil {
					t.Errorf("evidence %q: %v", text, err)
				}
			}
			if again := watch(mine, d); again.Problem() != w.Problem() {
				t.Error("a restart forgot it")
			}
		})
	}
}

// The ledger itself shows a shorter past than before.
func TestALedgerThatShrank(t *testing.T) {
	l := grown(20, 20, "")
	w := watch(l, disk{})
	look(t, w)
	l.size = 15
	look(t, w)
	if p := w.Problem(); !strings.Contains(p, "shortened") {
		t.Error(p)
	}
}

// What the ledger's key did not sign is no evidence, whatever it says.
func TestWhatTheLedgerDidNotSign(t *testing.T) {
	l := grown(10, 10, "")
	w := watch(l, disk{})
	look(t, w)
	forged, _ := merkle.Checkpoint{Origin: origin, Size: 10}.Sign(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32)))
	other, _ := merkle.Checkpoint{Origin: "chordwheel/n/ledger", Size: 10}.Sign(private)
	for _, b := range [][]byte{nil, []byte("x"), forged, other, bytes.Replace(l.at(10), []byte("\n10\n"), []byte("\n11\n"), 1)} {
		w.Heard(b)
	}
	look(t, w)
	if p := w.Problem(); p != "" {
		t.Error(p)
	}
	nobody := witness.New(l, disk{}, slog.New(slog.DiscardHandler))
	nobody.Heard(l.at(10))
	if err := nobody.Look(t.Context()); err != nil || nobody.Newest() != nil {
		t.Error(err)
	}
}

// The ledger is asked once in an hour, soon after a peer showed what needs a proof, and
// again where it was away; however much peers show, once a minute at most.
func TestWhenTheLedgerIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := grown(30, 30, "")
		w := watch(l, disk{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		asked := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.asked != want {
				t.Errorf("asked %d times, want %d", l.asked, want)
			}
		}
		asked(time.Minute+time.Second, 1)
		asked(time.Hour, 2)
		for i := range int64(29) {
			w.Heard(l.at(i + 1))
		}
		asked(time.Minute, 3)
		asked(time.Minute, 3)
		l.mu.Lock()
		l.away = errors.New("away")
		l.mu.Unlock()
		w.Heard(l.at(7))
		asked(0, 4) // the last time was a minute ago
		asked(time.Minute, 5)
		l.mu.Lock()
		l.away = nil
		l.mu.Unlock()
		asked(time.Minute, 6)
		asked(time.Minute, 6)
		if p := w.Problem(); p != "" {
			t.Error(p)
		}
		cancel()
		<-done
	})
}
