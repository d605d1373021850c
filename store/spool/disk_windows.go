package spool

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

const noFollow = 0

// sync has no counterpart: the file system journals its names.
func (d folder) sync() error { return nil }

// lock takes the spool for this process; closing the file gives it back.
func (d folder) lock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(string(d), lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	if err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped)); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", d, ErrInUse)
	}
	return f, nil
}
