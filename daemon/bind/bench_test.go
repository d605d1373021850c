package bind

import (
	"fmt"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// BenchmarkBind is one choice among live peers that all can, beside as many that
// are only heard of.
func BenchmarkBind(b *testing.B) {
	for _, n := range []int{1, 32, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := newTable(1)
			for i := range n {
				name := fmt.Sprintf("peer%d", i)
				table.Contact(contact(name, nil), start)
				table.Observe(chain.PeerID(name), work, chain.OK, time.Second, start)
				table.Introduce(Introduction{Peer: chain.PeerID("heard" + name)}, start)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := table.Bind(ask, nil, start.Add(time.Second)); !ok {
					b.Fatal("nobody")
				}
			}
		})
	}
}
