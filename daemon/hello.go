package daemon

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// hello presents the device as it is now.
func (d *Daemon) hello(j Joined) wire.Hello {
	h := wire.Hello{
		Version: d.cfg.Version, DeviceID: d.cfg.DeviceID, Name: d.cfg.Name, Membership: j.Membership, BootID: d.bootID,
		Capabilities: d.declared(), Locals: d.cfg.Locals, Metered: d.cfg.Metered, DID: d.cfg.DID,
	}
	for slot, mark := range d.cfg.Marks.All() {
		h.Holds = append(h.Holds, wire.Held{Slot: slot, Mark: mark})
	}
	slices.SortFunc(h.Holds, func(a, b wire.Held) int { return strings.Compare(a.Slot.String(), b.Slot.String()) })
	return h
}

// declared is what the hub is told of it: what this device can do, and what its
// providers over HTTP can, so that there are chains for that. Other devices are not
// told of those: they do this device's work and nobody else's.
func (d *Daemon) declared() []chain.Capability {
	all := slices.Concat(d.capabilities(), d.board.Declared())
	slices.Sort(all)
	return slices.Compact(all)
}

// capabilities is what the device can do now: its primitives, its models, its
// keys.
func (d *Daemon) capabilities() []chain.Capability {
	set := map[chain.Capability]bool{chain.Submit: true, chain.DeviceCapability(d.cfg.DeviceID): true}
	for _, l := range d.cfg.Locals {
		for _, p := range l.Primitives {
			set[chain.ExecuteCapability(p)] = true
		}
		if l.Option.Model != "" {
			set[chain.ModelCapability(l.Option.Model)] = true
		}
	}
	for _, c := range d.cfg.Chains.All() {
		if d.runsByProviders(c) {
			set[chain.ExecuteCapability(c.Slot().Primitive)] = true
		}
	}
	for _, name := range d.cfg.Keys.Names() {
		set[chain.KeyCapability(name)] = true
	}
	maps.DeleteFunc(set, func(c chain.Capability, _ bool) bool { return !wire.Declarable(c) })
	return slices.Sorted(maps.Keys(set))
}

// runsByProviders reports whether c lets peers have their work done by providers,
// through one of its slots, and this device could do so: a key of its own does as
// well as a model.
func (d *Daemon) runsByProviders(c *chain.Chain) bool {
	if c.Expired(time.Now()) || c.Rules().NoPeers {
		return false
	}
	slots, able := false, false
	for _, o := range c.Options() {
		switch o.Kind {
		case chain.Peer:
			slots = slots || slices.Contains(o.Through(c.Rules()), chain.Provider)
		case chain.Provider:
			hasKey := len(o.Keys) == 0 || slices.ContainsFunc(o.Keys, func(k string) bool { return d.cfg.Keys.Generation(k) > 0 })
			able = able || o.Data != chain.LocalOnly && hasKey && d.runs(&o)
		}
	}
	return slots && able
}
