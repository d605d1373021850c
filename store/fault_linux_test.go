package store_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/storetest"
)

// faulty accepts the second chain on a disk that may fail, and says so if it
// was promised to be there: DIR. An error in order is no failure.
func faulty(args []string) int {
	d, err := openDevice(args[0], store.Options{}, now)
	if err != nil {
		return 0
	}
	if err := offer(d, chaintest.Slot, 2); err == nil {
		storetest.Ack("promised")
	}
	if n := number(d, chaintest.Slot); n != 2 {
		return fail(fmt.Errorf("chain %d is in force, but it is known that there is a newer one", n))
	}
	_ = d.close()
	return 0
}

// Every call to the system that could fail on a bad disk fails in turn, while
// a device starts and accepts a chain. It goes on, promises nothing that does
// not hold, and the next start finds the chain before or the new one.
func TestEveryCallFails(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace")
	}
	for _, call := range []string{"fsync", "fdatasync", "pwrite64", "renameat", "unlinkat", "linkat", "ftruncate"} {
		t.Run(call, func(t *testing.T) {
			for _, first := range []bool{true, false} {
				for n := 1; ; n++ {
					path := filepath.Join(t.TempDir(), "data")
					if !first {
						d := start(t, path, store.Options{}, now)
						must(t, offer(d, chaintest.Slot, 1))
						stop(t, d)
					}
					child := storetest.Child(t, "faulty", path)
					args := append([]string{"-f", "-qq", "-o", path + ".trace", "-e", "trace=" + call, "-e", fmt.Sprintf("inject=%s:error=EIO:when=%d", call, n)}, child.Args...)
					out, err := exec.CommandContext(t.Context(), strace, args...).Output()
					var exit *exec.ExitError
					if errors.As(err, &exit) && strings.Contains(string(exit.Stderr), "ptrace") {
						t.Skip("tracing is not allowed here")
					}
					must(t, err)
					met := strings.Contains(read(t, path+".trace"), "INJECTED")
					d := start(t, path, storetest.Options(), now)
					got := number(d, chaintest.Slot)
					if promised := strings.Contains(string(out), "promised"); promised && got != 2 || !first && got == 0 || got > 0 && d.marks.Get(chaintest.Slot).Seq != got {
						t.Errorf("%s number %d failed, first start %v: promised %v, chain %d, refused %v", call, n, first, promised, got, d.refused)
					}
					must(t, offer(d, chaintest.Slot, 3))
					stop(t, d)
					if !met {
						break
					}
				}
			}
		})
	}
}

func init() { verbs["faulty"] = faulty }
