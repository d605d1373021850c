package classify

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"unicode/utf8"
)

// prompt is a labelled one.
type prompt struct {
	class    Class
	language string
	text     string
}

func labelled(tb testing.TB, file string) []prompt {
	tb.Helper()
	b, err := os.ReadFile("testdata/" + file)
	if err != nil {
		tb.Fatal(err)
	}
	var all []prompt
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(f) != 3 {
			tb.Fatalf("%s: want class, language and text, have %q", file, line)
		}
		all = append(all, prompt{Class(f[0]), f[1], strings.ReplaceAll(f[2], `\n`, "\n")})
	}
	return all
}

var classes = []Class{Simple, Complex, Agentic, Uncertain}

// confusion counts, for each label, what was guessed.
type confusion map[Class]map[Class]int

func confuse(prompts []prompt) confusion {
	m := confusion{}
	for _, c := range classes {
		m[c] = map[Class]int{}
	}
	for _, p := range prompts {
		got, _ := Text(p.text)
		m[p.class][got]++
	}
	return m
}

// precision is how many of the guesses of c are right, recall how many of those
// that are c were guessed so.
func (m confusion) precision(c Class) float64 {
	n := 0
	for _, label := range classes {
		n += m[label][c]
	}
	return float64(m[c][c]) / float64(max(n, 1))
}

func (m confusion) recall(c Class) float64 {
	n := 0
	for _, guess := range classes {
		n += m[c][guess]
	}
	return float64(m[c][c]) / float64(max(n, 1))
}

func (m confusion) String() string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "is, guessed:\t")
	for _, c := range classes {
		fmt.Fprintf(w, "%s\t", c)
	}
	fmt.Fprint(w, "recall\tprecision\t\n")
	for _, label := range classes {
		fmt.Fprintf(w, "%s\t", label)
		for _, c := range classes {
			fmt.Fprintf(w, "%d\t", m[label][c])
		}
		fmt.Fprintf(w, "%.2f\t%.2f\t\n", m.recall(label), m.precision(label))
	}
	w.Flush()
	return b.String()
}

// What the guesses have to be worth: on the prompts that the words were made with,
// and on those that they have never seen. There a doubt is right more often than
// a guess: doubts are put to a model.
func TestGuessesAreWorthTheirName(t *testing.T) {
	for _, c := range []struct {
		file              string
		least             int
		precision, recall map[Class]float64
	}{
		{
			"prompts.txt", 300,
			map[Class]float64{Simple: 0.95, Complex: 0.95, Agentic: 0.97, Uncertain: 0.88},
			map[Class]float64{Simple: 0.93, Complex: 0.95, Agentic: 0.95, Uncertain: 0.93},
		},
		{
			"heldout.txt", 60,
			map[Class]float64{Simple: 0.75, Complex: 0.95, Agentic: 0.9, Uncertain: 0.5},
			map[Class]float64{Simple: 0.9, Complex: 0.6, Agentic: 0.7, Uncertain: 0.7},
		},
	} {
		t.Run(c.file, func(t *testing.T) {
			prompts := labelled(t, c.file)
			languages := map[string]bool{}
			for _, p := range prompts {
				languages[p.language] = true
				if !slices.Contains(classes, p.class) {
					t.Errorf("no class %q", p.class)
				}
			}
			if len(prompts) < c.least || len(languages) < 10 {
				t.Errorf("%d prompts in %d languages, want %d and 10", len(prompts), len(languages), c.least)
			}
			m := confuse(prompts)
			t.Logf("\n%s", m)
			for _, class := range classes {
				if p := m.precision(class); p < c.precision[class] {
					t.Errorf("precision of %s is %.2f, want %.2f", class, p, c.precision[class])
				}
				if r := m.recall(class); r < c.recall[class] {
					t.Errorf("recall of %s is %.2f, want %.2f", class, r, c.recall[class])
				}
			}
			if n := m[Complex][Simple] + m[Agentic][Simple]; n > 0 {
				t.Errorf("%d hard prompts are taken for simple ones: no model would be asked about them", n)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "simple: short"},
		{"What is the capital of Peru?", "simple: lookup,short"},
		{"Thanks!", "simple: greeting,short"},
		{"Compare tea and coffee in detail.", "complex: analysis,depth,short"},
		{"VERGLEICHE Tee und Kaffee ausführlich, bitte.", "complex: analysis,depth"},
		{"Run the tests and send me an email", "agentic: act,tool,short"},
		{"read https://example.org and run the script, then stop", "agentic: act,tool,link,code,sequence,clauses"},
		{"- one\n- two\n- three\n- four", "complex: steps,short"},
		{"why? where? how? when?", "uncertain: questions,clauses,short"},
		{"x:\n```\nfoo()\n```\ny", "uncertain: snippet,short"},
		{strings.Repeat("la la ", 700), "complex: length"},
		{"the blue umbrella that nobody ever opened again", "uncertain: none"},
	} {
		if got := Line(Text(c.text)); got != c.want {
			t.Errorf("%.60q: %s, want %s", c.text, got, c.want)
		}
	}
}

// Reasons go into headers and logs: they are words of ours, whatever the text.
func FuzzText(f *testing.F) {
	for _, p := range labelled(f, "prompts.txt")[:40] {
		f.Add(p.text)
	}
	f.Add(strings.Repeat("x", head+rest+1))
	f.Add("\xff\xfe compare \xc3")
	f.Add("１、あ\n２、い")
	fixed := []string{"link", "steps", "questions", "clauses", "snippet", "length", "short", "none"}
	for g := range groups {
		fixed = append(fixed, g.word())
	}
	f.Fuzz(func(t *testing.T, text string) {
		class, reasons := Text(text)
		if !slices.Contains(classes, class) || len(reasons) == 0 || len(reasons) > len(fixed) {
			t.Fatalf("%q for %v", class, reasons)
		}
		for _, r := range reasons {
			if !slices.Contains(fixed, r) {
				t.Errorf("reason %q is no fixed word", r)
			}
		}
		if folded := fold(nil, text); !utf8.Valid(folded) || string(fold(nil, string(folded))) != string(folded) {
			t.Errorf("folding %q twice is not folding it once", text)
		}
	})
}

// The figures: the guesses, and what one costs beside a mere copy of the text in
// small letters.
func BenchmarkText(b *testing.B) {
	for _, file := range []string{"prompts.txt", "heldout.txt"} {
		prompts := labelled(b, file)
		fmt.Printf("%s:\n%s", file, confuse(prompts))
		b.Run(file, func(b *testing.B) {
			for i := range b.N {
				Text(prompts[i%len(prompts)].text)
			}
			us := float64(b.Elapsed().Microseconds()) / float64(b.N)
			b.ReportMetric(us, "us/prompt")
		})
	}
	long := strings.Repeat("Compare these and tell me what it costs, then send it. ", 4000)
	b.Run("longest", func(b *testing.B) {
		for range b.N {
			Text(long)
		}
	})
	b.Run("floor", func(b *testing.B) {
		prompts := labelled(b, "prompts.txt")
		b.ResetTimer()
		for i := range b.N {
			_ = strings.ToLower(prompts[i%len(prompts)].text)
		}
	})
}
