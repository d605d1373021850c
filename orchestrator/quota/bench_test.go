package quota

import (
	"fmt"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// BenchmarkGrant: a device settles a block and gets another, in an account that as
// many devices share.
func BenchmarkGrant(b *testing.B) {
	for _, devices := range []int{10, 50_000} {
		b.Run(fmt.Sprint(devices), func(b *testing.B) {
			book, c := New(), Ceiling{Account: "a", Limit: 1 << 50}
			names, blocks := make([]chain.PeerID, devices), make([]Grant, devices)
			now := start
			for i := range devices {
				names[i] = chain.PeerID(fmt.Sprintf("12D3KooW%044d", i))
			}
			i := 0
			for b.Loop() {
				at := i % devices
				i++
				now = now.Add(15 * time.Minute / time.Duration(devices))
				q := Ask{Device: names[at], Slot: home, Least: 1000, Known: 1000, Holds: map[string]bool{blocks[at].ID: true}}
				book.Settle(&c, names[at], blocks[at].ID, 500, true, now)
				blocks[at] = book.Grant(&c, q, terms, now)
			}
		})
	}
}
