package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// segment is one file of lines. The last one grows, the others are full.
type segment struct {
	number  int
	lines   int64
	size    int64 // bytes that are on disk and acknowledged
	changed time.Time
}

func closedName(number int) string { return fmt.Sprintf("spool-%06d.jsonl", number) }

// closedNumber is the reverse of closedName.
func closedNumber(name string) (int, bool) {
	text, ok := strings.CutPrefix(name, "spool-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSuffix(text, ".jsonl"))
	return n, err == nil && n > 0 && closedName(n) == name
}

// closedSegments lists the full segments in their order, without their lines.
func closedSegments(d disk) ([]segment, error) {
	entries, err := d.list()
	if err != nil {
		return nil, err
	}
	var out []segment
	for _, e := range entries {
		if n, ok := closedNumber(e.name); ok {
			out = append(out, segment{number: n, size: e.size, changed: e.changed})
		}
	}
	slices.SortFunc(out, func(a, b segment) int { return a.number - b.number })
	return out, nil
}

// firstLine gives the hash of the first line of a segment, "" of an empty one.
func firstLine(f file, size int64) (string, error) {
	if size == 0 {
		return "", nil
	}
	b := make([]byte, min(size, MaxLine+1))
	if _, err := f.ReadAt(b, 0); err != nil {
		return "", err
	}
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	return hashOf(line), nil
}

// countLines counts the lines of a file; one without a line feed at its end
// counts too.
func countLines(f file, size int64) (int64, error) {
	var lines int64
	last := byte('\n')
	b := make([]byte, 1<<20)
	for at := int64(0); at < size; {
		n, err := f.ReadAt(b[:min(int64(len(b)), size-at)], at)
		if n == 0 {
			return 0, err
		}
		lines += int64(bytes.Count(b[:n], []byte{'\n'}))
		last = b[n-1]
		at += int64(n)
	}
	if last != '\n' {
		lines++
	}
	return lines, nil
}

// cutTorn moves what stands behind the last line feed of the growing segment
// to spool.torn: a crash cut that write short, and nobody was told that it is
// kept. It gives the size that is left and the bytes that were moved.
func cutTorn(d disk, f file) (size, torn int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	whole := info.Size()
	for size = whole; size > 0; {
		from := max(0, size-readChunk)
		b := make([]byte, size-from)
		if _, err := f.ReadAt(b, from); err != nil {
			return 0, 0, err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			size = from + int64(i) + 1
			break
		}
		size = from
	}
	if size == whole {
		return size, 0, nil
	}
	// What is longer than a line is damage of another kind; its beginning is
	// enough to tell which.
	tail, err := io.ReadAll(io.NewSectionReader(f, size, min(whole-size, MaxLine)))
	if err != nil {
		return 0, 0, err
	}
	if err := extend(d, tornName, append(tail, '\n')); err != nil {
		return 0, 0, err
	}
	return size, whole - size, errors.Join(f.Truncate(size), f.Sync())
}

// lineReader reads a segment line by line, from anywhere.
type lineReader struct {
	file file
	at   int64 // where buf stands in the file
	buf  []byte
}

// errNoLine says that there is no whole line.
var errNoLine = errors.New("no line")

// line gives the line at off of a segment of which end bytes count, without its
// line feed, and how many bytes it takes. Of a line beyond MaxLine it gives the
// beginning only. The line is valid until the next call.
func (r *lineReader) line(off, end int64) (line []byte, size int64, err error) {
	if off >= end {
		return nil, 0, errNoLine
	}
	if b := r.held(off, end); b != nil {
		if i := bytes.IndexByte(b, '\n'); i >= 0 && i <= MaxLine {
			return b[:i], int64(i) + 1, nil
		}
	}
	if err := r.fill(off, end); err != nil {
		return nil, 0, err
	}
	b := r.held(off, end)
	i := bytes.IndexByte(b, '\n')
	switch {
	case i >= 0:
		return b[:min(i, MaxLine+1)], int64(i) + 1, nil
	case off+int64(len(b)) == end:
		return b[:min(len(b), MaxLine+1)], int64(len(b)), nil // the last one, without a line feed
	}
	size, err = r.skip(off+int64(len(b)), end)
	return b[:MaxLine+1], int64(len(b)) + size, err
}

// held gives what the buffer has from off on.
func (r *lineReader) held(off, end int64) []byte {
	if off < r.at || off >= r.at+int64(len(r.buf)) {
		return nil
	}
	b := r.buf[off-r.at:]
	return b[:min(int64(len(b)), end-off)]
}

func (r *lineReader) fill(off, end int64) error {
	if r.buf == nil {
		r.buf = make([]byte, 0, readChunk)
	}
	r.at, r.buf = off, r.buf[:min(readChunk, end-off)]
	if n, err := r.file.ReadAt(r.buf, off); n < len(r.buf) {
		r.buf = r.buf[:0]
		return fmt.Errorf("read a segment: %w", err)
	}
	return nil
}

// skip gives how many bytes are left of a line that nobody wants.
func (r *lineReader) skip(off, end int64) (int64, error) {
	b := make([]byte, readChunk)
	for at := off; at < end; {
		n := min(int64(len(b)), end-at)
		if _, err := r.file.ReadAt(b[:n], at); err != nil {
			return 0, fmt.Errorf("read a segment: %w", err)
		}
		if i := bytes.IndexByte(b[:n], '\n'); i >= 0 {
			return at + int64(i) + 1 - off, nil
		}
		at += n
	}
	return end - off, nil
}
