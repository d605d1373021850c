package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/internal/crash"
)

// Format is the format of the database that this version writes.
const Format = 1

const (
	fresh         = ".new"          // a database on its way to its name
	opened        = ".open"         // stands while the database is open
	asideInfix    = ".damaged-"     // and a time
	asideKept     = 2               // older ones are removed
	maxReplaced   = 3               // in one run; more is a broken disk
	checkPatience = 8 * time.Second // a node serves within 10 s of a start
)

// ErrUnavailable is returned by every call once the database was replaced too
// often in one run, or after Close.
var ErrUnavailable = errors.New("the database is not available")

// Options of [Open]. The zero value logs nothing.
type Options struct {
	// Log gets one line when something is set aside or skipped.
	Log *slog.Logger
	// Check examines the file at path after a run that did not close it, in
	// a process of its own: see [CheckIn]. Only an error that wraps ErrDamaged
	// sets the file aside. If nil, [Check] is called in this process, which
	// some damage kills.
	Check func(ctx context.Context, path string) error
}

// Store is an open database. Its methods may be called at once from several
// goroutines. It starts no goroutine.
type Store struct {
	path      string
	log       *slog.Logger
	db        atomic.Pointer[bbolt.DB] // nil: not available
	writing   sync.Mutex               // one writer: a second one would wait for ever on a lock that a panic left
	replacing sync.Mutex               // one replacement at a time
	epoch     atomic.Int64             // counts the files used in this run
	skipped   atomic.Uint64
	replaced  atomic.Int64
}

// Open opens the database in dir, or makes it. A damaged one is set aside with
// one line in the log and an empty one takes its place. Errors wrap ErrFormat,
// datadir.ErrRights, or are the system's; the file is then as it was.
func Open(dir *datadir.Dir, o Options) (*Store, error) {
	s := &Store{path: dir.Path(datadir.DatabaseFile), log: o.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	_ = os.Remove(s.path + fresh)
	_, err := os.Lstat(s.path + opened)
	unclean := err == nil
	err = s.examine(unclean, o.Check)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := s.create(dir); err != nil {
			return nil, err
		}
	case errors.Is(err, ErrDamaged):
		if err := s.startOver(err); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	// Without the marker an unclean stop goes unnoticed, no more: a full
	// disk must not keep a node from starting.
	if err := datadir.CreatePrivate(s.path+opened, nil); err != nil && !errors.Is(err, fs.ErrExist) {
		s.log.Warn("database: an unclean stop of this run will not be noticed", "error", err)
	}
	if err := s.open(); err != nil {
		if !unclean {
			_ = os.Remove(s.path + opened) // it was not used
		}
		return nil, err
	}
	return s, nil
}

// examine looks at the file before the library sees it.
func (s *Store) examine(unclean bool, check func(context.Context, string) error) error {
	if err := datadir.CheckPrivate(s.path); err != nil {
		return err
	}
	if err := lookAt(s.path); errors.Is(err, ErrFormat) {
		return fmt.Errorf("database %s was %w: use that version, or give another --dir", s.path, err)
	} else if err != nil {
		return err
	}
	if !unclean {
		return nil
	}
	if check == nil {
		return Check(s.path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkPatience)
	defer cancel()
	err := check(ctx, s.path)
	if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
		s.log.Warn("database: it could not be checked after an unclean stop and is used as it is", "error", err)
		return nil
	}
	return err
}

// open opens the file under the guard and proves it by a first read and write.
func (s *Store) open() error {
	for {
		var db *bbolt.DB
		err := guard(func() (err error) {
			if db, err = openDB(s.path, false); err != nil {
				return err
			}
			if err := db.View(checkFormat); err != nil {
				return err
			}
			err = db.Update(func(tx *bbolt.Tx) error { return prove(tx) })
			if err != nil && !errors.Is(err, ErrDamaged) {
				s.log.Warn("database: it cannot be written", "error", err)
				err = nil
			}
			return err
		})
		switch {
		case err == nil:
			s.db.Store(db)
			s.epoch.Add(1)
			return nil
		case errors.Is(err, errPanicked), errors.Is(err, ErrDamaged):
			if !errors.Is(err, errPanicked) && db != nil {
				_ = db.Close()
			}
			if s.replaced.Load() >= maxReplaced {
				return fmt.Errorf("%w: a new one is damaged too: look at the disk", ErrUnavailable)
			}
			if err := s.startOver(err); err != nil {
				return err
			}
		default:
			if db != nil {
				_ = db.Close()
			}
			return err
		}
	}
}

// startOver sets the file aside and makes an empty one. It is another file:
// a lock that an abandoned database object holds does not matter to it.
func (s *Store) startOver(why error) error {
	aside := s.path + asideInfix + time.Now().UTC().Format("20060102T150405.000000000")
	if err := os.Rename(s.path, aside); err != nil {
		return fmt.Errorf("set the damaged database aside: %w", err)
	}
	s.replaced.Add(1)
	if err := s.create(nil); err != nil {
		return err
	}
	s.log.Warn("database: damaged and set aside; an empty one is in use, chains are fetched again from the hub", "reason", why.Error(), "kept", aside)
	s.forgetOld()
	return nil
}

// forgetOld keeps the newest files that were set aside.
func (s *Store) forgetOld() {
	entries, err := os.ReadDir(filepath.Dir(s.path))
	if err != nil {
		return
	}
	var old []string
	for _, e := range entries { // sorted by name, and so by time
		if strings.HasPrefix(e.Name(), filepath.Base(s.path)+asideInfix) {
			old = append(old, e.Name())
		}
	}
	for len(old) > asideKept {
		_ = os.Remove(filepath.Join(filepath.Dir(s.path), old[0]))
		old = old[1:]
	}
}

// create makes an empty database under another name and renames it when it is
// whole, so that a database under its own name always was whole once. With a
// dir it says if there should have been one.
func (s *Store) create(dir *datadir.Dir) error {
	if dir != nil {
		if marks, err := dir.Marks(); err == nil && len(marks.All()) > 0 {
			s.log.Warn("database: it is missing; an empty one is in use, chains are fetched again from the hub", "path", s.path)
		}
	}
	name := s.path + fresh
	db, err := openDB(name, false)
	if err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	crash.Point("made")
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, b := range []string{metaBucket, chainsBucket, bodiesBucket} {
			if _, err := tx.CreateBucketIfNotExists([]byte(b)); err != nil {
				return err
			}
		}
		return put(tx, metaBucket, formatKey, fmt.Appendf(nil, "%d", Format))
	})
	crash.Point("filled")
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	crash.Point("closed")
	return datadir.RenamePrivate(name, s.path)
}

