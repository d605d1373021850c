package receipt

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// ErrJSON is wrapped by every refusal of bytes that have no RFC 8785 form.
var ErrJSON = errors.New("no RFC 8785 form")

// Bounds of what is hashed: the largest body that an edge can be set to accept,
// and its deepest nesting.
const (
	MaxBytes = 64 << 20
	MaxDepth = 512
)

// Canonical gives the RFC 8785 form of one JSON document: no spaces, names in
// the order of their UTF-16 units, numbers as the double that they name, strings
// with the fewest escapes. Refused are names that repeat, lone surrogates,
// invalid UTF-8, numbers beyond a double, data after the document, more than
// [MaxBytes] and more than [MaxDepth]. b is not changed. Errors wrap [ErrJSON]
// and hold nothing of b but places.
//
// It writes the form while it reads, without a tree: what a stranger sends costs
// a few times its length in memory.
func Canonical(b []byte) ([]byte, error) { return new(canon).document(b, "") }

// document gives the canonical form of b without the member drop of a top-level
// object. It is c's, and valid until c is used again.
func (c *canon) document(b []byte, drop string) ([]byte, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrJSON, len(b), MaxBytes)
	}
	*c = canon{in: b, out: slices.Grow(c.out[:0], len(b)), drop: drop, members: c.members[:0], scratch: c.scratch[:0]}
	c.space()
	if err := c.value(); err != nil {
		return nil, err
	}
	if c.space(); c.at < len(b) {
		return nil, c.fail("data after the document")
	}
	return c.out, nil
}

// maxPooled is how large a form may be for its memory to be used again.
const maxPooled = 64 << 10

var forms = sync.Pool{New: func() any { return new(canon) }}

// recycle lets the memory of c be used again, but not what it was made of.
func (c *canon) recycle() {
	if cap(c.out) <= maxPooled {
		c.in = nil
		forms.Put(c)
	}
}

// canon is one document on its way.
type canon struct {
	in    []byte
	at    int // next byte of in
	out   []byte
	depth int
	drop  string // name of a top-level member to leave out, "" for none

	members []member // of the open objects, the innermost object's last
	scratch []byte
}

// member is a span of canon.out: a name with its quotes, a colon, a value, a comma.
type member struct{ from, colon, to int }

func (c *canon) fail(what string) error {
	if c.at >= len(c.in) {
		what = "it ends early"
	}
	return c.refuse(what)
}

// refuse is fail where all that there is was read, and is wrong.
func (c *canon) refuse(what string) error {
	return fmt.Errorf("%w: %s, at byte %d", ErrJSON, what, c.at)
}

func (c *canon) space() {
	for c.at < len(c.in) {
		switch c.in[c.at] {
		case ' ', '\t', '\n', '\r':
			c.at++
		default:
			return
		}
	}
}

// peek gives the next byte, 0 at the end: no token begins with it.
func (c *canon) peek() byte {
	if c.at < len(c.in) {
		return c.in[c.at]
	}
	return 0
}

// value takes one value; space before it must be gone.
func (c *canon) value() error {
	switch b := c.peek(); {
	case b == '"':
		return c.text()
	case b == '{':
		return c.nested(c.object)
	case b == '[':
		return c.nested(c.array)
	case b == '-' || b >= '0' && b <= '9':
		return c.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if len(c.in)-c.at >= len(word) && string(c.in[c.at:c.at+len(word)]) == word {
			c.at += len(word)
			c.out = append(c.out, word...)
			return nil
		}
	}
	return c.fail("no value")
}

// nested takes an array or an object: its opening byte here, the rest by inner.
func (c *canon) nested(inner func() error) error {
	if c.depth++; c.depth > MaxDepth {
		return c.fail(fmt.Sprintf("nested deeper than %d", MaxDepth))
	}
	c.out = append(c.out, c.in[c.at])
	c.at++
	c.space()
	err := inner()
	c.depth--
	return err
}

func (c *canon) array() error {
	for first := true; c.peek() != ']'; first = false {
		if !first {
			if err := c.comma(); err != nil {
				return err
			}
			c.out = append(c.out, ',')
		}
		if err := c.value(); err != nil {
			return err
		}
		c.space()
	}
	c.at++
	c.out = append(c.out, ']')
	return nil
}

