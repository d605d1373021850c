package main

import (
	"runtime"
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
