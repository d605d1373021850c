package pipeline

import (
	"encoding/json"

	"github.com/chordwheel/chordwheel/chain/nesting"
)

// findJSON looks for the first JSON object or list in text that accept takes:
// text may be nothing else, have it in a code fence or amid prose, or inside of
// another object. Its work is bounded by maxPlan and maxObjects.
func findJSON(text string, accept func(raw []byte) bool) bool {
	if len(text) > maxPlan {
		return false
	}
	b := []byte(text)
	tried := 0
	for i := 0; i < len(b) && tried < maxObjects; i++ {
		if b[i] != '{' && b[i] != '[' {
			continue
		}
		tried++
		if end := closing(b[i:]); end > 0 && json.Valid(b[i:i+end]) && accept(b[i:i+end]) {
			return true
		}
	}
	return false
}

// closing gives the length of the value that begins with a bracket, by counting
// brackets outside of strings; 0 if it never closes.
func closing(b []byte) int {
	for i, open := range nesting.Brackets(b) {
		if open == 0 {
			return i + 1
		}
	}
	return 0
}
