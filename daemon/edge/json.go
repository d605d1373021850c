package edge

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"math/bits"
	"strconv"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/chordwheel/chordwheel/chain"
)

// scanner reads one JSON document in one pass over its bytes, and accepts
// only what every later reader understands in the same way: valid UTF-8, no
// name twice in an object, no lone surrogates, no number beyond a double, nothing
// after the document, bounded depth. A lenient one wants JSON and bounded depth alone. It builds no tree and, once warm, allocates
// nothing. Its errors name the place and are fit for the caller.
type scanner struct {
	b     []byte
	i     int // next byte
	depth int // open arrays and objects
	limit int // of depth

	// lenient is for a reader of its own: what encoding/json takes is taken, with the
	// last of a name's values.
	lenient bool

	// Names of the open objects, the innermost object's last. Offsets and not
	// slices, so that a body of nothing but names costs little more than itself.
	names []name
	plain []byte  // decoded forms of names that had escapes
	table []int32 // hash table for objects of many names

	// Where the scanner is, for errors: base + field [index].
	base  string
	field []byte
	index int // -1 outside messages
}

// name is a span of scanner.b, or of scanner.plain where at < 0: from ^at.
type name struct{ at, n int32 }

// jsonDepth is how deep encoding/json goes.
const jsonDepth = 10_000

// fewNames is how many names of one object are compared one by one; above it a
// table is built at the object's end, so that a hostile object costs no more
// than its length.
const fewNames = 16

var (
	scanners = sync.Pool{New: func() any { return new(scanner) }}
	hashSeed = maphash.MakeSeed()
)

// scan gives a scanner over b. Hand it back with done.
func scan(b []byte, depth int) *scanner {
	s := scanners.Get().(*scanner)
	s.b, s.i, s.depth, s.limit, s.index = b, 0, 0, depth, -1
	s.names, s.plain, s.base, s.field, s.lenient = s.names[:0], s.plain[:0], "", nil, false
	return s
}

func (s *scanner) done() {
	s.b, s.field = nil, nil
	if cap(s.names) > 4096 { // a rare giant must not stay in the pool
		s.names, s.table, s.plain = nil, nil, nil
	}
	scanners.Put(s)
}

// end demands that nothing follows.
func (s *scanner) end() error {
	if s.space(); s.i < len(s.b) {
		return invalid("body: data after the JSON document, at byte %d", s.i)
	}
	return nil
}

// where names the place for an error.
func (s *scanner) where() string {
	w := s.base
	if s.field != nil {
		w += chain.Clip(string(s.field))
	}
	if s.index >= 0 {
		w += "[" + strconv.Itoa(s.index) + "]"
	}
	if w == "" {
		return "body"
	}
	return w
}

func (s *scanner) fail(what string) error {
	if s.i >= len(s.b) {
		return invalid("%s: not JSON: the body ends early, at byte %d", s.where(), len(s.b))
	}
	return invalid("%s: not JSON: %s at byte %d", s.where(), what, s.i)
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek gives the next byte, 0 at the end. No JSON token begins with 0.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// value passes over one value of any kind. Space before it must be gone.
func (s *scanner) value() error {
	switch c := s.peek(); {
	case c == '"':
		_, _, err := s.text()
		return err
	case c == '{':
		return s.object(nil)
	case c == '[':
		return s.array(nil)
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.fail("no value")
}

func (s *scanner) literal(want string) error {
	if len(s.b)-s.i < len(want) || string(s.b[s.i:s.i+len(want)]) != want {
		return s.fail("no value")
	}
	s.i += len(want)
	return nil
}

// open enters an array or object.
func (s *scanner) open() error {
	if s.depth++; s.depth > s.limit {
		return invalid("%s: nested deeper than %d, at byte %d", s.where(), s.limit, s.i)
	}
	s.i++
	s.space()
	return nil
}

// array passes over an array and calls each before every element, which each
// must pass over; nil passes over values.
func (s *scanner) array(each func() error) error {
	if err := s.open(); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.i++
		s.depth--
		return nil
	}
	for {
		var err error
		if each != nil {
			err = each()
		} else {
			err = s.value()
		}
		if err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.i++
			s.space()
		case ']':
			s.i++
			s.depth--
			return nil
		default:
			return s.fail("no comma or end of array")
		}
	}
}

// object passes over an object and calls each with every name, decoded, before
// its value, which each must pass over; nil passes over values. The name is
// valid until the call returns.
func (s *scanner) object(each func(name []byte) error) error {
	if err := s.open(); err != nil {
		return err
	}
	first := len(s.names)
	if s.peek() == '}' {
		s.i++
		s.depth--
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.fail("no name")
		}
		key, err := s.name(first)
		if err != nil {
			return err
		}
		s.space()
		if s.peek() != ':' {
			return s.fail("no colon")
		}
		s.i++
		s.space()
		if each != nil {
			err = each(key)
		} else {
			err = s.value()
		}
		if err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.i++
			s.space()
		case '}':
			s.i++
			s.depth--
			return s.leave(first)
		default:
			return s.fail("no comma or end of object")
		}
	}
}

