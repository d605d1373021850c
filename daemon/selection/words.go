package selection

import (
	"bytes"
	"strconv"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// What of a text is looked at: an instruction stands at its beginning or at its
// end, and what is pasted between them is what it is about.
const (
	headBytes = 2 << 10
	tailBytes = 1 << 10
	headWords = 40
	tailWords = 20
)

// word is a span of scratch.text.
type word struct {
	from, to int
	dense    bool // of a script that puts no spaces between words
}

// scratch is what one match works in; it is used again.
type scratch struct {
	raw    []byte // of a JSON string, without its escapes
	text   []byte // folded
	words  []word
	tail   int // words from here on are of the text's end
	scores []float64
	dots   []float64 // by example
	likes  []float64 // by capability
	hit    []int32   // keywords that counted already
	within []int32   // those that counted where they weigh little
	seen   []uint64  // stems of the request
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// fold cuts text into words in lower case without accents. Of a long text it takes
// the two ends.
func (s *scratch) fold(text []byte) {
	s.text, s.words, s.tail = s.text[:0], s.words[:0], -1
	if len(text) <= headBytes+tailBytes {
		s.cut(text)
		return
	}
	s.cut(atRune(text[:headBytes], false))
	s.tail = len(s.words)
	s.cut(atRune(text[len(text)-tailBytes:], true))
}

// unquoted gives the text of a JSON string, of a long one the two ends. An escape
// that is cut in the middle gives letters of its own, which mean nothing.
func (s *scratch) unquoted(quoted []byte) []byte {
	if len(quoted) < 2 {
		return nil
	}
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	s.raw = s.raw[:0]
	if most := 6 * headBytes; len(inner) > 2*most { // an escape has six bytes at most
		s.raw = appendUnescaped(s.raw, inner[:most])
		inner = inner[len(inner)-most:]
	}
	s.raw = appendUnescaped(s.raw, inner)
	return s.raw
}

func appendUnescaped(b, escaped []byte) []byte {
	for len(escaped) > 0 {
		at := bytes.IndexByte(escaped, '\\')
		if at < 0 {
			return append(b, escaped...)
		}
		if at+1 == len(escaped) {
			return append(b, escaped[:at]...)
		}
		b = append(b, escaped[:at]...)
		c := escaped[at+1]
		escaped = escaped[at+2:]
		if c != 'u' {
			if c == '"' || c == '/' || c == '\\' {
				b = append(b, c)
			} else {
				b = append(b, ' ')
			}
			continue
		}
		r, ok := hex4(escaped)
		if !ok {
			return b
		}
		escaped = escaped[4:]
		if utf16.IsSurrogate(r) && len(escaped) >= 6 && escaped[0] == '\\' && escaped[1] == 'u' {
			if low, ok := hex4(escaped[2:]); ok {
				r, escaped = utf16.DecodeRune(r, low), escaped[6:]
			}
		}
		b = utf8.AppendRune(b, r)
	}
	return b
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[:4]), 16, 16)
	return rune(n), err == nil
}

// atRune trims the half rune that a cut left.
func atRune(b []byte, front bool) []byte {
	for range utf8.UTFMax - 1 {
		r, n := utf8.DecodeLastRune(b)
		if front {
			r, n = utf8.DecodeRune(b)
		}
		if len(b) == 0 || r != utf8.RuneError || n != 1 {
			break
		}
		if front {
			b = b[1:]
		} else {
			b = b[:len(b)-1]
		}
	}
	return b
}

func (s *scratch) cut(text []byte) {
	open, dense := -1, false
	end := func() {
		if open >= 0 {
			s.words = append(s.words, word{open, len(s.text), dense})
			s.text = append(s.text, ' ')
		}
		open = -1
	}
	for i := 0; i < len(text); {
		r, n := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(text[i:])
		}
		i += n
		if r < utf8.RuneSelf { // the usual case
			switch {
			case r >= 'A' && r <= 'Z':
				r += 'a' - 'A'
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', (r == '+' || r == '#') && open >= 0:
			default:
				end()
				continue
			}
			if dense {
				end()
			}
			if open < 0 {
				open, dense = len(s.text), false
			}
			s.text = append(s.text, byte(r))
			continue
		}
		if unicode.Is(unicode.Mn, r) && !unicode.Is(unicode.Thai, r) && !unicode.In(r, unicode.Devanagari, unicode.Bengali, unicode.Tamil) {
			continue // an accent that stands by itself
		}
		if !unicode.In(r, unicode.L, unicode.N, unicode.M) {
			end()
			continue
		}
		d := unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer)
		if open >= 0 && d != dense && r != 'ー' {
			end()
		}
		if open < 0 {
			open, dense = len(s.text), d
		}
		s.text = appendFolded(s.text, r)
	}
	end()
}

// plain are the letters below U+0180 with an accent, as the letters they are
// without it; 0 where there is none.
var plain = func() (t [0x180]byte) {
	for to, from := range map[byte]string{
		'a': "ÀÁÂÃÄÅàáâãäåĀāĂăĄą", 'c': "ÇçĆćĈĉĊċČč", 'd': "ĎďĐđ", 'e': "ÈÉÊËèéêëĒēĔĕĖėĘęĚě", 'g': "ĜĝĞğĠġĢģ", 'h': "ĤĥĦħ",
		'i': "ÌÍÎÏìíîïĨĩĪīĬĭĮįİı", 'j': "Ĵĵ", 'k': "Ķķ", 'l': "ĹĺĻļĽľĿŀŁł", 'n': "ÑñŃńŅņŇň", 'o': "ÒÓÔÕÖØòóôõöøŌōŎŏŐő",
		'r': "ŔŕŖŗŘř", 's': "ŚśŜŝŞşŠšß", 't': "ŢţŤťŦŧ", 'u': "ÙÚÛÜùúûüŨũŪūŬŭŮůŰűŲų", 'w': "Ŵŵ", 'y': "ÝýÿŶŷŸ", 'z': "ŹźŻżŽž",
	} {
		for _, r := range from {
			t[r] = to
		}
	}
	return t
}()

func appendFolded(b []byte, r rune) []byte {
	switch {
	case r < 0x180 && plain[r] != 0:
		return append(b, plain[r])
	case r >= 0x1EA0 && r <= 0x1EF9: // Vietnamese
		return append(b, "aaaaaaaaaaaaaaaaaaaaaaaaeeeeeeeeeeeeeeeeiiiioooooooooooooooooooooooouuuuuuuuuuuuuuyyyyyyyy"[r-0x1EA0])
	case r == 'ё' || r == 'Ё':
		return utf8.AppendRune(b, 'е')
	case r == 'أ' || r == 'إ' || r == 'آ':
		return utf8.AppendRune(b, 'ا')
	}
	return utf8.AppendRune(b, unicode.ToLower(r))
}

// stem is the beginning of a word, which is what its forms have in common.
func stem(w []byte) []byte {
	runes, at := 0, 0
	for at < len(w) && runes < stemRunes {
		_, n := utf8.DecodeRune(w[at:])
		at += n
		runes++
	}
	return w[:at]
}

const stemRunes = 5
