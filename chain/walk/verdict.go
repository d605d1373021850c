package walk

import (
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// tally counts what the final word depends on.
type tally struct {
	ran, timeouts, limited, callers int // attempts, by class

	onKeys, cooling, failed int // options, by why they did not answer
	first                   time.Time
}

// attempt counts one that ended in class.
func (t *tally) attempt(c chain.Class) {
	if !c.Ran() {
		return
	}
	switch c {
	case chain.Timeout:
		t.timeouts++
	case chain.RateLimited:
		t.limited++
	case chain.ContextLength, chain.Feature, chain.Filtered:
		t.callers++
	}
	t.ran++
}

// option counts one that is done with; resting: because its keys rest.
func (t *tally) option(c chain.Class, resting bool) {
	switch {
	case c == chain.Credentials, c == chain.KeyMissing, c == chain.Cooling && resting:
		t.onKeys++
	case c == chain.Cooling, c == chain.RateLimited:
		t.cooling++
	case c == chain.NoPeer, c == chain.Absent, c == chain.Withdrawn, c == chain.Ceiling, c == chain.Busy, c == chain.Declined, c == chain.Denied:
	default:
		t.failed++
	}
}

// free notes when something that cools down is free again.
func (t *tally) free(at time.Time) {
	if !at.IsZero() && (t.first.IsZero() || at.Before(t.first)) {
		t.first = at
	}
}

// unpaid passes over the open option, whose cost could not be set aside.
func (m *Machine) unpaid(short *Short) *Attempt {
	if m.cur.class == "" {
		m.cur.class = chain.Ceiling
		if short.Own {
			m.cur.why = "the caller's own budget"
			m.short, m.unpayable = *short, append(m.unpayable, m.listed(m.cur.index).ID)
		}
	}
	return m.pass(m.cur.class)
}

// escalating gives those of failed that a protest is about. What only the caller's own budget
// forbids could have been tried, and an extension would cost that budget too: where nothing
// else failed, here or before, there is none.
func (m *Machine) escalating(failed []chain.Failure) []chain.Failure {
	if len(m.unpayable) == 0 {
		return failed
	}
	var about []chain.Failure
	some := false
	for _, f := range failed {
		if !slices.Contains(m.unpayable, f.Option) {
			about = append(about, f)
			some = some || f.Class.Ran() || f.Class == chain.Cooling
		}
	}
	if !some {
		return nil
	}
	return about
}

// exhausted ends a walk that has nothing more to try.
func (m *Machine) exhausted(now time.Time) {
	m.closeOption()
	m.decide(now)
	m.result.Failures = m.failures()
	for _, s := range m.state {
		if s == deferred {
			m.tally.option(chain.Cooling, false)
		}
	}
	t := &m.tally
	end := AllFailed
	switch {
	case !now.Before(m.deadline), t.ran > 0 && t.ran == t.timeouts:
		end = AllTimedOut
	case t.ran == 0 && len(m.unpayable) > 0 && t.cooling == 0:
		end = OverBudget
		m.result.Why, m.result.RetryAfter = m.short.Why, min(m.short.Again, m.rules.CoolDown.RetryAfter.Duration())
	case t.onKeys > 0 && t.cooling == 0 && t.failed == 0:
		end = AllCredentials
	case t.cooling > 0 && t.failed == 0 && t.ran == t.limited:
		end = AllCooling
		if t.first.After(now) {
			m.result.RetryAfter = t.first.Sub(now)
		}
	case t.ran > 0 && t.ran == t.callers && t.cooling+t.onKeys == 0:
		end = Refused
	case t.ran == 0:
		end = NothingToTry
	}
	m.finish(end)
}

// stop ends the walk at the option that is open.
func (m *Machine) stop(end End, class chain.Class, now time.Time) {
	m.pass(class)
	m.decide(now)
	m.finish(end)
}

func (m *Machine) finish(end End) {
	m.over = true
	m.cur = current{}
	m.result.End = end
	m.result.Peers = m.peers
	if end != Refused {
		m.result.Answer = nil
	}
}
