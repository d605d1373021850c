package spool_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chordwheel/chordwheel/store/spool"
	"github.com/chordwheel/chordwheel/store/storetest"
)

// What a power cut leaves of a spool in which a writer and a worker are busy
// holds every line that was acknowledged before.
func TestPowerCut(t *testing.T) {
	storetest.PowerCuts(t, max(5, *kills/10), *seed, "powercut")
}

// powercut cuts the power under work. The ledger lies on the same disk and is not
// synced: of what it lost the spool may know that it was sent. So only lines
// that are in neither count as lost.
func powercut(args []string) int {
	promised := make(promises)
	kept := func(dir string) error {
		if err := os.MkdirAll(dir, 0o700); err != nil { // cut before the first step
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, "ledger"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		// A ledger of its own, with all that the spool has.
		if err := os.WriteFile(filepath.Join(dir, "ledger"), nil, 0o600); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(dir, "spool", "spool.checkpoint")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := promised.kept(dir); err != nil {
			return fmt.Errorf("%w (the first ledger had %d lines)", err, strings.Count(string(b), "\n"))
		}
		return nil
	}
	if err := storetest.CutPower(args, "work", promised.hear, kept); err != nil {
		return fail(err)
	}
	storetest.Ack("%d lines acknowledged", len(promised))
	return 0
}

func TestAFullDisk(t *testing.T)              { storetest.OnSmallDisk(t, "full") }
func TestADiskThatTurnsReadOnly(t *testing.T) { storetest.OnSmallDisk(t, "readonly") }

func full(args []string) int { return code(onFullDisk(args[0])) }

// onFullDisk appends until the disk is full, and goes on when it is not.
func onFullDisk(mount string) error {
	if err := storetest.MountSmall(mount); err != nil {
		return err
	}
	s, err := spool.Open(config(mount, spool.SegmentsOf(64<<10)))
	if err != nil {
		return err
	}
	text := strings.Repeat("x", 3000)
	n, ctx := 0, context.Background()
	for ; err == nil; n++ {
		err = s.Append(ctx, idOf(n), lineOf(idOf(n), text))
	}
	kept := n - 1
	if !errors.Is(err, spool.ErrNotStored) || !errors.Is(err, syscall.ENOSPC) || kept < 100 {
		return fmt.Errorf("line %d: %w", n, err)
	}
	if st := s.Status(); st.Writable || st.Fault != "no space left on device" || st.Depth != int64(kept) {
		return fmt.Errorf("full: status %+v", st)
	}
	// Lines go out all the same.
	l := newLedger()
	if err := drainTo(s, l); err != nil {
		return err
	}
	if len(l.ids()) != kept {
		return fmt.Errorf("%d of %d lines went out", len(l.ids()), kept)
	}
	// With room again, it goes on.
	if err := os.Remove(filepath.Join(mount, "spool-000001.jsonl")); err != nil {
		return err
	}
	if err := s.Append(ctx, idOf(n), lineOf(idOf(n), text)); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	if err := errors.Join(drainTo(s, l), s.Close()); err != nil {
		return err
	}
	if got := l.ids(); len(got) != kept+1 || got[kept] != idOf(n) {
		return fmt.Errorf("%d lines went out", len(got))
	}
	// A disk that is full at the start keeps nobody from starting.
	if err := storetest.Fill(filepath.Join(mount, "filler")); err != nil {
		return err
	}
	if s, err = spool.Open(config(mount)); err != nil {
		return fmt.Errorf("start on a full disk: %w", err)
	}
	return s.Close()
}

func drainTo(s *spool.Spool, to spool.Sender) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return s.Drain(ctx, until{to, func() bool { return s.Status().Depth <= 1 }, cancel})
}

func readonly(args []string) int { return code(onReadOnlyDisk(args[0])) }

// onReadOnlyDisk makes the directory read-only under an open spool. The growing segment is
// open and takes lines on; it cannot end, and the checkpoint cannot be written.
func onReadOnlyDisk(mount string) error {
	if err := storetest.MountSmall(mount); err != nil {
		return err
	}
	dir := filepath.Join(mount, "spool")
	s, err := spool.Open(config(dir, spool.SegmentsOf(1000)))
	if err != nil {
		return err
	}
	ctx := context.Background()
	for n := range 30 {
		if n == 5 {
			if err := storetest.MakeReadOnly(dir); err != nil {
				return err
			}
		}
		if err := s.Append(ctx, idOf(n), lineOf(idOf(n), "")); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	l := newLedger()
	if err := errors.Join(drainTo(s, l), s.Close()); err != nil {
		return err
	}
	if len(l.ids()) != 30 {
		return fmt.Errorf("%d lines went out", len(l.ids()))
	}
	if _, err := spool.Open(config(dir)); !errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("start on a read-only disk: %w", err)
	}
	if err := storetest.MakeWritable(dir); err != nil {
		return err
	}
	if s, err = spool.Open(config(dir)); err != nil {
		return err
	}
	again := newLedger()
	if err := errors.Join(drainTo(s, again), s.Close()); err != nil {
		return err
	}
	if len(again.ids()) != 30 { // the checkpoint was never written
		return fmt.Errorf("%d lines went out again", len(again.ids()))
	}
	return nil
}

func init() { verbs["powercut"], verbs["full"], verbs["readonly"] = powercut, full, readonly }
