package main

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/chordwheel/chordwheel/daemon/sharing"
)

func readMains() sharing.Reading { return mainsIn(os.DirFS("/sys/class/power_supply")) }
func readQuiet() sharing.Reading { return quietIn(os.DirFS("/proc"), runtime.NumCPU()) }

// mainsIn reads the kernel's list of power supplies. A machine without a battery of
// its own is on mains power; one whose every adapter is unplugged is not.
func mainsIn(supplies fs.FS) sharing.Reading {
	entries, err := fs.ReadDir(supplies, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return sharing.Yes // no power management at all: a server, a container
	}
	if err != nil {
		return sharing.Unknown
	}
	word := func(name, file string) string {
		b, _ := fs.ReadFile(supplies, path.Join(name, file)) // "" for what is not there
		return strings.TrimSpace(string(b))
	}
	battery := false
	for _, e := range entries {
		switch kind := word(e.Name(), "type"); {
		case kind == "Battery" && word(e.Name(), "scope") != "Device": // not a mouse's
			battery = true
		case (kind == "Mains" || kind == "USB") && word(e.Name(), "online") == "1":
			return sharing.Yes
		}
	}
	if battery {
		return sharing.No
	}
	return sharing.Yes
}

// busyShare is the load per processor above which a machine counts as used: half
// of it is a program that somebody waits for.
const busyShare = 0.5

// quietIn reads the load of the last minute.
func quietIn(proc fs.FS, processors int) sharing.Reading {
	b, err := fs.ReadFile(proc, "loadavg")
	if err != nil {
		return sharing.Unknown
	}
	first, _, _ := strings.Cut(string(b), " ")
	load, err := strconv.ParseFloat(first, 64)
	switch {
	case err != nil:
		return sharing.Unknown
	case load > busyShare*float64(processors):
		return sharing.No
	}
	return sharing.Yes
}
