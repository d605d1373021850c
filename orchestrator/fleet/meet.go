package fleet

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/chord"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Bounds of what one device is told of others. It asks again with each visit,
// and each time others of a large scope are drawn.
const (
	maxTold     = 4 // addresses of one peer
	heardWithin = chain.Instant(48 * time.Hour / time.Millisecond)
)

// Introductions gives where up to most other members of d's scopes may be
// dialled: those in force that said so and were heard of lately, a stretch that
// begins at random where there are more.
func (f *Fleet) Introductions(d *Device, most int, now chain.Instant) []wire.PeerAddress {
	var list []wire.PeerAddress
	seen := map[chain.PeerID]bool{d.Peer: true}
	for _, scope := range d.Scopes {
		members := f.members[scope]
		start := 0
		if len(members) > most {
			start = rand.IntN(len(members))
		}
		for i := range min(len(members), 16*most) {
			o := members[(start+i)%len(members)]
			if len(list) >= most {
				return list
			}
			if seen[o.Peer] || !o.Active(now) || len(o.Addresses) == 0 || now-o.Seen > heardWithin {
				continue
			}
			seen[o.Peer] = true
			list = append(list, wire.PeerAddress{Peer: o.Peer, Addresses: o.Addresses[:min(len(o.Addresses), maxTold)]})
		}
	}
	return list
}

// Adjacent takes what a device says of its contacts in place of what it said
// before: those that share a scope with it. Of scope alone, what it said about
// others stays; an empty scope stands for all.
func (f *Fleet) Adjacent(d *Device, scope chain.ScopeID, list []wire.Chord, now time.Time) {
	shares := func(k wire.Chord) bool {
		o := f.devices[k.Peer]
		return o != nil && o.Revoked == 0 && slices.ContainsFunc(d.Scopes, func(s chain.ScopeID) bool { return slices.Contains(o.Scopes, s) })
	}
	ours := slices.DeleteFunc(slices.Clone(list), func(k wire.Chord) bool { return !shares(k) })
	if scope != "" {
		for _, k := range f.chords.Claims(d.Peer) {
			if o := f.devices[k.Peer]; o != nil && !slices.Contains(o.Scopes, scope) {
				ours = append(ours, k)
			}
		}
	}
	f.chords.Claim(d.Peer, ours, now)
}

// Claimed gives also the adjacencies that one end claims, with By set.
func (f *Fleet) Claimed(now time.Time) []chord.Chord { return f.chords.Claimed(now) }

// Chords gives the adjacencies that both ends claim.
func (f *Fleet) Chords(now time.Time) []chord.Chord { return f.chords.Chords(now) }

// twinFor is how long a device counts as two programs after the last sign of it: longer than
// devices go without a hello.
const twinFor = 24 * time.Hour

// Twice notes the run that a hello comes from. It reports whether an older run
// of the device is back after a newer one: then two programs use one identity. A
// device that starts again has a new boot ID for good.
func (f *Fleet) Twice(peer chain.PeerID, boot string, now time.Time) bool {
	hash := fnv.New64a()
	hash.Write([]byte(boot))
	h, last := hash.Sum64(), f.runs[peer]
	if h == last[0] {
		return false
	}
	f.runs[peer] = [2]uint64{h, last[0]}
	if h == last[1] {
		f.twins[peer] = now
		return true
	}
	return false
}

// Twins reports whether two programs spoke with the device's identity lately: what they
// say they measured is not one device's word.
func (f *Fleet) Twins(peer chain.PeerID, now time.Time) bool {
	seen, ok := f.twins[peer]
	if ok && now.Sub(seen) >= twinFor {
		delete(f.twins, peer)
		return false
	}
	return ok
}
