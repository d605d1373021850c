package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/chordwheel/chordwheel/orchestrator/authority"
)

// Names below the data directory of `up`: the hub's, and the first device's.
const (
	hubName    = "hub"
	socketName = "control.sock"
)

// dataDir is where a node of this kind ("up", "device" or "hub") keeps what it
// knows, unless --dir says otherwise.
func (a *app) dataDir(kind string) (string, error) {
	if a.dir != "" {
		return filepath.Abs(a.dir)
	}
	base := a.getenv("XDG_DATA_HOME")
	if base == "" {
		home := a.getenv("HOME")
		if home == "" {
			return "", errors.New("neither HOME nor XDG_DATA_HOME is set; name a data directory with --dir or CHORDWHEEL_DIR")
		}
		base = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(base, "chordwheel", kind), nil
}

// deviceName gives a, b, … z, aa, ab, … for devices from 0.
func deviceName(i int) string {
	name := ""
	for i++; i > 0; i = (i - 1) / 26 {
		name = string(rune('a'+(i-1)%26)) + name
	}
	return name
}

// deviceDirs lists where a device that the command means may live: --dir
// itself or its first device, else the usual places.
func (a *app) deviceDirs() ([]string, error) { return a.nodeDirs("device", deviceName(0)) }

// hubDirs is deviceDirs for the hub.
func (a *app) hubDirs() ([]string, error) { return a.nodeDirs("hub", hubName) }

func (a *app) nodeDirs(kind, inUp string) ([]string, error) {
	own, err := a.dataDir(kind)
	if err != nil {
		return nil, err
	}
	if a.dir != "" {
		return []string{own, filepath.Join(own, inUp)}, nil
	}
	up, err := a.dataDir("up")
	if err != nil {
		return nil, err
	}
	return []string{filepath.Join(up, inUp), own}, nil
}

// deviceDir gives the data directory of the device that a command means, for those that
// read its files, also while it does not run.
func (a *app) deviceDir() (string, error) {
	dirs, err := a.deviceDirs()
	if err != nil {
		return "", err
	}
	dir, err := existing(dirs)
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(filepath.Join(dir, authority.CertificateFile)); err == nil {
		return "", usage("%s is the data directory of a hub, and this command is about a device: name the data directory of one with --dir", dir)
	}
	return dir, nil
}

// existing gives the first of dirs that is a node's, for commands that work
// without a running one.
func existing(dirs []string) (string, error) {
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "identity.key")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("there is no data directory of a device here (looked in %s); start one, or name it with --dir", join(dirs))
}
