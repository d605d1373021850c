package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of this package, for [errors.Is].
var (
	// ErrInUse: another process, or another Spool, has the directory.
	ErrInUse = errors.New("the spool is in use by another process")
	// ErrClosed: the spool was closed.
	ErrClosed = errors.New("the spool is closed")
	// ErrLine: what was to be appended is no JSON object on one line of at most
	// MaxLine bytes.
	ErrLine = errors.New("not one JSON object on one line")
	// ErrBusy: too many are waiting for the disk, or open, already.
	ErrBusy = errors.New("the spool has no room for more at once")
	// ErrNotStored: the disk did not take the line, which may be appended again.
	ErrNotStored = errors.New("not stored in the spool")
	// ErrDraining: there is a worker already.
	ErrDraining = errors.New("the spool has a worker already")
)

// Label is what the owner can tell about a line.
type Label struct {
	ID string    // as given to Append
	At time.Time // when it was made, for the age of what waits; zero: unknown
}

// Config says how a spool is kept. Only Dir and Label have no default.
type Config struct {
	Dir string // made if it is missing, with mode 0700
	// Label reads a line that Append took before. An error means that the line
	// is damaged. It must not keep the bytes.
	Label func(line []byte) (Label, error)
	// Recall is Label for a start, which asks about each line of the last day and
	// wants no more than its ID and time: it need not look for damage elsewhere. nil: Label.
	Recall func(line []byte) (Label, error)
	// Log gets what an operator has to know; nil: nothing is said.
	Log *slog.Logger
	// Max is the depth from which on Full reports true; 0: never.
	Max int64
	// Alert and AlertAge are the depth and the age of the oldest waiting line
	// above which the worker warns, once per AlertEvery; 0: 1000, 15 min, 1 min.
	Alert                int64
	AlertAge, AlertEvery time.Duration

	disk       disk  // tests: a disk that fails
	size       int64 // tests: where a segment ends
	closeFirst bool  // a file has to be closed to get another name; tests: elsewhere too
}

func (c *Config) defaults() error {
	if c.Dir == "" || c.Label == nil {
		return errors.New("open a spool: want a directory and a label")
	}
	if c.Recall == nil {
		c.Recall = c.Label
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Alert = orDefault(c.Alert, 1000)
	c.AlertAge = orDefault(c.AlertAge, 15*time.Minute)
	c.AlertEvery = orDefault(c.AlertEvery, time.Minute)
	c.size = orDefault(c.size, segmentSize)
	c.closeFirst = c.closeFirst || runtime.GOOS == "windows"
	if c.disk == nil {
		c.disk = folder(c.Dir)
	}
	return nil
}

func orDefault[T int64 | time.Duration](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}

// Spool is an open spool. Its methods may be called at once from several
// goroutines.
type Spool struct {
	cfg     Config
	disk    disk
	lock    *os.File
	journal *journal
	stop    chan struct{} // closed by Close, which ends the writer's goroutine
	written chan struct{} // closed by it when it has ended
	wake    chan struct{} // capacity 1: there is something to write
	more    chan struct{} // capacity 1: there is something to send
	drains  atomic.Bool   // there is a worker

	turn chan struct{} // capacity 1: full while somebody writes
	w    writer        // of whoever has the turn

	names sync.Mutex // held while a segment gets another name or is opened by it
	full  int        // the highest number whose file has the name of a full segment

	mu       sync.Mutex
	closed   bool
	next     *batch         // lines that the writer has not taken yet
	inFlight int            // lines that it has taken
	waiting  map[key]*batch // of both
	known    *recent
	missed   map[key]struct{} // of requests that were open when the last process ended, and have no line yet
	segments []segment        // in their order; the last one grows
	mark     position         // how far the worker is
	saved    int              // the segment of the checkpoint on disk
	status   Status           // without what the fields above tell
}

// Status is the state of a spool.
type Status struct {
	Depth    int64     `json:"depth"`            // lines that wait for the other side
	Oldest   time.Time `json:"oldest,omitzero"`  // when the first of them was made; zero: unknown or none
	Writable bool      `json:"writable"`         // the disk took what it was given last
	Fault    string    `json:"fault,omitempty"`  // why it did not
	Segment  string    `json:"segment"`          // ID of the segment that the worker is in
	Sent     int64     `json:"sent"`             // lines taken by the other side since the start
	Rejected int64     `json:"rejected"`         // lines set aside since the start
	Reason   string    `json:"reason,omitempty"` // why the last attempt did not succeed; empty after one that did
	Torn     int64     `json:"torn"`             // bytes that a crash had left unfinished, found by the start
	Again    string    `json:"again,omitempty"`  // why the start began again from the first line
	Lost     int       `json:"lost"`             // requests that were open when the last process ended, and have no line; fewer when one is appended after all
}

// Open opens the spool in a directory, or makes one there. What the last process
// left is looked at: an unfinished line is moved away, a checkpoint that
// does not fit means that all is sent again, open requests are counted. A spool
// that cannot be written is an error. Close it; nothing is sent before [Spool.Drain].
func Open(cfg Config) (*Spool, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	if err := makeDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	lock, err := folder(cfg.Dir).lock()
	if err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	s := &Spool{
		cfg: cfg, disk: cfg.disk, lock: lock,
		stop: make(chan struct{}), written: make(chan struct{}),
		wake: make(chan struct{}, 1), turn: make(chan struct{}, 1), more: make(chan struct{}, 1),
		next: newBatch(nil), waiting: make(map[key]*batch), known: newRecent(time.Now()), missed: make(map[key]struct{}),
	}
	if err := s.load(); err != nil {
		if s.w.file != nil {
			_ = s.w.file.Close()
		}
		if s.journal != nil {
			_ = s.journal.close()
		}
		_ = lock.Close()
		return nil, fmt.Errorf("open the spool in %s: %w", cfg.Dir, err)
	}
	go s.write()
	return s, nil
}

// makeDir makes the directory if it is missing. Its name is on disk before there
// is a line in it; of one that was there nobody asks to read its parent.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return folder(filepath.Dir(dir)).sync()
}

// Close stores what waits for the disk, stops, and gives the directory back. End
// the worker first. Appending afterwards is ErrClosed.
func (s *Spool) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		<-s.written
		return nil
	}
	close(s.stop)
	<-s.written
	var err error
	if s.w.file != nil {
		err = s.w.file.Close()
	}
	return errors.Join(err, s.journal.close(), s.lock.Close())
}

// Full reports whether as many lines wait as may. Append takes more all the
// same: whether to serve is the owner's decision.
func (s *Spool) Full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg.Max > 0 && s.depth() >= s.cfg.Max
}

// Status gives the state of the spool.
func (s *Spool) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.Depth = s.depth()
	st.Segment = segmentID(s.mark.segment, s.mark.first)
	if st.Depth == 0 {
		st.Oldest = time.Time{}
	}
	return st
}

// depth counts the lines that wait; the caller holds mu.
func (s *Spool) depth() int64 {
	depth := -s.mark.lines
	for _, seg := range s.segments {
		if seg.number >= s.mark.segment {
			depth += seg.lines
		}
	}
	return depth
}

// poke wakes whoever listens on c, if it is not awake.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
