package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/chordwheel/chordwheel/chain"
)

// ErrDevice is returned where two files disagree on which device this is.
var ErrDevice = errors.New("belongs to another device")

// readIdentity reads the key, or makes it at the first start. A key is never
// replaced: to everyone else a new key is a new node.
func (d *Dir) readIdentity(first bool) (chain.Key, error) {
	path := d.Path(IdentityFile)
	payload, _, err := d.readCopy(IdentityFile, IdentityFile)
	if errors.Is(err, fs.ErrNotExist) {
		if !first || d.used() {
			return chain.Key{}, fmt.Errorf("%s is missing, but the directory was used before: put it back from a backup, "+
				"or start over in an empty directory and join again: %w", path, err)
		}
		return d.makeIdentity(path)
	}
	var key chain.Key
	if err == nil {
		if key, err = chain.ParseKey(payload); err != nil {
			err = fmt.Errorf("%s is %w: %w", path, ErrDamaged, err)
		}
	}
	if errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w: put it back from a backup, or start over in an empty directory and join again", err)
	}
	return key, err
}

func (d *Dir) makeIdentity(path string) (chain.Key, error) {
	key, err := chain.NewKey(nil)
	if err != nil {
		return chain.Key{}, err
	}
	b, err := key.Bytes()
	if err != nil {
		return chain.Key{}, fmt.Errorf("create %s: %w", path, err)
	}
	if err := CreatePrivate(path, encodeChecked(IdentityFile, 1, b)); err != nil {
		return chain.Key{}, err
	}
	return key, nil
}

// used reports whether any other file says that there was an identity.
func (d *Dir) used() bool {
	for _, name := range []string{MarksFile, MarksFile + backup, DatabaseFile} {
		if _, err := os.Lstat(d.Path(name)); err == nil {
			return true
		}
	}
	return false
}

// DeviceID reads the device ID in the file at path, or makes one there (a
// UUIDv4 and a line feed, mode 0600). Other tools may share the file, so one that
// cannot be read is refused and never replaced.
func DeviceID(path string) (chain.DeviceID, error) {
	id, err := readDeviceID(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	random, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("make a device ID: %w", err)
	}
	return createDeviceID(path, chain.DeviceID(random.String()))
}

func createDeviceID(path string, id chain.DeviceID) (chain.DeviceID, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("device ID: %w", err)
	}
	err := CreatePrivate(path, []byte(id+"\n"))
	if errors.Is(err, fs.ErrExist) { // another process was first
		return readDeviceID(path)
	}
	return id, err
}

func readDeviceID(path string) (chain.DeviceID, error) {
	b, err := ReadPrivate(path, 256)
	if err != nil {
		return "", fmt.Errorf("device ID: %w", err)
	}
	id, err := parseDeviceID(b)
	if err != nil {
		return "", fmt.Errorf("device ID file %s is %w: put the right UUID there, or remove it to get a new one", path, err)
	}
	return id, nil
}

func parseDeviceID(b []byte) (chain.DeviceID, error) {
	s := strings.TrimSpace(string(b))
	id, err := uuid.Parse(s)
	if err != nil || len(s) != 36 || id.Version() != 4 || id.Variant() != uuid.RFC4122 {
		return "", fmt.Errorf("%w: it holds no UUIDv4", ErrDamaged)
	}
	return chain.DeviceID(id.String()), nil
}

// DeviceID gives the device ID as the function of that name does, and holds it
// against a note in the directory. If the shared file is gone it is made again
// from the note. If it names another device, the directory was copied or one
// of the two files was changed: an error that wraps ErrDevice.
func (d *Dir) DeviceID(path string) (chain.DeviceID, error) {
	note, err := d.ReadChecked(deviceFile)
	if errors.Is(err, fs.ErrNotExist) {
		id, err := DeviceID(path)
		if err != nil {
			return "", err
		}
		return id, d.WriteChecked(deviceFile, []byte(id))
	}
	if errors.Is(err, ErrDamaged) {
		return "", fmt.Errorf("%w: if this directory belongs to the device of %s, remove %s and %s, they are written anew", err, path, d.Path(deviceFile), d.Path(deviceFile+backup))
	}
	if err != nil {
		return "", err
	}
	want, err := parseDeviceID(note)
	if err != nil {
		return "", fmt.Errorf("%s is %w", d.Path(deviceFile), err)
	}
	got, err := readDeviceID(path)
	if errors.Is(err, fs.ErrNotExist) {
		got, err = createDeviceID(path, want)
	}
	if err != nil {
		return "", err
	}
	if got != want {
		return "", fmt.Errorf("data directory %s %w: it was made on %s, and %s says %s: put the right UUID there, "+
			"or, if the directory has moved for good, remove %s and %s", d.path, ErrDevice, want, path, got, d.Path(deviceFile), d.Path(deviceFile+backup))
	}
	return got, nil
}
