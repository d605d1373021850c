package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

func (r *reader) primitive(n ast.Node, c *Catalog) Primitive {
	p := Primitive{Profile: resolve.DefaultProfile(), Share: 1}
	var defaults, withheld ast.Node
	r.object(n, "primitive",
		field{"name", true, func(n ast.Node) { p.Name = chain.Primitive(r.text(n, "primitive name", primitiveName)) }},
		field{"order", false, func(n ast.Node) { p.Fixed = r.order(n) }},
		field{"default", true, func(n ast.Node) {
			defaults, p.Default = n, r.names(n, "default", chain.MaxOptions, printableName)
		}},
		field{"peer", false, func(n ast.Node) { r.slots(n, &p) }},
		field{"withheld", false, func(n ast.Node) {
			withheld = n
			for _, s := range r.names(n, "withheld", chain.MaxOptions, printableName) {
				p.Withheld = append(p.Withheld, chain.OptionID(s))
			}
		}},
		field{"source", false, func(n ast.Node) { p.Source = r.source(n) }},
		field{"profile", false, func(n ast.Node) {
			r.object(n, "profile",
				field{"input_tokens", false, func(n ast.Node) { p.Profile.InputTokens = r.number(n, "input_tokens", 0, 1e9) }},
				field{"output_tokens", false, func(n ast.Node) { p.Profile.OutputTokens = r.number(n, "output_tokens", 0, 1e9) }},
			)
		}},
		field{"share", false, func(n ast.Node) { p.Share = r.number(n, "share", 0, 1e6) }},
		field{"rules", false, func(n ast.Node) { p.Rules = r.rules(n) }},
		field{"escalation", false, func(n ast.Node) {
			r.object(n, "escalation",
				field{"depth", false, func(n ast.Node) { p.Escalation.Depth = int(r.integer(n, "depth", 1, 16)) }},
				field{"nodes", false, func(n ast.Node) { p.Escalation.Nodes = int(r.integer(n, "nodes", 1, 4096)) }},
				field{"cut_off", false, func(n ast.Node) { p.Escalation.CutOff = r.number(n, "cut_off", 1e-9, 1) }},
			)
		}},
	)
	if len(p.Slots) == 0 && p.Name != "" {
		p.Slots = []Slot{defaultSlot(p.Name)}
	}
	r.later = append(r.later, func() { r.checkOrder(&p, c, defaults, withheld) })
	return p
}

func (r *reader) order(n ast.Node) bool {
	return r.text(n, "order", oneOf("learned", "fixed")) == "fixed"
}

// checkOrder follows the references of a primitive's lists.
func (r *reader) checkOrder(p *Primitive, c *Catalog, defaults, withheld ast.Node) {
	r.each(defaults, func(n ast.Node, entry string) {
		switch {
		case entry == LocalEntry || strings.HasPrefix(entry, "local/"):
		case entry == PeerEntry || strings.HasPrefix(entry, "peer/"):
			if !slices.ContainsFunc(p.Slots, func(s Slot) bool { return string(s.ID) == entry }) {
				r.fail(n, "default: there is no slot %q: declare it under peer", clip(entry))
			} else if p.Source.Data == chain.LocalOnly {
				r.fail(n, "default: local-only data cannot have a peer slot")
			}
		default:
			r.reference(n, "default", p.Name, entry, c)
		}
	})
	r.each(withheld, func(n ast.Node, entry string) {
		if slices.Contains(p.Default, entry) {
			r.fail(n, "withheld: %q stands in default too", clip(entry))
			return
		}
		r.reference(n, "withheld", p.Name, entry, c)
	})
	if len(p.Default) == 0 && isList(defaults) {
		r.fail(defaults, "default: at least one entry is needed")
	}
}

func isList(n ast.Node) bool {
	_, ok := n.(*ast.SequenceNode)
	return ok
}

// each walks the texts of a list that was read before.
func (r *reader) each(n ast.Node, visit func(n ast.Node, text string)) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		return
	}
	for _, v := range s.Values {
		if text, ok := v.(*ast.StringNode); ok {
			visit(v, text.Value)
		}
	}
}

