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

	run       running
	spent     int // upstream calls
	peers     []chain.PeerID
	protested bool
	hubGone   bool // a protest could not be delivered
	over      bool
	owed      bool // a plain answer was handed out and not yet delivered

	proof    bool       // something remote answered: there is a network
	unproved []unproved // failures to connect, not yet held against anybody

	long    bool // an upstream said that the request is too long
	longest int  // the largest context declared by those
	lacking bool // an upstream said that a feature is missing
	useless []string

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
	busy    int  // peers that had no room
	ran     bool // an attempt was made
	class   chain.Class
	resting bool // a key of it rests
}

// maxBusy bounds how many peers of one slot are asked in vain for room.
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
	if failed := m.failures(); len(failed) > 0 && m.mayProtest(now) {
		m.protested = true
		if m.plan.Hooks.Escalate == nil {
			return Step{Protest: true, Failed: failed, Budget: m.deadline.Sub(now) / 2}
		}
		m.plan.Hooks.Escalate(failed)
		m.decide(now)
		m.result.Failures = failed
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

// option gives the i-th option as it may be tried now, nil if it was withdrawn.
func (m *Machine) option(i int) *chain.Option {
	o := m.listed(i)
	if i < len(m.plan.Options) && m.plan.Hooks.Current != nil {
		return m.plan.Hooks.Current(o.ID)
	}
	return o
}

func (m *Machine) listed(i int) *chain.Option {
	if i < len(m.plan.Options) {
		return &m.plan.Options[i]
	}
	if i -= len(m.plan.Options); i < len(m.plan.Extension) {
		return &m.plan.Extension[i]
	}
	return &m.more[i-len(m.plan.Extension)]
}

func (m *Machine) has(id chain.OptionID) bool {
	for i := range m.state {
		if m.listed(i).ID == id {
			return true
		}
	}
	return false
}

func (m *Machine) hub() bool {
	return !m.hubGone && (m.plan.Hooks.Hub == nil || m.plan.Hooks.Hub())
}

// reserving reports whether an attempt and some time are kept back now.
func (m *Machine) reserving() bool {
	return m.plan.Hooks.Protest != nil && m.plan.Hooks.Escalate == nil && !m.protested && m.hub()
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
	if m.plan.Hooks.Protest == nil && m.plan.Hooks.Escalate == nil || m.protested || !m.hub() {
		return false
	}
	return m.spent < m.plan.Attempts && now.Before(m.deadline)
}

// pick finds the next attempt that can be made, passing over what cannot.
func (m *Machine) pick(now time.Time) *Attempt {
	for {
		calls, until := m.room()
		if calls <= 0 || !now.Before(until) {
			return nil
		}
		if !m.cur.open && !m.advance() {
			return nil
		}
		if a := m.try(calls, until, now); a != nil {
			return a
		}
	}
}

// advance opens the next option: in order, then those that were deferred.
func (m *Machine) advance() bool {
	for {
		for ; m.scan < len(m.state); m.scan++ {
			if s := m.state[m.scan]; s == waiting || s == deferred && m.last {
				m.cur = current{open: true, index: m.scan}
				return true
			}
		}
		if m.last {
			return false
		}
		m.last, m.scan = true, 0
	}
}

// try makes an attempt of the open option, or closes it.
func (m *Machine) try(calls int, until, now time.Time) *Attempt {
	o := m.option(m.cur.index)
	switch {
	case o == nil:
		return m.pass(chain.Withdrawn)
	case !o.Known():
		m.result.Skipped++
		return m.pass("")
	case len(m.plan.Kinds) > 0 && !slices.Contains(m.plan.Kinds, o.Kind):
		return m.pass("")
	case m.plan.Hooks.Runs != nil && o.Kind != chain.Peer && !m.plan.Hooks.Runs(o):
		if o.Kind == chain.Local {
			return m.pass("")
		}
		return m.pass(chain.Absent)
	}
	if class := m.lacks(o); class != "" {
		return m.pass(class)
	}
	if o.Kind == chain.Peer {
		return m.trySlot(o, calls, until, now)
	}
	if !m.cur.ran {
		own, asked := m.standing.optionRest(o, now)
		switch {
		case !asked.IsZero():
			m.tally.free(later(own, asked))
			return m.pass(chain.Cooling)
		case !own.IsZero() && !m.last:
			m.tally.free(own)
			return m.later()
		}
	}
	key, ok := m.nextKey(o, now)
	if !ok {
		return m.pass(m.cur.class)
	}
	return m.start(o, key, "", 1, until, now)
}

// trySlot binds a peer slot. Slots never cool down, peers do.
func (m *Machine) trySlot(o *chain.Option, calls int, until, now time.Time) *Attempt {
	if m.plan.Hooks.Bind == nil || m.rules.NoPeers || m.cur.tries >= max(o.Tries, 1) || m.cur.busy >= maxBusy {
		return m.passSlot()
	}
	except := func(anyOwn bool) func(chain.PeerID) bool {
		return func(p chain.PeerID) bool {
			own, asked := m.standing.peerRest(p, now)
			return asked || own && !anyOwn || slices.Contains(m.peers, p)
		}
	}
	peer, ok := m.plan.Hooks.Bind(o, except(m.last))
	if ok && except(m.last)(peer) { // a binder that does not keep to its contract
		ok = false
	}
	if !ok {
		if !m.cur.ran && m.cur.busy == 0 && !m.last {
			if _, cooling := m.plan.Hooks.Bind(o, except(true)); cooling {
				return m.later()
			}
		}
		return m.passSlot()
	}
	return m.start(o, "", peer, m.lend(calls), until, now)
}

func (m *Machine) passSlot() *Attempt {
	if m.cur.class == "" {
		return m.pass(chain.NoPeer)
	}
	return m.pass(m.cur.class)
}

// lend says how many of the calls left a peer may spend: what leaves one for
// each option not yet tried, and no more than half.
func (m *Machine) lend(calls int) int {
	return max(1, min(calls-m.untried(), calls/2))
}

// untried counts the options, beside the open one, that may still be tried.
func (m *Machine) untried() int {
	n := 0
	for i, s := range m.state {
		if i != m.cur.index && s != done && m.promising(m.listed(i)) {
			n++
		}
	}
	return n
}

func (m *Machine) promising(o *chain.Option) bool {
	switch {
	case !o.Known(), len(m.plan.Kinds) > 0 && !slices.Contains(m.plan.Kinds, o.Kind), m.lacks(o) != "":
		return false
	case o.Kind == chain.Peer:
		return m.plan.Hooks.Bind != nil && !m.rules.NoPeers
	}
	return m.plan.Hooks.Runs == nil || m.plan.Hooks.Runs(o)
}

// nextKey finds the next key of the open option that is in the ring and does
// not rest. The class of an option without one is left in cur.
func (m *Machine) nextKey(o *chain.Option, now time.Time) (string, bool) {
	if len(o.Keys) == 0 {
		return "", !m.cur.ran
	}
	for m.cur.key < len(o.Keys) {
		name := o.Keys[m.cur.key]
		m.cur.key++
		generation, ok := m.generation(name)
		if !ok {
			m.rest(o.ID, name, 0, chain.KeyMissing, now, now)
			if m.cur.class == "" {
				m.cur.class = chain.KeyMissing
			}
			continue
		}
		rest := m.standing.keyRest(name, generation, now)
		if rest.IsZero() {
			return name, true
		}
		m.tally.free(rest)
		if !m.cur.ran {
			m.cur.class, m.cur.resting = chain.Cooling, true
		}
	}
	return "", false
}

func (m *Machine) generation(key string) (uint64, bool) {
	if m.plan.Hooks.Key == nil {
		return 1, true
	}
	return m.plan.Hooks.Key(key)
}

// rest lets a key rest and passes the news on.
func (m *Machine) rest(id chain.OptionID, key string, generation uint64, class chain.Class, started, now time.Time) {
	if m.standing.restKey(key, generation, failure{class: class, started: started}, &m.rules.CoolDown, now) && m.plan.Hooks.Notice != nil {
		m.plan.Hooks.Notice(chain.Failure{Option: id, Class: class}, key)
	}
}

// later leaves the open option for the second pass.
func (m *Machine) later() *Attempt {
	m.state[m.cur.index] = deferred
	m.cur = current{}
	m.scan++
	return nil
}

// pass closes the open option. class is why it did not answer, "" if it is no
// matter for this device.
func (m *Machine) pass(class chain.Class) *Attempt {
	if class != "" {
		m.result.Failures = append(m.result.Failures, chain.Failure{Option: m.listed(m.cur.index).ID, Class: class})
		m.tally.option(class, m.cur.resting)
	}
	m.state[m.cur.index] = done
	m.cur = current{}
	m.scan++
	return nil
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
		all = append(all, chain.Failure{Option: m.listed(m.cur.index).ID, Class: m.cur.class})
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
