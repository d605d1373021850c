package orchestrator

import (
	"context"
	"crypto/ed25519"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/authority"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/orchestrator/fleet"
	"github.com/chordwheel/chordwheel/orchestrator/registry"
	"github.com/chordwheel/chordwheel/orchestrator/trust"
)

// registerPatience is how long a question waits for the hub's turn.
const registerPatience = 5 * time.Second

// Register is what a hub tells the registry and the trust server: who its agents are,
// and who may have tokens for which. An agent is named by DID and capability, which is
// the name of a primitive. Its methods may be called at once from several goroutines.
type Register struct{ hub *Hub }

var (
	_ registry.Source = (*Register)(nil)
	_ trust.Policy    = (*Register)(nil)
)

// Register gives the hub's register.
func (h *Hub) Register() *Register { return &Register{h} }

// Version changes with what Agents gives. Memberships end also without news.
func (r *Register) Version() uint64 {
	if end := r.hub.listEnds.Load(); end != 0 && time.Now().UnixMilli() >= end {
		if r.hub.listEnds.CompareAndSwap(end, 0) {
			r.hub.listed.Add(1)
		}
	}
	return r.hub.listed.Load()
}

// Agents gives providers by their options and what the owner declared, and devices
// by what they were granted and declared that they can execute.
func (r *Register) Agents(ctx context.Context) ([]registry.Agent, error) {
	return registerAsk(ctx, r.hub, func() ([]registry.Agent, error) {
		now := chain.InstantOf(time.Now())
		list := r.hub.providerAgents()
		var ends chain.Instant
		for d := range r.hub.fleet.All() {
			list = append(list, deviceAgents(d, now)...)
			if d.Active(now) && (ends == 0 || d.Expires < ends) {
				ends = d.Expires
			}
		}
		r.hub.listEnds.Store(int64(ends))
		return list, nil
	})
}

// Permit lets a member that may hand work on ask for agents that it may meet: its own
// options, members of its scopes that can execute the capability, what stands in the
// chains of its scopes or may be revealed to them, and agents of the owner's that are
// no options at all.
func (r *Register) Permit(ctx context.Context, seeker, agent, capability string) error {
	_, err := registerAsk(ctx, r.hub, func() (struct{}, error) { return struct{}{}, r.hub.permit(seeker, agent, capability) })
	return err
}

// Knows reports whether a DID is a device's that was ever enrolled, a revoked one's
// too, or an agent's of the catalogue: whose word on work the hub takes down.
func (r *Register) Knows(ctx context.Context, did string) (bool, error) {
	return registerAsk(ctx, r.hub, func() (bool, error) {
		declared := slices.ContainsFunc(r.hub.catalogue.Agents, func(a catalog.Agent) bool { return a.DID == did })
		return declared || r.hub.deviceOf(did) != nil, nil
	})
}

// Knew reports whether a DID is one that a member went by before and does not any more, and by
// the member's own key, which signed is asked about, signed what comes under it. It is for words
// that were on their way when the name changed: no token is given for such a DID.
func (r *Register) Knew(ctx context.Context, did string, signed func(ed25519.PublicKey) bool) (bool, error) {
	former, err := registerAsk(ctx, r.hub, func() ([]chain.PeerID, error) { return r.hub.fleet.Formerly(did), nil })
	return slices.ContainsFunc(former, func(p chain.PeerID) bool {
		key, err := p.Public()
		return err == nil && signed(key)
	}), err
}

func registerAsk[T any](ctx context.Context, h *Hub, f func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, registerPatience)
	defer cancel()
	ran := false
	v, err := ask(ctx, h, func() (T, error) {
		ran = true
		return f()
	})
	if err != nil && !ran { // starting, stopping, or busy for too long
		err = &authority.Refusal{Code: authority.Overloaded, Message: "the hub cannot answer now", RetryAfter: time.Second}
	}
	return v, err
}

// relist notes that the agents of the hub are others now.
func (h *Hub) relist() { h.listed.Add(1) }

// providerAgents lists the catalogue's. What the owner says of an agent and a
// capability goes before what follows from its option.
func (h *Hub) providerAgents() []registry.Agent {
	var list []registry.Agent
	for _, a := range h.catalogue.Agents {
		list = append(list, registry.Agent{DID: a.DID, Capability: a.Capability, Endpoint: h.endpointOf(a), Status: registry.Status(a.Status), ModelID: a.ModelID})
	}
	for _, p := range h.catalogue.Providers {
		for _, m := range p.Models {
			id := chain.OptionID(p.Name + "/" + m.Name)
			for _, primitive := range m.Primitives {
				list = append(list, registry.Agent{DID: h.agent(id), Capability: string(primitive), Endpoint: p.Endpoint, Status: registry.Active, ModelID: string(id)})
			}
		}
	}
	return list
}

// standings says how each agent of the catalogue stands, by DID and capability.
func (h *Hub) standings() map[[2]string]registry.Status {
	list := h.providerAgents()
	all := make(map[[2]string]registry.Status, len(list))
	for _, a := range list {
		agent := [2]string{a.DID, a.Capability}
		if _, declared := all[agent]; !declared { // the first word counts, as in the registry
			all[agent] = a.Status
		}
	}
	return all
}

