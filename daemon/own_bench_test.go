package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/daemon/edge"
)

// BenchmarkOwnOrder is what an own order adds to a request before it is walked:
// "the hub's" is the order of a device that knows nothing better.
func BenchmarkOwnOrder(b *testing.B) {
	text := ""
	for i := range 12 {
		text += fmt.Sprintf("o%d/m p=.98 s=%d |", i, i+1)
	}
	c := chaintest.NewHub().Chain(b, text, time.Now())
	talk := delta.ConversationOf([]byte("x"))
	for _, what := range []string{"the hub's", "own", "warm"} {
		d := &Daemon{deltas: newDeltas(), cfg: Config{Keys: noKeys{}}}
		v := d.view(c)
		for range 20 {
			if what != "the hub's" {
				d.deltas.book.Observe(delta.Key{Primitive: chain.LLMChat, Option: "o0/m"}, delta.Sample{OK: true, Took: time.Minute, At: time.Now()})
			}
			d.deltas.book.Evaluate(&v, time.Now())
		}
		of := delta.Conversation{}
		if what == "warm" {
			of = talk
			d.deltas.book.Warm(v.Slot, talk, "o3/m", time.Now())
		}
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d.ordered(c, of)
			}
		})
	}
}

// BenchmarkConversation is what it takes to tell which conversation a request is of.
func BenchmarkConversation(b *testing.B) {
	body := `{"model":"auto","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"a question of some words"}`
	for range 40 {
		body += `,{"role":"assistant","content":"an answer"},{"role":"user","content":"and more"}`
	}
	w := &edge.Work{Body: []byte(body + `]}`)}
	b.ReportAllocs()
	for b.Loop() {
		conversation(w)
	}
}

type noKeys struct{}

func (noKeys) Get(string) (chain.Secret, bool) { return "", false }
func (noKeys) Generation(string) uint64        { return 0 }
func (noKeys) Names() []string                 { return nil }
