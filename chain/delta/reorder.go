package delta

import (
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/order"
)

// state is the own order of one slot.
type state struct {
	body    chain.CID
	ids     []chain.OptionID // of the chain, by place
	order   []int            // places of the chain, in the order to try them
	priced  []priced         // by place, as of the last look
	streaks map[pair]int     // evaluations in a row that back would have gained over front
	until   time.Time        // when a mark that is ignored now may count again; zero: never
	looked  time.Time
	moved   uint64 // reorders ever
	scratch []order.Option
}

type pair struct{ front, back chain.OptionID }

// Evaluate looks at an own order again; it is called once after each own request,
// when the attempts were observed. It reports how many options moved.
func (b *Book) Evaluate(v *View, now time.Time) (moved int) {
	s := b.look(v, now)
	if v.Rules.Fixed {
		return 0
	}
	s.count(v)
	for range reach {
		front, back, ok := s.best(v)
		if !ok {
			return moved
		}
		delete(s.streaks, pair{s.ids[s.order[front]], s.ids[s.order[back]]})
		s.order = advance(s.order, back, front)
		s.moved++
		moved++
	}
	return moved
}

// count notes for each two options whether the one behind would gain. Two of
// which this device has measured nothing are the hub's to order.
func (s *state) count(v *View) {
	n := min(len(s.order), reach)
	for i := range n {
		for j := i + 1; j < n; j++ {
			a, c := &s.priced[s.order[i]], &s.priced[s.order[j]]
			k := pair{a.ID, c.ID}
			if known := a.known() || c.known(); known && a.usable && c.usable && a.index-c.index > margin(a, c, &v.Rules) {
				s.streaks[k] = min(s.streaks[k]+1, Held)
			} else {
				delete(s.streaks, k)
			}
		}
	}
}

// best finds the move, among those that have held long enough, that lowers the
// expected cost most.
func (s *state) best(v *View) (front, back int, ok bool) {
	least := s.cost(s.order, v)
	n := min(len(s.order), reach)
	for i := range n {
		for j := i + 1; j < n; j++ {
			if s.streaks[pair{s.ids[s.order[i]], s.ids[s.order[j]]}] < Held {
				continue
			}
			if c := s.cost(advance(s.order, j, i), v); c < least {
				least, front, back, ok = c, i, j, true
			}
		}
	}
	return front, back, ok
}

// cost is the hub's expected cost of trying what this device can run in this
// order, with the device's values.
func (s *state) cost(places []int, v *View) float64 {
	list := s.scratch[:0]
	for _, at := range places {
		if s.priced[at].usable {
			list = append(list, s.priced[at].Option)
		}
	}
	s.scratch = list
	return order.Cost(list, order.Terms{Cap: v.Rules.Attempts, Exhausted: float64(v.Rules.Weights.Exhausted)})
}

// advance gives places with the one at from moved forward to to.
func advance(places []int, from, to int) []int {
	out := slices.Clone(places)
	copy(out[to+1:from+1], places[to:from])
	out[to] = places[from]
	return out
}

// look gives the state of v's slot, brought up to this body and moment.
func (b *Book) look(v *View, now time.Time) *state {
	s := b.states[v.Slot]
	if s == nil {
		b.makeRoom()
		s = &state{streaks: map[pair]int{}}
		b.states[v.Slot] = s
	}
	s.price(b, v, now)
	if s.body != v.Body || len(s.order) != len(v.Options) {
		s.rebase(v)
	}
	return s
}

// price puts prices on all options.
func (s *state) price(b *Book, v *View, now time.Time) {
	s.priced, s.until, s.looked = s.priced[:0], time.Time{}, now
	for i := range v.Options {
		o := &v.Options[i]
		r := b.known(v, o.ID)
		if r.rebase(now) {
			b.changed = true
		}
		x := price(o, r.value(&o.Cost, now), v.Rules.Weights)
		x.usable = v.usable(o)
		s.priced = append(s.priced, x)
		if end := r.Last.Time().Add(Fresh); x.ignored && (s.until.IsZero() || end.Before(s.until)) {
			s.until = end
		}
	}
}

// rebase takes the hub's new order. Where this device knows better it keeps the
// precedence it had: what it measured does not pass with the body that it was
// first used on.
func (s *state) rebase(v *View) {
	before := make(map[chain.OptionID]int, len(s.order))
	for i, at := range s.order {
		before[s.ids[at]] = i
	}
	s.body, s.ids, s.order = v.Body, nil, nil
	for i := range v.Options {
		s.ids = append(s.ids, v.Options[i].ID)
		s.order = append(s.order, i)
	}
	for k := range s.streaks {
		if !slices.Contains(s.ids, k.front) || !slices.Contains(s.ids, k.back) {
			delete(s.streaks, k)
		}
	}
	if !v.Rules.Fixed && len(before) > 0 {
		s.keep(before, v)
	}
}

// keep moves options forward that stood in front before, by what is measured here.
func (s *state) keep(before map[chain.OptionID]int, v *View) {
	n := min(len(s.order), reach)
	for j := 1; j < n; j++ {
		c := &s.priced[s.order[j]]
		for i := range j {
			a := &s.priced[s.order[i]]
			wasA, hadA := before[a.ID]
			wasC, hadC := before[c.ID]
			known := a.known() || c.known()
			if !hadA || !hadC || wasA < wasC || !known || !a.usable || !c.usable || c.index >= a.index {
				continue
			}
			if moved := advance(s.order, j, i); s.cost(moved, v) < s.cost(s.order, v) {
				s.order = moved
				break
			}
		}
	}
}

// makeRoom gives up the slot that was looked at longest ago.
func (b *Book) makeRoom() {
	if len(b.states) < maxSlots {
		return
	}
	var oldest chain.Slot
	var least *state
	for slot, s := range b.states {
		if least == nil || s.looked.Before(least.looked) {
			oldest, least = slot, s
		}
	}
	delete(b.states, oldest)
}

// Order gives the places of v's options in the order to try them now. c may be
// the zero Conversation. The slice belongs to the book and is not changed by it.
func (b *Book) Order(v *View, c Conversation, now time.Time) []int {
	s := b.states[v.Slot]
	if s == nil || s.body != v.Body || len(s.order) != len(v.Options) || !s.until.IsZero() && !now.Before(s.until) {
		s = b.look(v, now)
	}
	if v.Rules.Fixed {
		return s.order
	}
	return s.warmed(b.warm.last(v.Slot, c, now), float64(v.Rules.Weights.Warm))
}
