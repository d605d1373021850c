package mesh

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/multiformats/go-multiaddr"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/chord"
	"github.com/chordwheel/chordwheel/mesh/exchange"
	"github.com/chordwheel/chordwheel/mesh/reach"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Introduce says where peers may be, on the word of the hub or of the owner.
// It is a hint: the device dials them when it is their turn, and only a greeting
// makes a contact. What is no address is left out.
func (d *Device) Introduce(list ...wire.PeerAddress) { d.peers.introduce(reach.Hub, list...) }

// Contacts gives the peers that the device is in contact with, by peer ID.
func (d *Device) Contacts() []Contact {
	d.peers.mu.Lock()
	defer d.peers.mu.Unlock()
	var all []Contact
	for _, c := range d.peers.contacts {
		all = append(all, c.Contact)
	}
	slices.SortFunc(all, func(a, b Contact) int { return cmp.Compare(a.Peer, b.Peer) })
	return all
}

// ScopeChord is a chord between two members of a scope.
type ScopeChord struct {
	Scope chain.ScopeID
	chord.Chord
}

// Chords gives the adjacencies in the joined scopes, as far as this device
// heard; those with By set are claimed by that end only.
func (d *Device) Chords() []ScopeChord {
	d.peers.mu.Lock()
	defer d.peers.mu.Unlock()
	var all []ScopeChord
	for scope, t := range d.peers.chords {
		for _, k := range t.Claimed(time.Now()) {
			all = append(all, ScopeChord{scope, k})
		}
	}
	slices.SortStableFunc(all, func(a, b ScopeChord) int { return cmp.Compare(a.Scope, b.Scope) })
	return all
}

// Adjacent gives this device's own end of its chords: what a report tells the
// hub.
func (d *Device) Adjacent() []wire.Chord {
	var list []wire.Chord
	for _, c := range d.Contacts() {
		list = append(list, wire.Chord{Peer: c.Peer, RTT: min(c.RTT, time.Minute).Microseconds()})
	}
	return list
}

// Way is the connection to a peer that is used now.
type Way struct {
	Path      string // direct or relayed
	Transport string // tcp, quic-v1
	Address   string // of the other end
}

// Pong is the answer to a ping.
type Pong struct {
	Peer chain.PeerID
	RTT  time.Duration
	Way
}

// Way tells how p is connected; ok is false where it is not. A direct connection
// goes before a relayed one.
func (d *Device) Way(p chain.PeerID) (l Way, ok bool) {
	id, err := peerID(p)
	if err != nil {
		return l, false
	}
	for _, conn := range d.host.Network().ConnsToPeer(id) {
		l = Way{Transport: conn.ConnState().Transport, Path: "direct", Address: conn.RemoteMultiaddr().String()}
		if _, err := conn.RemoteMultiaddr().ValueForProtocol(multiaddr.P_CIRCUIT); err != nil && !conn.Stat().Limited {
			return l, true
		}
		l.Path, ok = "relayed", true
	}
	return l, ok
}

// Ping greets a peer, over the standing connection or a new one, and measures
// the way. It counts as direct contact.
func (d *Device) Ping(ctx context.Context, p chain.PeerID) (Pong, error) {
	pong := Pong{Peer: p, Way: Way{Path: "direct"}}
	err := d.with(ctx, p, nil)
	if err != nil {
		return pong, err
	}
	id, _ := peerID(p) // with has read it
	d.peers.mu.Lock()
	if c := d.peers.contacts[id]; c != nil {
		pong.RTT = c.RTT
	}
	d.peers.mu.Unlock()
	if l, ok := d.Way(p); ok {
		pong.Way = l
	}
	return pong, nil
}

// Heads asks a member which chains of scope it caches.
func (d *Device) Heads(ctx context.Context, from chain.PeerID, scope chain.ScopeID) (held []wire.Held, err error) {
	err = d.with(ctx, from, func(s *exchange.Session) (err error) { held, err = s.Heads(ctx, scope); return err })
	return held, err
}

// FetchFrom asks a member for a chain that it caches, as [Device.Fetch] asks
// the hub. The reply is not verified: a chain counts for its signature alone.
func (d *Device) FetchFrom(ctx context.Context, from chain.PeerID, f wire.Fetch) (reply wire.FetchReply, err error) {
	err = d.with(ctx, from, func(s *exchange.Session) (err error) { reply, err = s.Fetch(ctx, f); return err })
	return reply, err
}

// with greets p and lets ask ask.
func (d *Device) with(ctx context.Context, p chain.PeerID, ask func(*exchange.Session) error) error {
	id, err := peerID(p)
	if err != nil {
		return err
	}
	if id == d.hub {
		return fmt.Errorf("peer %s is the hub: it takes the spoke only", p)
	}
	ctx, cancel := context.WithTimeout(ctx, meetTimeout)
	defer cancel()
	if err = d.peers.arrive(ctx, id); err == nil {
		err = d.peers.greet(ctx, id, ask)
	}
	if err != nil {
		return fmt.Errorf("peer %s: %w", p, err)
	}
	return nil
}
