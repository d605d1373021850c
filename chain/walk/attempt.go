package walk

import (
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Bounds on what is held back. A stream's first chunks without output beyond
// them are dropped: they carry nothing. A plain answer beyond its bound is none.
const (
	maxHeld       = 8
	maxHeldBytes  = 64 << 10
	maxPlainBytes = 64 << 20
)

// running is the attempt under way.
type running struct {
	on      bool
	attempt Attempt
	gen     uint64 // of the key
	settle  func(Measurement)
	leave   func()

	started time.Time
	first   time.Time // of the first meaningful output
	fed     time.Time // of the chunk being delivered
	waited  time.Duration
	bytes   int64

	firstBy time.Time // streams only
	idleBy  time.Time // once open
	totalBy time.Time
	bound   time.Time     // by the request's budget
	fair    time.Duration // how long it must run to be judged by bound

	open bool // its output reaches the caller
	huge bool
	held [][]byte
	size int
	out  [1][]byte
}

// start begins an attempt of the open option, nil if it may not begin now or its cost
// cannot be reserved.
func (m *Machine) start(o *chain.Option, key string, peer chain.PeerID, lent int, until, now time.Time) *Attempt {
	var leave func()
	if m.plan.Hooks.Admit != nil && o.Kind != chain.Peer {
		var no chain.Class
		var free time.Time
		if leave, no, free = m.plan.Hooks.Admit(o); no != "" {
			return m.shut(no, free, now)
		}
	}
	var settle func(Measurement)
	if m.plan.Hooks.Reserve != nil {
		var short *Short
		if settle, short = m.plan.Hooks.Reserve(o, key); short != nil {
			if leave != nil {
				leave()
			}
			return m.unpaid(short)
		}
	}
	limits := m.plan.limits(o)
	r := running{on: true, settle: settle, leave: leave, started: now, held: m.run.held[:0], totalBy: now.Add(limits.Total.Duration()), bound: until}
	own := limits.Total.Duration()
	if m.plan.Stream {
		r.firstBy = now.Add(limits.FirstOutput.Duration())
		own = min(own, limits.FirstOutput.Duration())
	} else if calls, _ := m.room(); calls > lent && m.untried() > 0 {
		r.bound = now.Add(until.Sub(now) / 2)
	}
	r.fair = fair(o, own)
	if key != "" {
		r.gen, _ = m.generation(key)
	}
	r.attempt = Attempt{Number: m.spent + 1, Option: *o, Key: key, Limits: limits, Budget: r.bound.Sub(now), Lent: lent, Peer: peer}
	m.run = r
	m.cur.ran = true
	m.result.Option = o.ID
	if m.cur.index >= len(m.plan.Options) {
		m.result.Extended = true
	}
	if peer != "" {
		m.peers = append(m.peers, peer)
	}
	return &m.run.attempt
}

// Deadline is when the attempt under way is to be given up: the nearest of first
// output or idle, total and budget. It moves with Feed and Delivered.
func (m *Machine) Deadline() time.Time {
	r := &m.run
	by := r.totalBy
	if r.bound.Before(by) {
		by = r.bound
	}
	if next := r.idleBy; r.open {
		if next.Before(by) {
			by = next
		}
	} else if m.plan.Stream && r.firstBy.Before(by) {
		by = r.firstBy
	}
	return by
}

// Feed takes a chunk and gives what may leave for the caller now. The result
// is valid until the next call. If it is not empty, Delivered follows, or Leave.
func (m *Machine) Feed(c Chunk, now time.Time) [][]byte {
	r := &m.run
	r.bytes += int64(len(c.Data))
	if r.open {
		r.fed, r.idleBy = now, now.Add(r.attempt.Limits.Idle.Duration())
		r.out[0] = c.Data
		return r.out[:]
	}
	if c.Meaningful && r.first.IsZero() {
		r.first = now
		m.answers(&r.attempt, now)
	}
	if !m.plan.Stream || !c.Meaningful {
		m.hold(c.Data, now)
		return nil
	}
	r.open = true
	r.fed, r.idleBy = now, now.Add(r.attempt.Limits.Idle.Duration())
	if r.bound = m.deadline; !m.plan.Strict {
		r.bound = r.totalBy // it found its option: the budget has done its work
	}
	r.held = append(r.held, c.Data)
	return r.held
}

func (m *Machine) hold(data []byte, now time.Time) {
	r := &m.run
	switch {
	case m.plan.Stream && (len(r.held) >= maxHeld || r.size+len(data) > maxHeldBytes):
		return
	case r.size+len(data) > maxPlainBytes:
		r.huge, r.totalBy = true, now
		r.held = nil
		return
	}
	r.held, r.size = append(r.held, data), r.size+len(data)
}

// Delivered says that what Feed or End gave was written to the caller. The time
// since is the caller's, and not held against the upstream.
func (m *Machine) Delivered(now time.Time) {
	m.result.Delivered, m.owed = true, false
	r := &m.run
	if !r.on {
		return
	}
	wait := now.Sub(r.fed)
	r.waited += wait
	r.totalBy = r.totalBy.Add(wait)
	if r.open && !m.plan.Strict {
		r.bound = r.totalBy
	}
	r.idleBy = now.Add(r.attempt.Limits.Idle.Duration())
}

// Expire gives the attempt up if its deadline has passed, and reports whether
// it did. Nothing more of it may be fed.
func (m *Machine) Expire(now time.Time) bool {
	r := &m.run
	if !r.on || now.Before(m.Deadline()) {
		return false
	}
	class := chain.Timeout
	switch {
	case r.huge:
		class = chain.BadAnswer
	case r.open:
		class = chain.Cut
	}
	byBudget := r.bound.Before(r.totalBy)
	if r.open {
		byBudget = byBudget && r.bound.Before(r.idleBy)
	} else if m.plan.Stream {
		byBudget = byBudget && r.bound.Before(r.firstBy)
	}
	unjudged := byBudget && (r.open || now.Sub(r.started)-r.waited < r.fair)
	m.failed(Outcome{Class: class}, unjudged, now)
	return true
}

// End takes the outcome of the attempt under way. For a plain answer it gives
// what is to be delivered; then Delivered follows, or Leave.
func (m *Machine) End(o Outcome, now time.Time) [][]byte {
	r := &m.run
	if o.Class == chain.OK && (r.first.IsZero() || r.huge) {
		o.Class = chain.BadAnswer
	}
	if !o.Class.Known() {
		o.Class = chain.Internal
	}
	if o.Class == chain.Canceled { // nobody canceled it but the runner
		o.Class = chain.Internal
	}
	if o.Class != chain.OK {
		if r.open {
			o.Class = chain.Cut
		}
		m.failed(o, false, now)
		return nil
	}
	m.standing.succeeded(&r.attempt, r.peer(o))
	m.decide(now)
	m.close(o, false, now)
	m.result.Input, m.result.Output = o.Input, o.Output
	m.finish(Answered)
	if r.open {
		return nil
	}
	m.owed = true
	return r.held
}

func (r *running) peer(o Outcome) chain.PeerID {
	if o.Peer != "" {
		return o.Peer
	}
	return r.attempt.Peer
}

// failed takes in an attempt that did not answer, and decides how to go on.
// unjudged: it says nothing about the option.
func (m *Machine) failed(o Outcome, unjudged bool, now time.Time) {
	r := &m.run
	if r.attempt.Option.Remote() && (o.Status != 0 || r.bytes > 0 || answered(o.Class)) {
		m.network(now)
	}
	if o.Class == chain.Unreachable && r.attempt.Option.Remote() && !m.proof {
		if _, off := m.standing.Offline(); off && !m.hub() {
			o.Class = chain.Offline
		}
	}
	neutral := unjudged || !o.Class.Blames()
	m.tally.attempt(o.Class)
	m.cur.say(o.Class, o.Why)
	switch o.Class {
	case chain.Unreachable, chain.Status, chain.Timeout, chain.BadAnswer, chain.RateLimited, chain.Cut:
		m.cool(o, unjudged, now)
	case chain.Credentials, chain.KeyMissing:
		m.refusedKey(o, now)
	case chain.ContextLength:
		if r.attempt.Option.Kind == chain.Peer {
			break // what a peer has says nothing about the options here
		}
		m.long, m.longest = true, max(m.longest, r.attempt.Option.Limits.Context)
	case chain.Feature:
		if r.attempt.Option.Kind == chain.Peer {
			break
		}
		m.lacking, m.useless = true, append(m.useless, r.attempt.Option.Limits.Features...)
	case chain.Offline:
		m.standing.setOffline(true, now)
	}
	if o.Answer != nil {
		m.result.Answer = o.Answer
	}
	if r.open { // half an answer is billed all the same
		m.result.Input, m.result.Output = o.Input, o.Output
	}
	open, slot := r.open, r.attempt.Option.Kind == chain.Peer
	m.close(o, neutral, now)
	switch {
	case open:
		m.stop(Broken, o.Class, now)
	case o.Class == chain.CallerError, o.Class == chain.Filtered && !m.rules.FilterNext:
		m.result.Answer = o.Answer
		m.stop(Refused, o.Class, now)
	case slot && (o.Class == chain.Busy || o.Class == chain.Declined || o.Class == chain.Denied):
		m.cur.busy++
	case slot && o.Class != chain.ContextLength && o.Class != chain.Feature && o.Class != chain.Filtered:
		m.cur.tries++
	case !slot && (o.Class == chain.Credentials || o.Class == chain.KeyMissing):
	default:
		m.pass(o.Class)
	}
}

// answered reports whether c means that somebody gave an answer.
func answered(c chain.Class) bool {
	switch c {
	case chain.Status, chain.BadAnswer, chain.RateLimited, chain.Credentials, chain.CallerError, chain.ContextLength, chain.Feature,
		chain.Filtered, chain.Busy, chain.Declined:
		return true
	}
	return false
}

// cool holds a failure against the option, or the peer that ran it. A failure
// to connect waits until it is known whether this device has a network at all.
func (m *Machine) cool(o Outcome, unjudged bool, now time.Time) {
	r := &m.run
	if unjudged || o.Class == chain.Unreachable && !m.proof && r.attempt.Option.Remote() {
		return // close keeps the latter
	}
	m.blame(&r.attempt, r.peer(o), failure{o.Class, o.RetryAfter, o.HasRetryAfter, r.started}, now)
}

func (m *Machine) blame(a *Attempt, peer chain.PeerID, f failure, now time.Time) {
	if a.Option.Kind != chain.Peer {
		m.tally.free(later(now, m.standing.coolOption(&a.Option, f, &m.rules.CoolDown, now)))
	} else if peer != "" {
		m.tally.free(later(now, m.standing.coolPeer(peer, f, &m.rules.CoolDown, now)))
	}
}

func (m *Machine) refusedKey(o Outcome, now time.Time) {
	r := &m.run
	id := r.attempt.Option.ID
	if r.attempt.Key != "" {
		m.rest(id, r.attempt.Key, r.gen, o.Class, r.started, now)
		return
	}
	m.blame(&r.attempt, r.peer(o), failure{class: o.Class, started: r.started}, now)
	if m.plan.Hooks.Notice != nil && r.attempt.Option.Kind != chain.Peer {
		m.plan.Hooks.Notice(chain.Failure{Option: id, Class: o.Class}, "")
	}
}

// close ends the attempt under way: counts what it spent and measures it.
func (m *Machine) close(o Outcome, neutral bool, now time.Time) {
	r := &m.run
	r.on = false
	if r.leave != nil {
		r.leave()
	}
	m.spent += r.used(o)
	m.result.Attempts = m.spent
	x := Measurement{Option: r.attempt.Option.ID, Peer: r.peer(o), Class: o.Class, At: now, Total: now.Sub(r.started) - r.waited,
		Bytes: r.bytes, Input: o.Input, Output: o.Output, Neutral: neutral}
	if m.plan.Stream && !r.first.IsZero() {
		x.FirstOutput = r.first.Sub(r.started)
	}
	if o.Class == chain.Unreachable && !m.proof && r.attempt.Option.Remote() {
		m.unproved = append(m.unproved, unproved{r.attempt, r.started, o, x, r.settle})
		return
	}
	m.measure(x, r.settle)
}

func (m *Machine) measure(x Measurement, settle func(Measurement)) {
	if settle != nil {
		settle(x)
	}
	if m.plan.Hooks.Measure != nil {
		m.plan.Hooks.Measure(x)
	}
}

// used is what an attempt spent of the request's upstream calls.
func (r *running) used(o Outcome) int {
	if !o.Class.Ran() {
		return min(max(o.Used, 0), r.attempt.Lent)
	}
	switch o.Class {
	case chain.Unreachable, chain.Timeout, chain.Cut, chain.Canceled, chain.Internal, chain.Offline:
		if o.Used <= 0 && r.attempt.Option.Kind == chain.Peer {
			return r.attempt.Lent
		}
	}
	return min(max(o.Used, 1), r.attempt.Lent)
}
