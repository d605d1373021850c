// Package order owns the arithmetic of trying options one after another until
// one succeeds: what an order is expected to cost, which order costs least, and
// what a failure says about the options that would fail with it. Hub and device
// share it, so that both mean the same by "better". It is pure: numbers come in,
// numbers go out. It must not know where they come from, nor what a chain, a
// catalogue or a measurement is. The formulas stand in docs/ordering.md.
//
// The model: option o succeeds with probability P and then costs S, else it
// costs F and the next is tried; when none is left, Exhausted is paid. Options
// that share a failure domain d fail together: the domain is up with probability
// q = 1 − ρ·(1 − the best P in it), and while it is up its options succeed
// independently with r = P/q, so that each by itself still succeeds with P. After
// a failure in a domain, what is left in it is judged by the posterior.
package order

import (
	"cmp"
	"math"
	"slices"

	"github.com/chordwheel/chordwheel/chain"
)

// Bounds of a probability: nothing is certain.
const (
	MinP = 0.001
	MaxP = 0.999
)

// DefaultRho is the share of a domain's best option's failures that is the
// whole domain's. See docs/ordering.md on why it is not learned.
const DefaultRho = 0.5

// MaxExact is the most options for which the best order is found exactly where
// a cap or a domain makes the index wrong.
const MaxExact = 12

// Option is one way to do the work. Costs are in any one unit; hub and device
// use micro-dollars. A credit may make S negative.
type Option struct {
	ID     chain.OptionID // breaks ties, the lower one first
	P      float64        // probability that an attempt succeeds; held within MinP to MaxP
	S      float64        // cost of an attempt that succeeds
	F      float64        // cost of one that fails
	Domain string         // what it fails together with; "" by itself
}

// Expected is what one attempt costs on average, as if nothing had failed before.
func (o Option) Expected() float64 {
	p := clamp(o.P)
	return float64(p*o.S) + float64((1-p)*o.F)
}

// Index is the expected cost per success: (p·S + (1−p)·F)/p. Independent options
// without a cap are best tried by ascending index.
func (o Option) Index() float64 { return o.Expected() / clamp(o.P) }

// Terms are what holds for all options of one request.
type Terms struct {
	Cap       int     // most attempts; 0: no cap
	Exhausted float64 // what it costs when no option answered
	Rho       float64 // share of failures that are the domain's, up to 1; 0 means DefaultRho, negative none
}

func (t Terms) rho() float64 {
	switch {
	case t.Rho == 0 || math.IsNaN(t.Rho):
		return DefaultRho
	case t.Rho < 0:
		return 0
	}
	return min(t.Rho, 1)
}

// within gives how many of n options can be tried.
func (t Terms) within(n int) int {
	if t.Cap <= 0 || t.Cap > n {
		return n
	}
	return t.Cap
}

// Step is one place of an order, given that all before it failed.
type Step struct {
	Reach float64 // probability that it is tried at all
	P     float64 // probability that it then succeeds: the posterior
	Cost  float64 // its part of the expected cost
}

// Cost gives the expected cost of trying options in the order given, the cap and
// the failure domains minded. Options past the cap cost nothing.
func Cost(options []Option, t Terms) float64 {
	m := modelOf(options, t)
	w, total := m.start(), 0.0
	for i := range m.cap {
		total += w.take(i).Cost
	}
	return total + float64(w.reach*t.Exhausted)
}

// Steps gives the parts of [Cost] for each place up to the cap.
func Steps(options []Option, t Terms) []Step {
	m := modelOf(options, t)
	w, steps := m.start(), make([]Step, m.cap)
	for i := range steps {
		steps[i] = w.take(i)
	}
	return steps
}

// clamp keeps a probability off the ends. What is no number is hopeless.
func clamp(p float64) float64 {
	if !(p > MinP) {
		return MinP
	}
	return min(p, MaxP)
}

// model is a problem with its domains numbered. An option that shares its domain
// with none is a domain of its own with q = 1, r = p.
type model struct {
	Terms
	options []Option
	cap     int // attempts that can be made
	domain  []int
	p, r    []float64 // by option: alone, and while its domain is up
	q       []float64 // by domain: probability that it is up
	shared  bool      // some domain holds more than one option
}

func modelOf(options []Option, t Terms) *model {
	m := &model{Terms: t}
	m.load(options)
	return m
}

// load sets m up for options, reusing its room.
func (m *model) load(options []Option) {
	n := len(options)
	m.options, m.cap, m.shared = options, m.within(n), false
	m.domain, m.p, m.r, m.q = m.domain[:0], m.p[:0], m.r[:0], m.q[:0]
	for i := range options {
		p, d := clamp(options[i].P), len(m.q)
		if name := options[i].Domain; name != "" {
			if j := slices.IndexFunc(options[:i], func(o Option) bool { return o.Domain == name }); j >= 0 {
				d, m.shared = m.domain[j], true
			}
		}
		m.domain, m.p = append(m.domain, d), append(m.p, p)
		if d == len(m.q) {
			m.q = append(m.q, -p) // best p of a domain of one, until a second is met
		} else {
			m.q[d] = max(math.Abs(m.q[d]), p)
		}
	}
	for d, best := range m.q {
		if m.q[d] = 1; best > 0 {
			m.q[d] = 1 - float64(m.rho()*(1-best))
		}
	}
	for i, p := range m.p {
		m.r = append(m.r, min(p/m.q[m.domain[i]], 1))
	}
}

// down is the probability that everything tried in domain d has failed, for the
// product of (1 − r) over what was tried.
func (m *model) down(d int, product float64) float64 {
	return (1 - m.q[d]) + float64(m.q[d]*product)
}

// walk is the state of trying: the product of (1 − r) per domain, and the
// probability that all tried so far has failed. It depends on what was tried,
// not in which order.
type walk struct {
	m       *model
	product []float64
	reach   float64
}

func (m *model) start() walk { return m.startIn(new([]float64)) }

// posterior gives the probability that option i succeeds now.
func (w *walk) posterior(i int) float64 {
	d := w.m.domain[i]
	before := w.m.down(d, w.product[d])
	if before <= 0 {
		return 0
	}
	return float64(w.m.q[d]*w.product[d]) / before * w.m.r[i]
}

// take tries option i.
func (w *walk) take(i int) Step {
	d, o := w.m.domain[i], &w.m.options[i]
	s := Step{Reach: w.reach, P: w.posterior(i)}
	s.Cost = float64(w.reach * (float64(s.P*o.S) + float64((1-s.P)*o.F)))
	w.product[d] *= 1 - w.m.r[i]
	w.reach *= 1 - s.P
	return s
}

// byIndex compares two options by index, then by id.
func byIndex(a, b *Option) int {
	return cmp.Or(cmp.Compare(a.Index(), b.Index()), cmp.Compare(a.ID, b.ID))
}
