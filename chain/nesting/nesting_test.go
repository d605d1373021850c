package nesting

import (
	"fmt"
	"strings"
	"testing"
)

func TestBrackets(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, ""},
		{`{"a":[1]}`, "0:1 5:2 7:1 8:0"},
		{`["{", "\"]", "\\", {}]`, "0:1 19:2 20:1 21:0"},
		{`}{`, "0:-1 1:0"},
		{`["open {`, "0:1"},
		{`["cut \`, "0:1"},
	} {
		var got []string
		for at, open := range Brackets([]byte(c.text)) {
			got = append(got, fmt.Sprintf("%d:%d", at, open))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.text, got, c.want)
		}
	}
	for text, want := range map[string]int{``: 0, `7`: 0, `{"[[":[{}],"b":[]}`: 3, `]]][`: 0, `[[`: 2} {
		if got := Depth([]byte(text)); got != want {
			t.Errorf("%s: %d deep, want %d", text, got, want)
		}
	}
	for at := range Brackets([]byte("[[[")) {
		if at > 0 {
			t.Error("it goes on after its reader left")
		}
		break
	}
}