// reference refuses the name of a provider option that does not exist or does not serve p ("": any).
func (r *reader) reference(n ast.Node, what string, p chain.Primitive, entry string, c *Catalog) {
	_, model, ok := c.Option(chain.OptionID(entry))
	provider, _, named := strings.Cut(entry, "/")
	switch {
	case ok && (p == "" || slices.Contains(model.Primitives, p)):
	case ok:
		r.fail(n, "%s: %q does not list primitive %s", what, clip(entry), p)
	case !named:
		r.fail(n, "%s: %q is not an option: want PROVIDER/MODEL, local or peer", what, clip(entry))
	case slices.ContainsFunc(c.Providers, func(have Provider) bool { return have.Name == provider }):
		r.fail(n, "%s: provider %q has no model %q", what, clip(provider), clip(entry[len(provider)+1:]))
	default:
		r.fail(n, "%s: unknown provider %q", what, clip(provider))
	}
}

// slots reads peer: one unnamed slot, or a list of named ones.
func (r *reader) slots(n ast.Node, p *Primitive) {
	if _, many := n.(*ast.SequenceNode); !many {
		p.Slots = append(p.Slots, r.slot(n, p, false))
		return
	}
	r.list(n, "peer", 16, func(n ast.Node) { p.Slots = append(p.Slots, r.slot(n, p, true)) })
	r.unique(n, "peer slot", "name")
}

func (r *reader) slot(n ast.Node, p *Primitive, named bool) Slot {
	s := Slot{ID: PeerEntry, Tries: 2, Via: []chain.Kind{chain.Local}}
	fields := []field{
		{"requires", false, func(n ast.Node) { s.Requires = r.capabilities(n) }},
		{"tries", false, func(n ast.Node) { s.Tries = int(r.integer(n, "tries", 1, 64)) }},
		{"via", false, func(n ast.Node) {
			s.Via = nil
			for _, kind := range r.names(n, "via", 2, oneOf(string(chain.Local), string(chain.Provider))) {
				s.Via = append(s.Via, chain.Kind(kind))
			}
			if len(s.Via) == 0 {
				r.fail(n, "via: want local, or local and provider")
			}
		}},
	}
	if named {
		fields = append(fields, field{"name", true, func(n ast.Node) {
			s.ID = chain.OptionID("peer/" + r.text(n, "name of a peer slot", word))
		}})
	}
	r.object(n, "peer", fields...)
	if s.Requires == nil && p.Name != "" {
		s.Requires = []chain.Capability{chain.ExecuteCapability(p.Name)}
	}
	return s
}

func (r *reader) capabilities(n ast.Node) []chain.Capability {
	out := []chain.Capability{}
	for _, s := range r.names(n, "requires", 32, printableName) {
		out = append(out, chain.Capability(s))
	}
	return out
}

func (r *reader) source(n ast.Node) Source {
	var s Source
	r.object(n, "source",
		field{"requires", false, func(n ast.Node) { s.Requires = r.capabilities(n) }},
		field{"calls_per_minute", false, func(n ast.Node) { s.CallsPerMinute = r.number(n, "calls_per_minute", 0, 1e9) }},
		field{"data", false, func(n ast.Node) {
			if r.text(n, "data", oneOf("any", string(chain.LocalOnly))) == string(chain.LocalOnly) {
				s.Data = chain.LocalOnly
			}
		}},
	)
	return s
}

