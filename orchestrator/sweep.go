package orchestrator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/orchestrator/escalate"
	"github.com/chordwheel/chordwheel/orchestrator/learn"
	"github.com/chordwheel/chordwheel/orchestrator/publish"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// atOnce is how many chains are looked over in one turn of the loop. More are
// swept: a few milliseconds of work at a time, visits in between.
const (
	atOnce     = 4096
	sweepTurn  = 5 * time.Millisecond
	sweepStep  = 4           // chains between two looks at the time: a third of a millisecond each
	lookEvery  = time.Second // how often reports can make the hub look over one order
	lookShare  = 20          // one part in so many of the time goes into looking orders over
	memoLasts  = time.Minute
	maxResults = 1 << 14
)

// class is what scopes have in common whose chains of a primitive are the same.
// What else an order comes to depend on must stand here.
type class struct {
	workspace int    // its place in the catalogue; -1: none of its own
	qualifier string // "", or what a scope says behind its name
	primitive chain.Primitive
	reach     string // what its members can do
}

// result is what a class resolves to.
type result struct {
	resolution resolve.Resolution
	offer      *publish.Prepared // nil: there is no chain
	err        error             // why the offer could not be prepared
	until      time.Time         // a suspect mark may end by itself
	plan       *escalate.Plan
}

// memo holds results for as long as nothing that they depend on can have changed.
type memo struct {
	results map[class]*result
	at      time.Time
	news    uint64 // of the hub, when it was begun
}

// changed notes that something was learned or declared: what was resolved before
// holds no more.
func (h *Hub) changed() { h.news++ }

// resolution gives what a slot resolves to, made for it or for one alike.
func (h *Hub) resolution(slot chain.Slot, now time.Time) *result {
	c, shared := h.class(slot, now)
	if m := &h.memo; m.results == nil || m.news != h.news || now.Before(m.at) || now.Sub(m.at) > memoLasts || len(m.results) >= maxResults {
		*m = memo{results: map[class]*result{}, at: now, news: h.news}
	}
	if have := h.memo.results[c]; shared && have != nil && (have.until.IsZero() || now.Before(have.until)) {
		return have
	}
	res := &result{}
	if in, rules, ok := h.input(slot, now); ok {
		res.resolution = resolve.Order(in)
		if len(res.resolution.Options) == 0 && h.wider(slot) {
			res.resolution.Options = []chain.Option{nothingOption}
		}
		h.orders++
		var suspects []chain.OptionID
		suspects, res.until = h.suspects(in, now)
		res.until = sooner(res.until, h.reopens(in, now))
		if len(res.resolution.Options) > 0 {
			res.offer, res.err = publish.Prepare(res.resolution, rules, publish.Fingerprint(in, rules, suspects))
		}
	}
	if shared {
		h.memo.results[c] = res
	}
	return res
}

// class names what a slot has in common with others, if there can be others.
func (h *Hub) class(slot chain.Slot, now time.Time) (c class, shared bool) {
	scope := slot.Scope.Base()
	qualifier := strings.TrimPrefix(string(slot.Scope), string(scope))
	place := h.catalogue.Place(scope)
	if h.namesDevices || place >= 0 && len(h.catalogue.Workspaces[place].Ceilings) > 0 {
		return c, false
	}
	return class{place, qualifier, slot.Primitive, h.fleet.Scope(scope, chain.InstantOf(now)).Alike()}, true
}

// namesDevices reports whether a primitive asks for one device by its ID: then it
// matters who the members of a scope are.
func namesDevices(c *catalog.Catalog) bool {
	names := func(list []chain.Capability) bool {
		return slices.ContainsFunc(list, func(c chain.Capability) bool { _, one := c.Device(); return one })
	}
	return slices.ContainsFunc(c.Primitives, func(p catalog.Primitive) bool {
		return names(p.Source.Requires) || slices.ContainsFunc(p.Slots, func(s catalog.Slot) bool { return names(s.Requires) })
	})
}

// resolveSlot orders a slot's options and publishes what is worth it.
func (h *Hub) resolveSlot(slot chain.Slot) error {
	now := time.Now()
	delete(h.again, slot)
	res := h.resolution(slot, now)
	if res.err != nil {
		return res.err
	}
	h.lookAt(slot, res.until)
	if res.offer == nil {
		return h.withdraw(slot)
	}
	out, err := h.press.Offer(slot, res.offer, now)
	if err != nil {
		return err
	}
	h.lookAt(slot, out.Again)
	e, _ := h.press.Edition(slot)
	limits := h.limits(slot.Primitive)
	if p := h.plans[slot]; out.Published || p == nil || !p.Fits(e.Body, res.resolution.Withheld, limits) {
		if res.plan == nil || !res.plan.Fits(e.Body, res.resolution.Withheld, limits) {
			res.plan = escalate.NewPlan(e.Body, res.resolution.Options, res.resolution.Withheld, res.resolution.Priced, res.resolution.Terms(), limits)
		}
		h.plans[slot] = res.plan
	}
	if out.Published {
		h.published(slot, string(out.Reason))
	}
	return nil
}

// lookAt has a slot looked over at a time, if none is set or a later one.
func (h *Hub) lookAt(slot chain.Slot, at time.Time) {
	if at.IsZero() {
		return
	}
	if have, waits := h.again[slot]; waits && !at.Before(have) {
		return
	}
	h.again[slot] = at
	if h.soonest.IsZero() || at.Before(h.soonest) {
		h.soonest = at
	}
}

