package wave

import (
	"slices"
	"strings"
	"unicode"
)

// affine is what a family of models is worth more, as quality, at the work that it
// was made for. Less than the steps in which qualities are usually declared: it
// decides among equals and never makes a small model beat one twice as good.
const affine = 0.1

// group is work that the same models are good at: the words by which plans call it,
// and those by which such models call themselves.
type group struct {
	name   string
	kinds  []string
	models []string
}

var groups = []group{
	{"code", []string{"code", "coding", "program", "programming", "debug", "debugging", "refactor", "refactoring", "test", "sql", "script", "implementation"},
		[]string{"code", "coder", "codestral", "devstral", "codellama", "starcoder", "codegemma", "codeqwen"}},
	{"reasoning", []string{"math", "mathematics", "reasoning", "logic", "proof", "calculation", "analysis", "planning"},
		[]string{"math", "mathstral", "qwq", "r1", "o1", "o3", "o4", "reasoning", "reasoner", "thinking", "magistral"}},
	{"translation", []string{"translation", "translate", "localisation", "localization", "multilingual"},
		[]string{"aya", "tower", "madlad", "nllb", "eurollm", "translate"}},
	{"search", []string{"research", "search", "lookup", "factual", "retrieval"},
		[]string{"sonar", "online", "search", "command"}},
}

// grouped gives the name of the group that a task's kind belongs to: kinds of one
// group are one domain. A kind in no group is its own, "" has none.
func grouped(kind string) string {
	kind = strings.ToLower(strings.TrimSpace(kind))
	for _, word := range words(kind) {
		for i := range groups {
			if slices.Contains(groups[i].kinds, word) {
				return groups[i].name
			}
		}
	}
	return kind
}

// suits reports whether model calls itself one for work of that domain.
func suits(model, domain string) bool {
	at := slices.IndexFunc(groups, func(g group) bool { return g.name == domain })
	if at < 0 {
		return false
	}
	return slices.ContainsFunc(words(strings.ToLower(model)), func(word string) bool {
		return slices.Contains(groups[at].models, word) ||
			slices.Contains(groups[at].models, strings.TrimRightFunc(word, unicode.IsDigit)) // starcoder2
	})
}

func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
