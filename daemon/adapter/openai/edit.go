package openai

import (
	"bytes"
	"errors"
	"io"
)

// A splice replaces b[from:to] of some text by with.
type splice struct {
	from, to int
	with     []byte
}

// edits are splices in ascending order, without overlap. Eight are enough for
// any text in which no name stands twice, with some room for one that is odd.
type edits struct {
	list [8]splice
	n    int
	over bool // there were more
}

func (e *edits) add(from, to int, with []byte) {
	if e.n == len(e.list) {
		e.over = true
		return
	}
	e.list[e.n] = splice{from, to, with}
	e.n++
}

// size gives the length of a text of n bytes after the edits.
func (e *edits) size(n int) int {
	for _, s := range e.list[:e.n] {
		n += len(s.with) - (s.to - s.from)
	}
	return n
}

// apply appends b, edited, to dst.
func (e *edits) apply(dst, b []byte) []byte {
	at := 0
	for _, s := range e.list[:e.n] {
		dst = append(append(dst, b[at:s.from]...), s.with...)
		at = s.to
	}
	return append(dst, b[at:]...)
}

var (
	errNotObject = errors.New("the request is not one JSON object")
	errRepeated  = errors.New("the request names its model or stream options too many times")

	jsonTrue, jsonFalse = []byte("true"), []byte("false")
	includeUsage        = []byte(`{"include_usage":true}`)
)

// prepare finds the edits that turn a caller's request into the one for the
// upstream: the option's model, the kind of answer that was asked for, and,
// where askUsage is set, the wish for the usage event. No other byte changes.
// n is how many choices the caller wants.
func prepare(body, model []byte, stream, askUsage bool) (e edits, n int64, err error) {
	s := scan{b: body}
	n = 1
	if !s.open('{') {
		return e, n, errNotObject
	}
	front := s.i
	// The members that may have to be added go to the front, behind the
	// brace; their place is kept open and filled at the end.
	e.add(front, front, nil)
	var hasModel, hasStream, hasOptions, any bool
	for s.member() {
		any = true
		from := s.i
		switch {
		case s.is("model"):
			s.skip()
			e.add(from, s.i, model)
			hasModel = true
		case s.is("stream"):
			s.skip()
			hasStream = true
			if is := string(body[from:s.i]) == "true"; stream && !is {
				e.add(from, s.i, jsonTrue)
			} else if !stream && is {
				e.add(from, s.i, jsonFalse)
			}
		case s.is("n"):
			n = max(s.count(), 1)
		case stream && askUsage && s.is("stream_options"):
			hasOptions = true
			options(&s, &e)
		default:
			s.skip()
		}
	}
	if !s.end() {
		return e, n, errNotObject
	}
	if e.over {
		return e, n, errRepeated
	}
	var add []byte
	if !hasModel {
		add = append(append(append(add, `"model":`...), model...), ',')
	}
	if stream && !hasStream {
		add = append(add, `"stream":true,`...)
	}
	if stream && askUsage && !hasOptions {
		add = append(append(append(add, `"stream_options":`...), includeUsage...), ',')
	}
	if !any && len(add) > 0 {
		add = add[:len(add)-1]
	}
	e.list[0].with = add
	return e, n, nil
}

// options edits the value of stream_options at s so that it asks for the usage
// event. What is neither null nor an object is the upstream's to refuse.
func options(s *scan, e *edits) {
	from := s.i
	if !s.open('{') {
		if s.skip(); string(s.b[from:s.i]) == "null" {
			e.add(from, s.i, includeUsage)
		}
		return
	}
	front, has, any := s.i, false, false
	slot := e.n
	e.add(front, front, nil)
	for s.member() {
		any = true
		from := s.i
		isUsage := s.is("include_usage")
		if s.skip(); isUsage {
			has = true
			e.add(from, s.i, jsonTrue)
		}
	}
	if !has && !e.over {
		add := `"include_usage":true`
		if any {
			add += ","
		}
		e.list[slot].with = []byte(add)
	}
}

// copied is the size up to which an edited text is copied. net/http sends
// headers and body in one packet only when the body is a reader of the standard
// library; above, a packet more is cheaper than the copy.
const copied = 64 << 10

// bodyMaker gives a function that makes readers of an edited text, each from
// its beginning.
func bodyMaker(b []byte, e *edits) func() io.ReadCloser {
	size := e.size(len(b))
	if size > copied {
		return func() io.ReadCloser { return newSpliced(b, e) }
	}
	text := e.apply(make([]byte, 0, size), b)
	return func() io.ReadCloser { return io.NopCloser(bytes.NewReader(text)) }
}

// spliced reads a text with its edits, without a copy of it.
type spliced struct {
	rest [][]byte
}

func newSpliced(b []byte, e *edits) *spliced {
	r := &spliced{rest: make([][]byte, 0, 2*e.n+1)}
	at := 0
	for _, s := range e.list[:e.n] {
		r.rest = append(r.rest, b[at:s.from], s.with)
		at = s.to
	}
	r.rest = append(r.rest, b[at:])
	return r
}

// Read implements [io.Reader].
func (r *spliced) Read(p []byte) (n int, err error) {
	for n < len(p) && len(r.rest) > 0 {
		k := copy(p[n:], r.rest[0])
		n += k
		if r.rest[0] = r.rest[0][k:]; len(r.rest[0]) == 0 {
			r.rest = r.rest[1:]
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements [io.Closer].
func (*spliced) Close() error { return nil }
