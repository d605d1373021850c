package spool

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// For the tests outside.
const (
	MaxOpen     = maxOpen
	MaxWaiting  = maxWaiting
	KeepSent    = keepSent
	KeepIDs     = keepIDs
	Rejections  = rejections
	MaxPause    = maxPause
	SendTimeout = sendTimeout
	ProbeEvery  = probeEvery
	SaveLines   = saveLines
)

// DecodeCheckpoint decodes a checkpoint and encodes it again.
func DecodeCheckpoint(b []byte) ([]byte, error) {
	p, closed, err := decodeCheckpoint(b)
	if err != nil {
		return nil, err
	}
	return p.encode(closed), nil
}

// SegmentsOf makes a segment end at size.
func SegmentsOf(size int64) func(*Config) { return func(c *Config) { c.size = size } }

// CloseFirst makes a spool close a file before that gets another name.
func CloseFirst(c *Config) { c.closeFirst = true }

// FaultyDisk is a directory whose calls can be made to fail.
type FaultyDisk struct {
	folder
	mu sync.Mutex
	// Before is called with the operation ("open", "write", "sync", "truncate", "rename", "dir-sync")
	// and the file's name; an error is the operation's. For "write" half is written
	// then all the same.
	before func(op, name string) error
	read   int64 // bytes
	Opened int   // descriptors so far
	// Stubborn disks give no other name to a file that is open, as Windows does.
	Stubborn bool
	opened   map[string]int // descriptors that are open
}

// Read gives how many bytes were read so far.
func (d *FaultyDisk) Read() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.read
}

// Before sets what is called before each operation.
func (d *FaultyDisk) Before(f func(op, name string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = f
}

func (d *FaultyDisk) ask(op, name string) error {
	d.mu.Lock()
	f := d.before
	d.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(op, name)
}

// Faulty gives a disk, and what makes a spool use it.
func Faulty(dir string) (*FaultyDisk, func(*Config)) {
	d := &FaultyDisk{folder: folder(dir)}
	return d, func(c *Config) { c.disk = d }
}

func (d *FaultyDisk) open(name string, flag int) (file, error) {
	if err := d.ask("open", name); err != nil {
		return nil, err
	}
	f, err := d.folder.open(name, flag)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.Opened++
	n := d.Opened
	if d.opened == nil {
		d.opened = make(map[string]int)
	}
	d.opened[name]++
	d.mu.Unlock()
	return &faultyFile{f.(*os.File), d, name, n, false}, nil
}

func (d *FaultyDisk) rename(from, to string) error {
	if err := d.ask("rename", from); err != nil {
		return err
	}
	d.mu.Lock()
	busy := d.Stubborn && d.opened[from] > 0
	d.mu.Unlock()
	if busy {
		return errors.New("the file is in use")
	}
	return d.folder.rename(from, to)
}

func (d *FaultyDisk) sync() error {
	if err := d.ask("dir-sync", ""); err != nil {
		return err
	}
	return d.folder.sync()
}

type faultyFile struct {
	*os.File
	disk   *FaultyDisk
	name   string
	number int
	failed bool // its sync failed
}

func (f *faultyFile) ReadAt(b []byte, at int64) (int, error) {
	n, err := f.File.ReadAt(b, at)
	f.disk.mu.Lock()
	f.disk.read += int64(n)
	f.disk.mu.Unlock()
	return n, err
}

func (f *faultyFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.disk.ask("write", f.name); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], at)
		return n, err
	}
	return f.File.WriteAt(b, at)
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.disk.ask("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// Sync fails for ever once it failed, in its own way: whoever asks again gets a
// lie for an answer.
func (f *faultyFile) Sync() error {
	if f.failed {
		panic("BUG: a descriptor whose sync failed is asked again")
	}
	if err := f.disk.ask("sync", f.name); err != nil {
		f.failed = true
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) Close() error {
	err := f.File.Close()
	if err == nil {
		f.disk.mu.Lock()
		f.disk.opened[f.name]--
		f.disk.mu.Unlock()
	}
	return err
}

func (f *faultyFile) Stat() (fs.FileInfo, error) { return f.File.Stat() }

// Waiting counts the lines that wait for the disk.
func (s *Spool) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// WithSum gives the first line of a checkpoint file the sum that it has to have.
func WithSum(file string) []byte {
	line, _, _ := strings.Cut(file, "\n")
	return []byte(line + "\n" + hashOf([]byte(line)) + "\n")
}

var reader lineReader // of LineAt, from its line 0 on

// LineAt reads the n-th line of a segment, at an offset; lines are asked for in
// their order. It is not for several goroutines.
func LineAt(b []byte, at int64, n int) (line []byte, size int64, ok bool) {
	if n == 0 {
		reader = lineReader{file: inMemory{Reader: bytes.NewReader(b)}}
	}
	line, size, err := reader.line(at, int64(len(b)))
	if err != nil && !errors.Is(err, errNoLine) {
		panic(err)
	}
	return line, size, err == nil
}

// inMemory is a file of which only reading works.
type inMemory struct {
	*bytes.Reader
	file
}

func (m inMemory) ReadAt(b []byte, at int64) (int, error) { return m.Reader.ReadAt(b, at) }
