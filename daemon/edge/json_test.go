package edge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// acceptable is the slow and obvious form of what the scanner demands.
func acceptable(b []byte, depth int) bool {
	return json.Valid(b) && utf8.Valid(b) && !loneSurrogate(b) && decodable(b, depth)
}

func decodable(b []byte, depth int) bool {
	d := json.NewDecoder(bytes.NewReader(b))
	var value func(level int) bool
	value = func(level int) bool {
		t, err := d.Token()
		if err != nil {
			return false
		}
		open, ok := t.(json.Delim)
		if !ok {
			return true
		}
		if level >= depth {
			return false
		}
		seen := map[string]bool{}
		for d.More() {
			if open == '{' {
				k, err := d.Token()
				name, ok := k.(string)
				if err != nil || !ok || seen[name] {
					return false
				}
				seen[name] = true
			}
			if !value(level + 1) {
				return false
			}
		}
		_, err = d.Token()
		return err == nil
	}
	if !value(0) {
		return false
	}
	_, err := d.Token()
	return errors.Is(err, io.EOF)
}

// loneSurrogate looks for half a pair among the escapes of valid JSON.
func loneSurrogate(b []byte) bool {
	high := false // the escape just before was a first half
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			if high {
				return true
			}
			continue
		}
		if i++; b[i] != 'u' {
			if high {
				return true
			}
			continue
		}
		var r int
		fmt.Sscanf(string(b[i+1:i+5]), "%04x", &r)
		i += 4
		low := r >= 0xdc00 && r <= 0xdfff
		if high != low {
			return true
		}
		high = r >= 0xd800 && r <= 0xdbff
	}
	return high
}

func scanAll(b []byte, depth int) error {
	s := scan(b, depth)
	defer s.done()
	s.space()
	if err := s.value(); err != nil {
		return err
	}
	return s.end()
}

var goodJSON = []string{
	`{}`, `[]`, ` { } `, `null`, `true`, `"x"`, `0`, `-0`, `-0.0e+0`, `1e308`, `[1,2,[3,{"a":[]}]]`, "\t{\r\n\"a\" : 1 }\n",
	`{"a":1,"b":{"a":1}}`, `[{"a":1},{"a":1}]`, `{"":1}`, `"é 漢 😀 \u00e9 \ud83d\ude00 \"\\\/\b\f\n\r\t"`, `{"a":1,"A":2}`,
	`"` + strings.Repeat("x", 1000) + `"`, `123456789012345678901234567890`,
}

var badJSON = []struct{ name, in, want string }{
	{"nothing", ``, "ends early"},
	{"only space", " \n", "ends early"},
	{"cut object", `{"a":1`, "ends early"},
	{"cut string", `"abc`, "ends early"},
	{"cut escape", `"abc\`, "ends early"},
	{"cut name", `{"abc`, "ends early"},
	{"trailing data", `{} {}`, "data after the JSON document"},
	{"trailing comma", `{"a":1,}`, "no name"},
	{"trailing comma in an array", `[1,]`, "no value"},
	{"no colon", `{"a" 1}`, "no colon"},
	{"no comma", `{"a":1 "b":2}`, "no comma"},
	{"no comma in an array", `[1 2]`, "no comma"},
	{"name without quotes", `{a:1}`, "no name"},
	{"single quotes", `{'a':1}`, "no name"},
	{"comment", `{/**/}`, "no name"},
	{"control character", "\"a\nb\"", "control character"},
	{"NUL", "\"a\x00b\"", "control character"},
	{"unknown escape", `"\x41"`, "unknown escape"},
	{"short escape", `"\u12"`, "unknown escape"},
	{"first half alone", `"\ud83d"`, "half a surrogate pair"},
	{"first half and a letter", `"\ud83dx"`, "half a surrogate pair"},
	{"two first halves", `"\ud83d\ud83d"`, "half a surrogate pair"},
	{"second half alone", `"\ude00"`, "half a surrogate pair"},
	{"not UTF-8", "\"\xff\"", "not UTF-8"},
	{"overlong UTF-8", "\"\xc0\xaf\"", "not UTF-8"},
	{"surrogate in UTF-8", "\"\xed\xa0\x80\"", "not UTF-8"},
	{"byte order mark", "\xef\xbb\xbf{}", "no value"},
	{"leading zero", `01`, "data after"},
	{"plus", `+1`, "no value"},
	{"bare point", `[1.]`, "broken number"},
	{"bare exponent", `[1e]`, "broken number"},
	{"minus alone", `-`, "ends early"},
	{"NaN", `NaN`, "no value"},
	{"out of range", `1e999`, "out of range"},
	{"out of range without exponent", strings.Repeat("9", 400), "out of range"},
	{"wrong literal", `nul`, "no value"},
	{"name twice", `{"a":1,"b":2,"a":3}`, `"a" stands twice`},
	{"name twice through an escape", `{"a":1,"\u0061":2}`, `"a" stands twice`},
	{"empty name twice", `{"":1,"":2}`, `stands twice`},
	{"name twice deep inside", `[[{"x":{"a":1,"a":1}}]]`, `"a" stands twice`},
	{"name twice among many", manyNames(100, "n7"), `"n7" stands twice`},
	{"last name twice among many", manyNames(100, "n99"), `"n99" stands twice`},
}

// manyNames makes an object of n names and one of them again.
func manyNames(n int, again string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		fmt.Fprintf(&b, `"n%d":%d,`, i, i)
	}
	fmt.Fprintf(&b, `"%s":0}`, again)
	return b.String()
}

func TestScannerAccepts(t *testing.T) {
	for _, in := range goodJSON {
		if err := scanAll([]byte(in), 64); err != nil {
			t.Errorf("%.40q: %v", in, err)
		}
	}
}

func TestScannerRefuses(t *testing.T) {
	for _, c := range badJSON {
		t.Run(c.name, func(t *testing.T) {
			err := scanAll([]byte(c.in), 64)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want … %s …", err, c.want)
			}
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("not one line: %v", err)
			}
		})
	}
}

