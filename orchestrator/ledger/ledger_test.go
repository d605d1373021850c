package ledger_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/orchestrator/ledger"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/storetest"
)

const origin = "chordwheel/test/ledger"

// memory is a storage that forgets nothing and can be made to fail.
type memory struct {
	mu    sync.Mutex
	all   map[string][]byte
	puts  int
	fail  error
	after bool          // the failing Put has stored all the same
	hold  chan struct{} // a Put waits for it
}

func newMemory() *memory { return &memory{all: make(map[string][]byte)} }

func (m *memory) Get(key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[key], nil
}

func (m *memory) Put(records map[string][]byte) error {
	if m.hold != nil {
		<-m.hold
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts++
	if m.fail == nil || m.after {
		maps.Copy(m.all, records)
	}
	return m.fail
}

func (m *memory) copy() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{all: maps.Clone(m.all)}
}

func must(t interface{ Fatal(...any) }, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func open(t interface{ Fatal(...any) }, s ledger.Storage) *ledger.Log {
	l, err := ledger.Open(s, origin, merkle.Checkpoint{})
	must(t, err)
	return l
}

func idOf(n int) ledger.ID {
	return ledger.ID{Transaction: fmt.Sprintf("t%d", n), Message: "m"}
}

func lineOf(n int) []byte { return fmt.Appendf(nil, `{"n":%d}`, n) }

func add(t interface{ Fatal(...any) }, l *ledger.Log, from, to int) {
	for n := from; n < to; n++ {
		_, err := l.Add(context.Background(), idOf(n), lineOf(n))
		must(t, err)
	}
}

// A line stands under its ID once, whoever sends it how often.
func TestIntake(t *testing.T) {
	l := open(t, newMemory())
	ctx := t.Context()
	add(t, l, 0, 3)
	p, err := l.Add(ctx, idOf(1), lineOf(1))
	if err != nil || p != (ledger.Place{Index: 1, Known: true}) {
		t.Errorf("again: %+v, %v", p, err)
	}
	if _, err := l.Add(ctx, idOf(1), lineOf(7)); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("other bytes: %v", err)
	}
	if p, err := l.Add(ctx, ledger.ID{Transaction: "t1", Message: "other"}, lineOf(1)); err != nil || p.Index != 3 || p.Known {
		t.Errorf("the same bytes under another ID: %+v, %v", p, err)
	}
	if n, err := l.Find(idOf(2)); n != 2 || err != nil {
		t.Errorf("found at %d, %v", n, err)
	}
	if _, err := l.Find(idOf(9)); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("found: %v", err)
	}
	if b, err := l.Line(2); !bytes.Equal(b, lineOf(2)) || err != nil {
		t.Errorf("line %s, %v", b, err)
	}
	for name, v := range map[string]struct {
		id   ledger.ID
		line []byte
	}{
		"no line": {idOf(9), nil}, "a long line": {idOf(9), make([]byte, ledger.MaxLine+1)},
		"no transaction": {ledger.ID{Message: "m"}, lineOf(9)}, "no message": {ledger.ID{Transaction: "t"}, lineOf(9)},
		"a line feed": {ledger.ID{Transaction: "t\nm", Message: "m"}, lineOf(9)}, "a long ID": {ledger.ID{Transaction: strings.Repeat("t", 300), Message: "m"}, lineOf(9)},
	} {
		if _, err := l.Add(ctx, v.id, v.line); !errors.Is(err, ledger.ErrLine) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c := l.Checkpoint(); c.Size != 4 {
		t.Errorf("%d lines", c.Size)
	}
	must(t, l.Check())
}

