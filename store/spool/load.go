package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// load takes up what is on disk.
func (s *Spool) load() error {
	mark, counts, damage := s.readCheckpoint()
	segments, err := closedSegments(s.disk)
	if err != nil {
		return err
	}
	number := max(mark.segment, 1)
	if n := len(segments); n > 0 {
		s.full = segments[n-1].number
		number = max(number, s.full+1)
	}
	current, err := s.openCurrent(number)
	if err != nil {
		return err
	}
	s.segments = append(segments, current)
	if err := s.placeMark(mark, counts, damage); err != nil {
		return err
	}
	if err := s.recallIDs(time.Now().Add(-keepIDs)); err != nil {
		return err
	}
	if err := s.countOpen(); err != nil {
		return err
	}
	s.status.Writable = true
	if current.size >= s.cfg.size {
		if err := s.rotate(); err != nil {
			return err
		}
	}
	s.dropSent(time.Now())
	return nil
}

func (s *Spool) readCheckpoint() (mark position, counts map[int]int64, damage error) {
	b, err := readAll(s.disk, checkpointName, maxCheckpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return position{}, nil, errors.New("it is missing")
	}
	if err == nil {
		mark, counts, err = decodeCheckpoint(b)
	}
	return mark, counts, err
}

// openCurrent opens the growing segment, without what a crash left unfinished.
// What the last process wrote and did not sync is synced: from here on
// it counts as kept.
func (s *Spool) openCurrent(number int) (segment, error) {
	f, err := s.disk.open(currentName, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return segment{}, err
	}
	s.w.file = f
	size, torn, err := cutTorn(s.disk, f)
	if err != nil {
		return segment{}, fmt.Errorf("cut an unfinished line: %w", err)
	}
	if torn > 0 {
		s.status.Torn = torn
		s.cfg.Log.Warn("the spool ended inside a line, which was never acknowledged; it is kept in "+tornName, "bytes", torn)
	}
	if err := errors.Join(f.Sync(), s.disk.sync()); err != nil {
		return segment{}, err
	}
	lines, err := countLines(f, size)
	if err != nil {
		return segment{}, err
	}
	s.w.end = size
	if err := s.w.remember(size); err != nil {
		return segment{}, err
	}
	return segment{number: number, lines: lines, size: size}, nil
}

// placeMark puts the worker where the checkpoint says if that fits what is
// here, else to the first line of all. The lines of segments that wait are counted
// unless the checkpoint knows them.
func (s *Spool) placeMark(mark position, counts map[int]int64, damage error) error {
	at := slices.IndexFunc(s.segments, func(seg segment) bool { return seg.number == mark.segment })
	for i := range s.segments[:len(s.segments)-1] {
		seg := &s.segments[i]
		if lines, ok := counts[seg.number]; ok && damage == nil && at >= 0 {
			seg.lines = lines
		} else if damage != nil || at < 0 || seg.number >= mark.segment {
			if err := s.count(seg); err != nil {
				return err
			}
		}
	}
	if damage == nil && at < 0 {
		damage = errors.New("its segment is missing")
	}
	if damage == nil {
		damage = s.fits(mark, s.segments[at])
	}
	if damage == nil {
		s.mark, s.saved = mark, mark.segment
		return s.noteFirst(&s.mark) // which may have been empty when the mark was written
	}
	first := s.segments[0]
	s.mark, s.saved = position{segment: first.number}, first.number
	if err := s.noteFirst(&s.mark); err != nil {
		return err
	}
	if mark != (position{}) || s.depth() > 0 { // else a new spool
		s.status.Again = damage.Error()
		s.cfg.Log.Warn("the spool's checkpoint does not fit the spool: everything is sent again", "reason", damage, "lines", s.depth())
	}
	// On disk before a new line is: none may land where the old mark says "sent".
	return replace(s.disk, checkpointName, s.mark.encode(nil))
}

func (s *Spool) fits(mark position, seg segment) error {
	f, err := s.reading(seg.number)
	if err != nil {
		return err
	}
	defer f.Close()
	return mark.fits(seg, f)
}

// current is the segment that grows.
func (s *Spool) current() *segment { return &s.segments[len(s.segments)-1] }

// reading opens a segment for reading.
func (s *Spool) reading(number int) (file, error) {
	s.names.Lock()
	defer s.names.Unlock()
	name := currentName
	if number <= s.full {
		name = closedName(number)
	}
	return s.disk.open(name, os.O_RDONLY)
}

func (s *Spool) count(seg *segment) error {
	f, err := s.reading(seg.number)
	if err != nil {
		return err
	}
	defer f.Close()
	seg.lines, err = countLines(f, seg.size)
	return err
}

// noteFirst fills in the hash of the first line of a position's segment.
func (s *Spool) noteFirst(p *position) error {
	i := slices.IndexFunc(s.segments, func(seg segment) bool { return seg.number == p.segment })
	f, err := s.reading(p.segment)
	if err != nil {
		return err
	}
	defer f.Close()
	p.first, err = firstLine(f, s.segments[i].size)
	return err
}

// recallIDs reads the IDs of lines that were made after since. Segments that
// were not touched since then are not opened.
func (s *Spool) recallIDs(since time.Time) error {
	for i, seg := range s.segments {
		if i < len(s.segments)-1 && seg.changed.Before(since) {
			continue
		}
		f, err := s.reading(seg.number)
		if err != nil {
			return err
		}
		r := lineReader{file: f}
		for off := int64(0); off < seg.size; {
			line, size, err := r.line(off, seg.size)
			if err != nil {
				_ = f.Close()
				return err
			}
			if l, err := s.cfg.Recall(line); len(line) <= MaxLine && err == nil && (l.At.IsZero() || l.At.After(since)) {
				s.known.add(keyOf(l.ID), time.Now())
			}
			off += size
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// countOpen counts the requests that were open when the last process ended,
// and have no line. Whether they get one yet is the owner's matter, as it is to say so.
func (s *Spool) countOpen() error {
	j, left, err := openJournal(s.disk)
	if err != nil {
		return err
	}
	s.journal = j
	if len(left) == 0 {
		return nil
	}
	for _, text := range left {
		k, ok := keyOfSlot(text)
		if ok && s.known.has(k) {
			continue
		}
		s.status.Lost++
		if ok {
			s.missed[k] = struct{}{}
		}
	}
	return nil
}

// dropSent removes full segments that were sent, and last written to 7 days ago. A
// segment counts as sent once the checkpoint on disk is beyond it.
func (s *Spool) dropSent(now time.Time) {
	s.mu.Lock()
	var old []segment
	end := min(s.saved, s.current().number)
	s.segments = slices.DeleteFunc(s.segments, func(seg segment) bool {
		gone := seg.number < end && now.Sub(seg.changed) >= keepSent
		if gone {
			old = append(old, seg)
		}
		return gone
	})
	s.mu.Unlock()
	for _, seg := range old {
		if err := s.disk.remove(closedName(seg.number)); err != nil {
			s.cfg.Log.Warn("cannot remove a sent segment of the spool", "segment", seg.number, "error", err)
		}
	}
}
