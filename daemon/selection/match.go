package selection

import (
	"math"
	"slices"
	"time"
	"unicode/utf8"
)

// The scale of a score: one keyword is worth 1.
const (
	enough     = 1.0  // the least score that is a match
	margin     = 0.25 // the least lead over the second best
	lookslike  = 0.55 // the least likeness to an example that counts
	likeness   = 2.0  // what a text that is an example is worth, times its likeness
	inside     = 0.15 // the weight of a keyword that stands neither at the beginning nor at the end
	perPhrase  = 0.5  // more for each further word of a keyword
	checkEvery = 64   // words between two looks at the time
)

// Taxonomy is a compiled seed file. It never changes, and may be used from many
// goroutines at once.
type Taxonomy struct {
	date         time.Time
	capabilities []Capability

	keywords []keyword
	exact    map[string][]int32 // first word → keywords
	starred  map[string][]int32 // first word without its star → keywords
	lengths  []int              // of starred, ascending
	dense    map[string][]int32 // keyword of a script without spaces → keywords
	spans    []int              // lengths of dense, ascending

	stems    map[string]int32 // → index of weights and postings
	weights  []float64
	postings [][]posting
	examples []example
}

// keyword is a row of words. The last one may be the beginning of a word.
type keyword struct {
	capability int32
	words      []string
	star       bool
	weight     float64
}

type posting struct {
	example int32
	weight  float64
}

type example struct{ capability int32 }

// Match finds the capability that text asks for: false if none does clearly, or
// if expired said so first. expired may be nil; it is called now and then, and
// bounds the time. Nothing of text is kept.
func (t *Taxonomy) Match(text []byte, expired func() bool) (Capability, bool) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.fold(text)
	return t.match(s, expired)
}

// MatchJSON is Match for a text as the JSON string that holds it, quotes included.
func (t *Taxonomy) MatchJSON(text []byte, expired func() bool) (Capability, bool) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.fold(s.unquoted(text))
	return t.match(s, expired)
}

func (t *Taxonomy) match(s *scratch, expired func() bool) (Capability, bool) {
	s.scores = zeroed(s.scores, len(t.capabilities))
	if !t.scoreKeywords(s, expired) || !t.scoreExamples(s, expired) {
		return Capability{}, false
	}
	best, second := -1, 0.0
	for i, v := range s.scores {
		switch {
		case best < 0 || v > s.scores[best]:
			if best >= 0 {
				second = s.scores[best]
			}
			best = i
		case v > second:
			second = v
		}
	}
	if best < 0 || s.scores[best] < enough || s.scores[best]-second < margin {
		return Capability{}, false
	}
	return t.capabilities[best], true
}

// place is the weight of what stands at word i.
func (s *scratch) place(i int) float64 {
	if i < headWords || i >= len(s.words)-tailWords {
		return 1
	}
	return inside
}

func (t *Taxonomy) scoreKeywords(s *scratch, expired func() bool) bool {
	s.hit, s.within = s.hit[:0], s.within[:0]
	for i, w := range s.words {
		if i%checkEvery == checkEvery-1 && expired != nil && expired() {
			return false
		}
		text := s.text[w.from:w.to]
		if w.dense {
			t.scoreDense(s, i, text)
			continue
		}
		for _, k := range t.exact[string(text)] {
			t.count(s, k, i)
		}
		for _, n := range t.lengths {
			if n > len(text) {
				break
			}
			for _, k := range t.starred[string(text[:n])] {
				t.count(s, k, i)
			}
		}
	}
	return true
}

// scoreDense looks for keywords anywhere in a run of letters without spaces.
func (t *Taxonomy) scoreDense(s *scratch, i int, text []byte) {
	for at := 0; at < len(text); {
		for _, n := range t.spans {
			if at+n > len(text) {
				break
			}
			for _, k := range t.dense[string(text[at:at+n])] {
				t.count(s, k, i)
			}
		}
		_, n := utf8.DecodeRune(text[at:])
		at += n
	}
}

// count adds keyword k to its capability's score if the words from i on are it. A
// keyword counts once at the ends and once between them.
func (t *Taxonomy) count(s *scratch, k int32, i int) {
	kw := &t.keywords[k]
	if slices.Contains(s.hit, k) || i+len(kw.words) > len(s.words) {
		return
	}
	for j := 1; j < len(kw.words); j++ {
		w := s.words[i+j]
		have, want := s.text[w.from:w.to], kw.words[j]
		if kw.star && j == len(kw.words)-1 && len(have) > len(want) {
			have = have[:len(want)]
		}
		if string(have) != want {
			return
		}
	}
	place := s.place(i)
	if place == 1 {
		s.hit = append(s.hit, k)
	} else {
		if slices.Contains(s.within, k) {
			return
		}
		s.within = append(s.within, k)
	}
	s.scores[kw.capability] += place * kw.weight
}

// scoreExamples adds what a request has of the example that it is most like.
func (t *Taxonomy) scoreExamples(s *scratch, expired func() bool) bool {
	if len(t.examples) == 0 || len(s.words) == 0 || expired != nil && expired() {
		return expired == nil || !expired()
	}
	s.dots = zeroed(s.dots, len(t.examples))
	s.seen = zeroed(s.seen, (len(t.weights)+63)/64)
	norm := 0.0
	for i, w := range s.words {
		if s.place(i) < 1 {
			continue
		}
		features(s.text[w.from:w.to], w.dense, func(f []byte) {
			at, ok := t.stems[string(f)]
			if !ok {
				norm += unknown
				return
			}
			if bit := uint64(1) << (at % 64); s.seen[at/64]&bit == 0 {
				s.seen[at/64] |= bit
				norm += t.weights[at] * t.weights[at]
				for _, p := range t.postings[at] {
					s.dots[p.example] += p.weight * t.weights[at]
				}
			}
		})
	}
	if norm == 0 {
		return true
	}
	norm = math.Sqrt(norm)
	s.likes = zeroed(s.likes, len(t.capabilities))
	for i, dot := range s.dots {
		c := t.examples[i].capability
		s.likes[c] = max(s.likes[c], dot/norm)
	}
	for c, like := range s.likes {
		if like >= lookslike {
			s.scores[c] += likeness * like
		}
	}
	return true
}

// unknown is the squared weight of a word that no example has.
const unknown = 0.35

// features gives what of a word is compared: its stem, or the pairs of letters of
// a run without spaces.
func features(w []byte, dense bool, each func([]byte)) {
	if !dense {
		each(stem(w))
		return
	}
	_, n := utf8.DecodeRune(w)
	if n == len(w) {
		each(w)
		return
	}
	for at := 0; at+n < len(w); {
		_, next := utf8.DecodeRune(w[at+n:])
		each(w[at : at+n+next])
		at += n
		n = next
	}
}

func zeroed[T any](list []T, n int) []T {
	if cap(list) < n {
		return make([]T, n)
	}
	list = list[:n]
	clear(list)
	return list
}