// A hundred times at once: one row, a hundred equal answers; of two different ones
// under one ID the first stays.
func TestIntakeAtOnce(t *testing.T) {
	m := newMemory()
	l := open(t, m)
	var group sync.WaitGroup
	var mu sync.Mutex
	places, conflicts := map[int64]int{}, 0
	for n := range 200 {
		group.Go(func() {
			p, err := l.Add(t.Context(), idOf(0), lineOf(n%2))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				places[p.Index]++
			case errors.Is(err, ledger.ErrConflict):
				conflicts++
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if c := l.Checkpoint(); c.Size != 1 || places[0] != 100 || len(places) != 1 || conflicts != 100 {
		t.Errorf("%d lines, places %v, %d conflicts", c.Size, places, conflicts)
	}
}

// Who comes while a commit is under way shares the next one.
func TestCallersShareACommit(t *testing.T) {
	m := newMemory()
	l := open(t, m)
	m.hold = make(chan struct{})
	var group sync.WaitGroup
	for n := range 300 {
		group.Go(func() {
			if _, err := l.Add(t.Context(), idOf(n), lineOf(n)); err != nil {
				t.Error(err)
			}
		})
		if n == 0 || n == 299 {
			ledger.Wait(l, n) // the first is under way; all others are in line
		}
	}
	close(m.hold)
	group.Wait()
	if m.puts != 2 || l.Checkpoint().Size != 300 {
		t.Errorf("%d commits for %d lines", m.puts, l.Checkpoint().Size)
	}
	must(t, l.Check())
}

// A commit that fails changes nothing, or was done all the same: either way each line
// is there once in the end.
func TestAFailedCommit(t *testing.T) {
	for _, stored := range []bool{false, true} {
		m := newMemory()
		l := open(t, m)
		add(t, l, 0, 70)
		before := l.Checkpoint()
		m.fail, m.after = errors.New("no space"), stored
		if _, err := l.Add(t.Context(), idOf(70), lineOf(70)); !errors.Is(err, m.fail) {
			t.Fatalf("add: %v", err)
		}
		if l.Checkpoint() != before {
			t.Error("the tree moved")
		}
		m.fail = nil
		add(t, l, 71, 75)
		add(t, l, 70, 71)
		if c := l.Checkpoint(); c.Size != 75 {
			t.Errorf("stored %v: %d lines", stored, c.Size)
		}
		must(t, l.Check())
		must(t, open(t, m.copy()).Check())
	}
}

// Whatever is added in whatever batches, over restarts: the root is that of the lines, every
// prefix is consistent with every extension, and every line is included in each
// of them.
func TestProofs(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := newMemory()
		l := open(r, m)
		var checkpoints []merkle.Checkpoint
		n := 0
		for range rapid.IntRange(1, 8).Draw(r, "batches") {
			more := rapid.IntRange(0, 60).Draw(r, "lines")
			add(r, l, n, n+more)
			n += more
			checkpoints = append(checkpoints, l.Checkpoint())
			if rapid.Bool().Draw(r, "restart") {
				l = open(r, m)
			}
		}
		for i, older := range checkpoints {
			for _, newer := range checkpoints[i:] {
				p, err := l.Consistency(older.Size, newer.Size)
				must(r, err)
				must(r, merkle.VerifyConsistency(older, newer, p))
			}
			if older.Size > 0 {
				k := rapid.Int64Range(0, older.Size-1).Draw(r, "line")
				p, err := l.Inclusion(k, older.Size)
				must(r, err)
				must(r, merkle.VerifyInclusion(older, lineOf(int(k)), p))
			}
		}
		if _, err := l.Inclusion(int64(n), int64(n)); !errors.Is(err, ledger.ErrNotFound) {
			r.Fatal(err)
		}
		if _, err := l.Consistency(1, int64(n)+1); !errors.Is(err, ledger.ErrNotFound) {
			r.Fatal(err)
		}
	})
}

// A storage that was restored from a copy, or begun anew, is refused with
// the checkpoint that was signed last; so is one with another past.
func TestForkedAndShortened(t *testing.T) {
	m := newMemory()
	l := open(t, m)
	add(t, l, 0, 10)
	old := m.copy()
	add(t, l, 10, 20)
	newest := l.Checkpoint()
	if _, err := ledger.Open(m, origin, newest); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*memory{"restored": old, "begun anew": newMemory()} {
		if _, err := ledger.Open(s, origin, newest); !errors.Is(err, merkle.ErrShortened) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n, want := range map[int]error{20: merkle.ErrForked, 25: merkle.ErrForked} {
		other := old.copy()
		l := open(t, other)
		add(t, l, 11, n+1)
		if _, err := ledger.Open(other, origin, newest); !errors.Is(err, want) {
			t.Errorf("another past of %d lines: %v", n, err)
		}
	}
	add(t, l, 20, 90)
	if _, err := ledger.Open(m, origin, newest); err != nil {
		t.Error(err)
	}
}

// Each record that is changed or missing is found by a start or by a check.
func TestDamage(t *testing.T) {
	m := newMemory()
	add(t, open(t, m), 0, 100)
	for key, b := range m.all {
		if strings.HasPrefix(key, "id/") {
			continue // found by whoever sends that line again
		}
		for name, spoilt := range map[string][]byte{
			"missing": nil, "changed": append([]byte{b[0] ^ 1}, b[1:]...), "cut": b[:len(b)-1], "other end": append(bytes.Clone(b[:len(b)-1]), b[len(b)-1]^1),
		} {
			damaged := m.copy()
			if damaged.all[key] = spoilt; spoilt == nil {
				delete(damaged.all, key)
			}
			l, err := ledger.Open(damaged, origin, merkle.Checkpoint{})
			if key == "tree" && name == "missing" {
				if err != nil || l.Checkpoint().Size != 0 {
					t.Errorf("without its tree: %v", err) // TestForkedAndShortened is about that
				}
				continue
			}
			if err == nil {
				err = l.Check()
			}
			if !errors.Is(err, ledger.ErrDamaged) {
				t.Errorf("%s %s: %v", key, name, err)
			}
		}
	}
}

// From the tiles alone, as a static server has them, somebody who has a checkpoint gets
// every line and every proof.
func TestTiles(t *testing.T) {
	l := open(t, newMemory())
	const size = 256*3 + 17
	lines := make([][]byte, size)
	for n := range size {
		lines[n] = lineOf(n)
	}
	add(t, l, 0, size)
	c := l.Checkpoint()
	reader := tlog.TileHashReader(tlog.Tree{N: c.Size, Hash: c.Root}, tiles{t, l})
	for _, k := range []int64{0, 255, 256, 700, size - 1} {
		p, err := tlog.ProveRecord(c.Size, k, reader)
		must(t, err)
		must(t, merkle.VerifyInclusion(c, lines[k], merkle.Inclusion{Index: k, Size: c.Size, Hashes: p}))
	}
	var got [][]byte
	for _, path := range []string{"tile/entries/000", "tile/entries/001", "tile/entries/002", "tile/entries/003.p/17"} {
		b, full, err := l.Tile(path)
		if err != nil || full == strings.Contains(path, ".p") {
			t.Fatalf("%s: full %v, %v", path, full, err)
		}
		for len(b) > 0 {
			n := int(binary.BigEndian.Uint16(b))
			got, b = append(got, b[2:2+n]), b[2+n:]
		}
	}
	if len(got) != size || !bytes.Equal(bytes.Join(got, nil), bytes.Join(lines, nil)) {
		t.Errorf("%d lines", len(got))
	}
	for _, path := range []string{
		"tile/0/003", "tile/0/003.p/18", "tile/0/004.p/1", "tile/1/000", "tile/2/000.p/1", "tile/0/x000/001", "tile/8/0/001", "tile/data/000", "tile/0/1",
		"tile/0/000.p/256", "tile/0/000.p/0", "tile/-1/000", "tile/63/000.p/1", "tile/entries/004", "", "tile/", "tile/0/../0/000", "tile/0/x999/x999/x999/x999/x999/x999/x999",
	} {
		if b, _, err := l.Tile(path); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("%q: %d bytes, %v", path, len(b), err)
		}
	}
}

// tiles gives the library the tiles of a ledger.
type tiles struct {
	t *testing.T
	l *ledger.Log
}

func (s tiles) Height() int { return 8 }

func (s tiles) ReadTiles(want []tlog.Tile) ([][]byte, error) {
	var out [][]byte
	for _, w := range want {
		b, _, err := s.l.Tile("tile/" + strings.TrimPrefix(w.Path(), "tile/8/"))
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

func (s tiles) SaveTiles([]tlog.Tile, [][]byte) {}

// In the hub's database, over a restart.
func TestOnBucket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	dir, s := storetest.Open(t, path, store.Options{})
	l := open(t, ledger.OnBucket(s.Bucket("ledger")))
	var group sync.WaitGroup
	for n := range 200 {
		group.Go(func() {
			if _, err := l.Add(t.Context(), idOf(n), lineOf(n)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	before := l.Checkpoint()
	storetest.Close(t, dir, s)
	_, s = storetest.Open(t, path, store.Options{})
	l, err := ledger.Open(ledger.OnBucket(s.Bucket("ledger")), origin, before)
	must(t, err)
	must(t, l.Check())
	if c := l.Checkpoint(); c != before || c.Size != 200 {
		t.Errorf("%+v, was %+v", c, before)
	}
}

func FuzzTile(f *testing.F) {
	l := open(f, newMemory())
	add(f, l, 0, 300)
	for _, path := range []string{"tile/0/000", "tile/0/001.p/44", "tile/1/000.p/1", "tile/entries/001.p/3", "tile/0/x001/000"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		b, full, err := l.Tile(path)
		if err == nil && (len(b) == 0 || full != !strings.Contains(path, ".p/")) || err != nil && !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("%q: %d bytes, full %v, %v", path, len(b), full, err)
		}
	})
}

// BenchmarkAdd is the intake into memory, with what the tree costs.
func BenchmarkAdd(b *testing.B) {
	l := open(b, newMemory())
	n := 0
	for b.Loop() {
		add(b, l, n, n+1)
		n++
	}
}

// BenchmarkAddOnDisk is the intake into the hub's database by 64 at once.
func BenchmarkAddOnDisk(b *testing.B) {
	_, s := storetest.Open(b, filepath.Join(b.TempDir(), "data"), store.Options{})
	l := open(b, ledger.OnBucket(s.Bucket("ledger")))
	n := 0
	for b.Loop() {
		var group sync.WaitGroup
		for range 64 {
			n++
			at := n
			group.Go(func() { add(b, l, at, at+1) })
		}
		group.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/line")
}
