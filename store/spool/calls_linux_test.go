package spool_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/store/spool"
	"github.com/chordwheel/chordwheel/store/storetest"
)

const burstLines = 40

// burst appends lines in small segments, says which were acknowledged, and hands them on
// meanwhile: DIR. A line that the disk did not take is left at that.
func burst(args []string) int {
	f, err := openLedger(args[0])
	if err != nil {
		return fail(err)
	}
	s, err := spool.Open(config(filepath.Join(args[0], "spool"), spool.SegmentsOf(400)))
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(ctx, fileLedger{f}) }()
	for n := range burstLines {
		id := fmt.Sprintf("burst-0-%d", n)
		switch err := s.Append(context.Background(), id, lineOf(id, "")); {
		case err == nil:
			storetest.Ack("%s", id)
		case !errors.Is(err, spool.ErrNotStored):
			return fail(err)
		}
	}
	cancel()
	return code(errors.Join(<-drained, s.Close()))
}

// System calls of a real process fail, one of each kind after the other: what was acknowledged is
// kept, and what was not is nowhere by halves.
func TestFailingSystemCalls(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("there is no strace")
	}
	if out, err := exec.Command(strace, "-f", "-o", os.DevNull, "-e", "inject=fsync:error=EIO", "true").CombinedOutput(); err != nil {
		t.Skipf("strace may not trace here: %s", out)
	}
	moments := []string{"1", "3", "4", "7", "5+3", "9+2", "12..20"}
	if underRace {
		moments = moments[4:5] // a start takes long there
	}
	missed := map[string]int{}
	for _, fault := range []string{"fsync:error=EIO", "pwrite64:error=ENOSPC", "pwrite64:error=EIO", "ftruncate:error=EIO", "renameat:error=EIO"} {
		call, _, _ := strings.Cut(fault, ":")
		for _, when := range moments {
			dir := tempDir(t)
			child := storetest.Child(t, "burst", dir)
			cmd := exec.Command(strace, append([]string{"-f", "-qq", "-o", os.DevNull, "-e", "trace=" + call, "-e", "inject=" + fault + ":when=" + when}, child.Args...)...)
			cmd.Env = child.Env
			out, err := cmd.Output()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			promised := make(promises)
			for line := range strings.Lines(string(out)) {
				must(t, promised.hear(strings.TrimSpace(line)))
			}
			missed[call] += burstLines - len(promised)
			if err := promised.kept(dir); err != nil {
				t.Errorf("%s when=%s: %v", fault, when, err)
			}
		}
	}
	for _, call := range []string{"fsync", "pwrite64"} {
		if missed[call] == 0 {
			t.Errorf("no failing %s kept a line from being acknowledged", call)
		}
	}
	t.Logf("lines that were not acknowledged: %v", missed)
}

func init() { verbs["burst"] = burst }
