package daemon

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/daemon/selection"
)

// Selection is how the model `auto` comes to its options. The zero Selection takes
// the chain as it is.
type Selection struct {
	Taxonomy *selection.Taxonomy // nil: everything is fallback-default
	Default  string              // DID of the agent that serves what nothing matched; "": the chain's order decides
	Timeout  time.Duration       // for matching; 0 means 300 ms
	Agents   selection.Agents    // nil: there is no registry, and the chain's options are the agents
}

// defaultSelectTimeout bounds matching, which takes microseconds: it is there for a
// device that has no processor left.
const defaultSelectTimeout = 300 * time.Millisecond

// chosen are the options of one request, in the order to be tried, and how they
// were come by.
type chosen struct {
	chain      *chain.Chain
	options    []chain.Option
	method     selection.Method
	capability string
	talk       delta.Conversation // of an `auto` request
}

// selects finds the options of w. The errors wrap an [edge.Refusal].
func (d *Daemon) selects(w *edge.Work) (chosen, error) {
	if err := d.fresh(time.Now()); err != nil {
		return chosen{}, err
	}
	if w.Model != "" && w.Model != edge.Auto {
		return d.selectNamed(w)
	}
	of := chain.Qualifier{Stage: w.Stage, Consumer: w.Consumer, Instance: w.Instance}
	s := &d.cfg.Selection
	if s.Taxonomy != nil && w.Ask != nil {
		if c, ok := d.selectMatched(w, of); ok {
			return c, nil
		}
	}
	c := chosen{method: selection.Fallback, capability: string(w.Primitive)}
	var err error
	if c.chain, err = d.inForceFor(w.App, w.Primitive, of); err != nil {
		return chosen{}, err
	}
	c.talk = conversation(w)
	c.options = d.allowed(w, selection.Candidates(d.ordered(c.chain, c.talk), c.capability, s.Agents, d.did))
	if len(c.options) == 0 && w.App.Restricted() {
		return chosen{}, edge.Refuse(edge.ModelNotFound, "application %s may use none of the models of the chain for %s", w.App.Name, c.chain.Slot())
	}
	if s.Default != "" && w.Ask != nil {
		var ok bool
		if c.options, ok = selection.First(c.options, s.Default, d.did); !ok {
			return chosen{}, edge.Refuse(edge.NoAgent, "nothing matched the request, and DEFAULT_MODEL_DID is not an active agent of the chain for %s", c.chain.Slot())
		}
	}
	if len(c.options) == 0 && s.Agents != nil {
		d.stranger(time.Now())
		return chosen{}, edge.Refuse(edge.NoAgent, "no agent of the chain for %s is active in the registry%s", c.chain.Slot(), inBrackets(d.passedOver(w, &c)))
	}
	return c, nil
}

// maxPassedOver bounds of how many options it is said why nobody was asked for them.
const maxPassedOver = 4

// passedOver gives the options of c's chain whose agents the registry keeps from work, and why: who
// hears that nothing could be tried would otherwise look for peers and keys.
func (d *Daemon) passedOver(w *edge.Work, c *chosen) []chain.Failure {
	s, now := &d.cfg.Selection, time.Now()
	if s.Agents == nil || c.method == selection.Direct {
		return nil
	}
	var out []chain.Failure
	options := d.allowed(w, d.ordered(c.chain, c.talk))
	for i := range options {
		if len(out) == maxPassedOver {
			break
		}
		if len(selection.Candidates(options[i:i+1], c.capability, s.Agents, d.did)) == 0 {
			out = append(out, chain.Failure{Option: options[i].ID, Class: chain.Denied, Why: d.outOfRegistry(selection.AgentOf(&options[i], d.did), c.capability, now)})
		}
	}
	return out
}

// outOfRegistry says why an agent that is not active is not.
func (d *Daemon) outOfRegistry(agent, capability string, now time.Time) string {
	switch r := d.cfg.Gating.Registry; {
	case r == nil:
		return "its agent is not active in the registry"
	case r.Standing(agent, capability, now) == gate.Suspended:
		return "its agent is suspended in the registry"
	}
	return "the registry does not list its agent"
}

// inBrackets says why options were passed over, "" if none was.
func inBrackets(passed []chain.Failure) string {
	if len(passed) == 0 {
		return ""
	}
	words := make([]string, len(passed))
	for i, f := range passed {
		words[i] = string(f.Option) + ": " + f.Why
	}
	return " (" + strings.Join(words, ", ") + ")"
}

