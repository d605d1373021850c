package simulate

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/chain/purse"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/orchestrator/learn"
)

// product is the policy as it is built: a hub, and a member on each device.
type product struct {
	s       *sim
	hub     *hub
	members []*member
}

// member is what a device knows and does beside walking.
type member struct {
	d        *device
	hub      *hub
	random   *rand.Rand // of visits, samples and lies
	book     *delta.Book
	purse    *purse.Purse
	reporter learn.Reporter
	hooks    walk.Hooks
	probing  walk.Hooks

	held    *edition // the chain in force here
	of      *edition // that options was made of
	order   *int     // the first of its places: another order has another
	options []chain.Option

	out      batch
	newsDue  moment // -1: none
	visitDue moment
	lease    leasing
}

// batch is what waits for the hub.
type batch struct {
	counts []counts // by place of an option
	sample []sample
	used   bool
}

type counts struct {
	good, bad uint64
	lastOK    bool
}

type sample struct {
	option int
	took   time.Duration
	ok     bool
	at     time.Time
}

// Events of the product.
const (
	dueLook  = iota + reserved // the hub
	dueVisit                   // a whole visit
	dueNews                    // failures are reported
	dueProbe                   // there may be time for one
	dueLease
	dueAdjust // ceilings' multipliers move
)

// What a device does around the policy, as daemon does it.
const (
	newsDelay  = moment(5 * time.Second) // failures are gathered this long
	sleepyNews = moment(time.Minute)     // and by a device that has no link
	leaseDelay = moment(5 * time.Second)
	lookIdle   = moment(20 * time.Second)
	maxSample  = 512
)

func newProduct(s *sim) *product {
	p := &product{s: s, hub: newHub(s)}
	p.hub.look()
	old := chain.InstantOf(epoch.Add(-30 * 24 * time.Hour))
	for _, d := range s.devices {
		m := &member{d: d, hub: p.hub, random: stream(s.s.Seed, "member", d.number), book: delta.New(), purse: purse.New(), held: p.hub.edition, newsDue: -1,
			reporter: learn.Reporter{Peer: d.id(), Since: old}}
		m.out.counts = make([]counts, len(s.w.options))
		m.hooks = walk.Hooks{Measure: func(x walk.Measurement) { m.measured(x, m.held.view.Rules.Sampling.Share()) }}
		if len(p.hub.ceilings) > 0 {
			m.hooks.Reserve = m.reserve
		}
		m.probing = m.hooks
		m.probing.Measure = func(x walk.Measurement) { m.measured(x, 1) }
		p.members = append(p.members, m)
		m.visitAfter(0.001, 1)
		s.at(moment(m.random.Float64()*float64(time.Hour)), dueProbe, d, nil)
	}
	if len(p.hub.ceilings) > 0 {
		s.at(moment(time.Hour), dueAdjust, nil, nil)
	}
	return p
}

func (p *product) of(d *device) *member { return p.members[d.number] }

// visitAfter sets the next whole visit, after a part of the interval between two shares.
func (m *member) visitAfter(from, to float64) {
	interval := float64(m.held.view.Rules.ReportInterval.Duration())
	m.visitDue = m.s().now + moment(interval*(from+(to-from)*m.random.Float64()))
	m.s().at(m.visitDue, dueVisit, m.d, nil)
}

func (m *member) s() *sim { return m.hub.s }

// linked brings the chain up to date where the device hears of new ones at once.
func (m *member) linked() {
	if !m.d.sleepy {
		m.fetch()
	}
}

func (m *member) fetch() {
	if m.held != m.hub.edition {
		m.held = m.hub.edition
		m.s().tally.bytes += sizeFetch + m.held.bytes
	}
}

// plan gives the chain in this device's own order.
func (p *product) plan(d *device) walk.Plan {
	m := p.of(d)
	m.linked()
	h := m.hooks
	if p.hub.plan.Len() > 0 {
		h.Protest = noProtest // the simulation answers protests itself
	}
	return walk.Plan{Options: m.ordered(), Rules: m.held.view.Rules, Hooks: h}
}

func (m *member) ordered() []chain.Option {
	v := &m.held.view
	places := m.book.Order(v, delta.Conversation{}, m.s().time())
	if slices.IsSorted(places) {
		return v.Options
	}
	if m.of != m.held || m.order != &places[0] {
		m.of, m.order, m.options = m.held, &places[0], make([]chain.Option, len(places))
		for i, at := range places {
			m.options[i] = v.Options[at]
		}
	}
	return m.options
}

// measured takes in an attempt of this device's own.
func (m *member) measured(x walk.Measurement, sampling float64) {
	if x.Neutral || x.Class != chain.OK && !x.Class.Blames() {
		return
	}
	ok, i := x.Class == chain.OK, m.s().places[x.Option]
	m.book.Observe(delta.Key{Primitive: slot.Primitive, Option: x.Option}, delta.Sample{OK: ok, Took: x.Total, At: x.At, Suspect: m.held.suspect[i], Hub: m.held.latency[i]})
	c := &m.out.counts[i]
	m.out.used, c.lastOK = true, ok
	if ok {
		c.good++
		if m.random.Float64() >= sampling {
			return
		}
	} else {
		c.bad++
		m.news()
	}
	if len(m.out.sample) < maxSample {
		m.out.sample = append(m.out.sample, sample{i, x.Total, ok, x.At})
	}
}

