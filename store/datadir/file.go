package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// File is the path of a private file that is kept as a whole, by one owner: what it
// holds can be fetched again, and its reader checks it.
type File string

// Load reads the file, nil if there is none. Errors are those of [ReadPrivate].
func (f File) Load(limit int64) ([]byte, error) {
	b, err := ReadPrivate(string(f), limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// Save replaces the file: after a crash it is the old one or the new one, and
// after Save has returned nil the new one.
func (f File) Save(b []byte) error { return WritePrivate(string(f), b) }

// Delete removes the file; that there is none is no error. After it has returned nil
// no crash brings the file back.
func (f File) Delete() error {
	err := os.Remove(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", string(f), err)
	}
	return syncDir(filepath.Dir(string(f)))
}
