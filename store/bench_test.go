package store_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/storetest"
)

// BenchmarkAccept is a new chain to the disk and into force.
func BenchmarkAccept(b *testing.B) {
	d := start(b, filepath.Join(b.TempDir(), "data"), store.Options{}, now)
	n := uint64(0)
	for b.Loop() {
		n++
		must(b, offer(d, chaintest.Slot, n)) // signing it is in here: 25 µs
	}
}

// BenchmarkChain is what every request does.
func BenchmarkChain(b *testing.B) {
	d := start(b, filepath.Join(b.TempDir(), "data"), store.Options{}, now)
	must(b, offer(d, chaintest.Slot, 1))
	b.ReportAllocs()
	for b.Loop() {
		if d.chains.Get(chaintest.Slot) == nil {
			b.Fatal("no chain")
		}
	}
}

// BenchmarkStart is opening everything with a number of chains, after a stop
// in order and after a kill, when a child process checks the file first.
func BenchmarkStart(b *testing.B) {
	for _, count := range []int{4, 1000} {
		path := filepath.Join(b.TempDir(), fmt.Sprint(count))
		d := start(b, path, store.Options{}, now)
		for i := range count {
			must(b, offer(d, chain.Slot{Scope: chain.ScopeID(fmt.Sprintf("session:%d", i)), Primitive: chain.LLMChat}, 1))
		}
		must(b, d.close())
		b.Run(fmt.Sprintf("%d chains", count), func(b *testing.B) {
			for b.Loop() {
				d, err := openDevice(path, storetest.Options(), now)
				must(b, err)
				if len(d.refused) > 0 {
					b.Fatal(d.refused)
				}
				must(b, d.close())
			}
		})
		b.Run(fmt.Sprintf("%d chains, killed", count), func(b *testing.B) {
			marker := filepath.Join(path, "chordwheel.db.open")
			for b.Loop() {
				must(b, touch(marker))
				d, err := openDevice(path, storetest.Options(), now)
				must(b, err)
				must(b, d.close())
			}
		})
	}
}

// BenchmarkPut is one record to the disk, and a thousand at once.
func BenchmarkPut(b *testing.B) {
	d := start(b, filepath.Join(b.TempDir(), "data"), store.Options{}, now)
	for _, count := range []int{1, 1000} {
		records := make(map[string]any, count)
		for i := range count {
			records[fmt.Sprint(i)] = note{"text", i}
		}
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			for b.Loop() {
				must(b, d.store.Bucket("notes").PutAll(records))
			}
		})
	}
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		var got note
		for b.Loop() {
			if ok, err := d.store.Bucket("notes").Get("0", &got); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
}
