package testnet

import (
	"testing"

	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/sim"
	"github.com/chordwheel/chordwheel/mesh/spoke"
)

// TestTheWatchSees: each breach on a stream, also one that comes in pieces, and none where
// all is well.
func TestTheWatchSees(t *testing.T) {
	for _, c := range []struct {
		name   string
		stream sim.Stream
		pieces []string
		want   int
	}{
		{"work", sim.Stream{Node: 1, Protocol: exec.Protocol}, []string{"a " + promptCanary, answerCanary}, 0},
		{"a key in work", sim.Stream{Node: 1, Protocol: exec.Protocol}, []string{"a " + keyCanary[:5], keyCanary[5:]}, 1},
		{"a prompt in a report", sim.Stream{Node: 1, Protocol: spoke.Protocol}, []string{promptCanary[:3], promptCanary[3:9], promptCanary[9:]}, 1},
		{"a report", sim.Stream{Node: 0, Protocol: spoke.Protocol}, []string{"counters"}, 0},
		{"the hub asks", sim.Stream{Node: 0, Protocol: spoke.Protocol, Opened: true}, nil, 1},
		{"the hub is asked for work", sim.Stream{Node: 0, Protocol: exec.Protocol}, nil, 1},
		{"gossip of the hub", sim.Stream{Node: 0, Protocol: "/meshsub/1.2.0", Opened: true}, []string{"news"}, 0},
	} {
		for i := range 2 {
			w := newWatch(nil)
			read, written := w.tap(c.stream)
			for _, p := range c.pieces {
				[]func([]byte){read, written}[i]([]byte(p))
			}
			if len(w.broken) != c.want {
				t.Errorf("%s: %q, want %d breaches", c.name, w.broken, c.want)
			}
		}
	}
}
