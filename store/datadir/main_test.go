package datadir_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.Main(m, verbs)
}

var verbs = map[string]storetest.Verb{}

func init() {
	verbs["start"], verbs["raise"], verbs["write"], verbs["device"], verbs["hold"] = start, raise, write, device, hold
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func dieAt(arg string) {
	n, err := strconv.Atoi(arg)
	if err != nil {
		panic(err)
	}
	storetest.DieAt(n)
}

// start opens a directory: N DIR.
func start(args []string) int {
	dieAt(args[0])
	d, err := datadir.Open(args[1])
	if err != nil {
		return fail(err)
	}
	defer d.Close()
	return 0
}

// raise raises the slot's mark to 2: N DIR.
func raise(args []string) int {
	d, err := datadir.Open(args[1])
	if err != nil {
		return fail(err)
	}
	defer d.Close()
	m, err := d.Marks()
	if err != nil {
		return fail(err)
	}
	dieAt(args[0])
	if err := m.Raise(slot, markOf(2)); err != nil {
		return fail(err)
	}
	return 0
}

// write writes "new" under the name "note": N DIR.
func write(args []string) int {
	d, err := datadir.Open(args[1])
	if err != nil {
		return fail(err)
	}
	defer d.Close()
	dieAt(args[0])
	if err := d.WriteChecked("note", []byte("new")); err != nil {
		return fail(err)
	}
	return 0
}

// device makes a device ID: N FILE.
func device(args []string) int {
	dieAt(args[0])
	if _, err := datadir.DeviceID(args[1]); err != nil {
		return fail(err)
	}
	return 0
}

// hold opens a directory, says so, and holds it until its input ends: DIR. It
// exits with 4 if another has it.
func hold(args []string) int {
	d, err := datadir.Open(args[0])
	if err != nil {
		storetest.Ack("%v", err)
		return 4
	}
	defer d.Close()
	storetest.Ack("mine")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}

var slot = chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}

func markOf(seq uint64) chain.Mark {
	return chain.Mark{Seq: seq, Body: chain.CIDOf(strconv.AppendUint(nil, seq, 10)), Issued: chain.Instant(seq)}
}

func open(t *testing.T, path string) *datadir.Dir {
	t.Helper()
	d, err := datadir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func marks(t *testing.T, d *datadir.Dir) *datadir.Marks {
	t.Helper()
	m, err := d.Marks()
	if err != nil {
		t.Fatal(err)
	}
	return m
}
