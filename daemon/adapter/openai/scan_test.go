package openai

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func whole(text []byte) bool {
	s := scan{b: text}
	s.skip()
	return s.end()
}

var texts = []string{
	`{}`, `[]`, `null`, `true`, `false`, `0`, `-0`, `1.5e-9`, `"a\u00e9\n"`, ` { "a" : [ 1 , {"b":null} ] } `, `{"":{"":[]}}`, `"` + strings.Repeat("x", 100) + `"`,
	`"12345678"`, `"1234567\""`, `"1234567` + "\x01" + `"`, `"é世界🎡"`, "\"\xff\"",
	``, ` `, `{`, `}`, `[`, `[1,]`, `[,1]`, `[1 2]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{"a":1 "b":2}`, `nul`, `nulll`, `truefalse`, `01`, `1.`, `.5`, `-`, `1e`, `1e+`,
	`+1`, `"`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", `"a" "b"`, `[]]`, `{}{}`, "\ufeff{}", `[[[[]]]`,
}

func TestScanAgreesWithTheLibrary(t *testing.T) {
	for _, text := range texts {
		if got, want := whole([]byte(text)), json.Valid([]byte(text)); got != want {
			t.Errorf("%q: %v, the library says %v", text, got, want)
		}
	}
}

func TestDepthIsBounded(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if !whole(nested(maxDepth)) || whole(nested(maxDepth+1)) || whole(bytes.Repeat([]byte{'{'}, 10<<20)) {
		t.Error("the limit does not hold")
	}
}

func FuzzScan(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, want := whole(text), json.Valid(text)
		if got && !want || want && !got && bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) <= maxDepth {
			t.Errorf("%q: %v, the library says %v", text, got, want)
		}
	})
}

func TestNamesAreFoundInEverySpelling(t *testing.T) {
	s := scan{b: []byte(`{"m\u006fdel":1,"model":2,"Model":3,"\u006d\u006f\u0064\u0065\u006c":4,"mode\/l":5}`)}
	s.open('{')
	var got []bool
	for s.member() {
		got = append(got, s.is("model"))
		s.skip()
	}
	if !s.end() || len(got) != 5 || !got[0] || !got[1] || got[2] || !got[3] || got[4] {
		t.Errorf("found %v", got)
	}
}

func TestCounts(t *testing.T) {
	for text, want := range map[string]int64{`7`: 7, `0`: 0, `-3`: 0, `1.5`: 0, `"7"`: 0, `null`: 0, `1099511627776`: 1 << 40, `1099511627777`: 0, `99999999999999999999999`: 0, `1e3`: 0} {
		s := scan{b: []byte(text)}
		if got := s.count(); got != want || !s.end() {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}
