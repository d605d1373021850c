package orchestrator

import (
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// ProtestSlots gives the number of slots whose protests are counted.
func (h *Hub) ProtestSlots() int { return len(h.protests) }

// Sweep has scopes looked over bit by bit, as after an edit in a large mesh.
func (h *Hub) Sweep(scopes ...chain.ScopeID) { h.sweepLater(scopes) }

// HoldJoins puts off what is said of topics, as after much work with them.
func (h *Hub) HoldJoins(d time.Duration) { h.nextJoin = time.Now().Add(d) }

// Sweeping gives the number of scopes that wait to be looked over.
func (h *Hub) Sweeping() int { return len(h.sweep) }

// Plans gives the number of chains whose answers to protests are worked out.
func (h *Hub) Plans() int { return len(h.plans) }
