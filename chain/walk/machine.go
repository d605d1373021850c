package walk

import (
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Machine is the walk of one request: a state machine. It has no clock and no
// goroutine, and does nothing but answer. [Run] drives it:
//
//	Next gives an attempt: Feed and Delivered for each chunk, then End; or
//	Expire when Deadline has passed; or Leave when the caller is gone. Again Next.
//	Next asks for a protest: Protested. Again Next.
//	Next gives nothing: Result.
//
// A Machine is used from one goroutine. now never goes backwards.
type Machine struct {
	plan     Plan
	rules    chain.Rules
	standing *Standing
	deadline time.Time     // the budget's end
	keep     time.Duration // of the budget, for a protest and its extension

	state []optionState // one for each option of the plan, its extension and what a protest brought
	more  []chain.Option
	scan  int // where the current pass goes on
	last  bool
	cur   current

	run      running
	spent    int // upstream calls
	peers    []chain.PeerID
	protests int  // made so far
	extended bool // the last of them brought something
	hubGone  bool // a protest could not be delivered
	spaced   bool // this device's calls of the primitive are used up: an extension would not run either
	over     bool
	owed     bool // a plain answer was handed out and not yet delivered

	proof    bool       // something remote answered: there is a network
	unproved []unproved // failures to connect, not yet held against anybody

	long    bool // an upstream said that the request is too long
	longest int  // the largest context declared by those
	lacking bool // an upstream said that a feature is missing
	useless []string

	unpayable []chain.OptionID // that the caller's own budget forbids
	short     Short            // of that budget, as it was said last

	tally  tally
	result Result
}

type optionState uint8

const (
	waiting  optionState = iota
	deferred             // cooling by our own backoff: for the second pass
	done
)

// current is the option being tried. An option is finished with, all its keys
// and peers, before the next one's turn.
type current struct {
	open    bool
	index   int
	key     int  // next of the option's keys
	tries   int  // peers that failed
	busy    int  // peers that had no room, or no will
	ran     bool // an attempt was made
	class   chain.Class
	why     string // of class, for the caller: what each peer said
	resting bool   // a key of it rests
}

// say notes how a try of the option ended. What earlier ones said stays as long
// as there is room for it.
func (c *current) say(class chain.Class, why string) {
	c.class = class
	if c.why != "" && why != "" && len(c.why)+len(why) < maxWhy {
		why = c.why + "; " + why
	}
	c.why = why
}

// maxWhy bounds what is said of one option's failure, in bytes.
const maxWhy = 256

// maxProtests bounds how many options are revealed to one request, one after
// another. The hub computes as many ahead.
const maxProtests = 4

// maxBusy bounds how many peers of one slot are asked in vain for room or will.
const maxBusy = 16

// Step is what to do next: start Attempt if it is set, else protest with Failed
// if Protest is set, else the walk is over.
type Step struct {
	Attempt *Attempt
	Protest bool
	Failed  []chain.Failure
	Budget  time.Duration // for the protest
}

// New begins a walk at now.
func New(p Plan, s *Standing, now time.Time) *Machine {
	m := &Machine{plan: p, rules: p.Rules.WithDefaults(), standing: s}
	if m.plan.Budget <= 0 {
		m.plan.Budget = m.rules.Budgets.Interactive.Duration()
	}
	m.plan.Budget = min(m.plan.Budget, m.rules.Budgets.Max.Duration())
	m.deadline = now.Add(m.plan.Budget)
	m.keep = min(m.plan.Budget/10, 5*time.Second)
	if m.plan.Attempts <= 0 || m.plan.Attempts > m.rules.Attempts {
		m.plan.Attempts = m.rules.Attempts
	}
	m.state = make([]optionState, len(p.Options)+len(p.Extension))
	for i := range p.Extension { // no option twice
		if slices.ContainsFunc(p.Options, func(o chain.Option) bool { return o.ID == p.Extension[i].ID }) {
			m.state[len(p.Options)+i] = done
		}
	}
	return m
}

// Next says what to do. It is called when no attempt and no protest is under way.
func (m *Machine) Next(now time.Time) Step {
	if m.over {
		return Step{}
	}
	if a := m.pick(now); a != nil {
		return Step{Attempt: a}
	}
	if failed := m.escalating(m.failures()); len(failed) > 0 && m.mayProtest(now) {
		m.protests++
		m.extended = false
		if m.plan.Hooks.Escalate == nil {
			return Step{Protest: true, Failed: failed, Budget: m.deadline.Sub(now) / 2}
		}
		m.plan.Hooks.Escalate(failed)
		m.decide(now)
		m.result.Failures = m.failures()
		m.result.RetryAfter = time.Second
		m.finish(Escalating)
		return Step{}
	}
	m.exhausted(now)
	return Step{}
}

// Protested takes the answer to a protest: further options, or none. reached is
// false if the hub could not be asked.
func (m *Machine) Protested(options []chain.Option, reached bool, now time.Time) {
	m.hubGone = !reached
	if !reached {
		return
	}
	m.network(now)
	first := len(m.state)
	for i := range options {
		if len(m.state) >= 2*chain.MaxOptions || m.has(options[i].ID) {
			continue
		}
		m.more = append(m.more, options[i])
		m.state = append(m.state, waiting)
	}
	if len(m.state) > first {
		m.extended = true
		m.closeOption()
		m.scan, m.last = first, false
	}
}

// Leave ends the walk because the caller is gone. It does nothing to a walk
// that is over and owes nothing.
func (m *Machine) Leave(now time.Time) {
	if m.run.on {
		m.close(Outcome{Class: chain.Canceled}, true, now)
	}
	if m.over && !m.owed {
		return
	}
	m.settle(now, !m.hub()) // without the hub nobody knows
	m.finish(Left)
}

// Result is what came of the walk, once Next gives nothing.
func (m *Machine) Result() Result { return m.result }

func (m *Machine) hub() bool {
	return !m.hubGone && (m.plan.Hooks.Hub == nil || m.plan.Hooks.Hub())
}

// reserving reports whether an attempt and some time are kept back now: for the
// first protest. A further one takes what is left.
func (m *Machine) reserving() bool {
	return m.plan.Hooks.Protest != nil && m.plan.Hooks.Escalate == nil && m.protests == 0 && m.hub()
}

// room is what may be spent now on attempts: calls, and until when.
func (m *Machine) room() (calls int, until time.Time) {
	calls, until = m.plan.Attempts-m.spent, m.deadline
	if m.reserving() && m.plan.Attempts > 1 {
		calls, until = calls-1, until.Add(-m.keep)
	}
	return calls, until
}

func (m *Machine) mayProtest(now time.Time) bool {
	if m.plan.Hooks.Protest == nil && m.plan.Hooks.Escalate == nil || m.spaced || !m.hub() {
		return false
	}
	if m.protests > 0 && (!m.extended || m.protests >= maxProtests) {
		return false
	}
	return m.spent < m.plan.Attempts && now.Before(m.deadline)
}

// closeOption ends the open option although keys or peers of it are left.
func (m *Machine) closeOption() {
	if m.cur.open && m.cur.class != "" {
		m.pass(m.cur.class)
	}
}

// failures are those so far, with what still cools down.
func (m *Machine) failures() []chain.Failure {
	all := slices.Clip(m.result.Failures)
	if m.cur.open && m.cur.class != "" {
		all = append(all, chain.Failure{Option: m.listed(m.cur.index).ID, Class: m.cur.class, Why: m.cur.why})
	}
	for i, s := range m.state {
		if s == deferred && !(m.cur.open && i == m.cur.index) {
			all = append(all, chain.Failure{Option: m.listed(i).ID, Class: chain.Cooling})
		}
	}
	return all
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
