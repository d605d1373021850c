package builtin

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

//go:embed primer.txt
var primer string

// passage is one thing the model knows: ways to ask for it, and the text.
type passage struct {
	name   string
	asked  []string
	text   string
	first  int            // its questions are x.asks[first:first+len(asked)]
	words  map[string]int // of text and questions
	length float64
}

// pairs gives the neighbouring words of a question, its begin among them. They
// tell questions apart that differ in small words only.
func pairs(list []string) map[string]bool {
	m := make(map[string]bool, len(list))
	before := "^"
	for _, w := range list {
		m[before+" "+w] = true
		before = w
	}
	return m
}

// posting is one question that holds a word, and the word's part of it.
type posting struct {
	ask  int
	part float64
}

// vector is a question as weighted words of length 1.
type vector map[string]float64

// index is the model: the passages and what its words weigh.
type index struct {
	passages []passage
	weight   map[string]float64         // inverse document frequency
	pieces   map[string]map[string]bool // trigrams of each word
	strange  float64                    // what a word weighs that stands nowhere
	mean     float64                    // length of a passage in words
	asks     int                        // questions of all passages, numbered in their order
	wordIn   map[string][]posting       // the questions that hold a word
	pairIn   map[string][]int           // the questions that hold two neighbouring words
	size     []int                      // how many such pairs a question has
}

// load builds the index at its first call.
var load = sync.OnceValue(func() *index {
	passages, err := parse(primer)
	if err != nil { // the text is part of the binary, and a test reads it
		panic("BUG: primer.txt: " + err.Error())
	}
	return build(passages)
})

// parse reads the text: a passage begins with "# name", then come its questions,
// "? …", one a line, then its paragraphs. Lines of "%" are comments.
func parse(text string) ([]passage, error) {
	var list []passage
	names := map[string]bool{}
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch name, isName := strings.CutPrefix(line, "# "); {
		case strings.HasPrefix(line, "%"):
		case isName:
			if names[name] {
				return nil, fmt.Errorf("line %d: %s stands there twice", n+1, name)
			}
			names[name] = true
			list = append(list, passage{name: name})
		case len(list) == 0:
			if line != "" {
				return nil, fmt.Errorf("line %d: text before the first name", n+1)
			}
		case strings.HasPrefix(line, "? "):
			p := &list[len(list)-1]
			p.asked = append(p.asked, line[2:])
		default:
			p := &list[len(list)-1]
			switch {
			case line == "" && p.text != "" && !strings.HasSuffix(p.text, "\n\n"):
				p.text += "\n\n"
			case line != "":
				if p.text != "" && !strings.HasSuffix(p.text, "\n") {
					p.text += " "
				}
				p.text += line
			}
		}
	}
	for i := range list {
		p := &list[i]
		if p.text = strings.TrimSpace(p.text); p.text == "" || len(p.asked) == 0 {
			return nil, fmt.Errorf("passage %s: has no question or no text", p.name)
		}
	}
	return list, nil
}

// Weights of what a passage's score is made of, and BM25's constants. They and
// the threshold were set on the golden set.
const (
	byQuestion = 0.60 // cosine to the nearest way of asking
	byPairs    = 0.15 // neighbouring words shared with it
	byText     = 0.25 // BM25 over the passage, as a share of the most that is possible
	k1         = 1.2
	b          = 0.6
	stopWeight = 0.35
	misspelt   = 0.55 // how much of a word must be right
	sureOf     = 0.65 // from here on the model knows
	sureTrade  = 0.45 // the same for a question in words of the trade
	unsureOf   = 0.22 // from here on, for such a question, it offers what it has with a warning
)

func build(passages []passage) *index {
	x := &index{passages: passages, weight: map[string]float64{}, pieces: map[string]map[string]bool{},
		wordIn: map[string][]posting{}, pairIn: map[string][]int{}}
	found := map[string]int{}
	total := 0
	for i := range x.passages {
		p := &x.passages[i]
		p.words = map[string]int{}
		for _, w := range words(strings.Join(p.asked, " ")+" "+p.text, math.MaxInt) {
			p.words[w]++
			p.length++
			total++
		}
		for w := range p.words {
			found[w]++
		}
	}
	n := float64(len(x.passages))
	x.mean = float64(total) / n
	for w, k := range found {
		x.weight[w] = math.Log(1 + (n-float64(k)+0.5)/(float64(k)+0.5))
		x.pieces[w] = trigrams(w)
	}
	x.strange = math.Log(1 + n/2)
	for w := range stop {
		x.weight[w] = stopWeight
	}
	for i := range x.passages {
		p := &x.passages[i]
		p.first = x.asks
		for _, a := range p.asked {
			list := words(a, math.MaxInt)
			for w, part := range x.vector(list) {
				x.wordIn[w] = append(x.wordIn[w], posting{x.asks, part})
			}
			two := pairs(list)
			for pair := range two {
				x.pairIn[pair] = append(x.pairIn[pair], x.asks)
			}
			x.asks++
			x.size = append(x.size, len(two))
		}
	}
	return x
}

