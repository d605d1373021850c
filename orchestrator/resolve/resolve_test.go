package resolve

import (
	"testing"

	"github.com/chordwheel/chordwheel/chain"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern string
		id      chain.OptionID
		want    bool
	}{
		{"gamma/large", "gamma/large", true},
		{"gamma/large", "gamma/larger", false},
		{"gamma/*", "gamma/large", true},
		{"gamma/*", "gamma/meta/llama", true},
		{"gamma/*", "gamma", false},
		{"*", "peer", true},
		{"*/llama*", "groq/meta/llama-3.3:70b", true},
		{"a*b*c", "abbbcbc", true},
		{"a*b*c", "abbbcb", false},
		{"", "peer", false},
		{"", "", true},
	} {
		if got := Match(c.pattern, c.id); got != c.want {
			t.Errorf("Match(%q, %q) = %v, want %v", c.pattern, c.id, got, c.want)
		}
	}
}
