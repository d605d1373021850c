package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/mesh"
)

// Adjacent takes what a device told its scope of its contacts. Reports say the
// same; in a small mesh gossip is sooner. It does not wait for the loop where that
// is busy: the next word replaces this one.
func (h *Hub) Adjacent(v mesh.Adjacency) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = ask(ctx, h, func() (struct{}, error) {
		if d := h.fleet.Device(v.Peer); d != nil && d.Revoked == 0 && slices.Contains(d.Scopes, v.Scope) {
			h.fleet.Adjacent(d, v.Scope, v.Chords, time.Now())
		}
		return struct{}{}, nil
	})
}
