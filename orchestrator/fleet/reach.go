package fleet

import (
	"cmp"
	"slices"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
)

// Reach is what the members of one scope can do together.
type Reach struct{ members []*Device }

// Scope gives the reach of a scope: of its members whose membership holds at
// now, online or not.
func (f *Fleet) Scope(scope chain.ScopeID, now chain.Instant) Reach {
	var r Reach
	for _, d := range f.devices {
		if d.Active(now) && slices.Contains(d.Scopes, scope) {
			r.members = append(r.members, d)
		}
	}
	slices.SortFunc(r.members, func(a, b *Device) int { return cmp.Compare(a.Peer, b.Peer) })
	return r
}

// Members gives the number of members.
func (r Reach) Members() int { return len(r.members) }

// Any reports whether one member has every capability in all, and at least one in
// any, if any names some.
func (r Reach) Any(all, any []chain.Capability) bool {
	return slices.ContainsFunc(r.members, func(d *Device) bool {
		return d.Has(all...) && (len(any) == 0 || slices.ContainsFunc(any, func(c chain.Capability) bool { return d.Has(c) }))
	})
}

// LocalOption is a local option that members declare, and how many do.
type LocalOption struct {
	Option  chain.Option
	Devices int
}

// Locals gives the local options that members declare for p, by id: each once,
// without what concerns its own device only (address, keys). A member that was not
// granted "execute:P" declares in vain, and so does one that lacks what requires
// demands.
func (r Reach) Locals(p chain.Primitive, requires []chain.Capability) []LocalOption {
	found := map[chain.OptionID]*LocalOption{}
	for _, d := range r.members {
		if !d.Allows(chain.ExecuteCapability(p)) || !d.Has(requires...) {
			continue
		}
		for _, l := range d.Locals {
			if !slices.Contains(l.Primitives, p) || l.Option.Kind != chain.Local || !strings.HasPrefix(string(l.Option.ID), "local/") {
				continue
			}
			if have := found[l.Option.ID]; have != nil {
				have.Devices++
				continue
			}
			o := l.Option
			cost := chain.Cost{InputPerMtok: o.Cost.InputPerMtok, OutputPerMtok: o.Cost.OutputPerMtok, PerCall: o.Cost.PerCall, Quality: o.Cost.Quality}
			found[o.ID] = &LocalOption{Devices: 1, Option: chain.Option{ID: o.ID, Kind: chain.Local, Adapter: o.Adapter, Model: o.Model,
				Domain: o.Domain, Cost: cost, Limits: o.Limits, Data: o.Data}}
		}
	}
	list := make([]LocalOption, 0, len(found))
	for _, l := range found {
		list = append(list, *l)
	}
	slices.SortFunc(list, func(a, b LocalOption) int { return cmp.Compare(a.Option.ID, b.Option.ID) })
	return list
}
