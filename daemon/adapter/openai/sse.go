package openai

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// Limits on an event stream. A line or an event's data of more bytes ends it.
const (
	maxLine    = 16 << 20
	firstRead  = 16 << 10
	keepInPool = 64 << 10
)

var errLine = errors.New("a line of the event stream is over 16 MiB")

// events reads an event stream as the HTML standard frames it: lines end with
// LF, CRLF or CR, an empty line ends an event, comments and unknown fields mean
// nothing. An event is given out as soon as its last line end is there, wherever
// the bytes were split on their way. A last event that lacks its empty line
// counts when the stream ended well.
type events struct {
	r      io.Reader
	buf    []byte
	head   int // buf[head:tail] is unread
	tail   int
	seen   int  // buf[head:seen] holds no line end
	skipLF bool // the last line ended with CR: an LF now belongs to it
	begun  bool // past a byte order mark
	err    error
	data   []byte
	failed bool // the event just read was called "error"

	beforeRead func() // what must happen before a read, which may wait
}

var eventsPool = sync.Pool{New: func() any { return &events{buf: make([]byte, firstRead)} }}

// newEvents takes a reader from the pool; free gives it back.
func newEvents(r io.Reader) *events {
	e := eventsPool.Get().(*events)
	*e = events{r: r, buf: e.buf, data: e.data[:0]}
	return e
}

// free puts e back. Nothing that next returned may be used afterwards.
func (e *events) free() {
	if len(e.buf) > keepInPool || cap(e.data) > keepInPool {
		return
	}
	e.r, e.err, e.beforeRead = nil, nil, nil
	eventsPool.Put(e)
}

// more reports whether bytes are at hand that belong to what follows.
func (e *events) more() bool {
	rest := e.buf[e.head:e.tail]
	return len(rest) > 1 || len(rest) == 1 && !(e.skipLF && rest[0] == '\n')
}

// next gives the data of the next event that has any, its lines joined by LF.
// It is valid until the next call. The error is io.EOF at a clean end.
func (e *events) next() ([]byte, error) {
	e.data, e.failed = e.data[:0], false
	lines := 0
	for {
		line, err := e.line()
		switch {
		case err == io.EOF && len(e.data) > 0:
			return e.data, nil
		case err != nil:
			return nil, err
		case len(line) == 0 && len(e.data) > 0:
			return e.data, nil
		case len(line) == 0: // of an event without data
			lines, e.failed = 0, false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
		switch string(field) {
		case "data":
			if len(e.data)+len(value) > maxLine {
				return nil, errLine
			}
			if lines++; lines > 1 {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, value...)
		case "event":
			e.failed = string(value) == "error"
		}
	}
}

// line gives the next line without its end, valid until the next call.
func (e *events) line() ([]byte, error) {
	for {
		if e.skipLF && e.head < e.tail {
			if e.skipLF = false; e.buf[e.head] == '\n' {
				e.head++
				e.seen = max(e.seen, e.head)
			}
		}
		fresh := e.buf[e.seen:e.tail]
		n := bytes.IndexByte(fresh, '\n')
		if n >= 0 {
			fresh = fresh[:n]
		}
		if r := bytes.IndexByte(fresh, '\r'); r >= 0 {
			n = r
			e.skipLF = true
		}
		if n >= 0 {
			end := e.seen + n
			line := e.buf[e.head:end]
			if e.head, e.seen = end+1, end+1; len(line) > maxLine {
				return nil, errLine
			}
			return e.first(line), nil
		}
		e.seen = e.tail
		if e.err != nil {
			if e.err == io.EOF && e.head < e.tail {
				line := e.buf[e.head:e.tail]
				e.head = e.tail
				return e.first(line), nil
			}
			return nil, e.err
		}
		if e.tail-e.head > maxLine {
			return nil, errLine
		}
		e.fill()
	}
}

// first takes the byte order mark off the first line.
func (e *events) first(line []byte) []byte {
	if e.begun {
		return line
	}
	e.begun = true
	return bytes.TrimPrefix(line, []byte("\ufeff"))
}

// fill reads once more, into a buffer twice as large where it is full.
func (e *events) fill() {
	if e.head > 0 {
		copy(e.buf, e.buf[e.head:e.tail])
		e.tail -= e.head
		e.seen -= e.head
		e.head = 0
	}
	if e.tail == len(e.buf) {
		e.buf = append(e.buf, make([]byte, len(e.buf))...)
	}
	if e.beforeRead != nil {
		e.beforeRead()
	}
	for range 100 {
		n, err := e.r.Read(e.buf[e.tail:])
		e.tail += n
		if e.err = err; n > 0 || err != nil {
			return
		}
	}
	e.err = io.ErrNoProgress
}