// vector weighs the words of a question, misspelt ones under the word they were
// meant to be. A word that stands nowhere keeps its place, and weighs the more.
func (x *index) vector(list []string) vector {
	v := vector{}
	for _, w := range list {
		if weight, ok := x.weight[w]; ok {
			v[w] = weight
		} else if near, likeness := x.nearest(w); near != "" {
			v[near] = max(v[near], x.weight[near]*likeness)
		} else {
			v[w] = x.strange
		}
	}
	var sum float64
	for _, weight := range v {
		sum += weight * weight
	}
	for w := range v {
		v[w] /= math.Sqrt(sum)
	}
	return v
}

// nearest gives the known word that w is most like, if it is like any.
func (x *index) nearest(w string) (near string, likeness float64) {
	if len(w) < 5 || len(w) > 32 {
		return "", 0
	}
	pieces := trigrams(w)
	for known, k := range x.pieces {
		if len(known) < 4 || stop[known] {
			continue
		}
		if a := alike(pieces, k); a > likeness || a == likeness && known < near {
			near, likeness = known, a
		}
	}
	if likeness < misspelt {
		return "", 0
	}
	return near, likeness
}

// longest is how many words of a question are looked at.
const longest = 64

// certainty is what a found passage is worth.
type certainty int

const (
	unknown certainty = iota
	unsure
	known
)

// find gives the passage that answers the question best, with its score, 0 to 1,
// and what that is worth.
func (x *index) find(question string) (best *passage, sure float64, worth certainty) {
	list := words(question, longest)
	v := x.vector(list)
	likeness := x.likeness(v, pairs(list))
	for i := range x.passages {
		p := &x.passages[i]
		asks := likeness[p.first : p.first+len(p.asked)]
		if score := (slices.Max(asks) + byText*x.bm25(v, p)) * p.covers(v); score > sure {
			best, sure = p, score
		}
	}
	switch inTrade := slices.ContainsFunc(list, func(w string) bool { return trade[w] }); {
	case sure >= sureOf, inTrade && sure >= sureTrade:
		return best, sure, known
	case inTrade && sure >= unsureOf:
		return best, sure, unsure
	}
	return best, sure, unknown
}

// likeness scores every way of asking by what it shares with the question: the
// cosine of their words, and the share of neighbouring words.
func (x *index) likeness(v vector, two map[string]bool) []float64 {
	score, shared := make([]float64, x.asks), make([]int, x.asks)
	for w, weight := range v {
		for _, p := range x.wordIn[w] {
			score[p.ask] += byQuestion * weight * p.part
		}
	}
	for pair := range two {
		for _, ask := range x.pairIn[pair] {
			shared[ask]++
		}
	}
	for ask, both := range shared {
		score[ask] += byPairs * 2 * float64(both) / float64(x.size[ask]+len(two))
	}
	return score
}

// covers is the share of the question's weight in words that p has: a question
// about something else as well is not p's.
func (p *passage) covers(v vector) float64 {
	var has, all float64
	for w, weight := range v {
		all += weight
		if p.words[w] > 0 || stop[w] {
			has += weight
		}
	}
	if all == 0 {
		return 0
	}
	return has / all
}

// bm25 scores p by the words it shares with v, as a share of what a passage
// would get that holds each of them very often.
func (x *index) bm25(v vector, p *passage) float64 {
	var score, most float64
	for w, weight := range v {
		most += weight * (k1 + 1)
		if k := float64(p.words[w]); k > 0 {
			score += weight * k * (k1 + 1) / (k + k1*(1-b+b*p.length/x.mean))
		}
	}
	if most == 0 {
		return 0
	}
	return score / most
}
