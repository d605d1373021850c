package orchestrator

import (
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// slotsOf gives the slots of one scope and primitive: the scope's own, and one
// for each combination of stage, consumer and instance that the catalogue has
// something of its own for.
func (h *Hub) slotsOf(scope chain.ScopeID, p chain.Primitive) []chain.Slot {
	list := []chain.Slot{{Scope: scope, Primitive: p}}
	w, known := h.catalogue.Workspace(scope)
	if !known {
		return list
	}
	for _, q := range w.Qualifiers(p) {
		list = append(list, chain.Slot{Scope: scope.With(q), Primitive: p})
	}
	return list
}

// slotsIn gives the slots of one scope, for all primitives.
func (h *Hub) slotsIn(scope chain.ScopeID) (list []chain.Slot) {
	for i := range h.catalogue.Primitives {
		list = append(list, h.slotsOf(scope, h.catalogue.Primitives[i].Name)...)
	}
	return list
}

// nothingOption stands alone in the chain of a qualifier for which every option is
// out. No device knows its kind, so none runs it; without a chain devices would
// fall back to a wider one, and to options that an override has denied.
var nothingOption = chain.Option{ID: "nothing", Kind: "nothing"}

// wider reports whether devices would fall back to a chain of fewer words than a
// slot has. Those are resolved before it, see [Hub.slotsOf].
func (h *Hub) wider(slot chain.Slot) bool {
	q, _ := slot.Scope.Qualifier()
	return slices.ContainsFunc(q.Wider()[1:], func(q chain.Qualifier) bool {
		_, there := h.press.Edition(chain.Slot{Scope: slot.Scope.Base().With(q), Primitive: slot.Primitive})
		return there
	})
}

// prepared reports whether the catalogue means a slot of the scopes to exist.
func (h *Hub) prepared(slot chain.Slot, scopes []chain.ScopeID) bool {
	return among(scopes, slot.Scope.Base()) && h.catalogue.Prepares(slot)
}

// override fills in what the workspace and the overrides that a slot names want.
func (h *Hub) override(in *resolve.Input, w *catalog.Workspace, p chain.Primitive) {
	in.Seeds = h.seeds(nil, w.Prefer, catalog.WorkspaceTier, string(in.Slot.Scope.Base()), in)
	in.Pin, in.Deny = rulings(w.Pin, p, ""), rulings(w.Deny, p, "")
	q, _ := in.Slot.Scope.Qualifier()
	for _, o := range w.Overrides(q) {
		by := o.Tier + " " + o.Name
		if o.Fixed {
			in.Mode = resolve.Fixed
		}
		if own := preferred(o.Default, p, in.Candidates); len(own) > 0 {
			in.Seeds = append(in.Seeds, resolve.Seed{Tier: h.catalogue.Tier(o.Tier), Name: o.Tier, Source: by, Options: own, Default: true})
		}
		in.Seeds = h.seeds(in.Seeds, o.Prefer, o.Tier, by, in)
		in.Pin = append(in.Pin, rulings(o.Pin, p, by)...)
		in.Deny = append(in.Deny, rulings(o.Deny, p, by)...)
	}
}

// seeds adds the lists of a section's preferences: one for each source and tier
// that the section names, its own where it names none.
func (h *Hub) seeds(to []resolve.Seed, prefer []catalog.Selection, tier, by string, in *resolve.Input) []resolve.Seed {
	type origin struct{ tier, source string }
	var done []origin
	of := func(s catalog.Selection) origin {
		o := origin{tier, by}
		if s.Tier != "" {
			o.tier = s.Tier
		}
		if s.Source != "" {
			o.source = s.Source
		}
		return o
	}
	for _, s := range prefer {
		o := of(s)
		if slices.Contains(done, o) {
			continue
		}
		done = append(done, o)
		same := slices.DeleteFunc(slices.Clone(prefer), func(s catalog.Selection) bool { return of(s) != o })
		if list := preferred(same, in.Slot.Primitive, in.Candidates); len(list) > 0 {
			to = append(to, resolve.Seed{Tier: h.catalogue.Tier(o.tier), Name: o.tier, Source: o.source, Options: list})
		}
	}
	return to
}

// invalidate tells the devices that a slot has changed. What concerns a
// qualifier is said for all of the scope's qualifiers in one: its devices then
// ask what there is. The names of stages and consumers are nobody else's business.
func (h *Hub) invalidate(slot chain.Slot, seq uint64, body chain.CID) {
	if base := slot.Scope.Base(); base != slot.Scope {
		h.callIn(base)
		return
	}
	h.outbox.invalidate(slot, seq, body)
}

// callIn has the devices of a scope make a whole visit now.
func (h *Hub) callIn(scope chain.ScopeID) {
	h.overrideSeq = max(h.overrideSeq+1, uint64(max(time.Now().UnixMilli(), 1)))
	h.outbox.invalidate(chain.Slot{Scope: scope, Primitive: chain.Overrides}, h.overrideSeq, "") // of no chain: it has no body
}
