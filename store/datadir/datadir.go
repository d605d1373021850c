package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/gofrs/flock"

	"github.com/chordwheel/chordwheel/chain"
)

// Names of files in the directory.
const (
	IdentityFile = "identity.key"  // checked, one copy
	DatabaseFile = "chordwheel.db" // package store
	KeysFile     = "keys.json"     // package keyring
	MarksFile    = "marks"         // checked
	formatFile   = "format"        // checked; written last at the first start
	deviceFile   = "device"        // checked; the device ID seen at the first start
	lockFile     = "lock"
)

// Format is the layout of the directory that this version writes.
const Format = 1

// Refusals. The text of an error that wraps one names the file and says what
// to do about it.
var (
	ErrLocked  = errors.New("in use by another chordwheel")
	ErrRights  = errors.New("others could read or change it")
	ErrDamaged = errors.New("damaged")
	ErrFormat  = errors.New("written by a newer chordwheel")
)

// Dir is an open, locked data directory. Its methods may be called at once
// from several goroutines.
type Dir struct {
	path     string
	lock     *flock.Flock
	identity chain.Key
	marks    *Marks

	mu          sync.Mutex // serialises checked files
	generations map[string]uint64
}

// Open locks the directory at path, making it (0700) and what is in it at the
// first start. Nothing is read or written before the lock is held. It returns
// an error that wraps ErrLocked, ErrRights, ErrFormat or ErrDamaged, or one of
// the system; the directory is then as it was.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := makeDir(path); err != nil {
		return nil, err
	}
	lock, err := acquire(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path, lock: lock, generations: make(map[string]uint64)}
	if err := d.begin(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// Path gives the absolute path of the file called name in the directory. Name
// is ours, never a stranger's.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Identity gives the node's key. It was made at the first start and is never
// made again.
func (d *Dir) Identity() (chain.Key, error) { return d.identity, nil }

// Marks gives the high-water marks. There is one value for all callers.
func (d *Dir) Marks() (*Marks, error) { return d.marks, nil }

// Close gives up the lock. The files stay.
func (d *Dir) Close() error {
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("unlock data directory: %w", err)
	}
	return nil
}

// makeDir makes path unless it exists, and checks whose it is.
func makeDir(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("data directory: %w", err)
		}
		if err := syncDir(filepath.Dir(path)); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		info, err = os.Lstat(path)
	}
	switch {
	case err != nil:
		return fmt.Errorf("data directory: %w", err)
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("data directory %s is a symbolic link: %w: give the directory it points to", path, ErrRights)
	case !info.IsDir():
		return fmt.Errorf("data directory %s is a file: give another --dir", path)
	}
	return rights(path, info)
}

// acquire takes the lock, or says who has it.
func acquire(path string) (*flock.Flock, error) {
	name := filepath.Join(path, lockFile)
	if info, err := os.Lstat(name); err == nil {
		if err := plain(name, info); err != nil {
			return nil, err
		}
	}
	lock := flock.New(name, flock.SetFlag(os.O_CREATE|os.O_RDWR|noFollow), flock.SetPermissions(0o600))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if !ok {
		return nil, fmt.Errorf("data directory %s is %w%s: stop that one, or give another --dir", path, ErrLocked, holder(name))
	}
	// The number is for the message of the next one only; the lock is what
	// counts. Some systems do not let a locked file be written.
	_ = os.WriteFile(name, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	return lock, nil
}

// holder gives " (process N)" if the lock file says so.
func holder(name string) string {
	b, err := ReadPrivate(name, 32)
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}

// begin reads what must be there, or makes it if this is the first start.
// The format is written last: until it stands, a crash leaves a first start.
func (d *Dir) begin() error {
	first, err := d.first()
	if err != nil {
		return err
	}
	d.sweep()
	if d.identity, err = d.readIdentity(first); err != nil {
		return err
	}
	if d.marks, err = d.readMarks(first); err != nil {
		return err
	}
	if first {
		return d.WriteChecked(formatFile, []byte(strconv.Itoa(Format)+"\n"))
	}
	return nil
}

// first reports whether the directory was never used.
func (d *Dir) first() (bool, error) {
	b, err := d.ReadChecked(formatFile)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if errors.Is(err, ErrDamaged) {
		return false, fmt.Errorf("%w: remove %s and %s, they are written anew", err, d.Path(formatFile), d.Path(formatFile+backup))
	}
	if err != nil {
		return false, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 1 {
		return false, fmt.Errorf("%s is %w: it holds no number", d.Path(formatFile), ErrDamaged)
	}
	if n > Format {
		return false, fmt.Errorf("data directory %s was %w (format %d, this one knows %d): use that version, or give another --dir", d.path, ErrFormat, n, Format)
	}
	return false, nil
}

// sweep removes what a crash left between two names. Only names that this
// package writes under the lock are touched.
func (d *Dir) sweep() {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if temporary(e.Name()) {
			_ = os.Remove(d.Path(e.Name()))
		}
	}
}

// temporary reports whether name is a checked file's on its way: a dot, the
// name, digits. The key ring's is its own: it is written without the lock.
func temporary(name string) bool {
	stem := strings.TrimRight(name, "0123456789")
	return strings.HasPrefix(name, ".") && stem != name && stem != "."+KeysFile && checkedName(strings.TrimPrefix(stem, ".")) == nil
}
