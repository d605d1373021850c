package daemon

import (
	"fmt"
	"slices"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
)

// maxTwins bounds what status repeats of things that were seen twice.
const maxTwins = 8

// cloned hears that something which must be unique was seen twice in the mesh,
// by the node or by the hub. Status says so until the next start: only the owner can tell which of the two is
// the right one.
func (d *Daemon) cloned(c mesh.Clone) {
	problem := fmt.Sprintf("two programs run with the identity of device %s (%s): its data directory was copied; stop one, empty its directory and join it anew", chain.ClipTo(c.Name, 64), c.Peer)
	if c.Kind == mesh.SameDeviceID {
		problem = fmt.Sprintf("device ID %s is used by %s (%s) and by %s: give one an ID of its own, in a file that CHORDWHEEL_DEVICE_ID_FILE names, and join it anew", chain.Clip(c.ID), chain.ClipTo(c.Name, 64), c.Peer, c.Other)
	}
	d.mu.Lock()
	known := slices.Contains(d.twins, problem)
	if !known && len(d.twins) < maxTwins {
		d.twins = append(d.twins, problem)
	}
	d.mu.Unlock()
	if !known {
		d.cfg.Log.Error("seen twice in this mesh", "problem", problem)
	}
}
