package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// visitState is what the visitor knows of its last visits. It is guarded by
// Daemon.mu.
type visitState struct {
	last, next time.Time
	failure    string // of the visits since the last good one
	failures   int
	comeBack   time.Duration  // the hub's wish, 0 as the rules say
	newsDue    time.Time      // when gathered failures are reported; zero without any
	running    bool           // a whole visit is under way
	again      bool           // another one was called for since it began
	clock      *time.Duration // this device's clock before the hub's; nil: not compared yet
	whyNone    string         // why the hub offers no chain for chat; "" if it does, or was not asked
}

// kick wakes the visitor.
func (d *Daemon) kick() {
	select {
	case d.kicked <- struct{}{}:
	default: // it is awake already
	}
}

// invalidated notes that the hub has a newer chain for a slot. Which chains of
// qualifiers have changed, and which there are, only a visit says.
func (d *Daemon) invalidated(slot chain.Slot) {
	if slot.Primitive == chain.Overrides {
		d.visitSoon()
		return
	}
	d.mu.Lock()
	d.wanted[slot] = true
	d.mu.Unlock()
	d.kick()
	if !d.nodeNow().HubReachable() {
		d.gatherFromAny()
	}
}

// hubUp hears that the connection to the hub came or went. One that came back
// is worth a visit: the hub may have another mind, or another memory.
func (d *Daemon) hubUp(up bool) {
	d.mu.Lock()
	own := d.visit.running // the visit's own connection
	d.mu.Unlock()
	if up && !own {
		d.visitSoon()
	}
}

// visitSoon makes a whole visit due: after the one under way, which may have asked already for
// what is new.
func (d *Daemon) visitSoon() {
	d.mu.Lock()
	d.visit.next, d.visit.again = time.Time{}, true
	d.mu.Unlock()
	d.kick()
}

// visits is the device's side of the spoke: it visits when the interval is
// over, when there is news, and when the hub said that a chain has changed. After
// a failed visit it waits longer each time, with full jitter, so that a hub
// that returns is not met by all its devices in one second.
func (d *Daemon) visits(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	told := d.declared()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.kicked:
		case <-look.C:
			now := d.declared()
			if slices.Equal(told, now) {
				continue
			}
			told = now
			d.changed()
		}
		if d.idle() {
			continue
		}
		wait := d.turn(ctx)
		timer.Reset(wait)
	}
}

// changed tells hub and scopes at once that this device can do something else
// now: a key was set, say, and options wait for it.
func (d *Daemon) changed() {
	d.mu.Lock()
	joined, isJoined := d.joined, d.isJoined
	d.mu.Unlock()
	if isJoined {
		d.gossip(d.nodeNow(), joined)
		d.visitSoon()
	}
}

// idle reports whether there is no hub to visit.
func (d *Daemon) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.isJoined
}

// turn does what is due and returns how long to wait for the next.
func (d *Daemon) turn(ctx context.Context) time.Duration {
	now := time.Now()
	news := d.reports.News()
	d.mu.Lock()
	due := !now.Before(d.visit.next)
	wanted := slices.Collect(maps.Keys(d.wanted))
	if news && d.visit.newsDue.IsZero() { // wait for what else goes wrong in the same moment
		d.visit.newsDue = now.Add(newsDelay)
	}
	news = news && !now.Before(d.visit.newsDue)
	lease := d.leases.due && !now.Before(d.leases.next)
	d.mu.Unlock()
	var err error
	switch {
	case due:
		err = d.fullVisit(ctx)
	case len(wanted) > 0 && d.nodeNow().HubReachable():
		d.refreshAgents(ctx)
		err = d.fetchAll(ctx, wanted)
	case lease && d.nodeNow().HubReachable():
		err = d.lease(ctx)
	case news && d.nodeNow().HubReachable():
		err = d.sendReports(ctx)
	default:
		return d.untilNext(now)
	}
	if ctx.Err() != nil {
		return time.Hour
	}
	if err != nil || due {
		d.settle(err)
	}
	return d.untilNext(time.Now())
}

// settle notes how a visit ended and when to come again. What was done between
// two visits settles only when it failed, so that a busy hub's invalidations do
// not put the next whole visit off for ever.
func (d *Daemon) settle(err error) {
	now := time.Now()
	interval := d.interval()
	wait := d.jitter(interval/2, interval*3/2)
	d.mu.Lock()
	if err == nil {
		if d.visit.failures > 0 {
			d.cfg.Log.Info("visits to the hub succeed again", "after_failures", d.visit.failures)
		}
		d.visit.last, d.visit.failures, d.visit.failure = now, 0, ""
		d.visitOnce.Do(func() { close(d.visited) })
		if d.visit.comeBack > 0 {
			wait = d.visit.comeBack
		}
		if d.visit.again {
			wait = 0
		}
	} else {
		d.visit.failures++
		d.visit.failure = strings.ReplaceAll(err.Error(), "\n", "; ")
		if d.visit.failures == 1 { // one line for an outage, not one for each try
			d.cfg.Log.Warn("a visit to the hub failed; cached chains stay in force", "error", d.visit.failure)
		}
		longest := min(longestWait, firstBackoff<<min(d.visit.failures-1, 16))
		wait = longest/10 + time.Duration(d.random.Int64N(int64(longest*9/10)))
	}
	d.visit.next = now.Add(wait)
	d.mu.Unlock()
}

