package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/chordwheel/chordwheel/store/internal/crash"
)

// Names of the files.
const (
	currentName    = "spool.jsonl"
	checkpointName = "spool.checkpoint"
	rejectedName   = "spool.rejected.jsonl"
	tornName       = "spool.torn"
	openName       = "spool.open"
	lockName       = "spool.lock"
)

// disk is a directory of files. There is one, and one that fails on demand.
type disk interface {
	open(name string, flag int) (file, error)
	rename(from, to string) error
	remove(name string) error
	sync() error // makes the names durable
	list() ([]entry, error)
}

// file is what the spool needs of an [os.File].
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Stat() (fs.FileInfo, error)
}

type entry struct {
	name    string
	size    int64
	changed time.Time
}

// folder is the disk of the operating system.
type folder string

func (d folder) open(name string, flag int) (file, error) {
	f, err := os.OpenFile(filepath.Join(string(d), name), flag|noFollow, 0o600)
	if err != nil {
		return nil, err // not a nil *os.File in an interface
	}
	return f, nil
}

func (d folder) rename(from, to string) error {
	return os.Rename(filepath.Join(string(d), from), filepath.Join(string(d), to))
}

func (d folder) remove(name string) error { return os.Remove(filepath.Join(string(d), name)) }

func (d folder) list() ([]entry, error) {
	names, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	var out []entry
	for _, n := range names {
		info, err := n.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			out = append(out, entry{n.Name(), info.Size(), info.ModTime()})
		}
	}
	return out, nil
}

// replace gives name the content b, whole or not at all.
func replace(d disk, name string, b []byte) error {
	temp := name + ".new"
	f, err := d.open(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	crash.Point("wrote")
	if err == nil {
		err = f.Sync()
	}
	crash.Point("synced")
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := d.rename(temp, name); err != nil {
		return err
	}
	crash.Point("renamed")
	err = d.sync()
	crash.Point("dir-synced")
	return err
}

// extend appends b to name and returns when it is on disk. What was written
// by halves before, by a crash or a full disk, gets a line feed first.
func extend(d disk, name string, b []byte) error {
	f, err := d.open(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	end := info.Size()
	if last := make([]byte, 1); end > 0 {
		if _, err := f.ReadAt(last, end-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			b = append([]byte{'\n'}, b...)
		}
	}
	_, err = f.WriteAt(b, end)
	crash.Point("wrote")
	if err == nil {
		err = f.Sync()
	}
	crash.Point("synced")
	if err == nil && end == 0 {
		err = d.sync()
	}
	return err
}

// readAll reads a file of at most limit bytes.
func readAll(d disk, name string, limit int64) ([]byte, error) {
	f, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", name, limit)
	}
	return b, err
}
