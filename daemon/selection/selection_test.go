package selection

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
)

func TestParseNamesEveryMistake(t *testing.T) {
	_, err := Parse([]byte(`{"date":"yesterday","capabilities":[
		{"id":"a","primitive":"llm.chat","keywords":["x"]},
		{"id":"a","primitive":"llm.chat","keywords":["x"]},
		{"id":"b c","keywords":["x"]},
		{"id":"No Primitive!","keywords":["x"]},
		{"id":"empty","primitive":"llm.chat"},
		{"id":"blank","primitive":"llm.chat","keywords":["…"],"examples":[""]}]}`))
	if !errors.Is(err, ErrSeed) {
		t.Fatal(err)
	}
	for _, want := range []string{`date: "yesterday"`, `capabilities[1].id: "a" stands there twice`, "capabilities[2].id", "capabilities[4]: neither", "capabilities[5].keywords[0]", "capabilities[5].examples[0]"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
	for _, bad := range []string{"", "[]", `{"date":1}`, `{"date":"2026-01-01","capabilities":{}}`, strings.Repeat(" ", MaxSeedBytes+1)} {
		if _, err := Parse([]byte(bad)); !errors.Is(err, ErrSeed) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

// An entry names its primitive, else its ID is the primitive's name.
func TestPrimitiveOfACapability(t *testing.T) {
	taxonomy, err := Parse([]byte(`{"date":"2026-11-30T08:00:00Z","capabilities":[{"id":"llm.t1","keywords":["one"]},{"id":"two","primitive":"llm.t2","keywords":["two"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]Capability{"one": {"llm.t1", "llm.t1"}, "two": {"two", "llm.t2"}} {
		if got, ok := taxonomy.Match([]byte(text), nil); !ok || got != want {
			t.Errorf("%s: %v %v", text, got, ok)
		}
	}
	if len(taxonomy.Capabilities()) != 2 || taxonomy.Date().Hour() != 8 {
		t.Errorf("%v %v", taxonomy.Capabilities(), taxonomy.Date())
	}
}

func TestKeywords(t *testing.T) {
	taxonomy, err := Parse([]byte(`{"date":"2026-11-30","capabilities":[
		{"id":"a","primitive":"llm.chat","keywords":["Übersetz*","cover letter","翻訳","two for one*","both"]},
		{"id":"b","primitive":"llm.chat","keywords":["C++","poème","both"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"uebersetz": "", "ubersetzung bitte": "a", "ÜBERSETZE das": "a", "A cover\nletter!": "a", "cover the letter": "", "これを翻訳して": "a",
		"two for onerous": "a", "two for": "", "in c++ please": "b", "un POEME": "b", "poe\u0300me": "b", "poèmes": "", "both": "", "übersetze ein poème": "",
	} {
		got, ok := taxonomy.Match([]byte(text), nil)
		if got.ID != want || ok != (want != "") {
			t.Errorf("%q is %q, want %q", text, got.ID, want)
		}
	}
}

// A JSON string matches as the text in it, whatever its escapes.
func TestJSONStrings(t *testing.T) {
	taxonomy := goldenTaxonomy(t)
	for _, c := range golden(t) {
		want, ok := taxonomy.Match([]byte(c.text), nil)
		plain, err := json.Marshal(c.text)
		if err != nil {
			t.Fatal(err)
		}
		var ascii strings.Builder
		for _, u := range utf16.Encode([]rune(c.text)) {
			fmt.Fprintf(&ascii, `\u%04x`, u)
		}
		for _, text := range []string{string(plain), `"` + ascii.String() + `"`} {
			if got, gotOK := taxonomy.MatchJSON([]byte(text), nil); got != want || gotOK != ok {
				t.Errorf("%s: %v %v, want %v %v", text, got, gotOK, want, ok)
			}
		}
	}
	for _, bad := range []string{``, `"`, `""`, `"\"`, `"\u"`, `"\u12"`, `"\ud83d"`, `"\ud83d\u00"`, `"` + strings.Repeat(`\u00e9`, 9000) + `"`} {
		taxonomy.MatchJSON([]byte(bad), nil)
	}
}

// Time that is over means no match, whatever else was found.
func TestExpiry(t *testing.T) {
	taxonomy := goldenTaxonomy(t)
	long := []byte("translate this: " + strings.Repeat("word ", 400))
	if _, ok := taxonomy.Match(long, func() bool { return false }); !ok {
		t.Fatal("no match with time left")
	}
	if _, ok := taxonomy.Match(long, func() bool { return true }); ok {
		t.Error("a match after the time was over")
	}
	if _, ok := taxonomy.Match([]byte("translate this"), func() bool { return true }); ok {
		t.Error("a match of a short text after the time was over")
	}
}

// agents is a registry with everybody active but those in it.
type agents map[string]bool

func (a agents) Active(did, capability string) bool {
	return did != "" && !a[did] && !a[did+" "+capability]
}

func TestCandidates(t *testing.T) {
	options := []chain.Option{
		{ID: "local/x", Kind: chain.Local}, {ID: "alpha/a", Kind: chain.Provider, Agent: "did:a"}, {ID: "peer", Kind: chain.Peer},
		{ID: "beta/b", Kind: chain.Provider, Agent: "did:b"}, {ID: "nobody/n", Kind: chain.Provider},
	}
	ids := func(list []chain.Option) (s string) {
		for _, o := range list {
			s += string(o.ID) + " "
		}
		return s
	}
	for name, c := range map[string]struct {
		agents Agents
		want   string
	}{
		"no registry":        {nil, "local/x alpha/a peer beta/b nobody/n "},
		"all active":         {agents{}, "local/x alpha/a peer beta/b "},
		"one suspended":      {agents{"did:a": true}, "local/x peer beta/b "},
		"not for this":       {agents{"did:b code": true}, "local/x alpha/a peer "},
		"for something else": {agents{"did:b chat": true}, "local/x alpha/a peer beta/b "},
		"this device":        {agents{"did:self": true}, "alpha/a peer beta/b "},
	} {
		if got := ids(Candidates(options, "code", c.agents, "did:self")); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	first, ok := First(options, "did:b", "did:self")
	if !ok || ids(first) != "beta/b local/x alpha/a peer nobody/n " {
		t.Errorf("%v %s", ok, ids(first))
	}
	if _, ok := First(options, "did:z", "did:self"); ok {
		t.Error("an agent of none of the options went first")
	}
	if got := ids(options); got != "local/x alpha/a peer beta/b nobody/n " {
		t.Errorf("the chain was changed: %s", got)
	}
}

// Candidates keep the chain's order and add nothing.
func TestCandidatesAreOfTheChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 8).Draw(t, "n")
		var options []chain.Option
		down := agents{}
		for i := range n {
			did := string(rune('a' + i))
			options = append(options, chain.Option{ID: chain.OptionID(did), Kind: chain.Provider, Agent: did})
			down[did] = rapid.Bool().Draw(t, did)
		}
		at := 0
		for _, o := range Candidates(options, "c", down, "self") {
			for ; at < n && options[at].ID != o.ID; at++ {
				if !down[options[at].Agent] {
					t.Fatalf("%s was left out", options[at].ID)
				}
			}
			if at == n || down[o.Agent] {
				t.Fatalf("%s is not a candidate, or out of order", o.ID)
			}
			at++
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"date":"2026-11-30","capabilities":[{"id":"a","primitive":"llm.chat","keywords":["x y*","翻訳"],"examples":["do it"]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		taxonomy, err := Parse(b)
		if err != nil {
			return
		}
		taxonomy.Match(b, nil)
	})
}

func FuzzMatch(f *testing.F) {
	taxonomy := goldenTaxonomy(f)
	for _, c := range golden(f) {
		f.Add([]byte(c.text))
	}
	f.Add([]byte(strings.Repeat("一", 5000) + "\xff\xfe"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := taxonomy.Match(b, nil)
		again, okAgain := taxonomy.Match(b, nil)
		if got != again || ok != okAgain {
			t.Errorf("%v, then %v", got, again)
		}
	})
}

// BenchmarkMatch has the cost of a match beside the least it can be: one look at
// each byte of the text.
func BenchmarkMatch(b *testing.B) {
	taxonomy := goldenTaxonomy(b)
	short := []byte("Could you put the following paragraph into German for me?")
	long := append(short, strings.Repeat(" and so they all went home to sleep until the next day", 500)...)
	for name, text := range map[string][]byte{"short": short, "27 KB": long} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				taxonomy.Match(text, nil)
			}
		})
	}
}
