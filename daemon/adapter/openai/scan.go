package openai

import (
	"encoding/binary"
	"encoding/json"
)

// maxDepth bounds how deep foreign JSON may nest.
const maxDepth = 512

// scan walks over one JSON text in place. It checks the grammar of all it
// passes and allocates nothing. After a mistake in the text every method fails,
// so that a loop needs to look at bad only once, at its end.
type scan struct {
	b     []byte
	i     int
	depth int
	first bool   // nothing of the container just opened was read
	bad   bool   // the text is not JSON
	key   []byte // of the last member, as written, without its quotes
	plain bool   // key holds no escapes
}

func (s *scan) fail() { s.bad = true }

func (s *scan) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek gives the next byte after white space, 0 at the end.
func (s *scan) peek() byte {
	s.space()
	if s.i >= len(s.b) {
		return 0
	}
	return s.b[s.i]
}

// open enters an object ('{') or an array ('['). It reports false, and stays
// where it is, when something else stands there.
func (s *scan) open(c byte) bool {
	if s.bad || s.peek() != c {
		return false
	}
	if s.depth++; s.depth > maxDepth {
		s.fail()
		return false
	}
	s.i++
	s.first = true
	return true
}

// step leaves the container at its closing byte, else goes to the next entry.
func (s *scan) step(closing byte) bool {
	if s.bad {
		return false
	}
	c := s.peek()
	if c == closing {
		s.i++
		s.depth--
		s.first = false
		return false
	}
	if !s.first {
		if c != ',' {
			s.fail()
			return false
		}
		s.i++
		s.space()
	}
	s.first = false
	return true
}

// member goes to the value of the object's next member and sets key. The
// caller must then read that value, at least with skip.
func (s *scan) member() bool {
	if !s.step('}') {
		return false
	}
	from := s.i
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		s.fail()
		return false
	}
	s.plain = !s.str()
	if s.bad {
		return false
	}
	s.key = s.b[from+1 : s.i-1]
	if s.peek() != ':' {
		s.fail()
		return false
	}
	s.i++
	s.space()
	return true
}

// element goes to the array's next element, which the caller must read.
func (s *scan) element() bool { return s.step(']') }

// is reports whether the last member is called name, in whatever spelling.
func (s *scan) is(name string) bool {
	if s.plain {
		return string(s.key) == name
	}
	return unquote(s.key) == name
}

// unquote gives the text of a checked JSON string without its quotes.
func unquote(raw []byte) string {
	var text string
	quoted := append(append([]byte{'"'}, raw...), '"')
	if json.Unmarshal(quoted, &text) != nil {
		return ""
	}
	return text
}

// end reports whether the text was JSON and is over.
func (s *scan) end() bool {
	s.space()
	return !s.bad && s.i == len(s.b)
}

// skip passes over one value. It reports whether there is anything in it: null,
// false, "", [] and {} are empty, numbers are not.
func (s *scan) skip() bool {
	switch c := s.peek(); {
	case s.bad:
		return false
	case c == '"':
		from := s.i
		s.str()
		return s.i-from > 2
	case c == '{':
		n := 0
		for s.open('{'); s.member(); n++ {
			s.skip()
		}
		return n > 0
	case c == '[':
		n := 0
		for s.open('['); s.element(); n++ {
			s.skip()
		}
		return n > 0
	case c == 't':
		s.word("true")
		return true
	case c == 'f':
		s.word("false")
	case c == 'n':
		s.word("null")
	case c == '-' || c >= '0' && c <= '9':
		s.number()
		return true
	default:
		s.fail()
	}
	return false
}

// text passes over one value and gives it, as written, between the quotes if
// it is a string, else nil.
func (s *scan) text() []byte {
	if s.peek() != '"' {
		s.skip()
		return nil
	}
	from := s.i
	if s.str(); s.bad {
		return nil
	}
	return s.b[from+1 : s.i-1]
}

// count passes over one value and gives it if it is a whole number between 0
// and 2^40, else 0.
func (s *scan) count() int64 {
	s.space()
	from := s.i
	if s.skip(); s.bad {
		return 0
	}
	var n int64
	for _, c := range s.b[from:s.i] {
		if c < '0' || c > '9' {
			return 0
		}
		if n = n*10 + int64(c-'0'); n > 1<<40 {
			return 0
		}
	}
	return n
}

func (s *scan) word(w string) {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		s.fail()
		return
	}
	s.i += len(w)
}

func (s *scan) digits() bool {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > from
}

func (s *scan) number() {
	at := func(set string) bool {
		if s.i < len(s.b) {
			for _, c := range []byte(set) {
				if s.b[s.i] == c {
					s.i++
					return true
				}
			}
		}
		return false
	}
	at("-")
	if !at("0") && !s.digits() {
		s.fail()
		return
	}
	if at(".") && !s.digits() {
		s.fail()
		return
	}
	if at("eE") {
		at("+-")
		if !s.digits() {
			s.fail()
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// ordinary reports whether none of the 8 bytes in x ends or escapes a string
// or is a control character. It may say no too often, never yes.
func ordinary(x uint64) bool {
	quote, slash := x^(ones*'"'), x^(ones*'\\')
	return ((x-ones*0x20)&^x|(quote-ones)&^quote|(slash-ones)&^slash)&highs == 0
}

// str passes over the string that starts here, and reports whether it holds
// escapes.
func (s *scan) str() (escapes bool) {
	b, i := s.b, s.i+1
	for {
		for i+8 <= len(b) && ordinary(binary.LittleEndian.Uint64(b[i:])) {
			i += 8
		}
		for i < len(b) && b[i] >= 0x20 && b[i] != '"' && b[i] != '\\' {
			i++
		}
		if i >= len(b) || b[i] < 0x20 {
			s.fail()
			return escapes
		}
		if b[i] == '"' {
			s.i = i + 1
			return escapes
		}
		escapes = true
		if i = escape(b, i); i < 0 {
			s.fail()
			return escapes
		}
	}
}

// escape gives the index behind the escape at b[i], or -1.
func escape(b []byte, i int) int {
	if i+1 >= len(b) {
		return -1
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
	default:
		return -1
	}
	if i+6 > len(b) {
		return -1
	}
	for _, c := range b[i+2 : i+6] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return -1
		}
	}
	return i + 6
}

// quote gives text as a JSON string.
func quote(text string) []byte {
	for i := 0; i < len(text); i++ {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			b, err := json.Marshal(text)
			if err != nil { // a string always has a JSON form
				return []byte(`""`)
			}
			return b
		}
	}
	return append(append(append(make([]byte, 0, len(text)+2), '"'), text...), '"')
}
