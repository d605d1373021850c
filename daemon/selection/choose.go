package selection

import (
	"slices"

	"github.com/chordwheel/chordwheel/chain"
)

// Method says how a request came to its options: selection_method of logs and answers.
type Method string

// Methods.
const (
	Matched  Method = "matched"          // the taxonomy named a capability
	Fallback Method = "fallback-default" // nothing matched: the default agent, or the chain's order
	Direct   Method = "direct"           // the caller named a model
)

// Agents is the standing of agents, as the snapshot in force has it. Its methods
// are called on the way of each request.
type Agents interface {
	// Active reports whether the agent with this DID is active for a capability.
	Active(did, capability string) bool
}

// Candidates gives those of options whose agent is active for a capability, in
// their order. agents nil means that there is no registry: then all are. A peer
// slot always is one: who fills it is known when it is bound. What all may do is
// options itself, which nobody changes.
func Candidates(options []chain.Option, capability string, agents Agents, self string) []chain.Option {
	if agents == nil {
		return options
	}
	for i := range options {
		if active(&options[i], capability, agents, self) {
			continue
		}
		out := slices.Clone(options[:i])
		for j := i + 1; j < len(options); j++ {
			if active(&options[j], capability, agents, self) {
				out = append(out, options[j])
			}
		}
		return out
	}
	return options
}

// active lets everything through that is no agent of anybody: slots, and kinds of options
// that nobody here can run, of which the walk says so.
func active(o *chain.Option, capability string, agents Agents, self string) bool {
	return o.Kind != chain.Provider && o.Kind != chain.Local || agents.Active(AgentOf(o, self), capability)
}

// AgentOf gives the DID of the agent that runs o on the device with the DID self;
// "" for a slot that nobody fills yet, and for an option whose agent nobody named.
func AgentOf(o *chain.Option, self string) string {
	switch o.Kind {
	case chain.Local:
		return self
	case chain.Provider:
		return o.Agent
	}
	return ""
}

// First puts the options of an agent in front of the others. It reports false if
// none is the agent's.
func First(options []chain.Option, agent, self string) ([]chain.Option, bool) {
	of := func(o chain.Option) bool { return AgentOf(&o, self) == agent }
	switch at := slices.IndexFunc(options, of); {
	case at < 0:
		return nil, false
	case at == 0:
		return options, true
	}
	out := make([]chain.Option, 0, len(options))
	for _, o := range options {
		if of(o) {
			out = append(out, o)
		}
	}
	for _, o := range options {
		if !of(o) {
			out = append(out, o)
		}
	}
	return out, true
}
