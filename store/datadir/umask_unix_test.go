//go:build unix

package datadir_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/storetest"
)

// loose makes all there is under a umask that forbids nothing: DIR.
func loose(args []string) int {
	syscall.Umask(0)
	d, err := datadir.Open(args[0])
	if err != nil {
		return fail(err)
	}
	defer d.Close()
	if _, err := d.DeviceID(filepath.Join(args[0], "config", "device-id")); err != nil {
		return fail(err)
	}
	if err := d.WriteChecked("note", nil); err != nil {
		return fail(err)
	}
	return 0
}

func TestTheUmaskDoesNotMatter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	must(t, storetest.Child(t, "loose", dir).Run())
	for name, mode := range storetest.Take(t, dir) {
		if !strings.HasPrefix(mode, "-rw-------") && mode != "drwx------" {
			t.Errorf("%s has mode %s", name, mode)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "config", "device-id")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("device-id: %v", err)
	}
}

// A pipe in the place of a file does not hold up the start.
func TestAPipeIsNotWaitedFor(t *testing.T) {
	for _, name := range []string{"marks", datadir.IdentityFile, "lock"} {
		dir := filepath.Join(t.TempDir(), "data")
		must(t, open(t, dir).Close())
		must(t, os.Remove(filepath.Join(dir, name)))
		must(t, syscall.Mkfifo(filepath.Join(dir, name), 0o600))
		d, err := datadir.Open(dir)
		if name == "marks" { // the other copy is good
			must(t, err)
			must(t, d.Close())
		} else if err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

func init() { verbs["loose"] = loose }
