package builtin

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// What docs/adapters.md says of the model, as least shares.
type least struct {
	recall    float64 // of questions inside: the right passage, with or without a warning
	precision float64 // of passages given without a warning: right
	honest    float64 // of questions outside: the plain no
}

type golden struct {
	want     []string // names of passages; none: the honest no
	sum      string   // or the result of a sum
	question string
}

func readGolden(t *testing.T, file string) (list []golden) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "%") {
			continue
		}
		want, question, ok := strings.Cut(strings.TrimSpace(line), " | ")
		if !ok {
			t.Fatalf("%s: %q", file, line)
		}
		g := golden{question: question}
		if sum, isSum := strings.CutPrefix(want, "= "); isSum {
			g.sum = sum
		} else if want != "-" {
			g.want = strings.Fields(want)
		}
		list = append(list, g)
	}
	return list
}

// TestGolden runs the set that primer.txt and the weights were improved on.
func TestGolden(t *testing.T) {
	measure(t, "testdata/golden.txt", least{recall: 0.90, precision: 0.95, honest: 0.95})
}

// TestHeldOut runs the set that nothing was improved on: the honest figures.
func TestHeldOut(t *testing.T) {
	measure(t, "testdata/heldout.txt", least{recall: 0.60, precision: 0.75, honest: 0.88})
}

func measure(t *testing.T, file string, want least) {
	var inside, right, given, sound, outside, honest int
	asked := map[string]bool{}
	for _, p := range load().passages {
		for _, a := range p.asked {
			asked[plainly(a)] = true
		}
	}
	for _, g := range readGolden(t, file) {
		text, worth := reply(g.question)
		if g.sum != "" {
			if text != g.sum {
				t.Errorf("%s: %q, want %q", g.question, text, g.sum)
			}
			continue
		}
		if asked[plainly(g.question)] {
			t.Errorf("%q stands in primer.txt word by word: it proves nothing", g.question)
		}
		p, sure, _ := load().find(g.question)
		name := "nothing"
		if p != nil {
			name = p.name
		}
		fits := slices.Contains(g.want, name)
		if worth == known {
			if given++; fits {
				sound++
			}
		}
		good := fits && worth != unknown
		if len(g.want) > 0 {
			if inside++; good {
				right++
			}
		} else if outside++; worth == unknown {
			honest, good = honest+1, true
		}
		if !good {
			t.Logf("%.2f %-18s want %-18s %s", sure, name, g.want, g.question)
		}
	}
	recall, precision, no := float64(right)/float64(inside), float64(sound)/float64(given), float64(honest)/float64(outside)
	t.Logf("%d questions inside: recall %.3f, precision %.3f of %d; %d outside: %.3f honest", inside, recall, precision, given, outside, no)
	if recall < want.recall || precision < want.precision || no < want.honest {
		t.Errorf("want at least %+v", want)
	}
}

// plainly drops what makes no difference between two ways of asking.
func plainly(s string) string { return strings.ToLower(strings.Trim(s, "?!. ")) }

func BenchmarkReply(b *testing.B) {
	load()
	for b.Loop() {
		reply("how do I add my second laptop to the mesh?")
	}
}

func BenchmarkIndex(b *testing.B) {
	for b.Loop() {
		passages, err := parse(primer)
		if err != nil {
			b.Fatal(err)
		}
		build(passages)
	}
}
