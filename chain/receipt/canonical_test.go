package receipt

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"
)

// The examples of RFC 8785 itself, and what it leaves to its references.
func TestCanonicalFormsOfRFC8785(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"section 3.2.2": {
			`{
  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`,
			`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},
		"section 3.2.3, order of names": {
			`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			"{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}",
		},
		"order at every depth":           {`[{"b":{"z":1,"a":[{"d":1,"c":2}]},"a":0}]`, `[{"a":0,"b":{"a":[{"c":2,"d":1}],"z":1}}]`},
		"a name is before its extension": {`{"aa":1,"a":2,"":3}`, `{"":3,"a":2,"aa":1}`},
		"escaped names sort as what they say": {
			`{"\"":1,"!":2,"#":3,"\\":4,"[":5,"]":6,"\u0001":7}`, `{"\u0001":7,"!":2,"\"":1,"#":3,"[":5,"\\":4,"]":6}`,
		},
		"every short escape":      {`"\b\t\n\f\r\"\\\/\u0008\u0009\u000A\u000c\u000D\u001f\u007f"`, `"\b\t\n\f\r\"\\/\b\t\n\f\r\u001f` + "\x7f" + `"`},
		"spaces are gone":         {" \t\r\n[ 1 ,\n2 , { \"a\" : [ ] , \"b\" : { } } ] \n", `[1,2,{"a":[],"b":{}}]`},
		"a number alone":          {"42\n", "42"},
		"zero has no sign":        {`[-0,-0.0,0e5,-1e-400]`, `[0,0,0,0]`},
		"long integers":           {`[9007199254740993,123456789012345678901234567890,1000000000000000000000]`, `[9007199254740992,1.2345678901234568e+29,1e+21]`},
		"an integer stays":        {`[999999999999999,-999999999999999,100000]`, `[999999999999999,-999999999999999,100000]`},
		"characters stay as they": {`"é\u00e9e\u0301"`, "\"éée\u0301\""},
	} {
		got, err := Canonical([]byte(c.in))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v\nwant %s", name, got, err, c.want)
		}
	}
}

// Appendix B: doubles by their bits.
func TestCanonicalNumbersOfRFC8785(t *testing.T) {
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0", 0x8000000000000000: "0", 0x0000000000000001: "5e-324", 0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308", 0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992", 0xc340000000000000: "-9007199254740992", 0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22", 0x44b52d02c7e14af6: "1e+23", 0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000", 0x444b1ae4d6e2ef4f: "999999999999999900000", 0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7", 0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332", 0x41b3de4355555554: "333333333.33333325", 0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334", 0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333", 0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		in := strconv.FormatFloat(math.Float64frombits(bits), 'e', 17, 64)
		if got, err := Canonical([]byte(in)); err != nil || string(got) != want {
			t.Errorf("%x: %s, %v, want %s", bits, got, err, want)
		}
	}
}

func TestWhatHasNoCanonicalForm(t *testing.T) {
	for name, in := range map[string]string{
		"nothing": "", "spaces": "  ", "a name twice": `{"a":1,"b":2,"a":3}`, "a name twice, once escaped": `{"a":1,"\u0061":1}`,
		"a name twice within": `[{"x":{"":1,"":2}}]`, "a lone high surrogate": `"\ud800"`, "a lone low surrogate": `"\udc00x"`,
		"two high surrogates": `"\ud800\ud800"`, "invalid UTF-8": "\"\xff\"", "a surrogate as UTF-8": "\"\xed\xa0\x80\"",
		"a control character": "\"\n\"", "beyond a double": `1e400`, "beyond a double, below zero": `-1e309`, "data after it": `{} {}`, "leading zero": `01`,
		"plus": `+1`, "no digits": `-`, "no fraction": `1.`, "no exponent": `1e`, "hex": `0x10`, "not a number": `NaN`, "a word": `nul`, "half a word": `tru`,
		"a comma too many": `[1,]`, "a comma too many in an object": `{"a":1,}`, "no comma": `[1 2]`, "no colon": `{"a" 1}`, "no value": `{"a":}`,
		"a name without quotes": `{a:1}`, "open": `[`, "open object": `{"a":1`, "open string": `"a`, "open escape": `"\`, "open unit": `"\u12`,
		"an unknown escape": `"\x41"`, "an escape of no hex": `"\u12g4"`, "a byte order mark": "\ufeff{}", "a NUL": "\x00",
		"too deep": strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1),
	} {
		if got, err := Canonical([]byte(in)); !errors.Is(err, ErrJSON) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	deep := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	if got, err := Canonical([]byte(deep)); err != nil || string(got) != deep {
		t.Errorf("the deepest: %v", err)
	}
	if _, err := Canonical(make([]byte, MaxBytes+1)); !errors.Is(err, ErrJSON) {
		t.Errorf("too long: %v", err)
	}
}

// An error names a place, and nothing of what stands there.
func TestErrorsHoldNoContent(t *testing.T) {
	_, err := RequestHash([]byte(`{"messages":"canary-of-the-body", "messages":1}`))
	if err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "messages") {
		t.Error(err)
	}
}

// A second implementation of RFC 8785 agrees on every value, and the form is its
// own form.
func TestCanonicalAgreesWithASecondImplementation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, err := json.Marshal(drawValue(t, 4))
		if err != nil {
			t.Skip(err)
		}
		compare(t, in)
	})
}

func drawValue(t *rapid.T, depth int) any {
	text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("aé\ufb33😀𝄞\u0001\n\"\\/ "))))
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	switch kind {
	case 0:
		return text.Draw(t, "text")
	case 1:
		return rapid.Float64().Draw(t, "number")
	case 2:
		return rapid.Int64().Draw(t, "integer")
	case 3:
		return rapid.SampledFrom([]any{nil, true, false}).Draw(t, "word")
	case 4:
		list := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "length") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 6).Draw(t, "members") {
		object[text.Draw(t, "name")] = drawValue(t, depth-1)
	}
	return object
}

// compare holds Canonical against the library.
func compare(t interface {
	Helper()
	Fatalf(string, ...any)
}, in []byte) {
	t.Helper()
	got, err := Canonical(in)
	want, wantErr := jcs.Transform(in)
	switch {
	case err != nil && wantErr != nil:
		return
	case err != nil && strings.Contains(err.Error(), "nested deeper"):
		return
	case err != nil || wantErr != nil:
		t.Fatalf("%q: %v here, %v there", in, err, wantErr)
	case !bytes.Equal(got, want):
		t.Fatalf("%q: %q here, %q there", in, got, want)
	}
	if again, err := Canonical(got); err != nil || !bytes.Equal(again, got) {
		t.Fatalf("the form of %q is not its own form: %q, %v", got, again, err)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":[1.5e3,-0,"\ud83d\ude00\n"],"a":{"":null}}`, `{"a":1,"a":2}`, `"\ud800"`, "[1e400]", `[[[`, `{"\u0022":0,"!":0}`, "\"\xc3\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) { compare(t, bytes.Clone(in)) })
}

// What is wrong is named, also where it is the last that there is.
func TestWhatIsWrongAtTheEndIsNamed(t *testing.T) {
	for text, want := range map[string]string{`{"a":1,"a":2}`: "a name stands twice", `1e999`: "beyond a double", `{"a":1`: "ends early", `"a`: "ends early"} {
		if _, err := Canonical([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
