package builtin

import (
	_ "embed"
	"fmt"
	"math"
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
	asks   []vector
	words  map[string]int // of text and questions
	length float64
}

// vector is a question as weighted words of length 1.
type vector map[string]float64

// index is the model: the passages and what its words weigh.
type index struct {
	passages []passage
	weight   map[string]float64         // inverse document frequency
	pieces   map[string]map[string]bool // trigrams of each word
	unknown  float64                    // what a word weighs that stands nowhere
	mean     float64                    // length of a passage in words
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
	byQuestion = 0.65 // cosine to the nearest way of asking
	byText     = 0.35 // BM25 over the passage, as a share of the most that is possible
	k1         = 1.2
	b          = 0.6
	stopWeight = 0.35
	misspelt   = 0.55 // how much of a word must be right
	threshold  = 0.40 // below it the model does not know
)

func build(passages []passage) *index {
	x := &index{passages: passages, weight: map[string]float64{}, pieces: map[string]map[string]bool{}}
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
	x.unknown = math.Log(1 + n/2)
	for w := range stop {
		x.weight[w] = stopWeight
	}
	for i := range x.passages {
		p := &x.passages[i]
		for _, a := range p.asked {
			v, _ := x.vector(words(a, math.MaxInt))
			p.asks = append(p.asks, v)
		}
	}
	return x
}

// vector weighs the words of a question, misspelt ones under the word they were
// meant to be, and gives the share of its weight in words that stand somewhere.
func (x *index) vector(list []string) (v vector, known float64) {
	v = vector{}
	var sum, all float64
	for _, w := range list {
		weight, ok := x.weight[w]
		if !ok {
			near, likeness := x.nearest(w)
			all += x.unknown
			if near == "" {
				v[w] = x.unknown
				continue
			}
			known += x.unknown * likeness
			v[near] = max(v[near], x.weight[near]*likeness)
			continue
		}
		known += weight
		all += weight
		v[w] = weight
	}
	for _, weight := range v {
		sum += weight * weight
	}
	if sum == 0 {
		return v, 0
	}
	length := math.Sqrt(sum)
	for w := range v {
		v[w] /= length
	}
	return v, known / all
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

// find gives the passage that answers the question best, and how sure that is,
// 0 to 1.
func (x *index) find(question string) (best *passage, sure float64) {
	v, known := x.vector(words(question, longest))
	if len(v) == 0 {
		return nil, 0
	}
	for i := range x.passages {
		p := &x.passages[i]
		score := byQuestion*cosine(v, p.asks) + byText*x.bm25(v, p)
		if score > sure {
			best, sure = p, score
		}
	}
	return best, sure * known
}

func cosine(v vector, asks []vector) float64 {
	best := 0.0
	for _, a := range asks {
		dot := 0.0
		for w, weight := range v {
			dot += weight * a[w]
		}
		best = max(best, dot)
	}
	return best
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
