package reach_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/chordwheel/chordwheel/mesh/reach"
)

// A member that says each second that it moved is not dialled each second: every
// minute's dials belong to all peers.
func TestOneThatMovesWithoutEnd(t *testing.T) {
	b := book(nil)
	dials := 0
	for s := range 600 {
		at := start.Add(time.Duration(s) * time.Second)
		b.Note(large, addresses(fmt.Sprintf("/ip4/8.8.8.8/tcp/%d", 1000+s)), reach.Gossip, at)
		for _, half := range []time.Duration{0, 500 * time.Millisecond} {
			for _, p := range due(b, at.Add(half)) {
				dials++
				b.Failed(p, at.Add(half))
			}
		}
	}
	if dials > 180 || dials < 10 {
		t.Errorf("%d dials in ten minutes", dials)
	}
}

// One that really moved is looked for at its new place soon, however long its old
// one failed.
func TestOneThatMovedIsFoundSoon(t *testing.T) {
	b := book(nil)
	b.Note(large, addresses("/ip4/8.8.8.8/tcp/1"), reach.Gossip, start)
	at := start
	for range 600 {
		at = at.Add(time.Second)
		for _, p := range due(b, at) {
			b.Failed(p, at)
		}
	}
	b.Note(large, addresses("/ip4/8.8.8.8/tcp/2"), reach.Gossip, at)
	for end := at.Add(11 * time.Second); at.Before(end); at = at.Add(100 * time.Millisecond) {
		if len(due(b, at)) > 0 {
			return
		}
	}
	t.Error("not within eleven seconds")
}

// Whoever can send multicast into the network makes up as many devices as they
// like. They cost the owner's peers, those that were met and those that members
// named neither their place in the book nor their dials.
func TestALANOfMadeUpDevices(t *testing.T) {
	b := book(nil)
	const owners, friend, named peer.ID = "zz-owners", "zz-friend", "zz-named"
	b.Note(owners, addresses("/ip4/10.0.0.1/tcp/1"), reach.Owner, start)
	b.Note(friend, addresses("/ip4/10.0.0.2/tcp/1"), reach.Peer, start)
	b.Note(named, addresses("/ip4/10.0.0.3/tcp/1"), reach.Hub, start)
	b.Met(friend, start)
	made, dials := 0, map[peer.ID]int{}
	parted := start.Add(5 * time.Minute)
	for at := start; at.Before(start.Add(10 * time.Minute)); at = at.Add(500 * time.Millisecond) {
		for range 4 {
			made++
			b.Note(peer.ID(fmt.Sprintf("zzz%06d", made)), addresses(fmt.Sprintf("/ip4/10.%d.%d.%d/tcp/1", 1+made%200, made/200%250, made/50000)), reach.LAN, at)
		}
		if at.Equal(parted) {
			b.Parted(friend, at)
		}
		list, _ := b.Due(at, 4)
		for _, d := range list {
			dials[d.Peer]++
			b.Failed(d.Peer, at)
		}
	}
	for _, p := range []peer.ID{owners, friend, named} {
		if len(b.Known(p)) == 0 {
			t.Errorf("%s is forgotten", p)
		}
		if dials[p] < 4 {
			t.Errorf("%s was dialled %d times", p, dials[p])
		}
	}
	if made < 4000 || len(dials) < 100 {
		t.Errorf("%d made up, %d dialled: nothing was shown", made, len(dials))
	}
}

// Who is there by multicast alone is still met.
func TestTheLANAloneIsEnough(t *testing.T) {
	b := book(nil)
	var want []peer.ID
	for i := range 20 {
		p := peer.ID(fmt.Sprintf("z%02d", i))
		want = append(want, p)
		b.Note(p, addresses(fmt.Sprintf("/ip4/10.0.0.%d/tcp/1", i+1)), reach.LAN, start)
	}
	var got []peer.ID
	for at := start; at.Before(start.Add(5 * time.Second)); at = at.Add(500 * time.Millisecond) {
		for _, p := range due(b, at) {
			got = append(got, p)
			b.Met(p, at)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
