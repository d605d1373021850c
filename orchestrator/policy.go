package orchestrator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/orchestrator/fleet"
	"github.com/chordwheel/chordwheel/orchestrator/learn"
	"github.com/chordwheel/chordwheel/orchestrator/publish"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// input gathers all that the order of a slot depends on. ok is false for a
// primitive that the catalogue does not have.
func (h *Hub) input(slot chain.Slot, now time.Time) (in resolve.Input, rules chain.Rules, ok bool) {
	p, ok := h.catalogue.Primitive(slot.Primitive)
	if !ok {
		return in, rules, false
	}
	w, _ := h.catalogue.Workspace(slot.Scope)
	in = resolve.Input{Slot: slot, Mode: resolve.Learned, Geo: w.Geo, Weights: w.Weights, Profile: p.Profile}
	if p.Fixed || w.Fixed {
		in.Mode = resolve.Fixed
	}
	for _, entry := range p.Default {
		in.Default = append(in.Default, chain.OptionID(entry))
	}
	reach := h.fleet.Scope(slot.Scope.Base(), chain.InstantOf(now))
	in.Candidates = h.providers(p, w, reach, now)
	in.Candidates = append(in.Candidates, h.slots(p, reach, now)...)
	in.Candidates = append(in.Candidates, h.locals(p, reach, now)...)
	if all := h.ceilings().of(slot.Scope); len(all) > 0 {
		for i := range in.Candidates {
			if in.Candidates[i].Option.Kind != chain.Peer { // who runs the work for a slot pays for it
				h.limit(&in.Candidates[i], all, slot, p.Profile, now)
			}
		}
	}
	in.Cap, in.Measured = p.Rules.WithDefaults().Attempts, h.measured(p.Name, p.Profile, now)
	h.override(&in, &w, p.Name)
	rules = p.Rules
	in.Explore, in.NoExploration = rules.Explore, rules.NoExploration
	rules.CallsPerMinute = chain.PPMOf(p.Source.CallsPerMinute)
	return in, publish.Rules(rules, in), true
}

// providers gives every provider option that serves p.
func (h *Hub) providers(p catalog.Primitive, w catalog.Workspace, reach fleet.Reach, now time.Time) []resolve.Candidate {
	var list []resolve.Candidate
	for _, provider := range h.catalogue.Providers {
		for _, m := range provider.Models {
			if !slices.Contains(m.Primitives, p.Name) {
				continue
			}
			id := chain.OptionID(provider.Name + "/" + m.Name)
			c := resolve.Candidate{
				Option: chain.Option{ID: id, Kind: chain.Provider, Agent: h.agent(id), Adapter: provider.Adapter, Model: m.Name,
					Endpoint: provider.Endpoint, Domain: provider.Domain, Requires: p.Source.Requires, Limits: m.Limits, Data: p.Source.Data,
					Cost: chain.Cost{InputPerMtok: m.Price.InputPerMtok, OutputPerMtok: m.Price.OutputPerMtok, PerCall: m.Price.PerCall,
						Quality: chain.PPMOf(m.Prior.Quality)}},
				Geo: provider.Geo, Prior: priorOf(m.Prior), Withheld: slices.Contains(p.Withheld, id),
			}
			c.Option.Keys, c.Unreachable = keys(provider, w, p, reach)
			h.estimate(&c, p.Name, reach, now)
			list = append(list, c)
		}
	}
	return list
}

// keys gives the keys of a provider that devices of the workspace may hold, and
// why none of the devices can use the provider, if so.
func keys(provider catalog.Provider, w catalog.Workspace, p catalog.Primitive, reach fleet.Reach) (allowed []string, why string) {
	var held []chain.Capability
	for _, k := range provider.Keys {
		if w.Allows(k) {
			allowed, held = append(allowed, k), append(held, chain.KeyCapability(k))
		}
	}
	switch {
	case len(provider.Keys) > 0 && len(allowed) == 0:
		return nil, "the workspace allows none of its keys (" + strings.Join(provider.Keys, ", ") + ")"
	case reach.Members() == 0:
		return allowed, "no device is a member of the scope"
	case !reach.Any(nil, held):
		return allowed, "no device of the scope holds key " + strings.Join(allowed, " or ") + "; chordwheel keys set " + allowed[0] + " puts it on one"
	case !reach.Any(p.Source.Requires, held):
		return allowed, "no device of the scope has " + list(p.Source.Requires) + " and its key"
	}
	return allowed, ""
}

