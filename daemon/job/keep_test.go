package job

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// disk is a bucket in memory.
type disk struct {
	mu      sync.Mutex
	records map[string][]byte
	batches int
	broken  bool
}

func (d *disk) PutAll(records map[string]any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		return errors.New("no space left")
	}
	d.batches++
	for key, v := range records {
		d.records[key] = v.([]byte)
	}
	return nil
}

func (d *disk) Delete(keys ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		delete(d.records, key)
	}
	return nil
}

func (d *disk) Each(f func(key string, decode func(v any) error) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(d.records)) {
		err := f(key, func(v any) error { *v.(*[]byte) = d.records[key]; return nil })
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) breaks(broken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = broken
}

// run runs table until the function it gives is called.
func run(table *Table) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { table.Run(ctx) })
	return func() { cancel(); group.Wait() }
}

// TestARestart: what had ended is there again, what had not is failed with its
// reason and given back, and what belongs to nothing goes.
func TestARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &disk{records: map[string][]byte{"damaged": []byte("{"), "orphan": []byte(`{"id":"orphan","root":"gone","role":"subtask","state":"done","created":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:00Z"}`)}}
		table := NewTable(kept)
		stop := run(table)
		ended := open(t, table, Record{Role: Root, RequestID: "one"})
		score := 0.5
		must(t, table.Accept(ended, Place{Option: "a/b"}))
		must(t, table.End(ended, Done, "", func(r *Record) { r.First = &score }))
		root := open(t, table, Record{Role: Root, RequestID: "two", Transaction: "tx"})
		part := open(t, table, Record{Root: root, Role: Subtask, Task: "s1"})
		stop()

		time.Sleep(time.Minute)
		again := NewTable(kept)
		failed, err := again.Load()
		must(t, err)
		if len(failed) != 2 || failed[0].ID != root || failed[0].Transaction != "tx" || failed[1].ID != part || failed[1].Reason != Restart || !failed[1].Ended.After(failed[1].Created) {
			t.Errorf("failed by the restart: %+v", failed)
		}
		if r, _ := again.Get(ended); r.State != Done || *r.First != score {
			t.Errorf("what had ended: %+v", r)
		}
		if tree := again.Tree("two"); len(tree) != 2 || tree[0].State != Failed {
			t.Errorf("%+v", tree)
		}
		if err := again.End(part, Done, "", nil); !errors.Is(err, ErrTransition) {
			t.Errorf("a result from before the restart: %v", err)
		}
		if n := again.Counts().Damaged; n != 1 {
			t.Errorf("%d damaged", n)
		}
		run(again)()
		third := NewTable(kept)
		if failed, err := third.Load(); err != nil || len(failed) > 0 || len(kept.records) != 3 {
			t.Errorf("the next start: %v, %v, %d records", failed, err, len(kept.records))
		}
	})
}

// TestWritingBehind: many changes are few writes, a broken disk loses nothing that
// it takes later, and what is forgotten goes from it too.
func TestWritingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &disk{records: map[string][]byte{}, broken: true}
		table := NewTable(kept)
		stop := run(table)
		id := open(t, table, Record{Role: Root})
		time.Sleep(10 * flushWait)
		if n := table.Counts().Unkept; n < 5 {
			t.Errorf("%d writes were tried on a broken disk", n)
		}
		kept.breaks(false)
		time.Sleep(2 * flushWait)
		synctest.Wait()
		if kept.records[id] == nil || kept.batches != 1 {
			t.Errorf("%d batches, %s", kept.batches, kept.records[id])
		}
		for range 2 * MaxRoots {
			must(t, table.Settle(open(t, table, Record{Role: Root}), Cancelled, ""))
		}
		time.Sleep(2 * flushWait)
		synctest.Wait()
		if len(kept.records) != MaxRoots+1 || kept.batches != 2 {
			t.Errorf("%d records after %d batches", len(kept.records), kept.batches)
		}
		stop()
	})
}

// FuzzDecode: a kept record is foreign input. What is taken is bounded and can be
// kept again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"id":"k","root":"k","role":"root","state":"done","created":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:01Z","score":0.5,"after":["s1"]}`))
	f.Add([]byte(`{"id":"k","root":"k","role":"root","state":"running","created":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"id":"k","root":"k","role":"root","state":"done","created":"2026-01-01T00:00:00Z","device":"` + strings.Repeat("x", 999) + `"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode("k", b)
		if err != nil {
			return
		}
		out, err := json.Marshal(r)
		if err != nil || len(out) > maxRecord {
			t.Fatalf("%d bytes, %v", len(out), err)
		}
		if _, err := decode("k", out); err != nil {
			t.Fatalf("what was taken is not taken again: %v", err)
		}
	})
}