// tellStandings has the devices visit now where an agent stands otherwise than before: they ask
// the registry with each visit, and no chain need have changed. A mesh of more scopes than are
// looked over at once learns of it at its next visits.
func (h *Hub) tellStandings(before map[[2]string]registry.Status) {
	now, otherwise := h.standings(), false
	for agent, status := range before { // one that is new can wait: nothing goes on that was ended
		otherwise = otherwise || now[agent] != status
	}
	scopes := h.scopes()
	if !otherwise || len(scopes) > atOnce {
		return
	}
	for _, scope := range scopes {
		h.callIn(scope)
		h.note(Operation{Direction: "out", Kind: "invalidation", Slot: string(scope), Bytes: invalidationBytes + len(chain.Overrides), Detail: "an agent stands otherwise in the registry"}, nil)
	}
}

// endpointOf gives where an agent is: its own place, else that of its option.
func (h *Hub) endpointOf(a catalog.Agent) string {
	if a.Endpoint != "" {
		return a.Endpoint
	}
	p, _, _ := h.catalogue.Option(chain.OptionID(a.ModelID))
	return p.Endpoint
}

// deviceAgents lists a device once for each primitive. One that is no member any more
// stays in the list, suspended: what devices keep of it must not hold.
func deviceAgents(d *fleet.Device, now chain.Instant) []registry.Agent {
	did := d.Peer.DID()
	if did == "" {
		return nil
	}
	var list []registry.Agent
	for _, c := range d.Declared {
		primitive, ok := c.Executes()
		if !ok || !d.Allows(c) {
			continue
		}
		a := registry.Agent{DID: did, Capability: string(primitive), Status: registry.Active, Class: registry.Device}
		if !d.Active(now) {
			a.Status, a.Class = registry.Suspended, registry.Former
		}
		list = append(list, a)
	}
	return list
}

// sameAgents reports whether the register says the same of a device as before.
func sameAgents(old, d *fleet.Device, now time.Time) bool {
	at := chain.InstantOf(now)
	return slices.Equal(deviceAgents(old, at), deviceAgents(d, at))
}

func (h *Hub) permit(seeker, agent, capability string) error {
	now := chain.InstantOf(time.Now())
	d := h.deviceOf(seeker)
	if d == nil || !d.Active(now) || !d.Has(chain.Submit) {
		return trust.ErrSeeker
	}
	switch status, declared := h.declaredAgent(agent, capability); {
	case status == registry.Suspended:
		return trust.ErrSuspended
	case status == registry.Deregistered:
		return trust.ErrNoAgent
	case declared != "" && !h.isOption(declared):
		return nil
	}
	if peer := h.deviceOf(agent); peer != nil {
		return h.permitDevice(d, peer, chain.Primitive(capability), now)
	}
	for _, scope := range d.Scopes {
		if h.chainNames(scope, chain.Primitive(capability), agent) {
			return nil
		}
	}
	return trust.ErrNoAgent
}

func (h *Hub) isOption(id string) bool {
	_, _, ok := h.catalogue.Option(chain.OptionID(id))
	return ok
}

// declaredAgent gives what the owner says of an agent, "" for nothing.
func (h *Hub) declaredAgent(agent, capability string) (registry.Status, string) {
	i := slices.IndexFunc(h.catalogue.Agents, func(a catalog.Agent) bool { return a.DID == agent && a.Capability == capability })
	if i < 0 {
		return "", ""
	}
	return registry.Status(h.catalogue.Agents[i].Status), h.catalogue.Agents[i].ModelID
}

// permitDevice is for agents that are devices.
func (h *Hub) permitDevice(seeker, peer *fleet.Device, p chain.Primitive, now chain.Instant) error {
	shared := slices.ContainsFunc(peer.Scopes, func(s chain.ScopeID) bool { return slices.Contains(seeker.Scopes, s) })
	switch {
	case !shared || !peer.Has(chain.ExecuteCapability(p)):
		return trust.ErrNoAgent
	case !peer.Active(now):
		return trust.ErrSuspended
	}
	return nil
}

// chainNames reports whether an agent's option stands in a chain of a scope, or is
// withheld from one and may be revealed.
func (h *Hub) chainNames(scope chain.ScopeID, p chain.Primitive, agent string) bool {
	if _, known := h.catalogue.Primitive(p); !known {
		return false
	}
	slots := slices.DeleteFunc(h.slotsOf(scope, p), func(s chain.Slot) bool { _, published := h.press.Edition(s); return !published })
	if slices.ContainsFunc(slots, func(s chain.Slot) bool { return h.press.Names(s, agent) }) {
		return true
	}
	return slices.ContainsFunc(slots, func(s chain.Slot) bool { return h.plan(s).Reveals(agent) })
}

// deviceOf gives the device behind a DID, its did:key or the one that it goes by, or nil.
func (h *Hub) deviceOf(did string) *fleet.Device {
	peer, err := chain.PeerOfDID(did)
	if err != nil {
		return h.fleet.Named(did)
	}
	return h.fleet.Device(peer)
}
