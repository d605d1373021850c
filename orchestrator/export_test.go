package orchestrator

import (
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// inTurn looks at a running hub while nothing else does.
func inTurn[T any](h *Hub, look func() T) T {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	return look()
}

// ProtestSlots gives the number of slots whose protests are counted.
func (h *Hub) ProtestSlots() int { return inTurn(h, func() int { return len(h.protests) }) }

// Sweep has scopes looked over bit by bit, as after an edit in a large mesh.
func (h *Hub) Sweep(scopes ...chain.ScopeID) {
	inTurn(h, func() bool { h.sweepLater(scopes); return true })
}

// HoldJoins puts off what is said of topics, as after much work with them.
func (h *Hub) HoldJoins(d time.Duration) {
	inTurn(h, func() bool { h.nextJoin = time.Now().Add(d); return true })
}

// Sweeping gives the number of scopes that wait to be looked over.
func (h *Hub) Sweeping() int { return inTurn(h, func() int { return len(h.sweep) }) }

// LookOver has everything looked over, as an edit of the catalogue does, and gives the
// number of scopes that are left for later turns. Nothing else has a turn between.
func (h *Hub) LookOver() int {
	return inTurn(h, func() int {
		if err := h.resolveAll(); err != nil {
			return 0
		}
		return len(h.sweep)
	})
}

// PlansOfALook gives for how many chains a look at the status works out the answers
// to protests, if there are none before. Nothing else has a turn between.
func (h *Hub) PlansOfALook() int {
	return inTurn(h, func() int {
		clear(h.plans)
		h.status(nil)
		return len(h.plans)
	})
}
