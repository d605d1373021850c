//go:build unix

package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// noFollow also keeps a pipe put in a file's place from blocking the open.
const noFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

func (d folder) sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// lock takes the spool for this process; closing the file gives it back.
func (d folder) lock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(string(d), lockName), os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", d, ErrInUse)
	}
	return f, nil
}
