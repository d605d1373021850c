//go:build unix

package datadir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"

	"github.com/chordwheel/chordwheel/store/internal/crash"
)

// noFollow also keeps a pipe put in a file's place from blocking the open.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// rights refuses what another user owns or may open.
func rights(path string, info fs.FileInfo) error {
	if s, ok := info.Sys().(*syscall.Stat_t); ok && int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not to %d: %w: run as its owner, or: chown %d %s", path, s.Uid, os.Geteuid(), ErrRights, os.Geteuid(), path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		want := 0o600
		if info.IsDir() {
			want = 0o700
		}
		return fmt.Errorf("%s has mode %04o: %w: chmod %o %s", path, mode, ErrRights, want, path)
	}
	return nil
}

// replace writes beside path, syncs, and renames over it.
func replace(path string, b []byte) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithPermissions(0o600))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if _, err := f.Write(b); err != nil {
		return err
	}
	crash.Point("wrote")
	if err := f.CloseAtomicallyReplace(); err != nil { // syncs first
		return err
	}
	crash.Point("renamed")
	return nil
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	crash.Point("dir-synced")
	return nil
}
