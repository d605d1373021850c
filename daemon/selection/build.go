package selection

import (
	"math"
	"slices"
	"strings"
)

// build compiles the words of a seed file that was found to be right.
func (t *Taxonomy) build(s seed) {
	t.exact, t.starred, t.dense = map[string][]int32{}, map[string][]int32{}, map[string][]int32{}
	var buf scratch
	for c := range s.Capabilities {
		for _, k := range s.Capabilities[c].Keywords {
			t.addKeyword(&buf, int32(c), k)
		}
	}
	t.shareKeywords()
	t.lengths, t.spans = lengthsOf(t.starred), lengthsOf(t.dense)
	t.addExamples(&buf, s)
}

func (t *Taxonomy) addKeyword(buf *scratch, c int32, text string) {
	buf.fold([]byte(text))
	k := keyword{capability: c, star: strings.HasSuffix(strings.TrimSpace(text), "*")}
	for _, w := range buf.words {
		k.words = append(k.words, string(buf.text[w.from:w.to]))
	}
	k.weight = 1 + perPhrase*float64(len(k.words)-1)
	for _, have := range t.keywords {
		if have.capability == c && have.star == k.star && slices.Equal(have.words, k.words) {
			return // told apart only by case or accents
		}
	}
	at := int32(len(t.keywords))
	t.keywords = append(t.keywords, k)
	index := t.exact
	switch {
	case buf.words[0].dense:
		index = t.dense
	case k.star && len(k.words) == 1:
		index = t.starred
	}
	index[k.words[0]] = append(index[k.words[0]], at)
}

// shareKeywords divides the weight of a keyword among the capabilities that have
// it: a word that may mean any of them says little.
func (t *Taxonomy) shareKeywords() {
	owners := map[string]float64{}
	key := func(k keyword) string { return strings.Join(k.words, " ") }
	for _, k := range t.keywords {
		owners[key(k)]++
	}
	for i := range t.keywords {
		t.keywords[i].weight /= owners[key(t.keywords[i])]
	}
}

// addExamples indexes examples and descriptions by the stems in them. A stem weighs
// the more the fewer capabilities have it.
func (t *Taxonomy) addExamples(buf *scratch, s seed) {
	t.stems = map[string]int32{}
	var texts [][]int32 // stems of each example
	var of []map[int32]bool
	add := func(c int, text string) {
		buf.fold([]byte(text))
		var stems []int32
		for _, w := range buf.words {
			features(buf.text[w.from:w.to], w.dense, func(f []byte) {
				at, ok := t.stems[string(f)]
				if !ok {
					at = int32(len(of))
					t.stems[string(f)] = at
					of = append(of, map[int32]bool{})
				}
				of[at][int32(c)] = true
				if !slices.Contains(stems, at) {
					stems = append(stems, at)
				}
			})
		}
		if len(stems) > 0 {
			texts, t.examples = append(texts, stems), append(t.examples, example{int32(c)})
		}
	}
	for c := range s.Capabilities {
		add(c, s.Capabilities[c].Description)
		for _, text := range s.Capabilities[c].Examples {
			add(c, text)
		}
	}
	t.weights, t.postings = make([]float64, len(of)), make([][]posting, len(of))
	for at, owners := range of {
		t.weights[at] = 0.1 + math.Log(float64(len(s.Capabilities)+1)/float64(len(owners)))
	}
	for i, stems := range texts {
		norm := 0.0
		for _, at := range stems {
			norm += t.weights[at] * t.weights[at]
		}
		for _, at := range stems {
			t.postings[at] = append(t.postings[at], posting{int32(i), t.weights[at] / math.Sqrt(norm)})
		}
	}
}

func lengthsOf(index map[string][]int32) (lengths []int) {
	for k := range index {
		if !slices.Contains(lengths, len(k)) {
			lengths = append(lengths, len(k))
		}
	}
	slices.Sort(lengths)
	return lengths
}
