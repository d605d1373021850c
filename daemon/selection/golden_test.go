package selection

import (
	"os"
	"strings"
	"testing"
)

// The least that holds for the golden set. A change of the matching that falls below
// makes `auto` worse for somebody.
const (
	leastPrecision = 0.97
	leastRecall    = 0.92
	leastGolden    = 150
	leastLanguages = 12
)

func goldenTaxonomy(t testing.TB) *Taxonomy {
	t.Helper()
	b, err := os.ReadFile("testdata/seed.json")
	if err != nil {
		t.Fatal(err)
	}
	taxonomy, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return taxonomy
}

type goldenCase struct{ language, want, text string }

func golden(t testing.TB) (all []goldenCase) {
	t.Helper()
	b, err := os.ReadFile("testdata/golden.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.SplitN(strings.TrimSpace(line), "\t", 3)
		if len(f) != 3 {
			t.Fatalf("not language, capability and request: %q", line)
		}
		all = append(all, goldenCase{f[0], f[1], f[2]})
	}
	return all
}

// TestGolden holds the choice to requests that people would make. A wrong match
// costs precision, a match that is missing costs recall.
func TestGolden(t *testing.T) {
	taxonomy := goldenTaxonomy(t)
	cases, languages := golden(t), map[string]bool{}
	var matched, right, wanted int
	for _, c := range cases {
		languages[c.language] = true
		got, ok := taxonomy.Match([]byte(c.text), nil)
		if ok {
			matched++
		}
		if c.want != "-" {
			wanted++
		}
		switch {
		case ok && got.ID == c.want:
			right++
		case ok:
			t.Logf("%s: %q is %s, want %s", c.language, c.text, got.ID, c.want)
		case c.want != "-":
			t.Logf("%s: %q is nothing, want %s", c.language, c.text, c.want)
		}
	}
	precision, recall := float64(right)/float64(matched), float64(right)/float64(wanted)
	t.Logf("%d requests in %d languages: precision %.3f, recall %.3f", len(cases), len(languages), precision, recall)
	if len(cases) < leastGolden || len(languages) < leastLanguages {
		t.Errorf("the golden set has %d requests in %d languages, want at least %d in %d", len(cases), len(languages), leastGolden, leastLanguages)
	}
	if precision < leastPrecision || recall < leastRecall {
		t.Errorf("precision %.3f, want at least %.2f; recall %.3f, want at least %.2f", precision, leastPrecision, recall, leastRecall)
	}
}

// What is pasted between an instruction and its end does not turn it: each golden
// request stays what it is around a page that has words of every capability.
func TestPastedTextDoesNotDecide(t *testing.T) {
	taxonomy := goldenTaxonomy(t)
	page := strings.Repeat("The committee met again and spoke of roads. Then somebody asked about a poem, an equation, a Python summary and a translation. ", 60)
	var kept, all int
	for _, c := range golden(t) {
		got, ok := taxonomy.Match([]byte(c.text), nil)
		if !ok || got.ID != c.want {
			continue
		}
		all++
		if again, ok := taxonomy.Match([]byte(c.text+"\n\n"+strings.Repeat("the roads were wet and the sun came late that day ", 8)+page+strings.Repeat("and so they all went home to sleep until the next day ", 6)), nil); ok && again == got {
			kept++
		}
	}
	if share := float64(kept) / float64(all); share < 0.9 {
		t.Errorf("%d of %d requests stay what they are with a page behind them", kept, all)
	}
}
