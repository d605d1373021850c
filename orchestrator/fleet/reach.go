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
	for _, d := range f.members[scope] {
		if d.Active(now) {
			r.members = append(r.members, d)
		}
	}
	return r
}

// Name gives the name of a scope in the memory that its members have it in.
func (f *Fleet) Name(scope chain.ScopeID) chain.ScopeID {
	if list := f.members[scope]; len(list) > 0 {
		for _, s := range list[0].Scopes {
			if s == scope {
				return s
			}
		}
	}
	return scope
}

// Scopes gives the scopes that have members whose membership holds at now, by name.
func (f *Fleet) Scopes(now chain.Instant) []chain.ScopeID {
	list := make([]chain.ScopeID, 0, len(f.members))
	for scope, members := range f.members {
		if slices.ContainsFunc(members, func(d *Device) bool { return d.Active(now) }) {
			list = append(list, scope)
		}
	}
	slices.Sort(list)
	return list
}

// Alike names what the members can do: reaches with the same name are the same for
// everything but who exactly the members are (the capability "device:ID", which nobody
// has to declare).
func (r Reach) Alike() string {
	b := make([]byte, 0, 16*len(r.members))
	for _, d := range r.members {
		b = append(b, d.ability.id[:]...)
	}
	return string(b)
}

// Members gives the number of members.
func (r Reach) Members() int { return len(r.members) }

// Any reports whether one member has every capability in all, and at least one of
// oneOf, if that names some.
func (r Reach) Any(all, oneOf []chain.Capability) bool {
	return slices.ContainsFunc(r.members, func(d *Device) bool {
		return d.Has(all...) && (len(oneOf) == 0 || slices.ContainsFunc(oneOf, func(c chain.Capability) bool { return d.Has(c) }))
	})
}

// Tag gives what all members declare after a prefix such as "geo:", or "" where they
// differ.
func (r Reach) Tag(prefix string) string {
	common := ""
	for i, d := range r.members {
		t := d.Tag(prefix)
		if t == "" || i > 0 && t != common {
			return ""
		}
		common = t
	}
	return common
}

// Bounds of what members can put into a chain, which has room for
// [chain.MaxOptions] and must leave some to the catalogue.
const (
	mostLocals = chain.MaxOptions / 2
	largeLocal = 1 << 10 // bytes of text
)

// Locals gives the local options that members declare for p, by id: each once,
// without what concerns its own device only (address, keys). A member that was not
// granted "execute:P" declares in vain, and so does one that lacks what requires
// demands. Where there are more than 128, each member's first comes before anybody's
// second; one with over a kilobyte of text is left out.
func (r Reach) Locals(p chain.Primitive, requires []chain.Capability) []chain.Option {
	var lists [][]chain.Option
	longest := 0
	for _, d := range r.members {
		if !d.Allows(chain.ExecuteCapability(p)) || !d.Has(requires...) {
			continue
		}
		if own := localsOf(d, p); len(own) > 0 {
			lists, longest = append(lists, own), max(longest, len(own))
		}
	}
	var list []chain.Option
	seen := map[chain.OptionID]bool{}
	for place := 0; place < longest && len(list) < mostLocals; place++ {
		for _, own := range lists {
			if place >= len(own) || seen[own[place].ID] || len(list) >= mostLocals {
				continue
			}
			seen[own[place].ID] = true
			list = append(list, own[place])
		}
	}
	slices.SortFunc(list, func(a, b chain.Option) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// localsOf gives what one device declares for p, as others may know it.
func localsOf(d *Device, p chain.Primitive) (list []chain.Option) {
	for i := range d.Locals {
		o := &d.Locals[i].Option
		if !slices.Contains(d.Locals[i].Primitives, p) || o.Kind != chain.Local || !strings.HasPrefix(string(o.ID), "local/") {
			continue
		}
		told := chain.Option{ID: o.ID, Kind: chain.Local, Adapter: o.Adapter, Model: o.Model, Domain: o.Domain, Limits: o.Limits, Data: o.Data,
			Cost: chain.Cost{InputPerMtok: o.Cost.InputPerMtok, OutputPerMtok: o.Cost.OutputPerMtok, PerCall: o.Cost.PerCall, Quality: o.Cost.Quality}}
		text := len(o.ID) + len(o.Adapter) + len(o.Model) + len(o.Domain)
		for _, f := range o.Limits.Features {
			text += len(f)
		}
		if text <= largeLocal {
			list = append(list, told)
		}
	}
	return list
}
