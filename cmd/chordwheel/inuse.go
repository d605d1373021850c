package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/store/datadir"
)

// inUse adds to the error of a directory that is locked what runs there, and how
// to reach it.
func (a *app) inUse(ctx context.Context, err error, dir string) error {
	if !errors.Is(err, datadir.ErrLocked) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	dirs := []string{dir, filepath.Join(dir, hubName)}
	for i := range maxDevices {
		dirs = append(dirs, filepath.Join(dir, deviceName(i)))
	}
	var lines []string
	for _, dir := range dirs {
		if _, err := os.Lstat(filepath.Join(dir, socketName)); err != nil {
			continue
		}
		var s reachableNode
		if n := newNode(dir, "node"); n.get(ctx, "/api/v1/status", &s) == nil {
			lines = append(lines, running(dir, &s))
		}
	}
	if len(lines) == 0 {
		return fmt.Errorf("%w\nit does not answer on its control socket: it may be starting or stopping", err)
	}
	return fmt.Errorf("%w\n%s", err, strings.Join(lines, "\n"))
}

// reachableNode is what the status of a device and that of a hub have in common, of what
// says how to reach it.
type reachableNode struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Edge  string `json:"edge"`
	Admin string `json:"admin"`
}

// running says in one line what runs in dir.
func running(dir string, s *reachableNode) string {
	if s.Kind != "device" {
		return fmt.Sprintf("a hub runs in %s; see: chordwheel status --dir %s", dir, dir)
	}
	return fmt.Sprintf("device %s runs there: edge %s, page %s; ask it with: chordwheel chat --dir %s …", s.Name, s.Edge, s.Admin, dir)
}