// news has failures reported soon.
func (m *member) news() {
	if m.newsDue >= 0 {
		return
	}
	wait := newsDelay
	if m.d.sleepy {
		wait = sleepyNews
	}
	m.newsDue = m.s().now + wait
	m.s().at(m.newsDue, dueNews, m.d, nil)
}

func (p *product) ended(d *device, r *request) {
	if m := p.of(d); !r.probe && r.tries > 0 {
		p.s.tally.moved(d, m.book.Evaluate(&m.held.view, p.s.time()))
	}
}

func (p *product) protest(d *device, failed []chain.Failure) []chain.Option {
	h := p.hub
	a := h.plan.Next(failed, p.of(d).held.view.Options)
	var ended, first uint64
	if a.First {
		first = 1
	}
	if a.Option == nil {
		h.rate.Count(1, first, p.s.time())
		return nil
	}
	p.s.tally.extensions++
	h.rate.Count(ended, first, p.s.time())
	return []chain.Option{*a.Option}
}

// declared: a changed input of policy is looked over at once.
func (p *product) declared() { p.hub.look() }

func (p *product) listed() []int { return p.hub.edition.places }

func (p *product) due(what int, d *device) {
	switch what {
	case dueLook:
		p.hub.dueLook()
	case dueAdjust:
		p.hub.adjust()
	case dueVisit:
		p.of(d).visit()
	case dueNews:
		p.of(d).sayNews()
	case dueProbe:
		p.of(d).explore()
	case dueLease:
		p.of(d).askBlocks()
	}
}

// visit tells all and hears all.
func (m *member) visit() {
	if m.s().now != m.visitDue {
		return
	}
	if m.d.awake(m.s().now) {
		m.report()
		m.askBlocks()
		m.fetch()
	}
	m.visitAfter(0.5, 1.5)
}

func (m *member) sayNews() {
	if m.newsDue == m.s().now {
		m.report()
		if m.d.sleepy {
			m.fetch()
		}
	}
}

// report sends what waits, or what a liar makes of it.
func (m *member) report() {
	m.newsDue = -1
	s, r := m.s(), m.out
	if lies := m.d.liar && s.now >= at(s.s.Liars.From); lies {
		r = m.lie(r)
	}
	s.tally.bytes += sizeVisit
	if r.used {
		for i := range r.counts {
			if r.counts[i].good+r.counts[i].bad > 0 {
				s.tally.bytes += sizeCounter
			}
		}
		s.tally.bytes += sizeSample * len(r.sample)
		m.hub.report(m, &r)
	}
	clear(m.out.counts)
	m.out.sample, m.out.used = m.out.sample[:0], false
}

// lie makes a report up. A liar has something to say of every option.
func (m *member) lie(r batch) batch {
	s := m.s()
	l := batch{counts: make([]counts, len(r.counts)), used: true}
	add := func(i int, good, bad uint64, seconds float64) {
		l.counts[i] = counts{good, bad, good > bad}
		l.sample = append(l.sample, sample{i, time.Duration(seconds * float64(time.Second)), good > 0, s.time()})
	}
	for i := range s.w.options {
		o := &s.w.options[i]
		switch {
		case !o.there:
		case s.s.Liars.Kind == Slow:
			l.counts[i] = r.counts[i]
			if r.counts[i].good == 0 {
				add(i, 1, 0, 10*o.latency*m.d.slowness[i])
			}
		case s.s.Liars.Kind == Random:
			add(i, uint64(m.random.IntN(10)), uint64(m.random.IntN(10)), 0.05*math.Pow(1200, m.random.Float64()))
		case string(o.id) == s.s.Liars.Favourite:
			add(i, 10, 0, 0.1*o.latency)
		default:
			add(i, 0, 10, s.s.Limit.Seconds())
			l.sample = append(l.sample, sample{i, s.s.Limit, true, s.time()})
		}
	}
	if s.s.Liars.Kind == Slow {
		for _, x := range r.sample {
			x.took *= 10
			l.sample = append(l.sample, x)
		}
	}
	return l
}

// explore sends one probe if there is time and an allowance for it.
func (m *member) explore() {
	s, v := m.s(), &m.held.view
	pause, some := delta.Pause(&v.Rules)
	if !some {
		return
	}
	again := s.now + lookIdle
	switch idle := s.now - m.d.idle; {
	case !m.d.awake(s.now):
		again = s.now + moment(10*time.Minute)
	case m.d.busy > 0:
	case idle < moment(v.Rules.Idle.Duration()):
		again = s.now + moment(v.Rules.Idle.Duration()) - idle
	default:
		m.linked()
		choice, ok := m.book.Explore([]delta.View{m.held.view}, delta.Idle{For: time.Duration(idle), Fleet: len(s.devices), Lot: (float64(m.d.number) + 0.5) / float64(len(s.devices)), Used: m.usedOf}, s.time())
		if again = s.now + moment(10*time.Minute); !ok {
			break
		}
		m.book.Probed(choice, s.time())
		again = s.now + moment(pause)
		for i := range v.Options {
			if v.Options[i].ID == choice.Option {
				s.probe(m.d, walk.Plan{Options: v.Options[i : i+1], Rules: v.Rules, Budget: 2 * time.Minute, Attempts: 1, Hooks: m.probing})
			}
		}
	}
	s.at(again, dueProbe, m.d, nil)
}
