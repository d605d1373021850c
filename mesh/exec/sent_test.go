package exec_test

import (
	"fmt"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

func TestSent(t *testing.T) {
	s := exec.NewSent()
	open := wire.ExecOpen{Request: []byte("r"), Membership: []byte("m"), Head: []byte("h1"), Body: []byte("b"), Extension: []byte("e")}
	show := func(o wire.ExecOpen) string {
		return fmt.Sprintf("%s %s %s %s %s", o.Request, o.Membership, o.Head, o.Body, o.Extension)
	}
	for _, c := range []struct {
		what string
		do   func()
		to   chain.PeerID
		want string
	}{
		{"at first all is sent", func() {}, "a", "r m h1 b e"},
		{"then what is new each time", func() { s.Took("a", open) }, "a", "r    e"},
		{"but not to others", func() {}, "b", "r m h1 b e"},
		{"a new head goes out", func() { open.Head = []byte("h2") }, "a", "r  h2  e"},
		{"and all, to who lacks something", func() { s.Forget("a") }, "a", "r m h2 b e"},
	} {
		c.do()
		if got := show(s.Lean(c.to, open)); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	for i := range 10_000 { // bounded, by peers and by envelopes: nothing to see but that it ends
		s.Took(chain.PeerID(fmt.Sprint(i%1000)), wire.ExecOpen{Head: []byte(fmt.Sprint(i))})
	}
	if peers, most := s.Size(); peers > 256 || most > 64 {
		t.Errorf("%d peers, %d envelopes of one", peers, most)
	}
}
