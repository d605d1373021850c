package storetest

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/store/internal/crash"
)

// dieCode is the exit code of a process that died at a step.
const dieCode = 87

// DieAt makes this process exit hard when it has done n durable steps. It is
// for verbs.
func DieAt(n int) {
	done := 0
	crash.At(func(string) {
		if done++; done >= n {
			os.Exit(dieCode)
		}
	})
}

// AtEveryStep runs a verb again and again, dying at its first durable step,
// its second, and so on until it comes to its end, and calls after behind each
// run with the number of steps it did (n) and whether it ended. The verb gets n, then
// args; it has to call [DieAt]. Prepare is called before each run.
func AtEveryStep(t *testing.T, verb string, prepare func() []string, after func(n int, ended bool)) {
	t.Helper()
	for n := 1; n < 200; n++ {
		cmd := Child(t, verb, append([]string{strconv.Itoa(n)}, prepare()...)...)
		err := cmd.Run()
		var exit *exec.ExitError
		ended := err == nil
		if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == dieCode) {
			t.Fatalf("step %d: %v", n, err)
		}
		after(n, ended)
		if t.Failed() {
			t.Fatalf("after dying at step %d", n)
		}
		if ended {
			if n < 3 {
				t.Fatal("the verb passes no steps")
			}
			return
		}
	}
	t.Fatal("the verb does not end")
}

// Kill runs a verb for a random while, kills it as kill -9 does, and gives the
// lines that it had printed. A verb that ended by itself fails the test. The
// moment is chosen by random, up to most.
func Kill(t *testing.T, random *rand.Rand, most time.Duration, verb string, args ...string) []string {
	t.Helper()
	cmd := Child(t, verb, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(time.Duration(random.Int64N(int64(most))), func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var lines []string
	for scan := bufio.NewScanner(out); scan.Scan(); {
		lines = append(lines, scan.Text())
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("%s was not killed: %v; it said %s", verb, err, strings.Join(lines, " / "))
	}
	return lines
}

// Random gives a source of random numbers whose seed the test's log names.
// Seed 0 means one of the clock's.
func Random(t testing.TB, seed uint64) *rand.Rand {
	t.Helper()
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Ack prints a line for [Kill] in one write. A verb calls it when something
// was promised to be on disk.
func Ack(format string, args ...any) {
	_, _ = os.Stdout.WriteString(fmt.Sprintf(format, args...) + "\n")
}