// selectMatched asks the taxonomy. A capability without a chain or without an
// active agent is as good as no match.
func (d *Daemon) selectMatched(w *edge.Work, of chain.Qualifier) (chosen, bool) {
	s, began := &d.cfg.Selection, time.Now()
	limit := s.Timeout
	if limit == 0 {
		limit = defaultSelectTimeout
	}
	capability, ok := s.Taxonomy.MatchJSON(w.Ask, func() bool { return time.Since(began) > limit })
	if !ok {
		return chosen{}, false
	}
	c := chosen{method: selection.Matched, capability: capability.ID}
	var err error
	if c.chain, err = d.inForceFor(w.App, capability.Primitive, of); err != nil {
		return chosen{}, false
	}
	c.talk = conversation(w)
	options := d.ordered(c.chain, c.talk)
	c.capability = d.registered(capability, options)
	c.options = d.allowed(w, selection.Candidates(options, c.capability, s.Agents, d.did))
	return c, len(c.options) > 0
}

// selectNamed finds what the caller means by a model: selection has no say then.
func (d *Daemon) selectNamed(w *edge.Work) (chosen, error) {
	of := chain.Qualifier{Stage: w.Stage, Consumer: w.Consumer, Instance: w.Instance}
	c, err := d.namedIn(w, selection.Capability{ID: string(w.Primitive), Primitive: w.Primitive}, of)
	if len(c.options) == 0 {
		other, ok := d.namedElsewhere(w, of)
		switch {
		case ok:
			c = other
		case err != nil:
			return chosen{}, err
		case strings.HasPrefix(w.Model, "did:") && !chain.IsDID(w.Model):
			return chosen{}, edge.Refuse(edge.InvalidDID, "model: %q is no DID: write it as in did:key:z6Mk… or did:web:agents.example", chain.Clip(w.Model))
		default:
			return chosen{}, edge.Refuse(edge.ModelNotFound, "there is no model %q; there are %s", chain.Clip(w.Model), d.modelNames(w, c.chain))
		}
	}
	active := selection.Candidates(c.options, c.capability, d.cfg.Selection.Agents, d.did)
	if len(active) == 0 {
		return chosen{}, d.inactive(w.Model, c)
	}
	c.options = active
	return c, nil
}

// namedIn looks for the model of w in the chain that serves a capability.
func (d *Daemon) namedIn(w *edge.Work, capability selection.Capability, of chain.Qualifier) (chosen, error) {
	in, err := d.inForceFor(w.App, capability.Primitive, of)
	if err != nil {
		return chosen{}, err
	}
	return chosen{chain: in, options: d.allowed(w, named(d.effective(in.Options()), w.Model, d.did)), method: selection.Direct, capability: capability.ID}, nil
}

// namedElsewhere looks for the model of a chat in the chains of what the taxonomy
// knows: an inlet names the option of a match, which need not be one of llm.chat. One
// whose agent is active goes first.
func (d *Daemon) namedElsewhere(w *edge.Work, of chain.Qualifier) (found chosen, ok bool) {
	t := d.cfg.Selection.Taxonomy
	if t == nil || w.Ask == nil {
		return chosen{}, false
	}
	for _, capability := range t.Capabilities() {
		c, err := d.namedIn(w, capability, of)
		if err != nil || len(c.options) == 0 {
			continue
		}
		c.capability = d.registered(capability, c.options)
		if len(selection.Candidates(c.options, c.capability, d.cfg.Selection.Agents, d.did)) > 0 {
			return c, true
		}
		if !ok {
			found, ok = c, true
		}
	}
	return found, ok
}

// active reports whether selection would let o through for p, by the name of the primitive or of
// a capability that the taxonomy says it serves.
func (d *Daemon) active(o *chain.Option, p chain.Primitive) bool {
	s, one := &d.cfg.Selection, []chain.Option{*o}
	if len(selection.Candidates(one, string(p), s.Agents, d.did)) > 0 {
		return true
	}
	if s.Taxonomy == nil {
		return false
	}
	return slices.ContainsFunc(s.Taxonomy.Capabilities(), func(c selection.Capability) bool {
		return c.Primitive == p && len(selection.Candidates(one, c.ID, s.Agents, d.did)) > 0
	})
}

// inactive says why no agent of a model may be asked.
func (d *Daemon) inactive(model string, c chosen) error {
	if r := d.cfg.Gating.Registry; r != nil {
		now := time.Now()
		d.stranger(now)
		for i := range c.options {
			if r.Standing(selection.AgentOf(&c.options[i], d.did), c.capability, now) == gate.Suspended {
				return edge.Refuse(edge.AgentSuspended, "the agent of %q is suspended", chain.Clip(model))
			}
		}
		return edge.Refuse(edge.NoAgent, "the registry does not list the agent of %q", chain.Clip(model))
	}
	return edge.Refuse(edge.AgentSuspended, "the agent of %q is not active in the registry", chain.Clip(model))
}

// check finds what cannot work.
func (s *Selection) check() error {
	if s.Timeout < 0 {
		return fmt.Errorf("the time for selection is negative: %s", s.Timeout)
	}
	return nil
}
