package daemon

import "testing"

func TestTheBeginningOfAConversation(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{}`, ``},
		{`{"input":"x"}`, ``},
		{`{"messages":[]}`, `[`},
		{`{"messages":[{"role":"user","content":"a"}],"x":1}`, `[{"role":"user","content":"a"`},
		{`{"messages": [{"role":"system","content":"a } \" ] b"},{"role":"user","content":[{"text":"b"}]},{"role":"assistant"}]}`, `[{"role":"system","content":"a } \" ] b"},{"role":"user","content":[{"text":"b"}]`},
		{`{"messages":[{"role":"system","content":"the \"user\" says"},{"role":"user"},{"role":"user"}]}`, `[{"role":"system","content":"the \"user\" says"},{"role":"user"`},
		{`{"messages":[{"role":"system","content":"cut`, `[{"role":"system","content":"cut`},
		{`{"messages":`, ``},
	} {
		if got := string(beginning([]byte(c.body))); got != c.want {
			t.Errorf("%s: %s, want %s", c.body, got, c.want)
		}
	}
}

// FuzzBeginning: it never panics, and gives a part of what it got.
func FuzzBeginning(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"a"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got := beginning(body); len(got) > maxBeginning || len(got) > len(body) {
			t.Fatalf("%d bytes of %d", len(got), len(body))
		}
		bound(body, 1)
	})
}