// rules reads what a chain tells devices beside its options.
func (r *reader) rules(n ast.Node) chain.Rules {
	var u chain.Rules
	duration := func(name string, to *chain.Millis) field {
		return field{name, false, func(n ast.Node) { *to = chain.MillisOf(r.duration(n, name)) }}
	}
	share := func(name string, to *chain.PPM, least, most float64) field {
		return field{name, false, func(n ast.Node) { *to = chain.PPMOf(r.number(n, name, least, most)) }}
	}
	r.object(n, "rules",
		share("sampling", &u.Sampling, 0.01, 1),
		duration("report_interval", &u.ReportInterval),
		share("reorder", &u.Reorder, 0.001, 1),
		field{"exploration", false, func(n ast.Node) {
			u.Exploration = chain.PPMOf(r.number(n, "exploration", 0, 1000))
			u.NoExploration = u.Exploration == 0
		}},
		field{"explore", false, func(n ast.Node) { u.Explore = r.names(n, "explore", 64, printableName) }},
		duration("idle", &u.Idle),
		field{"peers", false, func(n ast.Node) { u.NoPeers = !r.boolean(n, "peers") }},
		field{"attempts", false, func(n ast.Node) { u.Attempts = int(r.integer(n, "attempts", 1, 64)) }},
		field{"cool_down", false, func(n ast.Node) {
			r.object(n, "cool_down", duration("base", &u.CoolDown.Base), duration("max", &u.CoolDown.Max),
				duration("peer_base", &u.CoolDown.PeerBase), duration("peer_max", &u.CoolDown.PeerMax),
				duration("key_base", &u.CoolDown.KeyBase), duration("key_max", &u.CoolDown.KeyMax), duration("retry_after", &u.CoolDown.RetryAfter))
		}},
		field{"budgets", false, func(n ast.Node) {
			r.object(n, "budgets", duration("interactive", &u.Budgets.Interactive), duration("batch", &u.Budgets.Batch), duration("max", &u.Budgets.Max))
		}},
		field{"filter_next", false, func(n ast.Node) { u.FilterNext = r.boolean(n, "filter_next") }},
		share("escalation_target", &u.Escalation, 0.000001, 1),
	)
	return u
}

func (r *reader) workspace(n ast.Node, c *Catalog) Workspace {
	w := Workspace{AnyKey: true, Weights: resolve.DefaultWeights()}
	r.object(n, "workspace",
		field{"id", true, func(n ast.Node) {
			w.ID = r.text(n, "workspace id", func(s string) error {
				if strings.Contains(s, ";") {
					return fmt.Errorf("%q: must not hold a semicolon", clip(s))
				}
				_, err := chain.ParseScope("workspace:" + s)
				return err
			})
		}},
		field{"order", false, func(n ast.Node) { w.Fixed = r.order(n) }},
		field{"geo", false, func(n ast.Node) { w.Geo = r.names(n, "geo", maxNames, geo) }},
		field{"keys", false, func(n ast.Node) { w.AnyKey = false; w.Keys = r.names(n, "keys", maxNames, keyName) }},
		field{"weights", false, func(n ast.Node) { r.weights(n, &w.Weights) }},
		field{"ceilings", false, func(n ast.Node) {
			r.list(n, "ceilings", maxNames, func(n ast.Node) { w.Ceilings = append(w.Ceilings, r.ceiling(n, c, false)) })
		}},
		field{"prefer", false, func(n ast.Node) { w.Prefer = r.selections(n, "prefer", true, c) }},
		field{"pin", false, func(n ast.Node) { w.Pin = r.selections(n, "pin", false, c) }},
		field{"deny", false, func(n ast.Node) { w.Deny = r.selections(n, "deny", false, c) }},
		field{"stages", false, func(n ast.Node) { w.Stages = r.overrides(n, StageTier, c) }},
		field{"consumers", false, func(n ast.Node) { w.Consumers = r.overrides(n, ConsumerTier, c) }},
		field{"instances", false, func(n ast.Node) { w.Instances = r.overrides(n, InstanceTier, c) }},
	)
	r.later = append(r.later, func() { r.checkOverrides(n, &w, c) })
	return w
}

func (r *reader) weights(n ast.Node, w *resolve.Weights) {
	weight := func(name string, to *float64) field {
		return field{name, false, func(n ast.Node) { *to = r.number(n, "weight "+name, 0, 1e12) }}
	}
	r.object(n, "weights", weight("second", &w.Second), weight("failure", &w.Failure), weight("quality", &w.Quality), weight("geo", &w.Geo),
		weight("preference", &w.Preference), weight("quota", &w.Quota), weight("exhausted", &w.Exhausted))
}

