// Package classify owns the guess at how complex a request is: from its words,
// its length and its form, in a dozen languages, in microseconds. It asks nobody.
//
// It must not know models, stages or what is done about the guess.
// docs/pipeline.md tells its rules.
package classify

import (
	"strings"
)

// Class is how complex a request is.
type Class string

// The classes.
const (
	Simple    Class = "simple"    // one direct answer is enough
	Complex   Class = "complex"   // several aspects, steps or sources
	Agentic   Class = "agentic"   // something has to be done with tools
	Uncertain Class = "uncertain" // the words do not tell
)

// Text classifies what a user asks. The reasons are fixed words: names of groups
// of words that were found, and link, steps, questions, clauses, snippet, length,
// short, none. Of a long text only the beginning and the end are looked at.
func Text(text string) (Class, []string) {
	s := look(text)
	doing, weight := s.doing(), s.weight()
	switch {
	case doing >= 3:
		return Agentic, s.reasons(true)
	case weight >= 3:
		return Complex, s.reasons(false)
	case doing >= 2 && weight > -2:
		return Uncertain, s.reasons(true)
	case weight <= 0:
		return Simple, s.reasons(false)
	}
	return Uncertain, s.reasons(false)
}

// Line is a class and its reasons on one line of ASCII, for headers and logs:
// "complex: analysis,length".
func Line(c Class, reasons []string) string {
	if len(reasons) == 0 {
		return string(c)
	}
	return string(c) + ": " + strings.Join(reasons, ",")
}

// doing is how much speaks for work with tools: a deed on the world, together
// with what it is done to or with another one.
func (s *signs) doing() float64 {
	d := 2*float64(s.count[act]) + float64(s.count[tool])
	if s.count[act] == 0 {
		d = min(d, 2) // tools that are spoken of are not yet used
	}
	if s.link {
		d++
	}
	if d > 0 && s.count[sequence] > 0 {
		d++
	}
	return d
}

// weight is how much speaks for several aspects; below zero for a quick answer.
func (s *signs) weight() float64 {
	w := lengthWorth(s.size)
	for g, worth := range worths {
		if n := float64(s.count[g]); n > 0 {
			w += worth.first + worth.more*min(n-1, 3)
		}
	}
	if s.items >= 2 {
		w += min(float64(s.items), 4) - 1
	}
	if s.questions >= 2 {
		w += min(float64(s.questions)-1, 2)
	}
	if s.fence {
		w += 1.5
	}
	return w + clausesWorth(s.clauses)
}

// clausesWorth says what the build of the sentences tells: who asks for a lot
// says a lot, in any language.
func clausesWorth(clauses int) float64 {
	switch {
	case clauses < 3:
		return 0
	case clauses < 5:
		return 1
	case clauses < 8:
		return 2
	}
	return 2.5
}

// lengthWorth says what the length tells: hardly much is asked in a few words.
func lengthWorth(size int) float64 {
	switch {
	case size < 25:
		return -0.5
	case size < 40:
		return 0
	case size < 350:
		return 0.5
	case size < 800:
		return 1.5
	case size < 2000:
		return 2.5
	}
	return 3.5
}

// reasons names what was seen of what the guess was made of.
func (s *signs) reasons(doing bool) []string {
	var seen []string
	add := func(word string, is bool) {
		if is {
			seen = append(seen, word)
		}
	}
	if doing {
		add(act.word(), s.count[act] > 0)
		add(tool.word(), s.count[tool] > 0)
		add("link", s.link)
	}
	for g := range weighed {
		add(g.word(), s.count[g] > 0)
	}
	add("steps", s.items >= 2)
	add("questions", s.questions >= 2)
	add("clauses", s.clauses >= 3)
	add("snippet", s.fence)
	add("length", s.size >= 350)
	add("short", s.size < 40)
	add("none", len(seen) == 0)
	return seen
}
