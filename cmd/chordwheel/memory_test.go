package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestHeadroomIsForWhoeverSetNothing(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for set, want := range map[string]bool{"": true, "GOGC": false, "GOMEMLIMIT": false} {
		before := heap()
		release := leaveHeadroom(func(name string) string {
			if name == set {
				return "50"
			}
			return ""
		})
		if after := heap(); want != (after > before+headroom/2) {
			t.Errorf("%q set: from %d to %d bytes, headroom wanted: %v", set, before, after, want)
		}
		release()
	}
}

func TestMemoryIsSparedForWhoeverSetNothing(t *testing.T) {
	usual := debug.SetGCPercent(100)
	defer debug.SetGCPercent(usual)
	for set, want := range map[string]int{"": sparing, "GOGC": 100, "GOMEMLIMIT": 100} {
		release := spareMemory(func(name string) string {
			if name == set {
				return "100"
			}
			return ""
		})
		during := debug.SetGCPercent(100)
		debug.SetGCPercent(during)
		release()
		after := debug.SetGCPercent(100)
		if during != want || after != 100 {
			t.Errorf("%q set: %d %%, and %d %% after", set, during, after)
		}
	}
}
