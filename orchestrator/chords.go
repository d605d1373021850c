package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/mesh"
)

// patience is how long gossip waits for the loop. It is a hint, and repeated.
const patience = time.Second

// Adjacent takes what a device told its scope of its contacts. Reports say the
// same; in a small mesh gossip is sooner. It does not wait for the loop where that
// is busy: the next word replaces this one.
func (h *Hub) Adjacent(v mesh.Adjacency) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, _ = ask(ctx, h, func() (struct{}, error) {
		if d := h.fleet.Device(v.Peer); d != nil && d.Revoked == 0 && slices.Contains(d.Scopes, v.Scope) {
			h.fleet.Adjacent(d, v.Scope, v.Chords, time.Now())
		}
		return struct{}{}, nil
	})
}

// Announced takes where a device says that it can be dialled: it may have moved
// since its last visit.
func (h *Hub) Announced(p mesh.Presence) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := ask(ctx, h, func() (struct{}, error) {
		d := h.fleet.Device(p.Membership.Peer)
		if d == nil || d.Revoked != 0 || slices.Equal(d.Addresses, p.Addresses) {
			return struct{}{}, nil
		}
		moved := *d
		moved.Addresses = p.Addresses
		h.fleet.Put(&moved) // not written: its next hello says it again
		return struct{}{}, nil
	})
	if err != nil {
		h.log.Debug("an announcement was not taken in", "error", err)
	}
}
