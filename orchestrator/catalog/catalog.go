package catalog

import (
	"slices"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// Entries of a default order that are not provider options.
const (
	LocalEntry = string(resolve.LocalSlot) // every local option that devices of the scope declare, but for chain.BuiltinOption
	PeerEntry  = "peer"                    // the abstract peer slot
)

// Catalog is a validated catalogue. It is shared and must not be changed; make a
// new one instead. The zero value declares nothing.
type Catalog struct {
	Tiers      []string // levels of policy, the least specific first; see [DefaultTiers]
	Providers  []Provider
	Primitives []Primitive
	Workspaces []Workspace
	Ceilings   []Ceiling // fleet-wide, on shared keys
	Agents     []Agent

	options    map[chain.OptionID]place
	primitives map[chain.Primitive]int
	workspaces map[chain.ScopeID]int
	agents     map[chain.OptionID]string
	roster     *roster // nil: no workspace is like another
}

// place finds a model inside the catalogue.
type place struct{ provider, model int }

// Provider is a remote service. Its options are called NAME/MODEL.
type Provider struct {
	Name     string
	Adapter  string
	Endpoint string   // "" where the adapter needs none
	Keys     []string // names in the devices' key rings, in the order to try them; empty: none needed
	Domain   string   // failure domain; the name unless declared
	Geo      string   // "IN" or "IN-KA"; "" unknown
	Models   []Model
}

// Model is one model of a provider.
type Model struct {
	Name       string
	Primitives []chain.Primitive
	Tier       int // 1 to 3, 0 none
	Price      Price
	Prior      Prior
	Limits     chain.Limits
}

// Price is what a provider bills.
type Price struct {
	InputPerMtok  chain.MicroUSD
	OutputPerMtok chain.MicroUSD
	PerCall       chain.MicroUSD
}

// Prior is what is believed of an option before anything was measured. Quality
// stays as declared.
type Prior struct {
	Latency     chain.Millis
	Reliability float64 // 0 to 1
	Quality     float64 // 0 to 1
}

// DefaultPrior is believed of an option about which nobody declared anything.
func DefaultPrior() Prior { return Prior{Latency: 2000, Reliability: 0.95, Quality: 0.5} }

// Primitive is a kind of work and its default order.
type Primitive struct {
	Name     chain.Primitive
	Fixed    bool     // the listed order is kept
	Default  []string // option ids, LocalEntry, PeerEntry or "peer/NAME"
	Withheld []chain.OptionID
	Slots    []Slot // at least one; used where Default names it
	Source   Source
	Profile  resolve.Profile
	Share    float64 // of a ceiling that primitives compete for
	Rules    chain.Rules

	Escalation Escalation
}

// Escalation bounds what is computed ahead for protests. A zero means the default.
type Escalation struct {
	Depth  int     // options revealed one after another, 4
	Nodes  int     // answers, 256
	CutOff float64 // least likelihood of a state once the chain is exhausted, 0.0001
}

// Slot is an abstract peer slot.
type Slot struct {
	ID       chain.OptionID // "peer" or "peer/NAME"
	Requires []chain.Capability
	Tries    int
	Via      []chain.Kind
}

// Source is what a primitive needs by its nature.
type Source struct {
	Requires       []chain.Capability // added to every option of the primitive
	CallsPerMinute float64            // 0: unlimited
	Data           chain.DataClass
}

// Workspace is a scope with overrides.
type Workspace struct {
	ID       string
	Fixed    bool
	Geo      []string // empty: anywhere
	Keys     []string // names of keys that its devices may hold; see AnyKey
	AnyKey   bool     // no keys were listed: any
	Weights  resolve.Weights
	Ceilings []Ceiling
	Prefer   []Selection
	Pin      []Selection
	Deny     []Selection

	Stages    []Override // for requests that say they come from one of these
	Consumers []Override
	Instances []Override
}

// DefaultTiers are the levels of policy that every catalogue has, the least
// specific first. Each weighs eight times the one before.
func DefaultTiers() []string {
	return []string{GlobalTier, WorkspaceTier, StageTier, ConsumerTier, InstanceTier}
}

// Tiers that sections of the catalogue speak for. Others are an owner's own.
const (
	GlobalTier    = "global"
	WorkspaceTier = "workspace"
	StageTier     = "stage"
	ConsumerTier  = "consumer"
	InstanceTier  = "instance"
)

// Override is what a workspace has otherwise for a stage, a consumer or an instance.
type Override struct {
	Tier    string // which of the three
	Name    string
	Fixed   bool
	Default []Selection // its own list: in, and the front of a fixed order
	Prefer  []Selection
	Pin     []Selection
	Deny    []Selection
}

// Speaks reports whether o says anything of p.
func (o *Override) Speaks(p chain.Primitive) bool {
	if o.Fixed {
		return true
	}
	for _, list := range [][]Selection{o.Default, o.Prefer, o.Pin, o.Deny} {
		if slices.ContainsFunc(list, func(s Selection) bool { return s.Primitive == "" || s.Primitive == p }) {
			return true
		}
	}
	return false
}

// Overrides gives those of w that a qualifier names, the least specific first.
func (w *Workspace) Overrides(q chain.Qualifier) []*Override {
	var out []*Override
	for _, level := range []struct {
		list []Override
		name string
	}{{w.Stages, q.Stage}, {w.Consumers, q.Consumer}, {w.Instances, q.Instance}} {
		if i := slices.IndexFunc(level.list, func(o Override) bool { return o.Name == level.name }); i >= 0 {
			out = append(out, &level.list[i])
		}
	}
	return out
}

// Qualifiers gives every combination of overrides that speak of p: what there
// are chains of their own for, beside the workspace's.
func (w *Workspace) Qualifiers(p chain.Primitive) []chain.Qualifier {
	if len(w.Stages)+len(w.Consumers)+len(w.Instances) == 0 {
		return nil
	}
	names := func(list []Override) []string {
		out := []string{""}
		for i := range list {
			if list[i].Speaks(p) {
				out = append(out, list[i].Name)
			}
		}
		return out
	}
	stages, consumers, instances := names(w.Stages), names(w.Consumers), names(w.Instances)
	var out []chain.Qualifier
	for _, s := range stages {
		for _, c := range consumers {
			for _, i := range instances {
				out = append(out, chain.Qualifier{Stage: s, Consumer: c, Instance: i})
			}
		}
	}
	return out[1:] // the first is the workspace's own
}

// Prepares reports whether there is a chain for a slot: of a scope's own, for every
// primitive; for a qualifier, where each of its words names an override that
// speaks of the primitive.
func (c *Catalog) Prepares(slot chain.Slot) bool {
	if _, known := c.primitives[slot.Primitive]; !known {
		return false
	}
	base := slot.Scope.Base()
	if base == slot.Scope {
		return true
	}
	q, ok := slot.Scope.Qualifier()
	w, known := c.Workspace(base)
	if !ok || !known {
		return false
	}
	for _, level := range []struct {
		list []Override
		name string
	}{{w.Stages, q.Stage}, {w.Consumers, q.Consumer}, {w.Instances, q.Instance}} {
		if level.name != "" && !slices.ContainsFunc(level.list, func(o Override) bool { return o.Name == level.name && o.Speaks(slot.Primitive) }) {
			return false
		}
	}
	return true
}

// Selection names options, each by its id or by a pattern with "*", for one primitive or for all.
type Selection struct {
	Primitive chain.Primitive // "": every primitive
	Options   []string
	Source    string // of a preference: who declares it; "" the section it stands in
	Tier      string // of a preference: its level; "" the section's own
}

// Tier gives the place of a level among the tiers, from 0.
func (c *Catalog) Tier(name string) int {
	if len(c.Tiers) == 0 {
		return slices.Index(DefaultTiers(), name)
	}
	return slices.Index(c.Tiers, name)
}

// Ceiling bounds spending on a key (fleet-wide) or on options of a workspace. Periods are UTC.
type Ceiling struct {
	Key         string
	Options     string         // pattern
	USDPerMonth chain.MicroUSD // see HasUSD
	CallsPerDay int64          // see HasCalls
	HasUSD      bool
	HasCalls    bool
}

// Agent is a registered provider of a capability, declared by the owner.
type Agent struct {
	DID        string
	Capability string
	Endpoint   string
	ModelID    string // the option id it stands for, or a model name of its own
	Status     string // active, suspended or deregistered
}

// Option finds the provider and the model behind an option id.
func (c *Catalog) Option(id chain.OptionID) (Provider, Model, bool) {
	at, ok := c.options[id]
	if !ok {
		return Provider{}, Model{}, false
	}
	p := c.Providers[at.provider]
	return p, p.Models[at.model], true
}

// Primitive finds the declaration of p.
func (c *Catalog) Primitive(p chain.Primitive) (Primitive, bool) {
	i, ok := c.primitives[p]
	if !ok {
		return Primitive{}, false
	}
	return c.Primitives[i], true
}

// Name gives the name of p in the memory that the catalogue has it in.
func (c *Catalog) Name(p chain.Primitive) chain.Primitive {
	if i, ok := c.primitives[p]; ok {
		return c.Primitives[i].Name
	}
	return p
}

// Workspace gives the overrides of a scope. A scope that the catalogue does not
// list has none: known is false and the defaults come back. A qualifier of scope
// plays no part.
func (c *Catalog) Workspace(scope chain.ScopeID) (w Workspace, known bool) {
	scope = scope.Base()
	if i := c.Place(scope); i >= 0 {
		return c.Workspaces[i], true
	}
	_, id, _ := strings.Cut(string(scope), ":")
	return Workspace{ID: id, AnyKey: true, Weights: resolve.DefaultWeights()}, false
}

// Place gives where the overrides of a scope stand in Workspaces, or -1: it has none.
func (c *Catalog) Place(scope chain.ScopeID) int {
	if i, ok := c.workspaces[scope]; ok {
		return i
	}
	return c.roster.place(scope)
}

// Agent gives the DID that the owner declared for an option, or "". One that is
// suspended stays the option's agent: another name would get round the suspension.
func (c *Catalog) Agent(id chain.OptionID) string { return c.agents[id] }

// Allows reports whether devices of w may hold the key called name.
func (w *Workspace) Allows(name string) bool { return w.AnyKey || slices.Contains(w.Keys, name) }

// Builtin is the catalogue of a mesh for which nobody wrote one: local options
// first, then any peer that can, for llm.chat, embed.text and the primitives in
// more. For llm.chat the model inside the binary is the last resort.
func Builtin(more ...chain.Primitive) Catalog {
	var c Catalog
	for _, p := range append([]chain.Primitive{chain.LLMChat, "embed.text"}, more...) {
		if slices.ContainsFunc(c.Primitives, func(have Primitive) bool { return have.Name == p }) {
			continue
		}
		order := []string{LocalEntry, PeerEntry}
		if p == chain.LLMChat {
			order = append(order, string(chain.BuiltinOption))
		}
		c.Primitives = append(c.Primitives, Primitive{Name: p, Default: order, Slots: []Slot{defaultSlot(p)}, Profile: resolve.DefaultProfile(), Share: 1})
	}
	c.Workspaces = []Workspace{{ID: "home", AnyKey: true, Weights: resolve.DefaultWeights()}}
	c.index()
	return c
}

func defaultSlot(p chain.Primitive) Slot {
	return Slot{ID: PeerEntry, Requires: []chain.Capability{chain.ExecuteCapability(p)}, Tries: 2, Via: []chain.Kind{chain.Local}}
}

// index makes the look-up tables; the lists must be complete.
func (c *Catalog) index() {
	c.options, c.primitives = map[chain.OptionID]place{}, map[chain.Primitive]int{}
	c.workspaces, c.agents = map[chain.ScopeID]int{}, map[chain.OptionID]string{}
	for i, p := range c.Providers {
		for j, m := range p.Models {
			c.options[chain.OptionID(p.Name+"/"+m.Name)] = place{i, j}
		}
	}
	for i, p := range c.Primitives {
		c.primitives[p.Name] = i
	}
	for i, w := range c.Workspaces {
		c.workspaces[chain.ScopeID("workspace:"+w.ID)] = i
	}
	for _, a := range c.Agents {
		id := chain.OptionID(a.ModelID)
		if _, ok := c.options[id]; ok && (a.Status == "active" || c.agents[id] == "") {
			c.agents[id] = a.DID
		}
	}
}
