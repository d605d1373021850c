package chord_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/chord"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func to(rtt int64, peers ...chain.PeerID) (list []wire.Chord) {
	for _, p := range peers {
		list = append(list, wire.Chord{Peer: p, RTT: rtt})
	}
	return list
}

func names(list []chord.Chord) (all []string) {
	for _, k := range list {
		all = append(all, string(k.A+k.B))
	}
	return all
}

func TestBothEndsClaim(t *testing.T) {
	var table chord.Table
	expect := func(what string, at time.Time, want ...string) {
		t.Helper()
		if got := names(table.Chords(at)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("nobody said anything", start)
	table.Claim("b", to(900, "a", "c"), start)
	expect("one end", start)
	table.Claim("a", to(400, "b", "a"), start.Add(time.Minute))
	expect("both ends, and nobody is next to itself", start, "ab")
	if k := table.Chords(start)[0]; k.RTT != 400*time.Microsecond || !k.At.Equal(start) {
		t.Errorf("the smaller time and the older claim: %+v", k)
	}
	if half := table.Claimed(start); len(half) != 2 || half[1].By != "b" || half[1].A != "b" || half[1].B != "c" || half[0].By != "" {
		t.Errorf("b alone says that it is next to c: %+v", half)
	}
	table.Claim("c", to(0, "b"), start.Add(2*time.Minute))
	expect("a third", start, "ab", "bc")
	if k := table.Chords(start)[1]; k.RTT != 900*time.Microsecond {
		t.Errorf("one end measured: %+v", k)
	}
	table.Claim("b", to(900, "c"), start.Add(3*time.Minute))
	expect("one end takes it back", start.Add(3*time.Minute), "bc")
	table.Claim("b", nil, start.Add(4*time.Minute))
	expect("all of them", start.Add(4*time.Minute))
	table.Claim("b", to(1, "a", "c"), start.Add(5*time.Minute))
	expect("again", start.Add(5*time.Minute), "ab", "bc")
	table.Forget("a")
	expect("an end is forgotten", start.Add(5*time.Minute), "bc")
	expect("an end went silent", start.Add(2*time.Minute+chord.MaxAge+time.Second))
}

// However it is filled, the table stays small and lists only what both claim.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table chord.Table
		said := map[chain.PeerID][]chain.PeerID{}
		peer := rapid.SampledFrom([]chain.PeerID{"a", "b", "c", "d", "e"})
		for range rapid.IntRange(0, 30).Draw(t, "claims") {
			by, list := peer.Draw(t, "by"), rapid.SliceOfN(peer, 0, 4).Draw(t, "peers")
			table.Claim(by, to(1, list...), start)
			said[by] = list
		}
		for _, k := range table.Chords(start) {
			if k.A >= k.B || !slices.Contains(said[k.A], k.B) || !slices.Contains(said[k.B], k.A) {
				t.Fatalf("%+v of %v", k, said)
			}
		}
	})
	var table chord.Table
	for i := range 3000 {
		me := chain.PeerID(fmt.Sprintf("%05d", i))
		list := make([]wire.Chord, 0, 1000)
		for k := range 1000 {
			if i > 100 { // long lists are costly to make, a few show it
				break
			}
			list = append(list, wire.Chord{Peer: chain.PeerID(fmt.Sprintf("%05d", k))})
		}
		table.Claim(me, append(list, wire.Chord{Peer: "x"}), start.Add(time.Duration(i)*time.Millisecond))
	}
	var back []wire.Chord
	for i := range 200 {
		back = append(back, wire.Chord{Peer: chain.PeerID(fmt.Sprintf("%05d", 2999-i))})
	}
	table.Claim("x", back, start.Add(10*time.Second))
	if n := len(table.Chords(start.Add(10 * time.Second))); n != 128 {
		t.Errorf("%d chords with the newest", n)
	}
}