// untilNext is the time to the next thing that is due: a visit, or the report of
// failures.
func (d *Daemon) untilNext(now time.Time) time.Duration {
	reachable := d.nodeNow().HubReachable()
	d.mu.Lock()
	defer d.mu.Unlock()
	wait := d.visit.next.Sub(now)
	if !d.visit.newsDue.IsZero() && reachable {
		wait = min(wait, d.visit.newsDue.Sub(now))
	}
	if d.leases.due && reachable {
		wait = min(wait, d.leases.next.Sub(now))
	}
	return max(wait, time.Millisecond)
}

// interval is the time between visits that the rules of the held chains ask
// for, the shortest; it is also never longer than a chain's time to refresh.
func (d *Daemon) interval() time.Duration {
	shortest := chain.DefaultRules().ReportInterval.Duration()
	for _, c := range d.cfg.Chains.All() {
		shortest = min(shortest, c.Rules().ReportInterval.Duration())
	}
	return max(shortest, time.Second)
}

func (d *Daemon) nodeNow() Node {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.node
}

// fullVisit says hello, takes what the hub has, and leaves what it should know.
func (d *Daemon) fullVisit(ctx context.Context) error {
	d.setRunning(true)
	defer d.setRunning(false)
	welcome, err := d.greet(ctx, d.nodeNow())
	if err != nil {
		return err
	}
	d.refreshAgents(ctx)
	var changed []chain.Slot
	now := time.Now()
	for _, a := range welcome.Chains {
		held := d.cfg.Chains.Get(a.Slot)
		if held == nil || held.Head().Seq != a.Seq || held.Head().Body != a.Body || held.Stale(now) {
			changed = append(changed, a.Slot)
		}
	}
	if err := d.fetchAll(ctx, changed); err != nil {
		return err
	}
	d.dropWithdrawn(welcome)
	if err := d.lease(ctx); err != nil {
		return err
	}
	d.askWhy(ctx, welcome)
	return d.sendReports(ctx)
}

// dropWithdrawn forgets chains of qualifiers that the hub no longer offers: their
// requests fall back to a wider one. The scope's own chain stays until it expires.
func (d *Daemon) dropWithdrawn(welcome wire.Welcome) {
	for _, c := range d.cfg.Chains.All() {
		slot := c.Slot()
		if slot.Scope == slot.Scope.Base() || slices.ContainsFunc(welcome.Chains, func(a wire.Available) bool { return a.Slot == slot }) {
			continue
		}
		if err := d.cfg.Chains.Drop(slot); err != nil {
			d.cfg.Log.Warn("a withdrawn chain stays in force", "slot", slot.String(), "error", err)
		} else {
			d.cfg.Log.Info("a chain was withdrawn", "slot", slot.String())
		}
	}
}

