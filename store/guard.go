package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// errPanicked is a guarded call that panicked: the database object it used is
// beyond use, and must be neither used again nor closed.
var errPanicked = errors.New("the database library gave up on its pages")

// guard runs f and turns a panic in it, also one from a memory fault under the
// file's mapping, into an error that wraps errPanicked. It reaches only f's own
// goroutine. The panic's value is dropped: it can hold page contents.
func guard(f func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(before)
	defer func() {
		if r := recover(); r != nil {
			kind := "panic"
			if _, ok := r.(runtime.Error); ok {
				kind = "memory fault"
			}
			err = fmt.Errorf("%w: %s", errPanicked, kind)
		}
	}()
	return f()
}

// openDB opens the file at path, waiting for its lock 2 s at most.
func openDB(path string, readOnly bool) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: 2 * time.Second, FreelistType: bbolt.FreelistMapType, ReadOnly: readOnly, PreLoadFreelist: true, NoStatistics: true,
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("database %s is locked by another program: end that one", path)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum):
		return nil, fmt.Errorf("%w: it has no valid header", ErrDamaged)
	case errors.Is(err, berrors.ErrVersionMismatch):
		return nil, fmt.Errorf("database %s was %w", path, ErrFormat)
	}
	return db, err
}

// Check examines the whole database file at path, which nobody may have open.
// The error wraps ErrDamaged or ErrFormat and holds nothing of the file. On
// some damage the library faults in a goroutine of its own and the process
// dies: the product runs it in a child process ([CheckIn], [CheckMain]).
func Check(path string) error {
	if err := lookAt(path); err != nil {
		return err
	}
	err := guard(func() error {
		db, err := openDB(path, true)
		if err != nil {
			return err
		}
		err = db.View(checkTx)
		return errors.Join(err, db.Close()) // not deferred: after a panic it could wait for ever
	})
	if errors.Is(err, errPanicked) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

func checkTx(tx *bbolt.Tx) error {
	bad := 0
	for range tx.Check() { // to its end: the goroutine behind it must finish
		bad++
	}
	if bad > 0 {
		return fmt.Errorf("%w: its pages do not fit together (%d faults)", ErrDamaged, bad)
	}
	return checkFormat(tx)
}

// Exit codes of CheckMain. Every other one, and death by a signal, is damage.
const (
	exitSound     = 0
	exitDamaged   = 1
	exitFormat    = 4
	exitUnchecked = 5
)

// CheckMain is [Check] for a process of its own: it gives the code to exit
// with, which [CheckIn] understands. It prints nothing.
func CheckMain(path string) int {
	err := Check(path)
	switch {
	case err == nil:
		return exitSound
	case errors.Is(err, ErrFormat):
		return exitFormat
	case errors.Is(err, ErrDamaged):
		return exitDamaged
	}
	return exitUnchecked
}

// CheckIn gives a function for [Options].Check: it runs program with args and
// the path behind them, which is to exit with what [CheckMain] gives. A
// program that could not be started or did not end in time has shown nothing:
// an error that wraps neither ErrDamaged nor ErrFormat.
func CheckIn(program string, args ...string) func(ctx context.Context, path string) error {
	return func(ctx context.Context, path string) error {
		cmd := exec.CommandContext(ctx, program, append(args[:len(args):len(args)], path)...)
		cmd.Env = append(os.Environ(), "GOTRACEBACK=none")
		cmd.WaitDelay = time.Second
		err := cmd.Run() // its output, which can hold page contents, goes nowhere
		var exit *exec.ExitError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("check the database: %w", ctx.Err())
		case !errors.As(err, &exit):
			return fmt.Errorf("check the database: %w", err)
		case exit.ExitCode() == exitFormat:
			return fmt.Errorf("database %s was %w: use that version, or give another --dir", path, ErrFormat)
		case exit.ExitCode() == exitUnchecked:
			return errors.New("check the database: it could not be opened")
		}
		return fmt.Errorf("%w: the full check failed (%s)", ErrDamaged, exit.ProcessState)
	}
}
