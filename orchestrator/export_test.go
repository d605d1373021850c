package orchestrator

import "github.com/chordwheel/chordwheel/chain"

// ProtestSlots gives the number of slots whose protests are counted.
func (h *Hub) ProtestSlots() int { return len(h.protests) }

// Sweep has scopes looked over bit by bit, as after an edit in a large mesh.
func (h *Hub) Sweep(scopes ...chain.ScopeID) { h.sweepLater(scopes) }
