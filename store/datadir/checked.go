package datadir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
)

// MaxCheckedBytes bounds the payload of a checked file.
const MaxCheckedBytes = 8 << 20

const (
	checkedFormat = 1
	headBytes     = 256 // more than sum and header take
	backup        = ".bak"
)

// ReadChecked gives the payload last written under name. Errors wrap
// fs.ErrNotExist if neither copy is there, ErrDamaged if there is no valid copy,
// ErrFormat if one is of a newer format, or ErrRights.
func (d *Dir) ReadChecked(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	payload, generation, whole, err := d.read(name)
	if err != nil {
		return nil, err
	}
	d.generations[name] = generation
	if !whole {
		// Mending is a kindness: where it fails, say on a full disk, the valid
		// copy is as good as before.
		_ = d.write(name, payload, generation)
	}
	return payload, nil
}

// Peek gives the payload last written under name in the data directory at path,
// which may be another process's: it takes no lock and mends nothing. Errors are
// those of [Dir.ReadChecked].
func Peek(path, name string) ([]byte, error) {
	payload, _, _, err := (&Dir{path: path}).read(name)
	return payload, err
}

// WriteChecked replaces what stands under name, and returns when both copies
// are on disk. After an error the old content or the new one is read, whole.
// A file of a newer format is not overwritten. Name is lower-case letters,
// digits, dots and dashes; b is at most MaxCheckedBytes.
func (d *Dir) WriteChecked(name string, b []byte) error {
	if err := checkedName(name); err != nil {
		return err
	}
	if len(b) > MaxCheckedBytes {
		return fmt.Errorf("write %s: %d bytes, at most %d", d.Path(name), len(b), MaxCheckedBytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.generations[name]; !known {
		_, generation, _, err := d.read(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrDamaged) {
			return err
		}
		d.generations[name] = generation
	}
	// Counted before it is tried: a write that failed halfway may stand in one
	// copy, and the next one must be newer than that.
	d.generations[name]++
	return d.write(name, b, d.generations[name])
}

func (d *Dir) write(name string, payload []byte, generation uint64) error {
	b := encodeChecked(name, generation, payload)
	for _, n := range []string{name, name + backup} {
		if err := replace(d.Path(n), b); err != nil {
			return fmt.Errorf("write %s: %w", d.Path(n), err)
		}
	}
	return syncDir(d.path)
}

// read gives the valid copy of the higher generation; whole says that the
// other one is the same.
func (d *Dir) read(name string) (payload []byte, generation uint64, whole bool, err error) {
	if err := checkedName(name); err != nil {
		return nil, 0, false, err
	}
	first, g1, err1 := d.readCopy(name, name)
	second, g2, err2 := d.readCopy(name+backup, name)
	for _, e := range []error{err1, err2} { // these are for the owner to decide
		if errors.Is(e, ErrFormat) || errors.Is(e, ErrRights) {
			return nil, 0, false, e
		}
	}
	switch {
	case err1 == nil && (err2 != nil || g1 >= g2):
		return first, g1, err2 == nil && g1 == g2, nil
	case err2 == nil:
		return second, g2, false, nil
	case errors.Is(err1, fs.ErrNotExist) && !errors.Is(err2, fs.ErrNotExist):
		return nil, 0, false, err2
	default:
		return nil, 0, false, err1
	}
}

func (d *Dir) readCopy(file, name string) ([]byte, uint64, error) {
	b, err := ReadPrivate(d.Path(file), MaxCheckedBytes+headBytes)
	if err != nil {
		return nil, 0, err
	}
	payload, generation, err := decodeChecked(name, b)
	if err != nil {
		return nil, 0, fmt.Errorf("%s is %w", d.Path(file), err)
	}
	return payload, generation, nil
}

func encodeChecked(name string, generation uint64, payload []byte) []byte {
	rest := append([]byte(header(name, generation)), payload...)
	sum := sha256.Sum256(rest)
	return append(append(hex.AppendEncode(nil, sum[:]), '\n'), rest...)
}

func header(name string, generation uint64) string {
	return fmt.Sprintf("chordwheel %s %d %d\n", name, checkedFormat, generation)
}

// decodeChecked is the reverse of encodeChecked. Errors wrap ErrDamaged or
// ErrFormat and hold nothing of b.
func decodeChecked(name string, b []byte) (payload []byte, generation uint64, err error) {
	const line = 2*sha256.Size + 1
	if len(b) < line || b[line-1] != '\n' {
		return nil, 0, fmt.Errorf("%w: it is empty or cut short", ErrDamaged)
	}
	sum := sha256.Sum256(b[line:])
	if hex.EncodeToString(sum[:]) != string(b[:line-1]) {
		return nil, 0, fmt.Errorf("%w: its checksum does not fit", ErrDamaged)
	}
	head, payload, ok := bytes.Cut(b[line:], []byte("\n"))
	words := bytes.Split(head, []byte(" "))
	if !ok || len(words) < 3 || string(words[0]) != "chordwheel" {
		return nil, 0, fmt.Errorf("%w: it has no header", ErrDamaged)
	}
	if format, err := strconv.ParseUint(string(words[2]), 10, 32); err != nil || format == 0 {
		return nil, 0, fmt.Errorf("%w: it has no header", ErrDamaged)
	} else if format > checkedFormat {
		return nil, 0, fmt.Errorf("%w (format %d): use that version", ErrFormat, format)
	}
	if string(words[1]) != name {
		return nil, 0, fmt.Errorf("%w: it is another file under this name", ErrDamaged)
	}
	if len(words) == 4 {
		generation, err = strconv.ParseUint(string(words[3]), 10, 63)
	}
	if err != nil || string(head)+"\n" != header(name, generation) {
		return nil, 0, fmt.Errorf("%w: it has no header", ErrDamaged)
	}
	return payload, generation, nil
}

// checkedName keeps anything that could leave the directory, or meet another
// file's name, out of a path.
func checkedName(name string) error {
	ok := name != "" && len(name) <= 64 && name[0] != '.'
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-')
	}
	if !ok {
		return fmt.Errorf("file name %q: want 1 to 64 lower-case letters, digits, dots or dashes", name)
	}
	return nil
}
