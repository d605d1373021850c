package walk

import (
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// unproved is a failure to connect, before it is known whose fault it was.
type unproved struct {
	attempt Attempt
	started time.Time
	outcome Outcome
	measure Measurement
	settle  func(Measurement)
}

// answers notes that a answered something: the failures to connect so far can
// be judged.
func (m *Machine) answers(a *Attempt, now time.Time) {
	if a.Option.Remote() {
		m.network(now)
		return
	}
	m.decide(now)
}

// network notes that something remote answered: this device is not offline.
func (m *Machine) network(now time.Time) {
	if m.proof {
		return
	}
	m.proof = true
	m.settle(now, false)
	m.standing.setOffline(false, now)
}

// decide judges the failures to connect by what is known now.
func (m *Machine) decide(now time.Time) {
	if len(m.unproved) == 0 {
		return
	}
	offline := m.offline()
	m.standing.setOffline(offline, now)
	m.settle(now, offline)
}

// settle decides what the failures to connect meant.
func (m *Machine) settle(now time.Time, offline bool) {
	waiting := m.unproved
	m.unproved = nil
	for _, u := range waiting {
		if offline {
			u.measure.Class, u.measure.Neutral = chain.Offline, true
		} else {
			m.blame(&u.attempt, u.measure.Peer, failure{u.outcome.Class, u.outcome.RetryAfter, u.outcome.HasRetryAfter, u.started}, now)
		}
		m.measure(u.measure, u.settle)
	}
	if !offline || len(waiting) == 0 {
		return
	}
	for i, f := range m.result.Failures {
		if f.Class == chain.Unreachable && slices.ContainsFunc(waiting, func(u unproved) bool { return u.attempt.Option.ID == f.Option }) {
			m.result.Failures[i].Class = chain.Offline
		}
	}
}

// offline reports whether every remote option and the hub failed to connect. As
// soon as something answered, nothing is unproved.
func (m *Machine) offline() bool {
	if len(m.unproved) == 0 || m.hub() {
		return false
	}
	for i, s := range m.state {
		if o := m.listed(i); s != done && i != m.cur.index && o.Remote() && m.promising(o) {
			return false
		}
	}
	return true
}
