package main

import (
	"runtime"
	"runtime/debug"
)

// headroom is how much the collector believes to be in use beside what is.
const headroom = 32 << 20

// leaveHeadroom makes the garbage collector run less often. It runs whenever the
// heap has doubled, and a node's heap is so small (10 MB) that under load it ran
// several times a second, for up to a third of the processor time. Memory that is
// counted but never touched, so that no page of it exists, moves that point up by
// a fixed amount: at most 64 MB more under load, on a large hub as on a small
// device, where a higher percentage would multiply what a large heap takes.
//
// Who sets GOGC or GOMEMLIMIT knows better. The caller holds the result for as
// long as the process runs.
func leaveHeadroom(getenv func(string) string) (release func()) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	room := make([]byte, headroom)
	return func() { runtime.KeepAlive(room) }
}

// largeHub is the number of devices from which on a hub's heap is large enough for
// the garbage beside it to matter.
const largeHub = 10_000

// sparing is how much garbage, in percent of what is in use, gathers in a process
// that spares memory.
const sparing = 50

// spareMemory lets half as much garbage gather as usual, until it is released: while
// a hub reads what it kept, and for as long as it runs if that is much. Who sets
// GOGC or GOMEMLIMIT knows better.
func spareMemory(getenv func(string) string) (release func()) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	before := debug.SetGCPercent(sparing)
	return func() { debug.SetGCPercent(before) }
}
