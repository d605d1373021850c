package store_test

import (
	"fmt"
	"path/filepath"
	"strconv"
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

// A writer is killed at random moments, its first start among them. What it
// was promised is there at the next start, nothing is there by halves, and no
// file is set aside.
func TestKilledAtRandomMoments(t *testing.T) {
	random := storetest.Random(t, *seed)
	path := filepath.Join(t.TempDir(), "data")
	promised := make(map[string]uint64)
	for round := range *kills {
		most := 60 * time.Millisecond
		if round%3 == 0 {
			most = 400 * time.Millisecond
		}
		for _, line := range storetest.Kill(t, random, most, "work", path) {
			var what, of, number string
			if _, err := fmt.Sscan(line, &what, &of, &number); err != nil {
				t.Fatalf("line %q", line)
			}
			n, err := strconv.ParseUint(number, 10, 64)
			must(t, err)
			promised[what+" "+of] = n
		}
		o, log := logged()
		d := start(t, path, o, now)
		for _, slot := range killSlots {
			want, got, mark := promised["chain "+slot.String()], number(d, slot), d.marks.Get(slot).Seq
			if got < want || got > want+uint64(len(killSlots)) || mark != got {
				t.Fatalf("round %d: %s: promised %d, chain %d, mark %d, refused %v", round, slot, want, got, mark, d.refused)
			}
			promised["chain "+slot.String()] = got // of an Accept that was not answered
		}
		var one, two uint64
		ok1, err1 := d.store.Bucket("notes").Get("one", &one)
		ok2, err2 := d.store.Bucket("notes").Get("two", &two)
		if err1 != nil || err2 != nil || ok1 != ok2 || one != two || one < promised["record -"] {
			t.Fatalf("round %d: promised %d, records %d and %d, %v, %v", round, promised["record -"], one, two, err1, err2)
		}
		if s := d.store.Status(); s.Replaced > 0 || s.Skipped > 0 {
			t.Fatalf("round %d: %+v; log: %s", round, s, log)
		}
		stop(t, d)
		must(t, store.Check(filepath.Join(path, "chordwheel.db")))
	}
	t.Logf("%d kills, last promise %v", *kills, promised)
}
