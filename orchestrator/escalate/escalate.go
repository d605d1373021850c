// Package escalate owns the answers to protests: which withheld option is
// revealed next to a device whose chain is exhausted, or why none is, and how
// often it comes to that. It is pure: what was resolved and the time come in, and
// signing is the hub's business. The answers are computed ahead, as a tree of what
// may have failed and why; a protest is a look-up. See docs/ordering.md.
package escalate

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/order"
)

// Limits bound the tree of one chain.
type Limits struct {
	Depth  int     `json:"depth"`   // options revealed one after another over a request's life
	Nodes  int     `json:"nodes"`   // answers computed ahead
	CutOff float64 `json:"cut_off"` // states less likely than this, once the chain is exhausted, are not computed ahead
}

// DefaultLimits is what holds where nothing is said.
func DefaultLimits() Limits { return Limits{Depth: 4, Nodes: 256, CutOff: 0.0001} }

// Shares of the ways in which an exhausted option failed, for the likelihood of a
// state. Only the order in which states are computed hangs on them.
const (
	shareDown = 0.8
	shareKeys = 0.1
	shareMute = 0.1
)

// Plan is the answers for one chain. It is not safe for concurrent use: a look-up
// notes that it was asked.
type Plan struct {
	body     chain.CID
	withheld []chain.Option
	limits   Limits
	terms    order.Terms

	priced  []order.Option             // of withheld
	domains []string                   // of withheld options, at most maxDomains
	worst   []float64                  // by domain: what the best option of the chain in it leaves of r: 1 − r, or 1
	up      []float64                  // by domain: q
	known   map[chain.OptionID]subject // every option that can fail, and what that says
	nodes   map[state]*node
	beyond  map[state]*node // answers outside the tree that were asked for
	depth   int
	solver  order.Solver
}

// subject is what a failure of an option speaks of.
type subject struct {
	withheld int // place, or −1
	domain   int // place, or −1
	context  int // declared tokens
}

// state is what matters of what has failed: which withheld options were tried,
// and what is known of their domains. It is the key of the tree.
type state struct {
	tried   [chain.MaxOptions / 64]uint64
	down    uint64 // domains in which something failed as if the domain had
	keys    uint64 // domains that refused this device's keys, or have none of them
	context int    // the largest context that was too short; 0: none was
}

// maxDomains is how many domains a state tells apart. Options in others are judged
// by themselves.
const maxDomains = 64

type node struct {
	reveal int // place in withheld, −1: none
	depth  int
	likely float64 // once the chain is exhausted
	asked  bool
}

// NewPlan computes the answers for a chain ahead: its options, and what is
// withheld from it. price gives the figures of either (they are those of
// [order]); one that has none is judged as hopeless.
func NewPlan(body chain.CID, open, withheld []chain.Option, price func(chain.OptionID) (order.Option, bool), terms order.Terms, limits Limits) *Plan {
	p := &Plan{body: body, withheld: withheld, limits: limits, terms: terms, known: make(map[chain.OptionID]subject, len(open)+len(withheld)),
		nodes: map[state]*node{}, beyond: map[state]*node{}}
	p.terms.Cap = 0
	for i := range withheld {
		o, ok := price(withheld[i].ID)
		if !ok {
			o = order.Option{P: order.MinP}
		}
		o.ID, o.Domain = withheld[i].ID, withheld[i].Domain
		p.priced = append(p.priced, o)
		if d := o.Domain; d != "" && len(p.domains) < maxDomains && !slices.Contains(p.domains, d) {
			p.domains = append(p.domains, d)
		}
	}
	for i := range open {
		p.known[open[i].ID] = subject{-1, slices.Index(p.domains, open[i].Domain), open[i].Limits.Context}
	}
	for i := range withheld {
		p.known[withheld[i].ID] = subject{i, slices.Index(p.domains, withheld[i].Domain), withheld[i].Limits.Context}
	}
	p.judge(open, price)
	p.grow(open)
	return p
}