func (c *canon) comma() error {
	if c.peek() != ',' {
		return c.fail("no comma")
	}
	c.at++
	c.space()
	return nil
}

func (c *canon) object() error {
	start, base, dropped := len(c.out), len(c.members), false
	for first := true; c.peek() != '}'; first = false {
		if !first {
			if err := c.comma(); err != nil {
				return err
			}
		}
		m, err := c.member()
		if err != nil {
			return err
		}
		if c.drop != "" && c.depth == 1 && string(c.out[m.from+1:m.colon-1]) == c.drop {
			if dropped {
				return c.refuse("a name stands twice")
			}
			dropped, c.out = true, c.out[:m.from]
			continue
		}
		c.members = append(c.members, m)
	}
	c.at++
	if err := c.order(start, c.members[base:]); err != nil {
		return err
	}
	c.members = c.members[:base]
	if end := len(c.out); end > start {
		c.out = c.out[:end-1] // the last comma
	}
	c.out = append(c.out, '}')
	return nil
}

func (c *canon) member() (member, error) {
	m := member{from: len(c.out)}
	if c.peek() != '"' {
		return m, c.fail("no name")
	}
	if err := c.text(); err != nil {
		return m, err
	}
	m.colon = len(c.out)
	if c.space(); c.peek() != ':' {
		return m, c.fail("no colon")
	}
	c.at++
	c.out = append(c.out, ':')
	c.space()
	if err := c.value(); err != nil {
		return m, err
	}
	c.space()
	c.out = append(c.out, ',')
	m.to = len(c.out)
	return m, nil
}

// order brings the members that stand in out from start on into their order.
func (c *canon) order(start int, members []member) error {
	name := func(m member) []byte { return c.out[m.from+1 : m.colon-1] }
	byName := func(a, b member) int { return compareNames(name(a), name(b)) }
	sorted := slices.IsSortedFunc(members, byName)
	if !sorted {
		slices.SortFunc(members, byName)
	}
	for i := 1; i < len(members); i++ {
		if byName(members[i-1], members[i]) == 0 {
			return c.refuse("a name stands twice")
		}
	}
	if sorted {
		return nil
	}
	c.scratch = append(c.scratch[:0], c.out[start:]...)
	c.out = c.out[:start]
	for _, m := range members {
		c.out = append(c.out, c.scratch[m.from-start:m.to-start]...)
	}
	return nil
}

// compareNames compares two names, as they stand between quotes in a canonical
// form, by their UTF-16 units. That differs from the order of their bytes where
// one has a character beyond the first plane, or an escape.
func compareNames(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		var x, y rune
		x, a = nextRune(a)
		y, b = nextRune(b)
		if x != y {
			if xu, yu := firstUnit(x), firstUnit(y); xu != yu {
				return int(xu) - int(yu)
			}
			return int(x) - int(y)
		}
	}
	return len(a) - len(b)
}

func firstUnit(r rune) rune {
	if r < 0x10000 {
		return r
	}
	high, _ := utf16.EncodeRune(r)
	return high
}

// nextRune takes one character, or one escape of the canonical form, off b.
func nextRune(b []byte) (rune, []byte) {
	if b[0] != '\\' {
		r, n := utf8.DecodeRune(b)
		return r, b[n:]
	}
	if b[1] == 'u' {
		n, _ := strconv.ParseUint(string(b[2:6]), 16, 16)
		return rune(n), b[6:]
	}
	return rune(unescaped[b[1]]), b[2:]
}

// escaped is what stands behind a backslash for a byte, unescaped the way back.
var escaped, unescaped = func() (to, from [256]byte) {
	for i, c := range []byte("\"\\\b\f\n\r\t") {
		letter := `"\bfnrt`[i]
		to[c], from[letter] = letter, c
	}
	from['/'] = '/'
	return to, from
}()

