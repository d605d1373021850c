package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/keyring"
	"github.com/chordwheel/chordwheel/store/storetest"
)

func TestAFullDisk(t *testing.T)              { storetest.OnSmallDisk(t, "full") }
func TestADiskThatTurnsReadOnly(t *testing.T) { storetest.OnSmallDisk(t, "readonly") }

// full fills the disk under an open device.
func full(args []string) int { return onDisk(args[0], storetest.Fill, os.Remove) }

// readonly makes the disk read-only under an open device, as the system does
// after a fault of the medium. The database is open and goes on until it must be
// opened again; the directory's other files fail.
func readonly(args []string) int {
	return onDisk(args[0], storetest.MakeReadOnly, storetest.MakeWritable)
}

// onDisk works on a device while its disk takes nothing, and after.
func onDisk(mount string, spoil, mend func(path string) error) int {
	if err := storetest.MountSmall(mount); err != nil {
		return fail(err)
	}
	path, extra := filepath.Join(mount, "data"), filepath.Join(mount, "filler")
	d, err := openDevice(path, store.Options{}, now)
	if err != nil {
		return fail(err)
	}
	other := chain.Slot{Scope: "session:s", Primitive: chain.LLMChat}
	b := d.store.Bucket("notes")
	ring, err := keyring.Open(keyring.Config{Path: d.dir.Path(datadir.KeysFile)})
	if err := errors.Join(err, offer(d, chaintest.Slot, 1), b.Put("a", 1), ring.Set("k", "old"), spoil(extra)); err != nil {
		return fail(err)
	}

	// The newest chain is in force, and it is said that it is not on disk.
	if err := offer(d, chaintest.Slot, 2); !errors.Is(err, store.ErrNotStored) {
		return fail(fmt.Errorf("accept: %w", err))
	}
	_ = offer(d, other, 5)
	if number(d, chaintest.Slot) != 2 || number(d, other) != 5 {
		return fail(fmt.Errorf("chains %d and %d are in force", number(d, chaintest.Slot), number(d, other)))
	}
	if err := offer(d, chaintest.Slot, 1); !errors.Is(err, chain.ErrRollback) {
		return fail(fmt.Errorf("a rollback: %w", err))
	}
	if err := ring.Set("k", "new"); err == nil {
		return fail(errors.New("a key was set"))
	}
	if key, ok := ring.Get("k"); !ok || key != "old" {
		return fail(errors.New("the old key is gone"))
	}
	if err := d.dir.WriteChecked("note", make([]byte, 4096)); err == nil {
		return fail(errors.New("a checked file was written"))
	}
	var got int
	if ok, err := b.Get("a", &got); !ok || err != nil || got != 1 {
		return fail(fmt.Errorf("a record of before: %v %w", ok, err))
	}
	if s := d.store.Status(); !s.Available || s.Replaced > 0 {
		return fail(fmt.Errorf("status %+v", s))
	}

	// With room again, the same chain offered once more takes along all that
	// was not stored.
	if err := errors.Join(mend(extra), offer(d, chaintest.Slot, 2), b.Put("c", 1), ring.Set("k", "new"), d.close()); err != nil {
		return fail(fmt.Errorf("after mending: %w", err))
	}
	if d, err = openDevice(path, store.Options{}, now); err != nil {
		return fail(err)
	}
	if number(d, chaintest.Slot) != 2 || d.marks.Get(chaintest.Slot).Seq != 2 || number(d, other) != 5 || d.marks.Get(other).Seq != 5 {
		return fail(fmt.Errorf("after a restart chains %d and %d are in force, refused %v", number(d, chaintest.Slot), number(d, other), d.refused))
	}
	// A disk that is full at the start is no reason not to start.
	if err := errors.Join(d.close(), spoil(extra)); err != nil {
		return fail(err)
	}
	if d, err = openDevice(path, store.Options{}, now); err != nil {
		if errors.Is(err, syscall.EROFS) {
			return 0 // but one that takes no lock is: it says so
		}
		return fail(fmt.Errorf("start on a full disk: %w", err))
	}
	if number(d, chaintest.Slot) != 2 {
		return fail(fmt.Errorf("on a full disk chain %d is in force", number(d, chaintest.Slot)))
	}
	if err := d.close(); err != nil {
		return fail(err)
	}
	return 0
}

func init() { verbs["full"], verbs["readonly"] = full, readonly }