// askWhy learns why the hub offers no chain for chat, for whoever asks this
// device. The refusal of a fetch says it.
func (d *Daemon) askWhy(ctx context.Context, welcome wire.Welcome) {
	slot, why := chain.Slot{Scope: d.scope(), Primitive: chain.LLMChat}, ""
	if !slices.ContainsFunc(welcome.Chains, func(a wire.Available) bool { return a.Slot == slot }) {
		_, err := within(ctx, d.nodeNow().Fetch, wire.Fetch{Slot: slot})
		var no *spoke.Refusal
		if errors.As(err, &no) {
			why = no.Message
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if why != "" && d.visit.whyNone != why {
		d.cfg.Log.Warn("the hub offers no chain for chat", "why", why)
	}
	d.visit.whyNone = why
}

func (d *Daemon) whyNone() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.visit.whyNone
}

func (d *Daemon) setRunning(running bool) {
	d.mu.Lock()
	d.visit.running = running
	if running {
		d.visit.again = false
	}
	d.mu.Unlock()
}

// greet says hello and takes over membership, topics and revocations. When the
// hub seems to have lost count, it says hello again with the heads as evidence.
func (d *Daemon) greet(ctx context.Context, node Node) (wire.Welcome, error) {
	d.mu.Lock()
	joined := d.joined
	d.mu.Unlock()
	hello := d.hello(joined)
	began := time.Now()
	welcome, err := within(ctx, node.Hello, hello)
	if err == nil {
		d.compareClocks(began, welcome.Now)
		if welcome.Twin {
			d.cloned(mesh.Clone{Kind: mesh.SameIdentity, Peer: d.cfg.Key.PeerID(), ID: d.cfg.DeviceID, Name: d.cfg.Name})
		}
	}
	if err != nil {
		d.stopIfRevoked(joined.Membership, err)
		return welcome, fmt.Errorf("say hello to the hub: %w", err)
	}
	if len(welcome.Behind) > 0 {
		for i := range hello.Holds {
			if slices.Contains(welcome.Behind, hello.Holds[i].Slot) {
				if c := d.cfg.Chains.Get(hello.Holds[i].Slot); c != nil {
					hello.Holds[i].Head, _ = c.Bytes()
				}
			}
		}
		if welcome, err = within(ctx, node.Hello, hello); err != nil {
			return welcome, fmt.Errorf("show the hub its newer heads: %w", err)
		}
	}
	changed, err := d.amend(func(j *Joined) error {
		if err := d.admit(j, welcome); err != nil {
			return err
		}
		j.Revoked = j.ended(time.Now())
		return nil
	})
	if err != nil {
		return welcome, err
	}
	d.mu.Lock()
	joined = d.joined
	d.visit.comeBack = welcome.ComeBack.Duration()
	d.mu.Unlock()
	if changed {
		d.gossip(node, joined)
	}
	introduce(node, joined)
	return welcome, nil
}

// within gives one exchange its time.
func within[Q, A any](ctx context.Context, call func(context.Context, Q) (A, error), question Q) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx, question)
}

// fetchAll fetches the chains of slots. A chain that is refused stays out, and
// the one before it in force; the others are fetched all the same.
func (d *Daemon) fetchAll(ctx context.Context, slots []chain.Slot) error {
	var failed []error
	for _, slot := range slots {
		if err := d.fetch(ctx, slot); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func (d *Daemon) fetch(ctx context.Context, slot chain.Slot) error {
	d.mu.Lock()
	delete(d.wanted, slot)
	d.mu.Unlock()
	return d.fetchWith(ctx, slot, "the hub", d.nodeNow().Fetch)
}

// fetchWith asks whoever ask goes to for the chain of slot, and puts it in force
// if it is what it should be. A chain is believed for its signature alone.
func (d *Daemon) fetchWith(ctx context.Context, slot chain.Slot, from string, ask func(context.Context, wire.Fetch) (wire.FetchReply, error)) error {
	d.mu.Lock()
	trust := d.joined.Trust
	d.mu.Unlock()
	question := wire.Fetch{Slot: slot}
	held := d.cfg.Chains.Get(slot)
	if held != nil {
		question.Body, question.Seq = held.Head().Body, held.Head().Seq
	}
	reply, err := within(ctx, ask, question)
	if err != nil {
		return fmt.Errorf("fetch chain %s from %s: %w", slot, from, err)
	}
	body := reply.Body
	if len(body) == 0 && held != nil {
		_, body = held.Bytes()
	}
	taken, err := d.cfg.Chains.Accept(trust, slot, reply.Head, body, time.Now())
	switch {
	case taken == nil:
		d.cfg.Log.Error("a chain was refused; the one before it stays in force", "slot", slot.String(), "from", from, "error", err)
		return err
	case err != nil:
		d.cfg.Log.Warn("a chain is in force but not on disk", "slot", slot.String(), "error", err)
	}
	if held == nil || held.Head().Body != taken.Head().Body {
		d.cfg.Log.Info("chain in force", "slot", slot.String(), "from", from, "seq", taken.Head().Seq, "body", taken.Head().Body.String(), "options", len(taken.Options()))
	}
	return nil
}

// sendReports sends every batch that waits.
func (d *Daemon) sendReports(ctx context.Context) error {
	d.mu.Lock()
	d.visit.newsDue = time.Time{}
	d.mu.Unlock()
	for {
		r, ok := d.reports.Next(time.Now())
		if !ok {
			return nil
		}
		r.Capabilities, r.Locals, r.Quota = d.declared(), d.cfg.Locals, usageOnWire(d.purse.Usage(time.Now()))
		reply, err := within(ctx, d.nodeNow().Report, r)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		if !reply.Accepted {
			d.cfg.Log.Warn("the hub refused a report", "seq", r.Seq, "reason", reply.Reason)
		}
		d.reports.Acknowledge(r.Seq)
	}
}

// compareClocks notes how far this device's clock is from the hub's, which read
// hub at a moment between began and now.
func (d *Daemon) compareClocks(began time.Time, hub chain.Instant) {
	ahead := time.Since(began)/2 + began.Sub(hub.Time())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.visit.clock = &ahead
}
