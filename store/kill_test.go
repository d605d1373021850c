package store_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/storetest"
)

var killSlots = []chain.Slot{chaintest.Slot, {Scope: "session:s", Primitive: chain.LLMChat}}

// work accepts chains and stores records for ever, and says what was promised
// to be on disk: DIR.
func work(args []string) int {
	d, err := openDevice(args[0], storetest.Options(), now)
	if err != nil {
		return fail(err)
	}
	n := uint64(1)
	for _, slot := range killSlots {
		n = max(n, d.marks.Get(slot).Seq+1)
	}
	for ; ; n++ {
		slot := killSlots[n%uint64(len(killSlots))]
		if err := offer(d, slot, n); err != nil {
			return fail(err)
		}
		storetest.Ack("chain %s %d", slot, n)
		if err := d.store.Bucket("notes").PutAll(map[string]any{"one": n, "two": n, fmt.Sprint(n): n}); err != nil {
			return fail(err)
		}
		storetest.Ack("record - %d", n)
		if n > 50 {
			if err := d.store.Bucket("notes").Delete(fmt.Sprint(n - 50)); err != nil {
				return fail(err)
			}
		}
	}
}

// promises are the highest numbers that work said to be on disk.
type promises map[string]uint64

// hear takes up a line of work.
func (p promises) hear(line string) error {
	var what, of string
	var n uint64
	if _, err := fmt.Sscan(line, &what, &of, &n); err != nil {
		return fmt.Errorf("line %q", line)
	}
	p[what+" "+of] = n
	return nil
}

// kept checks that what was promised is there, and nothing by halves. What was
// stored and not promised yet counts as promised from then on.
func (p promises) kept(d device) error {
	for _, slot := range killSlots {
		want, got, mark := p["chain "+slot.String()], number(d, slot), d.marks.Get(slot).Seq
		if got < want || got > want+uint64(len(killSlots)) || mark != got {
			return fmt.Errorf("%s: promised %d, chain %d, mark %d, refused %v", slot, want, got, mark, d.refused)
		}
		p["chain "+slot.String()] = got
	}
	var one, two uint64
	ok1, err1 := d.store.Bucket("notes").Get("one", &one)
	ok2, err2 := d.store.Bucket("notes").Get("two", &two)
	if err1 != nil || err2 != nil || ok1 != ok2 || one != two || one < p["record -"] {
		return fmt.Errorf("promised %d, records %d and %d, %v, %v", p["record -"], one, two, err1, err2)
	}
	if s := d.store.Status(); s.Replaced > 0 || s.Skipped > 0 {
		return fmt.Errorf("status %+v", s)
	}
	return nil
}

// A writer is killed at random moments, its first start among them. What it
// was promised is there at the next start, nothing is there by halves, and no
// file is set aside.
func TestKilledAtRandomMoments(t *testing.T) {
	random := storetest.Random(t, *seed)
	path := filepath.Join(t.TempDir(), "data")
	promised := make(promises)
	for round := range *kills {
		most := 60 * time.Millisecond
		if round%3 == 0 {
			most = 400 * time.Millisecond
		}
		for _, line := range storetest.Kill(t, random, most, "work", path) {
			must(t, promised.hear(line))
		}
		o, log := logged()
		d := start(t, path, o, now)
		if err := promised.kept(d); err != nil {
			t.Fatalf("round %d: %v; log: %s", round, err, log)
		}
		stop(t, d)
		must(t, store.Check(filepath.Join(path, "chordwheel.db")))
	}
	t.Logf("%d kills, last promise %v", *kills, promised)
}
