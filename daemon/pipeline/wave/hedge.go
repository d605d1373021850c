package wave

import (
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// again is the part of HedgeAfter after which a task whose hedge was refused asks for
// it once more: somebody may have become free.
const again = 4

// due gives how long it is until a hedge is. Its clock runs while exactly one copy
// does, that somebody has accepted, that was not raced, and that has delivered nothing.
func (r *run) due() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	after := r.w.settings.HedgeAfter
	if after <= 0 || !r.lone() {
		return time.Hour
	}
	at := r.legs[0].accepted.Add(after)
	if at.Before(r.retry) {
		at = r.retry
	}
	return max(0, time.Until(at))
}

// lone reports whether that clock runs. The lock is held.
func (r *run) lone() bool {
	if r.decided || r.hedged || r.owner != nil || r.task.Tier == 0 || len(r.legs) != 1 {
		return false
	}
	first := r.legs[0]
	return !first.over && first.giveUp == nil && !first.accepted.IsZero()
}

// hedge starts the one second copy of a task that runs for too long, if there is
// somebody for it and the budget allows it.
func (r *run) hedge() {
	same := r.w.runner.Offers(r.task.Primitive)
	var lower []Offer
	if r.w.settings.TierDown && !r.task.Final && r.task.Tier > 1 {
		lower = r.w.runner.Offers(chain.TierPrimitive(r.task.Tier - 1))
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.lone() || time.Since(r.legs[0].accepted) < r.w.settings.HedgeAfter {
		return
	}
	first := r.legs[0]
	offer, rung, poor := r.w.pool.second(&r.w.settings, r.task, first.been, same, lower)
	if offer == nil {
		if r.retry.IsZero() {
			r.w.pool.refused(poor)
		}
		r.retry = time.Now().Add(max(r.w.settings.HedgeAfter/again, time.Millisecond))
		return
	}
	r.hedged = true
	task := *r.task
	if rung == 2 {
		task.Tier--
		task.Primitive = chain.TierPrimitive(task.Tier)
	}
	r.offers = append(r.offers[:len(r.offers):len(r.offers)], append(same, lower...)...)
	var avoid []chain.OptionID
	for _, o := range first.been {
		avoid = append(avoid, o.Option)
	}
	r.start(Copy{Task: &task, Offer: offer, Avoid: avoid, Rung: rung})
}

// second gives where the second copy of a task goes whose first has been at those
// providers, the last of which runs it, and the rung; nil if nobody is there for it or
// the budget is spent.
func (p *Pool) second(s *Settings, task *Task, been []*Offer, same, lower []Offer) (offer *Offer, rung int, poor bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	model := been[len(been)-1]
	elsewhere := func(o *Offer) bool {
		return !slices.ContainsFunc(been, func(b *Offer) bool { return asked(o) == asked(b) || o.place() == b.place() })
	}
	offer, rung = p.fastest(s, same, now, func(o *Offer) bool { return elsewhere(o) && !sameModel(o, model) }), 1
	if offer == nil && !task.Final {
		offer, rung = p.fastest(s, lower, now, elsewhere), 2
	}
	if offer == nil && !task.Final {
		offer, rung = p.fastest(s, same, now, func(o *Offer) bool { return elsewhere(o) && sameModel(o, model) }), 3
	}
	if offer != nil && !p.affordable(s, now) {
		return nil, 0, true
	}
	return offer, rung, false
}

// fastest gives the offer that fits says may be taken and that would answer soonest:
// by its tokens per second, shared among what runs at its provider already. One that
// rests or is slow itself is none; who is unknown comes after all who are known, in
// the chain's order. The lock is held.
func (p *Pool) fastest(s *Settings, offers []Offer, now time.Time, fits func(*Offer) bool) *Offer {
	var found *Offer
	var speed float64
	for i, seen := range p.seen(offers, s.Window, now) {
		o := &offers[i]
		if o.Resting || !fits(o) || p.slow(o, &seen.Count, s.HedgeAfter, now) {
			continue
		}
		if pace := pace(o, &seen.Count) / float64(1+seen.provider); found == nil || pace > speed {
			found, speed = o, pace
		}
	}
	return found
}

// sameModel compares what models are called, without case. A model that only the peer
// knows is another one.
func sameModel(a, b *Offer) bool { return a.Model != "" && strings.EqualFold(a.Model, b.Model) }