// learned looks over the chains that news of some options concern, in whatever
// scope: at once where that is the first news for a while, else when the pause is
// over. In a large mesh the pause grows with the work, and a sweep is not disturbed.
func (h *Hub) learned(keys map[learn.Key]bool, now time.Time) error {
	for k := range keys {
		h.fresh[k] = true
	}
	if len(h.fresh) == 0 || len(h.sweep) > 0 || now.Before(h.nextLook) {
		return nil
	}
	h.changed()
	slots := h.concerned(h.fresh)
	clear(h.fresh)
	var ready []chain.Slot
	for _, slot := range slots {
		due := h.press.Due(slot, now)
		if len(slots) <= atOnce { // else the pause of all is enough
			if next := h.looked[slot].Add(lookEvery); next.After(due) {
				due = next
			}
		}
		if now.Before(due) {
			h.lookAt(slot, due)
			continue
		}
		if len(slots) <= atOnce {
			h.looked[slot] = now
		}
		ready = append(ready, slot)
	}
	err := h.resolveSlots(ready)
	h.rest(time.Since(now))
	return err
}

// rest puts the next look off for as long as the last one's work demands. Until then
// what was worked out stays good enough for everybody.
func (h *Hub) rest(work time.Duration) {
	pause := lookShare * work
	if len(h.sweep) > 0 {
		pause = max(pause, lookEvery)
	}
	h.nextLook = time.Now().Add(pause)
}

// resolveSlots looks over slots: now, or bit by bit where they are too many.
func (h *Hub) resolveSlots(slots []chain.Slot) error {
	if len(slots) > atOnce {
		var scopes []chain.ScopeID
		for _, slot := range slots {
			scopes = append(scopes, slot.Scope.Base())
		}
		slices.Sort(scopes)
		h.sweepLater(slices.Compact(scopes))
		return nil
	}
	var errs []error
	for _, slot := range slots {
		if err := h.resolveSlot(slot); err != nil {
			errs = append(errs, fmt.Errorf("resolve %s: %w", slot, err))
		}
	}
	return errors.Join(errs...)
}

// concerned gives the slots in whose chain one of the options stands, in order.
func (h *Hub) concerned(keys map[learn.Key]bool) []chain.Slot {
	slots := h.press.Concerned(func(p chain.Primitive, id chain.OptionID) bool { return keys[learn.Key{Primitive: p, Option: id}] })
	slices.SortFunc(slots, bySlot)
	return slots
}

func bySlot(a, b chain.Slot) int {
	return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Primitive, b.Primitive))
}

// scopes gives the scopes that have members now, in order.
func (h *Hub) scopes() []chain.ScopeID { return h.fleet.Scopes(chain.InstantOf(time.Now())) }

func among(sorted []chain.ScopeID, scope chain.ScopeID) bool {
	_, found := slices.BinarySearch(sorted, scope)
	return found
}

// sweepLater has scopes looked over bit by bit. What was still to be done is done too.
func (h *Hub) sweepLater(scopes []chain.ScopeID) {
	if len(h.sweep) > 0 {
		scopes = slices.Concat(scopes, h.sweep)
		slices.Sort(scopes)
		scopes = slices.Compact(scopes)
	}
	h.sweep, h.sweepSlots = scopes, nil
}

// sweeping is ready to receive from while there is something to sweep.
func (h *Hub) sweeping() <-chan struct{} {
	if len(h.sweep) > 0 {
		return closed
	}
	return nil
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// sweepOn looks over some of the scopes that wait.
func (h *Hub) sweepOn() {
	began := time.Now()
	for len(h.sweep) > 0 && time.Since(began) < sweepTurn {
		if h.sweepSlots == nil {
			h.sweepSlots = h.slotsIn(h.sweep[0])
		}
		n := min(sweepStep, len(h.sweepSlots))
		for _, slot := range h.sweepSlots[:n] {
			if err := h.resolveSlot(slot); err != nil {
				h.log.Error("publishing failed", "error", err)
			}
		}
		if h.sweepSlots = h.sweepSlots[n:]; len(h.sweepSlots) == 0 {
			h.sweep, h.sweepSlots = h.sweep[1:], nil
		}
	}
	h.keepEditions()
	h.swept += time.Since(began)
	if len(h.sweep) == 0 {
		h.trim = true // reading and sweeping leave as much garbage as they keep
		h.nextLook = time.Now().Add(max(lookShare*h.swept, lookEvery))
		h.swept = 0
	}
}

// untilAgain is the time to the next look that was put off.
func (h *Hub) untilAgain() time.Duration {
	wait := time.Hour
	if !h.soonest.IsZero() {
		wait = min(wait, time.Until(h.soonest))
	}
	if h.rejoin {
		wait = min(wait, time.Until(h.nextJoin))
	}
	if len(h.fresh) > 0 && len(h.sweep) == 0 {
		wait = min(wait, time.Until(h.nextLook))
	}
	return max(wait, 0)
}

// lookAgain makes the looks that are due.
func (h *Hub) lookAgain() {
	now := time.Now()
	if h.rejoin {
		h.joinTopics()
	}
	if err := h.learned(nil, now); err != nil {
		h.log.Error("publishing failed", "error", err)
	}
	h.soonest = time.Time{}
	var due []chain.Slot
	for slot, at := range h.again {
		if !now.Before(at) {
			due = append(due, slot)
		} else if h.soonest.IsZero() || at.Before(h.soonest) {
			h.soonest = at
		}
	}
	slices.SortFunc(due, bySlot)
	for _, slot := range due {
		delete(h.again, slot)
		if len(due) <= atOnce {
			h.looked[slot] = now
		}
	}
	if err := h.resolveSlots(due); err != nil {
		h.log.Error("publishing failed", "error", err)
	}
	h.keepEditions()
}
