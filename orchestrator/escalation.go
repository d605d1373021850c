package orchestrator

import (
	"errors"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/order"
	"github.com/chordwheel/chordwheel/orchestrator/escalate"
)

// plan gives the answers to protests of a slot.
func (h *Hub) plan(slot chain.Slot) *escalate.Plan {
	if h.plans[slot] == nil { // after a restart, before its turn has come
		if err := h.resolveSlot(slot); err != nil {
			h.log.Error("publishing failed", "slot", slot.String(), "error", err)
		}
	}
	if p := h.plans[slot]; p != nil {
		return p
	}
	return escalate.NewPlan("", nil, nil, nil, order.Terms{}, escalate.DefaultLimits())
}

// limits bound the tree of a primitive's chains.
func (h *Hub) limits(p chain.Primitive) escalate.Limits {
	l := escalate.DefaultLimits()
	if c, ok := h.catalogue.Primitive(p); ok {
		if c.Escalation.Depth > 0 {
			l.Depth = c.Escalation.Depth
		}
		if c.Escalation.Nodes > 0 {
			l.Nodes = c.Escalation.Nodes
		}
		if c.Escalation.CutOff > 0 {
			l.CutOff = c.Escalation.CutOff
		}
	}
	return l
}

// rate gives the escalation rate of a slot, to count in.
func (h *Hub) rate(slot chain.Slot) *escalate.Rate {
	h.rated[slot] = true
	return &h.count(slot).rate
}

// answered counts requests of a slot that got an answer. Where nothing is withheld
// and nobody has protested there is no rate to measure, and nothing to remember.
func (h *Hub) answered(slot chain.Slot, n uint64, now time.Time) {
	if p := h.plans[slot]; h.protests[slot] != nil || p != nil && p.Len() > 0 {
		h.rate(slot).Count(n, 0, now)
	}
}

// escalated counts a protest: as one of its request where it is the first, and as
// the request's end where nothing is left to reveal.
func (h *Hub) escalated(slot chain.Slot, a *escalate.Answer, now time.Time) {
	var ended, protested uint64
	if a.First {
		protested = 1
	}
	if a.Option == nil {
		ended = 1
	}
	h.rate(slot).Count(ended, protested, now)
}

// EscalationView is the plan of a chain for protests.
type EscalationView struct {
	Next   []chain.OptionID `json:"next,omitempty"` // revealed one after another while everything that fails seems down
	Nodes  int              `json:"nodes"`          // answers computed ahead
	Depth  int              `json:"depth"`          // of the deepest
	Limits escalate.Limits  `json:"limits"`
}

func (h *Hub) escalation(slot chain.Slot) EscalationView {
	p := h.plan(slot)
	v := EscalationView{Next: p.Preview(), Limits: h.limits(slot.Primitive)}
	v.Nodes, v.Depth = p.Size()
	return v
}

// rateKey names a slot's record: a primitive has no spaces.
func rateKey(slot chain.Slot) string { return string(slot.Primitive) + " " + string(slot.Scope) }

// keepRates writes the rates that changed since the last time.
func (h *Hub) keepRates() error {
	if len(h.rated) == 0 {
		return nil
	}
	records := make(map[string]any, len(h.rated))
	for slot := range h.rated {
		records[rateKey(slot)] = h.protests[slot].rate.Keep()
	}
	if err := h.cfg.Storage.Bucket(bucketRates).PutAll(records); err != nil {
		return err // they stay marked, for the next time
	}
	clear(h.rated)
	return nil
}

// loadRates puts the rates back, and drops those that have faded or that the
// catalogue prepares no chain for any more.
func (h *Hub) loadRates() error {
	now := time.Now()
	var gone []string
	err := each(h, bucketRates, func(key string, k escalate.Kept) error {
		primitive, scope, _ := strings.Cut(key, " ")
		slot := chain.Slot{Scope: chain.ScopeID(scope), Primitive: chain.Primitive(primitive)}
		rate := k.Rate(now)
		if _, requests := rate.Share(now); requests == 0 || !h.catalogue.Prepares(slot) {
			gone = append(gone, key)
			return nil
		}
		slot = chain.Slot{Scope: h.fleet.Name(slot.Scope), Primitive: h.catalogue.Name(slot.Primitive)}
		h.count(slot).rate = rate
		return nil
	})
	if len(gone) > 0 {
		err = errors.Join(err, h.cfg.Storage.Bucket(bucketRates).Delete(gone...))
	}
	return err
}
