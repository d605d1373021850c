package receipt

import (
	"bytes"
	"encoding/json"
	"iter"
	"unicode/utf8"
)

// members gives the members of a JSON object in the order in which they stand, each
// with its name as it is spelt between the quotes and its value as it came. b has to
// be valid JSON; nothing is given of what is no object.
func members(b []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		at := blanks(b, 0)
		if at >= len(b) || b[at] != '{' {
			return
		}
		for at = blanks(b, at+1); at < len(b) && b[at] == '"'; at = blanks(b, at+1) {
			end := valueEnd(b, at)
			name := b[at+1 : end-1]
			at = blanks(b, blanks(b, end)+1) // behind the colon
			end = valueEnd(b, at)
			if !yield(name, b[at:end]) {
				return
			}
			if at = blanks(b, end); at >= len(b) || b[at] != ',' {
				return
			}
		}
	}
}

func blanks(b []byte, at int) int {
	for at < len(b) && (b[at] == ' ' || b[at] == '\t' || b[at] == '\n' || b[at] == '\r') {
		at++
	}
	return at
}

// valueEnd gives the place behind the value that begins at at.
func valueEnd(b []byte, at int) int {
	depth := 0
	for ; at < len(b); at++ {
		switch b[at] {
		case '"':
			at = textEnd(b, at) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return at
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return at
			}
			continue
		default:
			if depth > 0 {
				continue
			}
			for at+1 < len(b) && bytes.IndexByte([]byte(",]} \t\n\r"), b[at+1]) < 0 { // the rest of a word or number
				at++
			}
		}
		if depth == 0 {
			return at + 1
		}
	}
	return at
}

// textEnd gives the place behind the text whose first quote is at at.
func textEnd(b []byte, at int) int {
	for at++; at < len(b); at++ {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			break
		}
		escape := bytes.IndexByte(b[at:at+n], '\\')
		if escape < 0 {
			return at + n + 1
		}
		at += escape + 1 // at what is escaped
	}
	return len(b)
}

// plainText is what a JSON text says, where it says it as it stands: in UTF-8 and
// without escapes.
func plainText(value []byte) ([]byte, bool) {
	if len(value) < 2 || value[0] != '"' {
		return nil, false
	}
	inner := value[1 : len(value)-1]
	return inner, bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner)
}

// textOf reads a JSON text; false if value is none. Bytes that are no UTF-8 become
// U+FFFD, as in the library.
func textOf(value []byte) (string, bool) {
	if text, ok := plainText(value); ok {
		return string(text), true
	}
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(value, &s)
	return s, err == nil
}
