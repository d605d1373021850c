package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/chordwheel/chordwheel/orchestrator/catalog"
)

// quiet is how long a catalogue must stay unchanged before it is read: half a
// file is often valid YAML.
const quiet = 150 * time.Millisecond

// glance is how often the file is looked at without being told: what is behind a
// link or a mount may change unheard, and a folder that was moved is not watched
// any more.
const glance = time.Second

// readCatalog reads and validates a catalogue file. Opening never waits, as it
// would for the writer of a pipe.
func readCatalog(file string) (catalog.Catalog, []byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return catalog.Catalog{}, nil, fmt.Errorf("read the catalogue: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return catalog.Catalog{}, nil, errors.Join(err, fmt.Errorf("the catalogue %s is not a regular file", file))
	}
	b, err := io.ReadAll(io.LimitReader(f, catalog.MaxBytes+1))
	if err != nil {
		return catalog.Catalog{}, nil, fmt.Errorf("read the catalogue: %w", err)
	}
	c, err := catalog.Parse(file, b)
	if err != nil {
		return c, b, err
	}
	return enlist(c, b, file+rosterSuffix)
}

// rosterSuffix names the list of workspaces beside a catalogue.
const rosterSuffix = ".workspaces"

// enlist adds the list of workspaces, if there is one, and its sum to what tells
// whether anything changed.
func enlist(c catalog.Catalog, b []byte, list string) (catalog.Catalog, []byte, error) {
	f, err := os.OpenFile(list, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return c, b, nil
	}
	if err != nil {
		return catalog.Catalog{}, b, fmt.Errorf("read the list of workspaces: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return catalog.Catalog{}, b, errors.Join(err, fmt.Errorf("the list of workspaces %s is not a regular file", list))
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return catalog.Catalog{}, b, fmt.Errorf("read the list of workspaces: %w", err)
	}
	c, err = c.Enlist(list, f)
	return c, sum.Sum(b), err
}

// watchCatalog calls reload with each new, valid content of file, until ctx
// ends. An edit with a fault is logged with its places and changes nothing.
// Editors replace files and mounted ones are links, so the folder is watched, and
// the file is looked at whatever happened in it, and glanced at besides.
func watchCatalog(ctx context.Context, file string, last []byte, reload func(catalog.Catalog) error, refused func(why string), log *slog.Logger) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the catalogue: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(filepath.Dir(file)); err != nil {
		return fmt.Errorf("watch the catalogue: %w", err)
	}
	settled := time.NewTimer(quiet) // a change between reading and watching shows in the first look
	defer settled.Stop()
	glances := time.NewTicker(glance)
	defer glances.Stop()
	var seen, listed fs.FileInfo
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-watcher.Events:
			if !ok {
				return nil
			}
			settled.Reset(quiet)
		case err, ok := <-watcher.Errors:
			if !ok {
				return nil
			}
			log.Warn("watching the catalogue", "error", err)
			settled.Reset(quiet)
		case <-glances.C:
			now, _ := os.Stat(file)
			list, _ := os.Stat(file + rosterSuffix)
			if !sameState(seen, now) || !sameState(listed, list) {
				seen, listed = now, list
				settled.Reset(quiet)
			}
		case <-settled.C:
			last = lookAgain(file, last, reload, refused, log)
		}
	}
}

// sameState reports whether nothing speaks for another content; nil is a file
// that is not there.
func sameState(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// lookAgain reads file, puts it in force if it changed, and returns what was
// read last. refused is told what is wrong with a new content that cannot be.
func lookAgain(file string, last []byte, reload func(catalog.Catalog) error, refused func(why string), log *slog.Logger) []byte {
	c, b, err := readCatalog(file)
	if b == nil && err != nil { // a fault of the file, not of its text
		b = []byte(err.Error())
	}
	if errors.Is(err, os.ErrNotExist) || bytes.Equal(b, last) {
		return last // on its way to being replaced, or nothing new
	}
	if err == nil {
		err = reload(c)
	}
	if err != nil {
		var faults []string
		for line := range strings.Lines(err.Error()) {
			faults = append(faults, strings.TrimSpace(line))
			log.Error("the catalogue was not taken over; the one before stays in force", "error", strings.TrimSpace(line))
		}
		refused(strings.Join(faults, "; "))
		return b
	}
	log.Info("catalogue in force", "file", file, "providers", len(c.Providers), "primitives", len(c.Primitives))
	return b
}
