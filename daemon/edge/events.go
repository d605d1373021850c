package edge

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain/walk"
)

// errEnded is what a delivery after the end of a stream gets.
var errEnded = errors.New("edge: the answer has ended")

// events writes an answer as server-sent events. A timer of its own writes
// comments while the worker is silent; the lock keeps the two apart.
type events struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	limits  Limits
	id      string
	began   time.Time
	cancel  context.CancelFunc
	onStart func(a walk.Attempt) // names what answers, before the header goes out

	onComment func() // names what is known before anything answered

	mu     sync.Mutex
	timer  *time.Timer
	buf    *bytes.Buffer
	begun  bool      // the header is out
	ended  bool      // nothing more may be written
	err    error     // the caller is gone
	last   time.Time // of the last write
	armed  time.Time // when the write deadline was last set
	events int       // delivered
	bytes  int64
	first  time.Duration
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

var (
	doneEvent    = []byte("data: [DONE]\n\n")
	keepAliveMsg = []byte(": keep-alive\n\n")
)

// newEvents makes the stream of x.
func (x *exchange) newEvents() *events {
	return &events{w: x.w, rc: x.rc, limits: x.edge.limits, id: x.id, began: x.began, buf: buffers.Get().(*bytes.Buffer),
		onStart: x.nameRunner, onComment: x.nameMethod}
}

// start begins to watch for silence. The context it gives ends also when a
// comment could not be written.
func (s *events) start(ctx context.Context) context.Context {
	ctx, s.cancel = context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	// In two steps, so that keepAlive may use the timer without the lock.
	s.timer = time.AfterFunc(math.MaxInt64, s.keepAlive)
	s.timer.Reset(s.limits.KeepAlive)
	return ctx
}

// deliver is the walk.Deliver of a stream.
func (s *events) deliver(a walk.Attempt, data [][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.err != nil {
		return errors.Join(errEnded, s.err)
	}
	if !s.begun {
		s.onStart(a)
		s.begin()
	}
	s.buf.Reset()
	for _, d := range data {
		s.event(d)
	}
	s.events += len(data)
	return s.send(!a.Ended) // what comes last leaves with the end of the stream
}

// comment writes a line beside the answer, which no client takes for a part of it.
func (s *events) comment(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.err != nil {
		return
	}
	if !s.begun {
		s.onComment()
		s.begin()
	}
	s.buf.Reset()
	s.buf.WriteString(": ")
	for _, c := range []byte(line) {
		if c < ' ' {
			c = ' '
		}
		s.buf.WriteByte(c)
	}
	s.buf.WriteString("\n\n")
	if s.send(true) != nil {
		s.cancel()
	}
}

// delivered reports whether anything of the worker's went out.
func (s *events) delivered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events > 0
}

// hasBegun reports whether the header went out.
func (s *events) hasBegun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// begin puts the header of a stream in place.
func (s *events) begin() {
	h := s.w.Header()
	h["Content-Type"] = streamType
	h["Cache-Control"] = noStore
	h["X-Accel-Buffering"] = noBuffering
	h["X-Content-Type-Options"] = noSniff
	s.w.WriteHeader(http.StatusOK)
	s.begun = true
	s.first = time.Since(s.began)
}

// event appends one event to the buffer. Line breaks between the tokens of its
// JSON, where an adapter left any, would end the event early.
func (s *events) event(d []byte) {
	s.buf.WriteString("data: ")
	at := s.buf.Len()
	s.buf.Write(d)
	if bytes.IndexByte(d, '\n') >= 0 || bytes.IndexByte(d, '\r') >= 0 {
		line := s.buf.Bytes()[at:]
		for i, c := range line {
			if c == '\n' || c == '\r' {
				line[i] = ' '
			}
		}
	}
	s.buf.WriteString("\n\n")
}

// send writes the buffer. The deadline is moved only when a thirtieth of its
// length has passed: setting it costs as much as a small event.
func (s *events) send(flush bool) error {
	now := time.Now()
	for b := s.buf.Bytes(); len(b) > 0; {
		if now.Sub(s.armed) > s.limits.Write/30 || len(b) > writePiece {
			s.armed = now
			s.rc.SetWriteDeadline(now.Add(s.limits.Write)) // unsupported only in tests
		}
		n := min(len(b), writePiece)
		if _, err := s.w.Write(b[:n]); err != nil {
			s.err = err
			return err
		}
		s.bytes += int64(n)
		if b = b[n:]; len(b) > 0 {
			now = time.Now()
		}
	}
	if flush {
		if err := s.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			s.err = err
			return err
		}
	}
	s.last = now
	return nil
}

// keepAlive runs on the timer: a comment if the stream was silent for long
// enough, else another look when it will have been.
func (s *events) keepAlive() {
	if !s.mu.TryLock() {
		// An event is on its way out, maybe to a stuck reader: no silence, and no
		// reason to wait behind it.
		s.timer.Reset(s.limits.KeepAlive)
		return
	}
	defer s.mu.Unlock()
	if s.ended || s.err != nil {
		return
	}
	if rest := s.limits.KeepAlive - time.Since(s.last); rest > 0 {
		s.timer.Reset(rest)
		return
	}
	if !s.begun {
		s.begin()
	}
	s.buf.Reset()
	s.buf.Write(keepAliveMsg)
	if s.send(true) != nil {
		s.cancel()
		return
	}
	s.timer.Reset(s.limits.KeepAlive)
}

// finish ends a stream: with f as its last event if there is one, then [DONE].
// It reports false if nothing was sent yet and f is better told as a plain
// answer. The bytes leave with the end of the response, in one write.
func (s *events) finish(f *failure) bool {
	defer s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if f != nil && !s.begun {
		return false
	}
	if s.ended || s.err != nil {
		return true
	}
	s.buf.Reset()
	if f != nil {
		s.event(f.body(s.id))
	}
	s.buf.Write(doneEvent)
	_ = s.send(false) // the caller may be gone by now: nobody is left to tell
	return true
}

// stop ends the stream without a word and reports whether it had begun. After it
// returned nothing touches the response any more.
func (s *events) stop() (begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		if s.timer != nil {
			s.timer.Stop()
			s.cancel()
		}
		if s.buf.Cap() <= 64<<10 {
			buffers.Put(s.buf)
		}
		s.buf = nil
	}
	return s.begun
}