// name reads one name of the object whose names begin at first, and refuses a
// repeated one where the object is small.
func (s *scanner) name(first int) ([]byte, error) {
	at := s.i + 1
	raw, escaped, err := s.text()
	if err != nil {
		return nil, err
	}
	n := name{int32(at), int32(len(raw))}
	if escaped {
		n.at = ^int32(len(s.plain))
		s.plain = appendUnquoted(s.plain, raw)
		n.n = int32(len(s.plain)) - ^n.at
	}
	key := s.bytesOf(n)
	if !s.lenient && len(s.names)-first < fewNames {
		for _, other := range s.names[first:] {
			if other.n == n.n && bytes.Equal(s.bytesOf(other), key) {
				return nil, s.twice(key)
			}
		}
	}
	s.names = append(s.names, n)
	return key, nil
}

func (s *scanner) twice(key []byte) error {
	return invalid("%s: the name %q stands twice in one object", s.where(), chain.Clip(string(key)))
}

func (s *scanner) bytesOf(n name) []byte {
	if n.at < 0 {
		return s.plain[^n.at : ^n.at+n.n]
	}
	return s.b[n.at : n.at+n.n]
}

// leave forgets the names of an object after the check that name left out.
func (s *scanner) leave(first int) error {
	names := s.names[first:]
	s.names = s.names[:first]
	if s.lenient || len(names) <= fewNames {
		return nil
	}
	size := 1 << bits.Len(uint(2*len(names)))
	if cap(s.table) < size {
		s.table = make([]int32, size)
	}
	table := s.table[:size]
	clear(table)
	for i, n := range names {
		key := s.bytesOf(n)
		at := maphash.Bytes(hashSeed, key) & uint64(size-1)
		for table[at] != 0 {
			if other := names[table[at]-1]; other.n == n.n && bytes.Equal(s.bytesOf(other), key) {
				return s.twice(key)
			}
			at = (at + 1) & uint64(size-1)
		}
		table[at] = int32(i) + 1
	}
	return nil
}

// text passes over a string and gives what stands between its quotes.
func (s *scanner) text() (raw []byte, escaped bool, err error) {
	s.i++
	start := s.i
	for {
		s.i += plainRun(s.b[s.i:])
		if s.i >= len(s.b) {
			return nil, false, s.fail("")
		}
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start : s.i-1], escaped, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return nil, false, err
			}
		case c < 0x20:
			return nil, false, s.fail("a control character in a string")
		default:
			r, n := utf8.DecodeRune(s.b[s.i:])
			if r == utf8.RuneError && n == 1 && !s.lenient {
				return nil, false, invalid("%s: not UTF-8, at byte %d", s.where(), s.i)
			}
			s.i += n
		}
	}
}

// plainRun counts the bytes at the start of b that may stand in a string as they
// are and are ASCII, eight at a time.
func plainRun(b []byte) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^ones*'"', x^ones*'\\'
		if m := (x | (x-ones*0x20)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & tops; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x80 {
			break
		}
	}
	return i
}

// escape passes over one escape, a pair of surrogates as one.
func (s *scanner) escape() error {
	if s.i+1 >= len(s.b) {
		s.i = len(s.b)
		return s.fail("")
	}
	switch s.b[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return nil
	case 'u':
	default:
		return s.fail("an unknown escape")
	}
	r, ok := hex4(s.b[s.i+2:])
	if !ok {
		return s.fail("an unknown escape")
	}
	if s.lenient || !utf16.IsSurrogate(r) {
		s.i += 6
		return nil
	}
	rest := s.b[s.i+6:]
	if len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' {
		if low, ok := hex4(rest[2:]); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
			s.i += 12
			return nil
		}
	}
	return invalid("%s: half a surrogate pair in a string, at byte %d", s.where(), s.i)
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// number passes over a number that a double can hold.
func (s *scanner) number() error {
	start := s.i
	if s.peek() == '-' {
		s.i++
	}
	switch c := s.peek(); {
	case c == '0':
		s.i++
	case c >= '1' && c <= '9':
		s.digits()
	default:
		return s.fail("a broken number")
	}
	exponent := false
	if s.peek() == '.' {
		s.i++
		if s.digits() == 0 {
			return s.fail("a broken number")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		exponent = true
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		if s.digits() == 0 {
			return s.fail("a broken number")
		}
	}
	if !s.lenient && (exponent || s.i-start > 300) {
		if _, err := strconv.ParseFloat(string(s.b[start:s.i]), 64); err != nil {
			return invalid("%s: a number out of range, at byte %d", s.where(), start)
		}
	}
	return nil
}

func (s *scanner) digits() int {
	start := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i - start
}

// appendUnquoted decodes the inside of a string that text accepted.
func appendUnquoted(dst, raw []byte) []byte {
	var v string
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	if json.Unmarshal(quoted, &v) != nil {
		return append(dst, raw...)
	}
	return append(dst, v...)
}