// text takes one string.
func (c *canon) text() error {
	c.at++
	c.out = append(c.out, '"')
	for {
		from := c.at
		for c.at < len(c.in) && c.in[c.at] >= ' ' && c.in[c.at] < utf8.RuneSelf && c.in[c.at] != '"' && c.in[c.at] != '\\' {
			c.at++
		}
		c.out = append(c.out, c.in[from:c.at]...)
		switch b := c.peek(); {
		case b == '"':
			c.at++
			c.out = append(c.out, '"')
			return nil
		case b == '\\':
			if err := c.escape(); err != nil {
				return err
			}
		case b < ' ':
			return c.fail("a control character in a string")
		default:
			r, n := utf8.DecodeRune(c.in[c.at:])
			if r == utf8.RuneError && n == 1 {
				return c.fail("invalid UTF-8")
			}
			c.out = append(c.out, c.in[c.at:c.at+n]...)
			c.at += n
		}
	}
}

// escape takes one escape, or two that make a character.
func (c *canon) escape() error {
	if c.at+1 >= len(c.in) {
		c.at = len(c.in)
		return c.fail("")
	}
	letter := c.in[c.at+1]
	if letter != 'u' {
		b := unescaped[letter]
		if b == 0 {
			return c.fail("an unknown escape")
		}
		c.at += 2
		c.write(rune(b))
		return nil
	}
	r, err := c.unit()
	if err != nil {
		return err
	}
	if utf16.IsSurrogate(r) {
		if c.at+1 >= len(c.in) || c.in[c.at] != '\\' || c.in[c.at+1] != 'u' {
			return c.fail("a lone surrogate")
		}
		low, err := c.unit()
		if err != nil {
			return err
		}
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return c.fail("a lone surrogate")
		}
	}
	c.write(r)
	return nil
}

// unit takes one \uXXXX.
func (c *canon) unit() (rune, error) {
	if c.at+6 > len(c.in) {
		c.at = len(c.in)
		return 0, c.fail("")
	}
	var r rune
	for _, b := range c.in[c.at+2 : c.at+6] {
		switch {
		case b >= '0' && b <= '9':
			b -= '0'
		case b >= 'a' && b <= 'f':
			b -= 'a' - 10
		case b >= 'A' && b <= 'F':
			b -= 'A' - 10
		default:
			return 0, c.fail("an escape without four hex digits")
		}
		r = r<<4 | rune(b)
	}
	c.at += 6
	return r, nil
}

// write appends a character as it stands in a canonical string.
func (c *canon) write(r rune) {
	switch {
	case r < ' ' && escaped[r] == 0:
		c.out = fmt.Appendf(c.out, `\u%04x`, r)
	case r < utf8.RuneSelf && escaped[r] != 0:
		c.out = append(c.out, '\\', escaped[r])
	default:
		c.out = utf8.AppendRune(c.out, r)
	}
}

// exact is how many digits every integer of that length has as a double: they
// are their own canonical form.
const exact = 15

// number takes one number.
func (c *canon) number() error {
	from := c.at
	if c.peek() == '-' {
		c.at++
	}
	digits := c.at
	if c.peek() == '0' {
		c.at++
	} else if !c.digits() {
		return c.fail("no number")
	}
	if n := c.at - digits; n <= exact && c.in[digits] != '0' && !slices.Contains([]byte(".eE"), c.peek()) {
		c.out = append(c.out, c.in[from:c.at]...)
		return nil
	}
	if c.peek() == '.' {
		c.at++
		if !c.digits() {
			return c.fail("no number")
		}
	}
	if c.peek() == 'e' || c.peek() == 'E' {
		c.at++
		if c.peek() == '+' || c.peek() == '-' {
			c.at++
		}
		if !c.digits() {
			return c.fail("no number")
		}
	}
	f, err := strconv.ParseFloat(string(c.in[from:c.at]), 64)
	if err != nil {
		return c.refuse("a number beyond a double")
	}
	text, err := jcs.NumberToJSON(f)
	if err != nil {
		return c.refuse("a number beyond a double")
	}
	c.out = append(c.out, text...)
	return nil
}

// digits takes digits and reports whether there was one.
func (c *canon) digits() bool {
	from := c.at
	for c.at < len(c.in) && c.in[c.at] >= '0' && c.in[c.at] <= '9' {
		c.at++
	}
	return c.at > from
}
