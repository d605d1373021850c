package walk

import (
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

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

// placeSoon is when a place of an option is worth another look: attempts take seconds.
const placeSoon = time.Second

// shut passes over the open option, which may not begin now. One without a place gets
// a second look when the others have had their turn. Neither says anything about the option.
func (m *Machine) shut(no chain.Class, free, now time.Time) *Attempt {
	switch {
	case no == chain.RateLimited:
		m.spaced = true
	case m.cur.ran:
	case !m.last:
		return m.later()
	default:
		free = now.Add(placeSoon)
	}
	m.tally.free(free)
	if m.cur.class == "" {
		m.cur.class = no
		if no == chain.Busy {
			m.tally.cooling++ // what pass does for the others: it is free again soon
		}
	}
	return m.pass(m.cur.class)
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
			m.cur.class, m.cur.why, m.cur.resting = chain.Cooling, "", true
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
		f := chain.Failure{Option: m.listed(m.cur.index).ID, Class: class}
		if class == m.cur.class {
			f.Why = m.cur.why
		}
		m.result.Failures = append(m.result.Failures, f)
		m.tally.option(class, m.cur.resting)
	}
	m.state[m.cur.index] = done
	m.cur = current{}
	m.scan++
	return nil
}
