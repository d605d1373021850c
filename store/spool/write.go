package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"

	"github.com/chordwheel/chordwheel/store/internal/crash"
)

// writer is what only whoever has the turn touches, once the spool is open.
type writer struct {
	file    file   // the growing segment; nil while there is none
	end     int64  // its bytes that are on disk
	last    []byte // its last line, to know it again
	broken  bool   // the file cannot be trusted beyond end, or at all
	renamed bool   // it has the name of a full segment, and no successor yet
	fault   error  // why the disk took nothing last
	spare   []byte // a buffer for the next batch but one
	cramped int64  // the segment could not be ended; it is tried again from this size on
	slow    bool   // the disk took longer than slowDisk last
	crowd   bool   // the last batch was of several lines
}

// keptBuffer is how large a batch may be for its memory to be used again.
const keptBuffer = 256 << 10

// remember notes the last line of a file of which size bytes count.
func (w *writer) remember(size int64) error {
	w.last = nil
	if size == 0 {
		return nil
	}
	b := make([]byte, min(size, MaxLine+2))
	if _, err := w.file.ReadAt(b, size-int64(len(b))); err != nil {
		return err
	}
	w.last = lastLine(b)
	return nil
}

// lastLine gives the last line of b, which ends in a line feed.
func lastLine(b []byte) []byte {
	b = b[:len(b)-1]
	return bytes.Clone(b[bytes.LastIndexByte(b, '\n')+1:])
}

// write is the goroutine that writes the lines of all who cannot wait without end, or
// came while somebody wrote. While the disk takes nothing it is tried now and then, also
// when nobody appends.
func (s *Spool) write() {
	defer close(s.written)
	probe := time.NewTimer(probeEvery)
	defer probe.Stop()
	var due <-chan time.Time // while the disk takes nothing: a timer that is waited for is no idle one
	for {
		stop := false
		select {
		case <-s.wake:
			// Whoever was just answered may have the next line ready: let it come
			// along.
			runtime.Gosched()
			s.turn <- struct{}{}
			s.commit()
		case <-due:
			s.turn <- struct{}{}
			if s.w.fault != nil {
				s.note(s.probe())
			}
			due = nil
		case <-s.stop:
			stop = true
			s.turn <- struct{}{}
			s.commit() // nothing is added once closed is set
		}
		fault := s.w.fault
		<-s.turn
		switch {
		case stop:
			return
		case fault == nil:
			due = nil
		case due == nil:
			probe.Reset(probeEvery)
			due = probe.C
		}
	}
}

// commit makes the waiting lines durable and answers for them.
func (s *Spool) commit() {
	s.mu.Lock()
	b := s.next
	if len(b.keys) == 0 {
		s.mu.Unlock()
		return
	}
	s.next, s.w.spare = newBatch(s.w.spare), nil
	s.inFlight = len(b.keys)
	s.mu.Unlock()

	began := time.Now()
	err := s.store(b)
	if err != nil {
		b.err = fmt.Errorf("%w: %w", ErrNotStored, err)
	}
	s.note(err)
	now := time.Now()
	s.w.slow, s.w.crowd = now.Sub(began) > slowDisk, len(b.keys) > 1
	s.mu.Lock()
	s.inFlight = 0
	for _, k := range b.keys {
		delete(s.waiting, k)
		if err == nil {
			s.known.add(k, now)
			if _, ok := s.missed[k]; ok { // the owner knew enough of it
				delete(s.missed, k)
				s.status.Lost--
			}
		}
	}
	if err == nil {
		seg := s.current()
		if seg.lines == 0 && s.mark.segment == seg.number {
			first, _, _ := bytes.Cut(b.buf, []byte{'\n'})
			s.mark.first = hashOf(first)
		}
		seg.lines += int64(len(b.keys))
		seg.size = s.w.end
	}
	s.mu.Unlock()
	if cap(b.buf) <= keptBuffer {
		s.w.spare = b.buf
	}
	b.buf = nil
	close(b.done)
	if err == nil {
		poke(s.more)
	}
}

