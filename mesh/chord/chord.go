// Package chord owns the adjacency of devices: who says to be in contact with
// whom, and how far away. A chord counts when both of its ends claim it, and
// only as long as both keep claiming it. The package is pure: claims and the time
// come in, and who may make them is decided elsewhere. What it holds is bounded
// whatever it is told.
package chord

import (
	"cmp"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Bounds of a [Table].
const (
	MaxAge     = 45 * time.Minute // claims repeat each quarter of an hour: two may be lost
	maxAuthors = 2048
	maxClaims  = 128 // of one author, the rest of its list is not heard
)

// Chord is an adjacency that both ends claim. A sorts before B.
type Chord struct {
	A   chain.PeerID
	B   chain.PeerID
	RTT time.Duration // the smaller of what the ends measured; 0: neither did
	At  time.Time     // of the older of the two claims
	By  chain.PeerID  // the end that claims it where the other does not; "" both do
}

// Table holds claims. The zero value is ready; it is not safe for concurrent use.
type Table struct {
	authors map[chain.PeerID]claims
}

type claims struct {
	at    time.Time
	peers map[chain.PeerID]time.Duration
}

// Claim takes what by says of its contacts now in place of what it said
// before. An empty list withdraws everything. A full table forgets who has been
// silent for longest.
func (t *Table) Claim(by chain.PeerID, list []wire.Chord, now time.Time) {
	delete(t.authors, by)
	if len(list) == 0 {
		return
	}
	if t.authors == nil {
		t.authors = map[chain.PeerID]claims{}
	}
	if len(t.authors) >= maxAuthors {
		t.forgetOldest()
	}
	c := claims{now, map[chain.PeerID]time.Duration{}}
	for _, k := range list[:min(len(list), maxClaims)] {
		if k.Peer != by && k.RTT >= 0 {
			c.peers[k.Peer] = time.Duration(k.RTT) * time.Microsecond
		}
	}
	t.authors[by] = c
}

// Claims gives what by claims now, in no order.
func (t *Table) Claims(by chain.PeerID) []wire.Chord {
	var list []wire.Chord
	for peer, rtt := range t.authors[by].peers {
		list = append(list, wire.Chord{Peer: peer, RTT: rtt.Microseconds()})
	}
	return list
}

// Forget drops what a peer claimed: it was revoked, say.
func (t *Table) Forget(peer chain.PeerID) { delete(t.authors, peer) }

func (t *Table) age(now time.Time) {
	for by, c := range t.authors {
		if now.Sub(c.at) > MaxAge {
			delete(t.authors, by)
		}
	}
}

func (t *Table) forgetOldest() {
	var oldest chain.PeerID
	for by, c := range t.authors {
		if oldest == "" || c.at.Before(t.authors[oldest].at) {
			oldest = by
		}
	}
	delete(t.authors, oldest)
}

// Chords gives the adjacencies that both ends claim, sorted by their ends.
func (t *Table) Chords(now time.Time) []Chord {
	return slices.DeleteFunc(t.Claimed(now), func(k Chord) bool { return k.By != "" })
}

// Claimed gives also those that only one end claims: the other may not have
// spoken yet, may not be reached by gossip, or may say otherwise. Nothing is to be
// decided by them.
func (t *Table) Claimed(now time.Time) []Chord {
	t.age(now)
	var all []Chord
	for a, c := range t.authors {
		for b, rtt := range c.peers {
			other := t.authors[b]
			back, claimed := other.peers[a]
			if !claimed {
				all = append(all, Chord{A: min(a, b), B: max(a, b), RTT: rtt, At: c.at, By: a})
				continue
			}
			if a > b {
				continue // told from its other end
			}
			k := Chord{A: a, B: b, RTT: rtt, At: c.at}
			if back > 0 && (back < rtt || rtt == 0) {
				k.RTT = back
			}
			if other.at.Before(k.At) {
				k.At = other.at
			}
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(x, y Chord) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	return all
}
