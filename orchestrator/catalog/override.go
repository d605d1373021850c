package catalog

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/chordwheel/chordwheel/chain"
)

// Caps on overrides. Every combination that speaks of a primitive is a chain.
const (
	maxTiers        = 16
	maxOverrides    = 256
	maxCombinations = 512 // of one workspace, for one primitive
)

// tiers reads the levels of policy: the product's five in their order, with an
// owner's own among them.
func (r *reader) tiers(n ast.Node) []string {
	list := r.names(n, "tiers", maxTiers, word)
	at := -1
	for _, own := range DefaultTiers() {
		i := slices.Index(list, own)
		switch {
		case i < 0 && isList(n):
			r.fail(n, "tiers: %q is missing: want %v in this order, with others among them", own, DefaultTiers())
			return list
		case i <= at && i >= 0:
			r.fail(n, "tiers: %q stands too early: want %v in this order, with others among them", own, DefaultTiers())
			return list
		}
		at = i
	}
	if len(list) > 0 && list[0] != GlobalTier {
		r.fail(n, "tiers: %q must be the first", GlobalTier)
	}
	return list
}

// overrides reads what a workspace has otherwise for stages, consumers or instances.
func (r *reader) overrides(n ast.Node, tier string, c *Catalog) []Override {
	var out []Override
	r.list(n, tier+"s", maxOverrides, func(n ast.Node) {
		o := Override{Tier: tier}
		r.object(n, tier,
			field{"name", true, func(n ast.Node) {
				o.Name = r.text(n, "name of a "+tier, func(s string) error {
					if !chain.QualifierWord(s) {
						return fmt.Errorf("%q: want 1 to 64 printable characters without spaces, semicolons and equals signs", clip(s))
					}
					return nil
				})
			}},
			field{"order", false, func(n ast.Node) { o.Fixed = r.order(n) }},
			field{"default", false, func(n ast.Node) { o.Default = r.selections(n, "default", false, c) }},
			field{"prefer", false, func(n ast.Node) { o.Prefer = r.selections(n, "prefer", true, c) }},
			field{"pin", false, func(n ast.Node) { o.Pin = r.selections(n, "pin", false, c) }},
			field{"deny", false, func(n ast.Node) { o.Deny = r.selections(n, "deny", false, c) }},
		)
		out = append(out, o)
	})
	r.unique(n, tier, "name")
	return out
}

// checkOverrides bounds the chains that a workspace's overrides make.
func (r *reader) checkOverrides(n ast.Node, w *Workspace, c *Catalog) {
	if len(w.Stages)+len(w.Consumers)+len(w.Instances) == 0 {
		return
	}
	longest := func(list []Override) (name string) {
		for i := range list {
			if len(list[i].Name) > len(name) {
				name = list[i].Name
			}
		}
		return name
	}
	scope := chain.ScopeID("workspace:" + w.ID).With(chain.Qualifier{Stage: longest(w.Stages), Consumer: longest(w.Consumers), Instance: longest(w.Instances)})
	if len(scope) > chain.MaxScopeID {
		r.fail(n, "workspace: %q has %d bytes, at most %d: shorten its id or the names of its overrides", clip(string(scope)), len(scope), chain.MaxScopeID)
	}
	for i := range c.Primitives {
		p := c.Primitives[i].Name
		count := 1
		for _, list := range [][]Override{w.Stages, w.Consumers, w.Instances} {
			speaking := 1
			for j := range list {
				if list[j].Speaks(p) {
					speaking++
				}
			}
			count *= speaking
		}
		if count > maxCombinations {
			r.fail(n, "workspace: stages, consumers and instances make %d chains of %s, at most %d: name the primitives they are about, or divide the workspace", count, p, maxCombinations)
			return
		}
	}
}
