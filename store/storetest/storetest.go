// Package storetest helps tests of what survives a restart: snapshots of a data
// directory, child processes that die at a named step or by a signal, and the
// checks that follow. It is imported by tests only.
package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// verbFlag marks a child process of a test binary.
const verbFlag = "-storetest.verb="

// CheckVerb is the verb of [Main] that checks a database.
const CheckVerb = "check"

// Verb is what a child process does; it returns the exit code.
type Verb func(args []string) int

// Main runs the tests of a package and looks for goroutines that they left. In
// a process that [Child] started it runs the verb instead. Call it from TestMain.
func Main(m *testing.M, verbs map[string]Verb) {
	if name, ok := strings.CutPrefix(append(os.Args, "")[1], verbFlag); ok {
		run := verbs[name]
		if name == CheckVerb {
			run = check
		}
		if run == nil {
			fmt.Fprintln(os.Stderr, "no such verb:", name)
			os.Exit(2)
		}
		os.Exit(run(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

func check(args []string) int { return store.CheckMain(args[0]) }

// Child gives a command that runs a verb of this test binary in a process of
// its own.
func Child(t testing.TB, verb string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(), append([]string{verbFlag + verb}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// Options gives store options whose check runs in a child process, as it does
// in the product.
func Options() store.Options {
	return store.Options{Check: store.CheckIn(program(), verbFlag+CheckVerb)}
}

func program() string {
	path, err := os.Executable()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return path
}

// Open opens the data directory at path and the database in it, and closes
// both at the end of the test unless that was done before.
func Open(t testing.TB, path string, o store.Options) (*datadir.Dir, *store.Store) {
	t.Helper()
	dir, err := datadir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	s, err := store.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir, s
}

// Close closes what Open opened.
func Close(t testing.TB, dir *datadir.Dir, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
}

// Snapshot maps every file below dir to its mode and a hash of its content.
type Snapshot map[string]string

// Take takes a snapshot of dir. Sockets and pipes stand in it by their mode.
func Take(t testing.TB, dir string) Snapshot {
	t.Helper()
	s := make(Snapshot)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		s[name] = info.Mode().String()
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			s[name] += " " + hex.EncodeToString(sum[:8])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Same fails the test if anything below dir is not as it was.
func (s Snapshot) Same(t testing.TB, dir string) {
	t.Helper()
	now := Take(t, dir)
	names := slices.Collect(maps.Keys(s))
	for name := range now {
		if _, ok := s[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if s[name] != now[name] {
			t.Errorf("%s: was %q, is %q", name, s[name], now[name])
		}
	}
}

// Copy copies the files of the directory from, without its subdirectories, to
// the new directory to, with the modes that a data directory has.
func Copy(t testing.TB, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
