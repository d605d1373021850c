package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/chordwheel/chordwheel/store/internal/crash"
)

// ReadPrivate reads a regular file of at most limit bytes that belongs to the
// user the process runs as and that nobody else may open. A symbolic link is
// not followed. Errors wrap ErrRights, fs.ErrNotExist or one of the system.
func ReadPrivate(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		if info, e := os.Lstat(path); e == nil && info.Mode()&fs.ModeSymlink != 0 {
			return nil, plain(path, info)
		}
		return nil, err // it names the path
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := plain(path, info); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s is longer than %d bytes: %w", path, limit, ErrDamaged)
	}
	return b, nil
}

// CheckPrivate refuses the file at path as ReadPrivate would, without reading it.
func CheckPrivate(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return plain(path, info)
}

// WritePrivate replaces the file at path atomically, mode 0600, and returns
// when content and name are on disk. After an error the old file stands.
func WritePrivate(path string, b []byte) error {
	if err := replace(path, b); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

// CreatePrivate makes the file at path with all its content at once, mode 0600, or returns
// an error that wraps fs.ErrExist.
func CreatePrivate(path string, b []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"*") // 0600, exclusive
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(b)
	crash.Point("wrote")
	if err == nil {
		err = temp.Sync()
	}
	crash.Point("synced")
	if err = errors.Join(err, temp.Close()); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	// A link fails where a rename would replace.
	if err := os.Link(temp.Name(), path); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	crash.Point("renamed")
	return syncDir(filepath.Dir(path))
}

// plain refuses what is no regular file of ours alone.
func plain(path string, info fs.FileInfo) error {
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link: %w: put the file itself there", path, ErrRights)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file: %w: move it away", path, ErrDamaged)
	}
	return rights(path, info)
}

// RenamePrivate gives the finished and synced file at from the name to, in the
// same directory, and returns when the name is on disk.
func RenamePrivate(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	crash.Point("renamed")
	return syncDir(filepath.Dir(to))
}
