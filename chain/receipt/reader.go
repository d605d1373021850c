package receipt

// deepest is how deep values may nest, as in the library.
const deepest = 10_000

// reader passes over JSON and checks it on the way: it takes just what
// [json.Valid] takes, in a fraction of its time. What is false is no JSON, and ends
// the reading.
type reader struct {
	b     []byte
	at    int // next byte of b
	depth int
}

// end reports whether nothing but blanks is left.
func (r *reader) end() bool {
	r.at = blanks(r.b, r.at)
	return r.at == len(r.b)
}

func (r *reader) peek() byte {
	if r.at < len(r.b) {
		return r.b[r.at]
	}
	return 0
}

// value takes one value; blanks before it must be gone.
func (r *reader) value() bool {
	switch c := r.peek(); c {
	case '"':
		return r.text()
	case '{':
		return r.object(func([]byte) bool { return r.value() })
	case '[':
		return r.array(r.value)
	case 't':
		return r.word("true")
	case 'f':
		return r.word("false")
	case 'n':
		return r.word("null")
	}
	return r.number()
}

// object takes one value, an object with each value of its members by member.
func (r *reader) object(member func(name []byte) bool) bool {
	if r.peek() != '{' {
		return r.value()
	}
	return r.list('}', func() bool {
		from := r.at
		if r.peek() != '"' || !r.text() {
			return false
		}
		name := r.b[from+1 : r.at-1]
		if r.at = blanks(r.b, r.at); r.peek() != ':' {
			return false
		}
		r.at = blanks(r.b, r.at+1)
		return member(name)
	})
}

// array takes one value, an array with each of its elements by element.
func (r *reader) array(element func() bool) bool {
	if r.peek() != '[' {
		return r.value()
	}
	return r.list(']', element)
}

// list takes what stands between two brackets, the first of which is next.
func (r *reader) list(last byte, item func() bool) bool {
	if r.depth++; r.depth > deepest {
		return false
	}
	if r.at = blanks(r.b, r.at+1); r.peek() != last {
		for {
			if !item() {
				return false
			}
			if r.at = blanks(r.b, r.at); r.peek() != ',' {
				break
			}
			r.at = blanks(r.b, r.at+1)
		}
	}
	r.depth--
	if r.peek() != last {
		return false
	}
	r.at++
	return true
}

func (r *reader) word(w string) bool {
	if len(r.b)-r.at < len(w) || string(r.b[r.at:r.at+len(w)]) != w {
		return false
	}
	r.at += len(w)
	return true
}

// text takes one string.
func (r *reader) text() bool {
	for at := r.at + 1; at < len(r.b); {
		switch c := r.b[at]; {
		case c == '"':
			r.at = at + 1
			return true
		case c < ' ':
			return false
		case c != '\\':
			at++
		case at+1 == len(r.b):
			return false
		case r.b[at+1] == 'u':
			if at+6 > len(r.b) || !hexadecimal(r.b[at+2:at+6]) {
				return false
			}
			at += 6
		case unescaped[r.b[at+1]] == 0:
			return false
		default:
			at += 2
		}
	}
	return false
}

func hexadecimal(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}

// number takes one number.
func (r *reader) number() bool {
	if r.peek() == '-' {
		r.at++
	}
	if r.peek() == '0' {
		r.at++
	} else if !r.digits() {
		return false
	}
	if r.peek() == '.' {
		if r.at++; !r.digits() {
			return false
		}
	}
	if r.peek()|0x20 != 'e' {
		return true
	}
	if r.at++; r.peek() == '+' || r.peek() == '-' {
		r.at++
	}
	return r.digits()
}

// digits takes digits and reports whether there was one.
func (r *reader) digits() bool {
	from := r.at
	for r.at < len(r.b) && r.b[r.at] >= '0' && r.b[r.at] <= '9' {
		r.at++
	}
	return r.at > from
}