// Close closes the file. Calls that come later get ErrUnavailable.
func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	db := s.db.Swap(nil)
	if db == nil {
		return nil
	}
	if err := guard(db.Close); err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return os.Remove(s.path + opened)
}

// Status is how the database fares.
type Status struct {
	Available bool   `json:"available"`
	Replaced  int    `json:"replaced"` // files set aside by this run
	Skipped   uint64 `json:"skipped"`  // damaged records met and passed over
}

// Status tells how the database fares. It costs nothing.
func (s *Store) Status() Status {
	return Status{Available: s.db.Load() != nil, Replaced: int(s.replaced.Load()), Skipped: s.skipped.Load()}
}

// view runs f in a read transaction under the guard. F must copy what it
// keeps, and run no code of others.
func (s *Store) view(f func(*bbolt.Tx) error) error {
	return s.attempt(func(db *bbolt.DB) error { return db.View(f) })
}

// update runs f in a write transaction under the guard and returns when it is
// on disk. F may run twice, the second time on an empty database.
func (s *Store) update(f func(*bbolt.Tx) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.attempt(func(db *bbolt.DB) error { return db.Update(f) })
}

func (s *Store) attempt(run func(*bbolt.DB) error) error {
	var last error
	for range 2 {
		db := s.db.Load()
		if db == nil {
			return ErrUnavailable
		}
		last = guard(func() error { return run(db) })
		if errors.Is(last, berrors.ErrDatabaseNotOpen) {
			return ErrUnavailable
		}
		if !errors.Is(last, errPanicked) {
			return last
		}
		s.abandon(db, last)
	}
	return last
}

// abandon replaces a database that panicked. It is not closed: the library's
// locks may be held for ever.
func (s *Store) abandon(db *bbolt.DB, why error) {
	s.replacing.Lock()
	defer s.replacing.Unlock()
	if s.db.Load() != db {
		return // somebody else did
	}
	s.db.Store(nil)
	if s.replaced.Load() >= maxReplaced {
		s.log.Error("database: it failed too often in this run and is given up; what is in memory goes on: look at the disk and restart", "reason", why.Error())
		return
	}
	err := s.startOver(why)
	if err == nil {
		err = s.open()
	}
	if err != nil {
		s.log.Error("database: it failed and could not be replaced; what is in memory goes on: look at the disk and restart", "error", err)
	}
}

// skip counts and tells of a damaged record, without its name: names are others'.
func (s *Store) skip(bucket string) {
	s.skipped.Add(1)
	s.log.Warn("database: a damaged record was passed over", "bucket", strings.TrimPrefix(bucket, dataPrefix))
}
