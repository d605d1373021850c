package simulate

import (
	"context"
	"math"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/purse"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/orchestrator/quota"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// leasing is what a member remembers of asking for blocks.
type leasing struct {
	due  bool
	next moment
}

// noProtest stands where the walk wants to know whether protests are possible. The
// simulation answers them itself, see sim.step.
func noProtest(context.Context, []chain.Failure, time.Duration) ([]chain.Option, error) {
	return nil, nil
}

// amounts gives what one request takes of an account.
func (m *member) amount(i int, calls bool) int64 {
	if calls {
		return 1
	}
	return int64(math.Ceil(m.s().w.options[i].money))
}

// reserve sets aside what an attempt may cost, as daemon does: all that has a ceiling
// is paid for from blocks.
func (m *member) reserve(o *chain.Option, _ string) (func(walk.Measurement), *walk.Short) {
	if len(o.Accounts) == 0 {
		return nil, nil
	}
	s := m.s()
	i := s.places[o.ID]
	charges := make([]purse.Charge, len(o.Accounts))
	for k, a := range o.Accounts {
		charges[k] = purse.Charge{Account: a.Name, Amount: m.amount(i, a.Calls)}
	}
	r, ok := m.purse.Reserve(slot, charges, s.time())
	if !ok {
		m.wantBlocks()
		return nil, new(walk.Short)
	}
	return func(x walk.Measurement) {
		spent := make([]int64, len(charges))
		for k, a := range o.Accounts {
			switch {
			case x.Class == chain.Unreachable:
			case a.Calls || x.Class == chain.OK || x.Class == chain.Timeout: // one that was given up may have been billed
				spent[k] = charges[k].Amount
			}
			m.hub.used(a.Name, spent[k])
		}
		r.Settle(spent)
		for _, c := range charges {
			if m.purse.Low(c.Account, slot, c.Amount, s.time(), s.time()) {
				m.wantBlocks()
			}
		}
	}, nil
}

func (m *member) wantBlocks() {
	if m.lease.due {
		return
	}
	m.lease.due = true
	m.s().at(max(m.s().now+1, m.lease.next), dueLease, m.d, nil)
}

// askBlocks asks for what runs low, and settles what is done.
func (m *member) askBlocks() {
	h, s, now := m.hub, m.s(), m.s().time()
	if len(h.ceilings) == 0 {
		return
	}
	m.lease.due, m.lease.next = false, s.now+leaseDelay
	ahead := now.Add(m.held.view.Rules.ReportInterval.Duration() * 3 / 2)
	usage := m.purse.Usage(now)
	holds := map[string]bool{}
	s.tally.bytes += sizeLease
	before := h.breached(now)
	for _, u := range usage {
		holds[u.ID] = true
		if l := h.ceiling(u.Account); l != nil {
			h.quota.Settle(&l.Ceiling, m.d.id(), u.ID, u.Used, u.Done, now)
		}
	}
	m.purse.Acknowledged(usage)
	asked := map[string]bool{}
	for k := range m.held.view.Options {
		o := &m.held.view.Options[k]
		for _, a := range o.Accounts {
			least := m.amount(s.places[o.ID], a.Calls)
			if l := h.ceiling(a.Name); l != nil && !asked[a.Name] && m.purse.Low(a.Name, slot, least, ahead, now) {
				asked[a.Name] = true
				g := h.quota.Grant(&l.Ceiling, quota.Ask{Device: m.d.id(), Slot: slot, Least: least, Holds: holds, Known: least},
					quota.Terms{Interval: m.held.view.Rules.ReportInterval.Duration()}, now)
				state := h.quota.State(&l.Ceiling, 1, now)
				m.purse.SetUsed(a.Name, state.Used())
				h.s.tally.block(l, g.Amount)
				if g.Amount == 0 {
					m.purse.Refused(a.Name, slot, chain.InstantOf(g.Until))
				} else {
					m.purse.Add(purse.Block{ID: g.ID, Account: a.Name, Slot: slot, Amount: g.Amount, Until: chain.InstantOf(g.Until)})
				}
			}
		}
	}
	if h.breached(now) != before {
		h.look()
	}
}

// usedOf is the spent share of the tightest ceiling of an option.
func (m *member) usedOf(o *chain.Option) (most float64) {
	for _, a := range o.Accounts {
		most = max(most, m.purse.Used(a.Name))
	}
	return most
}

func (h *hub) ceiling(account string) *ceiling {
	for _, l := range h.ceilings {
		if l.Account == account {
			return l
		}
	}
	return nil
}

// breached numbers the ceilings that are used up.
func (h *hub) breached(now time.Time) (set uint64) {
	for i, l := range h.ceilings {
		if h.quota.State(&l.Ceiling, 1, now).Breached {
			set |= 1 << (i % 64)
		}
	}
	return set
}

// adjust moves the multipliers, once an hour.
func (h *hub) adjust() {
	for _, l := range h.ceilings {
		h.quota.Adjust(&l.Ceiling, resolve.NextMultiplier, h.s.time())
	}
	h.s.at(h.s.now+moment(time.Hour), dueAdjust, nil, nil)
	h.look() // also because a new day may have begun
}

// used notes what was really spent of a ceiling.
func (h *hub) used(account string, amount int64) {
	if l := h.ceiling(account); l != nil {
		h.s.tally.spend(l, amount, h.s.time())
	}
}
