package builtin

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// commands are the first words that the binary knows. A passage that sends its
// reader to another one would lie.
var commands = []string{"up", "orchestrator", "daemon", "invite", "join", "status", "chain", "run", "chat", "catalog", "key", "keys", "revoke", "version", "completion"}

func TestEveryCommandInThePrimerExists(t *testing.T) {
	texts := []string{no, silent}
	for _, p := range load().passages {
		texts = append(texts, p.text)
	}
	found := 0
	for _, text := range texts {
		for _, m := range regexp.MustCompile("`chordwheel ([a-z]+)[^`]*`").FindAllStringSubmatch(text, -1) {
			if found++; !slices.Contains(commands, m[1]) {
				t.Errorf("%q names no command", m[0])
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d commands found: is the pattern right?", found)
	}
}

func TestThePrimerIsInOrder(t *testing.T) {
	x := load()
	if n := len(x.passages); n < 60 || n > 120 {
		t.Errorf("%d passages", n)
	}
	seen := map[string]string{}
	for _, p := range x.passages {
		for _, a := range p.asked {
			if other, twice := seen[plainly(a)]; twice {
				t.Errorf("%q is asked for both %s and %s", a, other, p.name)
			}
			seen[plainly(a)] = p.name
			if got, _, worth := x.find(a); got.name != p.name || worth == unknown {
				t.Errorf("%s: its own question %q finds %s (%d)", p.name, a, got.name, worth)
			}
		}
		if !utf8.ValidString(p.text) || len(p.text) > 1000 {
			t.Errorf("%s: %d bytes of text", p.name, len(p.text))
		}
	}
}

func TestBadPrimersAreRefused(t *testing.T) {
	for _, text := range []string{"text", "# a\n? q\n", "# a\ntext", "# a\n? q\nt\n# a\n? q\nt"} {
		if got, err := parse(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestSumsAreRefusedWhereTheyAreNone(t *testing.T) {
	for _, q := range []string{"", "7", "-", "2+", "(2+3", "2 2", "7420", "1.2.3 + 1", "2x", "what is 3", "3 apples + 2", strings.Repeat("(", 1000), strings.Repeat("-", 100) + "1",
		"2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2^2", "what is in 3 years", "5 km to", "5 foo to bar"} {
		if a, ok := sum(q); ok {
			t.Errorf("%.40q gave %q", q, a)
		}
	}
}

// FuzzRequest feeds the whole way from a body to an answer.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"role":"user","content":"What is chordwheel?"}],"max_tokens":5,"stop":["a"]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"2^3"}]}]}`, `{"messages":[{"role":"user","content":"((((1"}]}`, `[]`, `{"n":-1,"messages":[{}]}`,
		`{"messages":[{"role":"user","content":"how many feet in a mile"}],"stop":""}`,
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, body string, stream bool) {
		var text strings.Builder
		c := call(body, stream, false)
		n := 0
		o := Adapter{}.Run(t.Context(), c, func(ch walk.Chunk) error {
			n++
			for _, choice := range decode(t, ch).Choices {
				text.WriteString(choice.Delta.Content + choice.Message.Content)
			}
			return nil
		})
		switch o.Class {
		case chain.OK:
			if n == 0 || o.Answer != nil {
				t.Errorf("%q: ok after %d chunks", body, n)
			}
		case chain.CallerError, chain.Feature:
			if n != 0 || o.Answer == nil {
				t.Errorf("%q: %s after %d chunks", body, o.Class, n)
			}
		default:
			t.Errorf("%q: %s", body, o.Class)
		}
	})
}