func list(capabilities []chain.Capability) string {
	words := make([]string, len(capabilities))
	for i, c := range capabilities {
		words[i] = string(c)
	}
	return strings.Join(words, ", ")
}

func union[T comparable](a, b []T) []T {
	out := slices.Clone(a)
	for _, x := range b {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// slots gives the abstract peer slots of p. Data that must stay has none.
func (h *Hub) slots(p catalog.Primitive, reach fleet.Reach, now time.Time) []resolve.Candidate {
	if p.Source.Data == chain.LocalOnly {
		return nil
	}
	// A slot's work is done by somebody's local option: it is as good as the best
	// of them; one that claims nothing counts as usual. 0 means that there is none.
	var quality chain.PPM
	for _, l := range reach.Locals(p.Name, nil) {
		claimed := l.Cost.Quality
		if claimed == 0 {
			claimed = chain.PPMOf(catalog.DefaultPrior().Quality)
		}
		quality = max(quality, claimed)
	}
	var candidates []resolve.Candidate
	for _, s := range p.Slots {
		requires := union(s.Requires, p.Source.Requires)
		c := resolve.Candidate{Prior: priorOf(catalog.DefaultPrior()),
			Option: chain.Option{ID: s.ID, Kind: chain.Peer, Requires: requires, Tries: s.Tries, Via: s.Via, Cost: chain.Cost{Quality: quality}}}
		switch {
		case p.Rules.NoPeers:
			c.Unreachable = "the rules allow no peers"
		case reach.Members() == 0:
			c.Unreachable = "no device is a member of the scope"
		case !reach.Any(demanded(&c.Option, p), nil):
			c.Unreachable = "no device of the scope has " + list(requires)
		}
		h.estimate(&c, p.Name, reach, now)
		candidates = append(candidates, c)
	}
	return candidates
}

// demanded is what some device must have for a slot to be of use. One that lets
// providers be used may be filled by a device without a service of its own, which
// says that it can once it holds the chain.
func demanded(slot *chain.Option, p catalog.Primitive) []chain.Capability {
	if !slices.Contains(slot.Through(p.Rules), chain.Provider) {
		return slot.Requires
	}
	return slices.DeleteFunc(slices.Clone(slot.Requires), func(c chain.Capability) bool { return c == chain.ExecuteCapability(p.Name) })
}

// locals gives what devices of the scope run themselves.
func (h *Hub) locals(p catalog.Primitive, reach fleet.Reach, now time.Time) []resolve.Candidate {
	var candidates []resolve.Candidate
	for _, l := range reach.Locals(p.Name, p.Source.Requires) {
		c := resolve.Candidate{Option: l, Prior: priorOf(catalog.DefaultPrior())}
		c.Option.Requires = p.Source.Requires
		if p.Source.Data != chain.AnyData {
			c.Option.Data = p.Source.Data
		}
		h.estimate(&c, p.Name, reach, now)
		candidates = append(candidates, c)
	}
	return candidates
}

func priorOf(p catalog.Prior) resolve.Prior {
	latency := p.Latency.Duration().Seconds()
	return resolve.Prior{Latency: latency, FailureLatency: latency, Reliability: p.Reliability}
}

// estimate corrects what was declared of a candidate by what was reported, where
// it can from the part of the fleet that the scope's devices are in.
func (h *Hub) estimate(c *resolve.Candidate, p chain.Primitive, reach fleet.Reach, now time.Time) {
	in := learn.Segment{Geo: reach.Tag("geo:"), Class: reach.Tag("net:")}
	k := learn.Key{Primitive: p, Option: c.Option.ID}
	c.Estimates, c.Trend = h.book.Estimates(k, in, c.Prior, now), h.book.Trend(k, in, now)
}

// preferred spells a workspace's list out: a pattern stands for the candidates
// that fit it, by id.
func preferred(selections []catalog.Selection, p chain.Primitive, candidates []resolve.Candidate) []chain.OptionID {
	var out []chain.OptionID
	for _, pattern := range patterns(selections, p) {
		var fit []chain.OptionID
		for i := range candidates {
			if id := candidates[i].Option.ID; resolve.Match(pattern, id) && !slices.Contains(out, id) {
				fit = append(fit, id)
			}
		}
		slices.Sort(fit)
		out = append(out, fit...)
	}
	return out
}

// patterns gives the patterns of selections that speak of p.
func patterns(selections []catalog.Selection, p chain.Primitive) []string {
	var out []string
	for _, s := range selections {
		if s.Primitive == "" || s.Primitive == p {
			out = append(out, s.Options...)
		}
	}
	return out
}

func rulings(selections []catalog.Selection, p chain.Primitive, by string) (list []resolve.Ruling) {
	for _, pattern := range patterns(selections, p) {
		list = append(list, resolve.Ruling{Pattern: pattern, By: by})
	}
	return list
}

// suspects gives the candidates that are suspect now, and when the first of these
// marks may end by itself.
func (h *Hub) suspects(in resolve.Input, now time.Time) (list []chain.OptionID, until time.Time) {
	for i := range in.Candidates {
		id := in.Candidates[i].Option.ID
		if _, end, suspect := h.book.Suspect(learn.Key{Primitive: in.Slot.Primitive, Option: id}, now); suspect {
			list = append(list, id)
			if until.IsZero() || end.Before(until) {
				until = end
			}
		}
	}
	return list, until
}

// invalidationBytes is what one takes without the name of its primitive.
var invalidationBytes = size(&wire.Invalidation{Scope: make([]byte, 16), Seq: 1 << 40, Prefix: make([]byte, 8)})

// published keeps a new edition and tells the devices.
func (h *Hub) published(slot chain.Slot, reason string) {
	h.unkept[slot.Scope] = true
	e, _ := h.press.Edition(slot)
	h.invalidate(slot, e.Seq, e.Body)
	h.note(Operation{Direction: "out", Kind: "invalidation", Slot: slot.String(), Bytes: invalidationBytes + len(slot.Primitive), Detail: reason}, nil)
	if len(h.unkept) > atOnce/64 { // many at once: the operations log shows them
		return
	}
	h.log.Info("chain published", "slot", slot.String(), "seq", e.Seq, "body", e.Body.String(), "reason", reason)
}

// withdraw ends a slot for which no option is left.
func (h *Hub) withdraw(slot chain.Slot) error {
	delete(h.plans, slot)
	delete(h.looked, slot)
	e, _ := h.press.Edition(slot)
	if !h.press.Withdraw(slot) {
		return nil
	}
	if slot.Scope != slot.Scope.Base() { // devices fall back to a wider chain at once
		h.invalidate(slot, 0, e.Body)
	}
	h.note(Operation{Direction: "out", Kind: "invalidation", Slot: slot.String(), Outcome: "withdrawn", Detail: h.whyNone(slot)}, nil)
	h.log.Warn("chain withdrawn", "slot", slot.String(), "why", h.whyNone(slot))
	h.unkept[slot.Scope] = true
	return nil
}

// resolveAll goes over every slot of every scope with members. An error in one
// does not keep the others.
func (h *Hub) resolveAll() error {
	h.changed()
	scopes := h.scopes()
	err := h.resolveScopes(scopes)
	for _, slot := range h.press.Slots() {
		if !h.prepared(slot, scopes) {
			err = errors.Join(err, h.withdraw(slot))
		}
	}
	return err
}

// resolveScopes looks over all chains of scopes: now, or bit by bit where they are too many.
func (h *Hub) resolveScopes(scopes []chain.ScopeID) error {
	if len(scopes)*len(h.catalogue.Primitives) > atOnce {
		h.sweepLater(scopes)
		return nil
	}
	var slots []chain.Slot
	for _, scope := range scopes {
		if slots = append(slots, h.slotsIn(scope)...); len(slots) > atOnce {
			h.sweepLater(scopes)
			return nil
		}
	}
	var errs []error
	for _, slot := range slots {
		if err := h.resolveSlot(slot); err != nil {
			errs = append(errs, fmt.Errorf("resolve: %w", err))
		}
	}
	return errors.Join(errs...)
}