// judge computes for each domain what a failure in it says of the rest.
func (p *Plan) judge(open []chain.Option, price func(chain.OptionID) (order.Option, bool)) {
	rho := p.terms.Rho
	if rho == 0 {
		rho = order.DefaultRho
	}
	for _, d := range p.domains {
		best, failed := order.MinP, order.MinP
		for i := range p.priced {
			if p.priced[i].Domain == d {
				best = max(best, p.priced[i].P)
			}
		}
		for i := range open {
			if open[i].Domain != d {
				continue
			}
			if o, ok := price(open[i].ID); ok {
				failed = max(failed, o.P)
			}
		}
		if failed == order.MinP { // none of it in the chain: a withheld one will be what fails
			failed = best
		}
		best = min(max(best, failed), order.MaxP)
		q := 1 - float64(max(rho, 0)*(1-best))
		p.up = append(p.up, q)
		p.worst = append(p.worst, 1-min(failed/q, 1))
	}
}

// grow computes answers, the likeliest states first, until a limit ends it.
func (p *Plan) grow(open []chain.Option) {
	if len(p.withheld) == 0 {
		return
	}
	frontier := p.roots(open)
	for len(frontier) > 0 && len(p.nodes) < p.limits.Nodes {
		at := 0
		for i := range frontier {
			if frontier[i].likely > frontier[at].likely {
				at = i
			}
		}
		next := frontier[at]
		frontier = slices.Delete(frontier, at, at+1)
		if p.nodes[next.state] != nil {
			continue
		}
		n := &node{reveal: p.choose(next.state), depth: next.depth, likely: next.likely}
		p.nodes[next.state] = n
		p.depth = max(p.depth, n.depth)
		if n.reveal < 0 || n.depth >= p.limits.Depth {
			continue
		}
		fails := next.likely * (1 - p.posterior(next.state, n.reveal))
		for _, kind := range []struct {
			why   why
			share float64
		}{{whyDown, shareDown}, {whyKeys, shareKeys}, {whyMute, shareMute}} {
			if likely := fails * kind.share; likely >= p.limits.CutOff {
				frontier = append(frontier, pending{p.after(next.state, p.withheld[n.reveal].ID, kind.why), likely, n.depth + 1})
			}
		}
	}
}

type pending struct {
	state
	likely float64
	depth  int
}

// roots are the states of an exhausted chain before anything was revealed: for
// each domain that it shares with withheld options, how it failed there.
func (p *Plan) roots(open []chain.Option) []pending {
	list := []pending{{state{}, 1, 1}}
	for d := range p.domains {
		i := slices.IndexFunc(open, func(o chain.Option) bool { return o.Domain == p.domains[d] })
		if i < 0 {
			continue
		}
		var next []pending
		for _, was := range list {
			for _, kind := range []struct {
				why   why
				share float64
			}{{whyDown, shareDown}, {whyKeys, shareKeys}, {whyMute, shareMute}} {
				if likely := was.likely * kind.share; likely >= p.limits.CutOff && len(next) < 4*p.limits.Nodes {
					next = append(next, pending{p.after(was.state, open[i].ID, kind.why), likely, 1})
				}
			}
		}
		list = next
	}
	return list
}

// why is what a failure says of the option's domain.
type why uint8

const (
	whyMute why = iota // nothing
	whyDown            // it may be down
	whyKeys            // it does not take this device's keys
)

func whyOf(c chain.Class) why {
	switch c {
	case chain.Unreachable, chain.Timeout, chain.Status:
		return whyDown
	case chain.Credentials, chain.KeyMissing, chain.RateLimited:
		return whyKeys
	}
	return whyMute
}

// after gives the state once an option has failed.
func (p *Plan) after(s state, id chain.OptionID, w why) state {
	o, ok := p.known[id]
	if !ok {
		return s
	}
	if o.withheld >= 0 && o.withheld < chain.MaxOptions {
		s.tried[o.withheld/64] |= 1 << (o.withheld % 64)
	}
	if o.domain >= 0 {
		switch bit := uint64(1) << o.domain; w {
		case whyDown:
			s.down |= bit
		case whyKeys:
			s.keys |= bit
		}
	}
	return s
}

// posterior is the probability that a withheld option succeeds in a state.
func (p *Plan) posterior(s state, i int) float64 {
	o, d := &p.priced[i], p.known[p.priced[i].ID].domain
	switch {
	case d < 0:
		return o.P
	case s.keys&(1<<d) != 0:
		return order.MinP
	case s.down&(1<<d) == 0:
		return o.P
	}
	q, left := p.up[d], p.worst[d]
	return max(float64(q*left)/((1-q)+float64(q*left))*min(o.P/q, 1), order.MinP)
}

// considered is how many options are put in the best order for one answer: the
// least by index. The first of that order is revealed.
const considered = 8

