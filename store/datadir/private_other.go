//go:build !unix

package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/chordwheel/chordwheel/store/internal/crash"
)

const noFollow = 0

// rights are a matter of access lists here, which the user's profile directory
// brings; mode bits say nothing about them.
func rights(string, fs.FileInfo) error { return nil }

// replace writes beside path, syncs, and renames over it.
func replace(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it was renamed
	_, err = f.Write(b)
	crash.Point("wrote")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	crash.Point("renamed")
	return nil
}

// syncDir has no counterpart: the file system journals its names.
func syncDir(string) error { return nil }
