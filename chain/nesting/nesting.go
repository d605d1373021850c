// Package nesting finds the brackets of JSON outside of its texts, in one pass and
// without reading anything else: what a value is worth, and whether it is JSON at all, is
// for its callers. It takes bytes of any kind.
package nesting

import "iter"

// Depth gives how deep the brackets of b nest: to be known before anything recurses.
func Depth(b []byte) int {
	deepest := 0
	for _, open := range Brackets(b) {
		deepest = max(deepest, open)
	}
	return deepest
}

// Brackets gives each bracket that stands outside of a text, by its place in b, and how
// many are open behind it: below zero where more close than open.
func Brackets(b []byte) iter.Seq2[int, int] {
	return func(yield func(at, open int) bool) {
		open, quoted := 0, false
		for i := 0; i < len(b); i++ {
			switch c := b[i]; {
			case quoted && c == '\\':
				i++
				continue
			case c == '"':
				quoted = !quoted
				continue
			case quoted:
				continue
			case c == '{' || c == '[':
				open++
			case c == '}' || c == ']':
				open--
			default:
				continue
			}
			if !yield(i, open) {
				return
			}
		}
	}
}