// choose gives the option to reveal in a state: the first of the cheapest order
// of those that are left, with what the failures say of them; −1 for none.
func (p *Plan) choose(s state) int {
	left := make([]order.Option, 0, considered)
	for i := range p.withheld {
		if i < chain.MaxOptions && s.tried[i/64]&(1<<(i%64)) != 0 || s.context > 0 && p.withheld[i].Limits.Context > 0 && p.withheld[i].Limits.Context <= s.context {
			continue
		}
		o := p.priced[i]
		o.P = p.posterior(s, i)
		left = append(left, o)
	}
	if len(left) == 0 {
		return -1
	}
	if len(left) > considered {
		slices.SortFunc(left, func(a, b order.Option) int { return cmp.Or(cmp.Compare(a.Index(), b.Index()), cmp.Compare(a.ID, b.ID)) })
		left = left[:considered]
	}
	best, _ := p.solver.Best(left, p.terms)
	return p.known[left[best[0]].ID].withheld
}

// Answer is what a protest gets.
type Answer struct {
	Option    *chain.Option // to reveal, shared; nil: nothing
	Reason    string        // why there is nothing to reveal
	First     bool          // nothing was revealed to this request before
	Coalesced bool          // an equal protest was answered before
	Planned   bool          // it stood in the tree
}

// Next gives the answer to a protest, for what failed and why. listed are further
// options that the device has, whether they failed or not: they are never revealed.
func (p *Plan) Next(failed []chain.Failure, listed []chain.Option) Answer {
	var s state
	for i := range failed {
		f := &failed[i]
		s = p.after(s, f.Option, whyOf(f.Class))
		if f.Class == chain.ContextLength {
			s.context = max(s.context, p.known[f.Option].context)
		}
	}
	revealed := s.tried
	for i := range listed {
		if o, ok := p.known[listed[i].ID]; ok && o.withheld >= 0 {
			s = p.after(s, listed[i].ID, whyMute)
		}
	}
	n, planned := p.nodes[s], true
	if n == nil {
		if n, planned = p.beyond[s], false; n == nil {
			n = &node{reveal: p.choose(s)}
			if len(p.beyond) < p.limits.Nodes {
				p.beyond[s] = n
			}
		}
	}
	a := Answer{First: revealed == (state{}).tried, Coalesced: n.asked, Planned: planned}
	n.asked = true
	switch {
	case n.reveal >= 0:
		a.Option = &p.withheld[n.reveal]
	case len(p.withheld) == 0:
		a.Reason = "nothing is withheld from this chain"
	case s.context > 0 && p.choose(state{tried: s.tried}) >= 0:
		a.Reason = "nothing that is withheld takes a request as long as this"
	default:
		a.Reason = "every withheld option has failed too"
	}
	return a
}

// Fits reports whether p still answers for this chain, these withheld options and
// these limits. Estimates of the open options may have moved since: only what is
// an input of policy makes a plan anew.
func (p *Plan) Fits(body chain.CID, withheld []chain.Option, limits Limits) bool {
	return p.body == body && p.limits == limits && reflect.DeepEqual(p.withheld, withheld)
}

// Len gives the number of withheld options.
func (p *Plan) Len() int { return len(p.withheld) }

// Reveals reports whether an option of an agent is among the withheld ones.
func (p *Plan) Reveals(agent string) bool {
	return slices.ContainsFunc(p.withheld, func(o chain.Option) bool { return o.Agent == agent })
}

// Size gives the number of answers computed ahead, and how deep they go.
func (p *Plan) Size() (nodes, depth int) { return len(p.nodes), p.depth }

// Preview gives what is revealed one after another to a request for which
// everything fails as if its domain were down: the trunk of the tree.
func (p *Plan) Preview() (list []chain.OptionID) {
	var failed []chain.Failure
	for id, o := range p.known {
		if o.withheld < 0 {
			failed = append(failed, chain.Failure{Option: id, Class: chain.Unreachable})
		}
	}
	var s state
	for _, f := range failed {
		s = p.after(s, f.Option, whyDown)
	}
	for range p.limits.Depth {
		n := p.nodes[s]
		if n == nil || n.reveal < 0 {
			break
		}
		id := p.withheld[n.reveal].ID
		list = append(list, id)
		s = p.after(s, id, whyDown)
	}
	return list
}