func TestScannerDepth(t *testing.T) {
	for _, open := range []string{"[", `{"a":`} {
		shut := map[string]string{"[": "]", `{"a":`: "}"}[open]
		nest := func(n int) []byte {
			return []byte(strings.Repeat(open, n) + "1" + strings.Repeat(shut, n))
		}
		if err := scanAll(nest(64), 64); err != nil {
			t.Errorf("64 of %s: %v", open, err)
		}
		for _, n := range []int{65, 1_000_000} {
			if err := scanAll(nest(n), 64); err == nil || !strings.Contains(err.Error(), "deeper than 64") {
				t.Errorf("%d of %s: %v", n, open, err)
			}
		}
	}
}

// What the scanner says agrees with the slow form, for JSON and for JSON with a
// byte changed.
func TestScannerAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(drawJSON(t, 4))
		if rapid.Bool().Draw(t, "damage") && len(b) > 0 {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		if err := scanAll(b, 5); (err == nil) != acceptable(b, 5) {
			t.Fatalf("%q: scanner says %v, want accepted = %v", b, err, acceptable(b, 5))
		}
		s := scan(b, jsonDepth)
		defer s.done()
		s.lenient = true
		s.space()
		err := s.value()
		if err == nil {
			err = s.end()
		}
		if (err == nil) != json.Valid(b) {
			t.Fatalf("%q: a lenient scanner says %v", b, err)
		}
	})
}

func drawJSON(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 7).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab\"\\\n\u00e9\u6f22\U0001f600/")), 0, 12, -1)
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "literal")
	case 1:
		return rapid.SampledFrom([]string{"0", "-1.5", "1e10", "2E-7", "12345678901234567890"}).Draw(t, "number")
	case 2, 3:
		b, _ := json.Marshal(text.Draw(t, "text"))
		return string(b)
	case 4, 5:
		var parts []string
		for range rapid.IntRange(0, 4).Draw(t, "elements") {
			parts = append(parts, drawJSON(t, depth-1))
		}
		return "[" + strings.Join(parts, " ,") + "]"
	}
	var parts []string
	for range rapid.IntRange(0, 24).Draw(t, "members") {
		name, _ := json.Marshal(text.Draw(t, "name"))
		parts = append(parts, string(name)+": "+drawJSON(t, depth-1))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func FuzzScanner(f *testing.F) {
	for _, s := range goodJSON {
		f.Add([]byte(s))
	}
	for _, c := range badJSON {
		f.Add([]byte(c.in))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := scanAll(b, 16)
		if err == nil && !acceptable(b, 16) {
			t.Fatalf("accepted %q", b)
		}
		if err != nil && acceptable(b, 16) && !strings.Contains(err.Error(), "out of range") {
			t.Fatalf("refused %q: %v", b, err)
		}
	})
}

func TestScannerAllocatesNothing(t *testing.T) {
	if raceOn {
		t.Skip("pools do not keep what they are given")
	}
	body := chatBody(50, 200)
	if n := testing.AllocsPerRun(100, func() {
		if err := scanAll(body, 64); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a scan", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := readChat(body, defaultLimits); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations a chat, want at most 2 (what the closures share)", n)
	}
}

// chatBody makes a chat of n messages of about size bytes each.
func chatBody(n, size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"auto","temperature":0.7,"messages":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":"user","content":"%s"}`, strings.Repeat("steady words travel \\n", size/22+1)[:size/22*22])
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

func BenchmarkScan(b *testing.B) {
	wide := []byte(strings.Replace(manyNames(300_000, "last"), `"last":0`, `"last":0`, 1))
	for _, c := range []struct {
		name string
		body []byte
	}{{"chat 2KiB", chatBody(5, 400)}, {"chat 64KiB", chatBody(40, 1600)}, {"hostile wide object 4MiB", wide}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := scanAll(c.body, 64); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	body := chatBody(5, 400)
	b.Run("chat 2KiB, json.Valid for comparison", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if !json.Valid(body) {
				b.Fatal("invalid")
			}
		}
	})
}