// store writes and syncs one batch. After an error nothing of it counts.
func (s *Spool) store(b *batch) error {
	if err := s.recover(); err != nil {
		return err
	}
	if s.w.end >= max(s.cfg.size, s.w.cramped) {
		if err := s.rotate(); err != nil {
			return err
		}
	}
	if _, err := s.w.file.WriteAt(b.buf, s.w.end); err != nil {
		s.undo()
		return err
	}
	crash.Point("wrote")
	if err := s.w.file.Sync(); err != nil {
		// The kernel may have dropped the pages, and would call the next sync of this
		// descriptor a success: it is not asked again.
		s.w.broken = true
		_ = s.recover() // so that the lines are gone at once if that is possible; else the next one tries
		return err
	}
	crash.Point("synced")
	s.w.end += int64(len(b.buf))
	s.w.last = lastLine(b.buf)
	return nil
}

// undo cuts off what was written of a batch that the disk did not take whole.
func (s *Spool) undo() {
	if err := errors.Join(s.w.file.Truncate(s.w.end), s.w.file.Sync()); err != nil {
		s.w.broken = true
	}
}

// recover makes the growing segment one that can be written again: opened
// anew, cut back to what was acknowledged, and synced by the new descriptor.
func (s *Spool) recover() error {
	if s.w.renamed {
		return s.begin()
	}
	if !s.w.broken {
		return nil
	}
	f, err := s.disk.open(currentName, os.O_RDWR)
	if err != nil {
		return err
	}
	anew := writer{file: f}
	info, err := f.Stat()
	if err == nil && info.Size() < s.w.end {
		err = errors.New("the file is shorter than what was acknowledged: restart, and see whether the disk is sound")
	}
	if err == nil {
		if err = anew.remember(s.w.end); err == nil && !bytes.Equal(anew.last, s.w.last) {
			err = errors.New("the file is not what was acknowledged: restart, and see whether the disk is sound")
		}
	}
	if err == nil {
		err = errors.Join(f.Truncate(s.w.end), f.Sync())
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	_ = s.w.file.Close()
	s.w.file, s.w.broken = f, false
	return nil
}

// rotate ends the growing segment, of which everything is synced, and begins
// the next. Where the first step fails, the segment grows on; where the second
// does, there is none until recover made it.
func (s *Spool) rotate() error {
	s.mu.Lock()
	number := s.current().number
	s.mu.Unlock()
	if s.cfg.closeFirst {
		_ = s.w.file.Close()
		s.w.broken = true
	}
	s.names.Lock()
	err := s.disk.rename(currentName, closedName(number))
	if err == nil {
		s.full = number
	}
	s.names.Unlock()
	if err != nil {
		if s.w.cramped == 0 {
			s.cfg.Log.Warn("cannot end a segment of the spool, which grows on", "segment", number, "error", err)
		}
		s.w.cramped = s.w.end + s.cfg.size/64
		return s.recover()
	}
	crash.Point("renamed")
	s.w.renamed = true
	return s.begin()
}

// begin makes the successor of a segment that was just ended.
func (s *Spool) begin() error {
	// The old name is durable before there is a file of the new one.
	if err := s.disk.sync(); err != nil {
		return err
	}
	f, err := s.disk.open(currentName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(0), s.disk.sync()); err != nil {
		_ = f.Close()
		return err
	}
	crash.Point("dir-synced")
	_ = s.w.file.Close()
	s.w = writer{file: f, fault: s.w.fault}
	s.mu.Lock()
	old := s.current()
	old.changed = time.Now()
	s.segments = append(s.segments, segment{number: old.number + 1})
	s.mu.Unlock()
	poke(s.more)
	return nil
}

// probe finds out whether the disk takes something again.
func (s *Spool) probe() error {
	if err := s.recover(); err != nil {
		return err
	}
	// Behind the end, where nothing counts.
	if _, err := s.w.file.WriteAt(make([]byte, 4096), s.w.end); err != nil {
		s.undo()
		return err
	}
	if err := s.w.file.Sync(); err != nil {
		s.w.broken = true
		return err
	}
	s.undo()
	return s.recover()
}

// note keeps whether the disk takes what it is given, and says so when that
// changes.
func (s *Spool) note(err error) {
	before := s.w.fault
	s.w.fault = err
	if (before == nil) == (err == nil) && (err == nil || before.Error() == err.Error()) {
		return
	}
	s.mu.Lock()
	s.status.Writable, s.status.Fault = err == nil, ""
	if err != nil {
		s.status.Fault = bare(err)
	}
	s.mu.Unlock()
	if err != nil {
		s.cfg.Log.Error("the spool's disk takes nothing: nothing is acknowledged until it does", "error", err)
	} else {
		s.cfg.Log.Info("the spool's disk takes lines again")
	}
}

// bare is an error without the path of a file, which is long and nobody's business.
func bare(err error) string {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return err.Error()
}
