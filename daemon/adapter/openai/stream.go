package openai

import (
	"bytes"
	"io"
	"net/http"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

var done = []byte("[DONE]")

// stream reads an event stream and emits each event's data as it comes.
func (w *answer) stream(resp *http.Response, limit int64) error {
	w.outcome.Class = chain.BadAnswer
	if !isType(resp.Header, "text/event-stream", "text/event-stream; charset=utf-8") {
		return errNoAnswer
	}
	r, err := body(resp, limit)
	if err != nil {
		return err
	}
	w.part, w.hide = "delta", !w.call.Request.Usage
	e := newEvents(r)
	defer e.free()
	e.beforeRead = w.beforeRead
	filtered := false
	for {
		data, err := e.next()
		w.waits = false
		w.wait.stop()
		if err != nil {
			return w.ended(err, filtered)
		}
		if len(data) < 32 && bytes.Equal(bytes.TrimSpace(data), done) {
			w.drain(e)
			return w.ended(io.EOF, filtered)
		}
		f, ok := w.read(data)
		switch {
		case f.failed || e.failed:
			return w.broken(errReported, data)
		case !ok:
			return w.broken(errBroken, nil)
		}
		filtered = filtered || f.filtered
		if f.counted {
			w.outcome.Input, w.outcome.Output = f.input, f.output
		}
		if f.counted && f.choices == 0 && w.hide {
			continue // the usage event, which only we asked for
		}
		w.held = e.more()
		if w.emit(walk.Chunk{Data: w.oneLine(&f, data), Meaningful: f.meaningful, More: w.held}) != nil {
			return errGivenUp
		}
		if f.meaningful {
			w.begun = true
		}
	}
}

// beforeRead is called before each wait for the upstream.
func (w *answer) beforeRead() {
	w.release()
	if !w.waits && w.complete(w.n) { // only the usage and [DONE] may follow
		w.waits = true
		w.wait.limit(tailWait)
	}
}

// release lets go what the walk holds for the next chunk, which may be long in
// coming. That it failed is seen by whatever comes next.
func (w *answer) release() {
	if w.held {
		w.held = false
		_ = w.emit(walk.Chunk{})
	}
}

// oneLine gives an event's data, edited, on one line, in memory of its own: the
// walk may hold it back. Line ends in checked JSON are white space, for strings
// cannot hold them.
func (w *answer) oneLine(f *facts, data []byte) []byte {
	out := f.apply(w.memory(f.size(len(data))), data)
	for i := bytes.IndexByte(out, '\n'); i >= 0; i = bytes.IndexByte(out, '\n') {
		out[i] = ' '
	}
	return out
}

// memory gives room for n bytes. Small chunks share a block, which is never
// used twice.
func (w *answer) memory(n int) []byte {
	const block = 4 << 10
	if n > block/4 {
		return make([]byte, 0, n)
	}
	if len(w.free) < n {
		w.free = make([]byte, block)
	}
	m := w.free[:0:n]
	w.free = w.free[n:]
	return m
}

// ended classifies the end of a stream: err is io.EOF for a clean one.
func (w *answer) ended(err error, filtered bool) error {
	whole := w.complete(1) // whatever the server thinks of the number of choices asked for
	if err != io.EOF {
		whole = w.complete(w.n) // the connection broke, but behind the last finish reason
	}
	switch {
	case w.begun && whole:
		w.outcome.Class = chain.OK
		return nil
	case w.begun:
		w.outcome.Class = chain.Cut
		if err == io.EOF {
			err = errNoFinish
		}
		return err
	case err == io.EOF || whole:
		return w.empty(filtered)
	}
	w.outcome.Class = lost(err)
	return err
}

// broken classifies a stream that was well until an event that is an error, or
// nonsense.
func (w *answer) broken(err error, problem []byte) error {
	if w.begun {
		w.outcome.Class = chain.Cut
		return err
	}
	if problem != nil {
		return w.reported(problem)
	}
	return err
}

// drain reads the few bytes that may follow [DONE], so that the connection can
// be used again. A server that does not end its answer soon loses it.
func (w *answer) drain(e *events) {
	if e.err != nil {
		return
	}
	w.release()
	w.wait.limit(drainWait)
	var rest [512]byte
	for range 4 {
		if _, err := e.r.Read(rest[:]); err != nil {
			return
		}
	}
}
