package classify

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// How much of a text is looked at, in bytes: a request stands at the beginning or
// at the end of what it is about.
const (
	head = 4 << 10
	rest = 2 << 10
)

// group is a kind of words.
type group int

const (
	analysis group     = iota // compare, evaluate, why
	design                    // plan, build, architecture
	writing                   // an essay, a report
	code                      // a function, a bug
	math                      // prove, derive
	depth                     // in detail, step by step
	sequence                  // first, then, finally
	vague                     // tell me about, help me with: anything may come
	lookup                    // who is, translate, define
	greeting                  // hello, thanks
	weighed                   // how many of the groups have a worth
	act      = weighed        // download, send, run
	tool     = weighed + 1
	groups   = weighed + 2
)

func (g group) word() string {
	return [groups]string{"analysis", "design", "writing", "code", "math", "depth", "sequence", "vague", "lookup", "greeting", "act", "tool"}[g]
}

// worth is what the first word of a group tells, and each further one.
type worth struct{ first, more float64 }

var worths = [weighed]worth{
	analysis: {2, 1}, design: {2, 1}, writing: {2, 0.5}, code: {1.5, 0.5}, math: {2, 0.5}, depth: {1.5, 0.5}, sequence: {1, 0.5},
	vague: {1, 0}, lookup: {-1.5, -0.5}, greeting: {-2, 0},
}

// signs are what a text shows.
type signs struct {
	count     [groups]int // different phrases of each group
	size      int         // in characters; those that are words of their own count for more
	items     int         // lines that begin like those of a list
	clauses   int         // ends of clauses and sentences
	questions int
	fence     bool // a block of code
	link      bool
}

// phrase is what is looked for, folded. A stem is the beginning of a word.
type phrase struct {
	text  string
	stem  bool
	group group
	id    int
}

// key is the beginning of a phrase: three letters, or one sign of a script with
// many.
type key [3]byte

// maxPhrases is for how many there is room in a set of those seen.
const maxPhrases = 4096

var index = sync.OnceValue(func() map[key][]phrase {
	m := map[key][]phrase{}
	id := 0
	for g, lines := range words {
		for entry := range strings.SplitSeq(strings.ReplaceAll(lines, "\n", ","), ",") {
			entry = strings.TrimSpace(entry)
			if entry == "" {
				continue
			}
			body, stem := strings.CutSuffix(entry, "*")
			p := phrase{text: string(fold(nil, body)), stem: stem, group: group(g), id: id}
			if last, _ := utf8.DecodeLastRuneInString(p.text); dense(last) {
				p.stem = true
			}
			if len(p.text) < 3 || id >= maxPhrases {
				panic("BUG: phrase " + entry)
			}
			k := key([]byte(p.text[:3]))
			m[k] = append(m[k], p)
			id++
		}
	}
	return m
})

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, head+rest+64); return &b }}

// look reads the signs of text.
func look(text string) signs {
	var s signs
	if len(text) > head+rest {
		s.size = len(text) - head - rest
		text = strings.ToValidUTF8(text[:head], "") + "\n" + strings.ToValidUTF8(text[len(text)-rest:], "")
	}
	s.form(text)
	buf := buffers.Get().(*[]byte)
	*buf = fold((*buf)[:0], text)
	s.find(*buf)
	buffers.Put(buf)
	return s
}

// form reads what is not words: length, lists, questions, links, code.
func (s *signs) form(text string) {
	for _, r := range text {
		s.size++
		switch r {
		case '?', '？', '؟':
			s.questions++
			s.clauses++
		case ',', ';', ':', '!', '.', '，', '、', '；', '：', '。', '！', '।':
			s.clauses++
		default:
			if dense(r) {
				s.size += 2
			}
		}
	}
	for line := range strings.Lines(text) {
		if listed(strings.TrimLeft(line, " \t")) {
			s.items++
		}
	}
	s.fence = strings.Contains(text, "```")
	s.link = strings.Contains(text, "http://") || strings.Contains(text, "https://") || strings.Contains(text, "www.")
}

// listed reports whether a line begins like one of a list.
func listed(line string) bool {
	for _, mark := range []string{"- ", "* ", "• ", "– "} {
		if strings.HasPrefix(line, mark) {
			return true
		}
	}
	digits := len(line) - len(strings.TrimLeft(line, "0123456789"))
	if digits == 0 || digits > 2 {
		return false
	}
	after := line[digits:]
	return strings.HasPrefix(after, ". ") || strings.HasPrefix(after, ") ") || strings.HasPrefix(after, "、") || strings.HasPrefix(after, "．")
}

// find counts the phrases in b, which is folded. They begin where a word begins.
func (s *signs) find(b []byte) {
	var seen [maxPhrases / 64]uint64
	phrases := index()
	inside := false // the sign before belongs to a word
	for i := 0; i+3 <= len(b); {
		r, n := rune(b[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(b[i:])
		}
		is := within(r)
		if is && (!inside || dense(r)) {
			for _, p := range phrases[key(b[i:i+3])] {
				if bit := uint64(1) << (p.id % 64); seen[p.id/64]&bit == 0 && p.at(b[i:]) {
					seen[p.id/64] |= bit
					s.count[p.group]++
				}
			}
		}
		inside = is
		i += n
	}
}

// at reports whether b begins with p.
func (p phrase) at(b []byte) bool {
	if len(b) < len(p.text) || string(b[:len(p.text)]) != p.text {
		return false
	}
	if p.stem || len(b) == len(p.text) {
		return true
	}
	next, _ := utf8.DecodeRune(b[len(p.text):])
	return !within(next) || dense(next)
}

// within reports whether r is a part of a word.
func within(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
	}
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r)
}

// dense reports whether r is of a script that puts no spaces between words.
func dense(r rune) bool {
	return r >= 0x3040 && (r <= 0x30ff || r >= 0x3400 && r <= 0x9fff || r >= 0xf900 && r <= 0xfaff || r >= 0x20000 && r <= 0x3ffff)
}

// fold appends text in lower case, without the accents of Latin letters, any
// white space as one space.
func fold(b []byte, text string) []byte {
	space := true
	for _, r := range text {
		switch {
		case r >= 'A' && r <= 'Z':
			r += 'a' - 'A'
		case r < utf8.RuneSelf:
		case r >= 0xc0 && r < 0x180:
			r = rune(plain[r-0xc0])
		case r == '’':
			r = '\''
		default:
			r = unicode.ToLower(r)
		}
		if r == ' ' || r == '\n' || r == '\t' || r == '\r' || r == 0x3000 || r == 0xa0 {
			if !space {
				b = append(b, ' ')
			}
			space = true
			continue
		}
		space = false
		b = utf8.AppendRune(b, r)
	}
	return b
}

// plain are the letters of U+00C0 to U+017F without their accents.
const plain = "aaaaaaaceeeeiiiidnooooo ouuuuytsaaaaaaaceeeeiiiidnooooo ouuuuyty" +
	"aaaaaaccccccccddddeeeeeeeeeegggggggghhhhiiiiiiiiiiiijjkkkllllllllllnnnnnnnnnoooooooorrrrrrssssssssttttttuuuuuuuuuuuuwwyyyzzzzzzs"