// ceiling reads a fleet-wide ceiling on a key, or one of a workspace on options or a key.
func (r *reader) ceiling(n ast.Node, c *Catalog, fleet bool) Ceiling {
	var l Ceiling
	fields := []field{
		{"key", fleet, func(n ast.Node) {
			l.Key = r.text(n, "key of a ceiling", keyName)
			r.later = append(r.later, func() { r.knownKey(n, l.Key, c) })
		}},
		{"usd_per_month", false, func(n ast.Node) { l.HasUSD = true; l.USDPerMonth = r.usd(n, "usd_per_month") }},
		{"calls_per_day", false, func(n ast.Node) { l.HasCalls = true; l.CallsPerDay = r.integer(n, "calls_per_day", 0, 1<<40) }},
	}
	if !fleet {
		fields = append(fields, field{"options", false, func(n ast.Node) {
			l.Options = r.text(n, "options of a ceiling", printableName)
			r.later = append(r.later, func() { r.pattern(n, "options of a ceiling", "", l.Options, c) })
		}})
	}
	r.object(n, "ceiling", fields...)
	if _, ok := pairs(n); ok && !l.HasUSD && !l.HasCalls {
		r.fail(n, "ceiling: want usd_per_month or calls_per_day")
	}
	if _, ok := pairs(n); ok && !fleet && (l.Key == "") == (l.Options == "") {
		r.fail(n, "ceiling: want either options or key")
	}
	return l
}

func (r *reader) knownKey(n ast.Node, key string, c *Catalog) {
	if key != "" && !slices.ContainsFunc(c.Providers, func(p Provider) bool { return slices.Contains(p.Keys, key) }) {
		r.fail(n, "key of a ceiling: no provider uses key %q", clip(key))
	}
}

// selections reads a list whose elements are an option or pattern, or {primitive,
// options}; a list of seeds may also say whose they are and on which tier.
func (r *reader) selections(n ast.Node, what string, seeds bool, c *Catalog) []Selection {
	var out []Selection
	r.list(n, what, maxNames, func(n ast.Node) {
		if text, ok := n.(*ast.StringNode); ok {
			s := r.text(n, what, printableName)
			r.later = append(r.later, func() { r.pattern(text, what, "", s, c) })
			out = append(out, Selection{Options: []string{s}})
			return
		}
		var s Selection
		var options ast.Node
		fields := []field{
			{"primitive", false, func(n ast.Node) {
				s.Primitive = chain.Primitive(r.text(n, "primitive", primitiveName))
				r.later = append(r.later, func() {
					if _, ok := c.Primitive(s.Primitive); !ok && s.Primitive != "" {
						r.fail(n, "%s: unknown primitive %q", what, clip(string(s.Primitive)))
					}
				})
			}},
			{"options", true, func(n ast.Node) { options, s.Options = n, r.names(n, "options", chain.MaxOptions, printableName) }},
		}
		if seeds {
			fields = append(fields, field{"source", false, func(n ast.Node) { s.Source = r.text(n, "source", printableName) }},
				field{"tier", false, func(n ast.Node) {
					s.Tier = r.text(n, "tier", word)
					r.later = append(r.later, func() {
						if s.Tier != "" && c.Tier(s.Tier) < 0 {
							r.fail(n, "tier: %q is not one of the catalogue's tiers", clip(s.Tier))
						}
					})
				}})
		}
		r.object(n, what, fields...)
		r.later = append(r.later, func() {
			r.each(options, func(n ast.Node, entry string) { r.pattern(n, what, s.Primitive, entry, c) })
		})
		out = append(out, s)
	})
	return out
}

// pattern refuses a name or pattern that means nothing in this catalogue. What
// devices declare (local/…) and slots cannot be checked here.
func (r *reader) pattern(n ast.Node, what string, p chain.Primitive, pattern string, c *Catalog) {
	head, _, _ := strings.Cut(pattern, "/")
	if pattern == "" || head == LocalEntry || head == PeerEntry || strings.HasPrefix(pattern, "*") {
		return
	}
	if !strings.Contains(pattern, "*") {
		r.reference(n, what, p, pattern, c)
		return
	}
	for id := range c.options {
		if resolve.Match(pattern, id) {
			return
		}
	}
	r.fail(n, "%s: no option fits %q", what, clip(pattern))
}
