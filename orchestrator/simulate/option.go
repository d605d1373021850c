package simulate

import (
	"github.com/chordwheel/chordwheel/chain"
)

// slot is the one chain of the simulated fleet.
var slot = chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}

// option gives an option as the catalogue declares it now.
func (w *world) option(i int) chain.Option {
	o, t := &w.s.Options[i], &w.options[i]
	price := 1.0
	if first := money(o, 1, &w.s.Profile); first > 0 {
		price = t.money / first
	}
	return chain.Option{ID: t.id, Kind: chain.Provider, Adapter: "openai", Model: o.Name, Endpoint: "https://" + o.Domain + ".example/v1", Domain: o.Domain,
		Cost: chain.Cost{InputPerMtok: chain.MicroUSD(o.Input*price*1e6 + 0.5), OutputPerMtok: chain.MicroUSD(o.Output*price*1e6 + 0.5), Quality: chain.PPMOf(o.Quality),
			Latency: chain.MillisOf(o.Prior.Latency)},
		Limits: chain.Limits{Total: chain.MillisOf(w.s.Limit)}}
}

// rules are those of the simulated chain.
func (s *Scenario) rules() chain.Rules {
	return chain.Rules{Sampling: chain.PPMOf(s.Rules.Sampling), Exploration: chain.PPMOf(s.Rules.Exploration), NoExploration: s.Rules.NoExploration || s.Rules.Exploration == 0,
		Reorder: chain.PPMOf(s.Rules.Reorder)}
}
