package simulate

import (
	"container/heap"
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/order"
	"github.com/chordwheel/chordwheel/chain/walk"
)

// policy is whoever decides in which order a device tries options.
type policy interface {
	// plan gives what a device walks for a request that comes now.
	plan(d *device) walk.Plan
	// ended hears that a request is over, or a probe.
	ended(d *device, r *request)
	// protest answers a request whose chain is exhausted.
	protest(d *device, failed []chain.Failure) []chain.Option
	// declared hears that the catalogue has changed: a price, an option.
	declared()
	// due is called at moments that the policy asked for.
	due(what int, d *device)
	// listed gives the order of the fleet, as places of options; nil if there is none.
	listed() []int
}

// sim is one policy in one world.
type sim struct {
	s      *Scenario
	w      *world
	policy policy
	queue  queue
	count  uint64 // events ever, to break ties
	now    moment
	places map[chain.OptionID]int
	limits chain.Limits

	devices []*device
	lasting int                 // turns of the truth so far that last
	turned  int                 // all turns
	far     func(share float64) // told of progress
	tally   tally
	solver  order.Solver
	chunk   []byte
}

// device is one member of the fleet as the simulation runs it.
type device struct {
	*place
	random   *rand.Rand // of its requests
	standing *walk.Standing
	busy     int
	idle     moment // since when, if not busy
	nth      uint64 // requests so far
	probes   uint64
	last     uint64 // digest of the order of its last request

	best    []int // what who knows everything would try, as of turned
	bestFor int
}

// request is one on its way through the walk, or a probe.
type request struct {
	d      *device
	m      *walk.Machine
	nth    uint64
	probe  bool
	began  moment
	asked  moment // when the attempt under way began
	fate   fate
	option int
	late   bool // the attempt under way ends by its limit
	tries  int
	first  int // option that was tried first, -1: none
	cost   float64
	ok     bool
}

// Events.
const (
	arrival  = iota // a request comes to a device
	attempt         // an attempt ends
	turning         // the world changes
	look            // an hour is over
	reserved        // policies' own from here on
)

type event struct {
	at   moment
	nth  uint64
	what int
	d    *device
	r    *request
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].nth < q[j].nth
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

func (s *sim) at(m moment, what int, d *device, r *request) {
	s.count++
	heap.Push(&s.queue, event{max(m, s.now), s.count, what, d, r})
}

func (s *sim) time() time.Time { return s.now.time() }

func newSim(sc *Scenario) *sim {
	s := &sim{s: sc, far: func(float64) {}, w: newWorld(sc), places: map[chain.OptionID]int{}, chunk: []byte("x"), limits: walk.DefaultLimits()}
	s.limits.Total = chain.MillisOf(sc.Limit)
	for i := range s.w.options {
		s.places[s.w.options[i].id] = i
	}
	for _, p := range s.w.devices {
		d := &device{place: p, random: stream(sc.Seed, "requests", p.number), bestFor: -1,
			standing: walk.NewStanding(rand.NewPCG(mix(sc.Seed^0xc001), uint64(p.number)))}
		s.devices = append(s.devices, d)
		s.at(s.w.next(p, d.random, 0), arrival, d, nil)
	}
	if len(s.w.turns) > 0 {
		s.at(s.w.turns[0].at, turning, nil, nil)
	}
	s.at(0, look, nil, nil)
	s.tally.begin(s)
	return s
}

// run goes through all events up to the end of the world.
func (s *sim) run(ctx context.Context) error {
	defer s.far(1)
	for n := 0; len(s.queue) > 0; n++ {
		e := heap.Pop(&s.queue).(event)
		if e.at > s.w.end {
			return nil
		}
		if n%4096 == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.far(float64(e.at) / float64(s.w.end))
		}
		s.now = e.at
		switch e.what {
		case arrival:
			s.arrive(e.d)
		case attempt:
			s.attempted(e.r)
		case turning:
			s.turn()
		case look:
			s.tally.hour(s)
			s.at(s.now+moment(time.Hour), look, nil, nil)
		default:
			s.policy.due(e.what, e.d)
		}
	}
	return nil
}

// turn lets the world change.
func (s *sim) turn() {
	lasts := false
	for s.turned < len(s.w.turns) && s.w.turns[s.turned].at <= s.now {
		t := &s.w.turns[s.turned]
		t.apply(s.w)
		lasts = lasts || t.params
		s.turned++
	}
	if s.turned < len(s.w.turns) {
		s.at(s.w.turns[s.turned].at, turning, nil, nil)
	}
	if lasts {
		s.lasting++
		s.policy.declared()
	}
	s.tally.outages(s)
}

// arrive begins a request, and sets the next one.
func (s *sim) arrive(d *device) {
	s.at(s.w.next(d.place, d.random, s.now), arrival, d, nil)
	d.nth++
	s.walk(&request{d: d, nth: d.nth, began: s.now, first: -1}, s.policy.plan(d))
}

// probe begins a walk of one option that nobody waits for.
func (s *sim) probe(d *device, p walk.Plan) {
	d.probes++
	s.walk(&request{d: d, nth: 1<<40 + d.probes, probe: true, began: s.now, first: -1}, p)
}

func (s *sim) walk(r *request, p walk.Plan) {
	p.Limits = s.limits
	r.d.busy++
	if !r.probe {
		s.tally.arrives(s, r.d, p.Options)
	}
	r.m = walk.New(p, r.d.standing, s.time())
	s.step(r)
}

// step drives a walk to its next attempt, or to its end.
func (s *sim) step(r *request) {
	for {
		step := r.m.Next(s.time())
		switch {
		case step.Attempt != nil:
			s.begin(r, step.Attempt)
			return
		case step.Protest:
			s.tally.protests++
			r.m.Protested(s.policy.protest(r.d, step.Failed), true, s.time())
		default:
			s.finish(r)
			return
		}
	}
}

// begin settles the fate of an attempt and sets when it ends.
func (s *sim) begin(r *request, a *walk.Attempt) {
	r.option = s.places[a.Option.ID]
	r.fate = s.w.fate(r.d.place, r.nth, r.option)
	r.tries++
	if r.first < 0 {
		r.first = r.option
		if !r.probe {
			s.tally.first(s, r)
		}
	}
	limit := moment(r.m.Deadline().Sub(epoch))
	end := limit
	if !math.IsInf(r.fate.took, 0) {
		end = s.now + moment(r.fate.took*float64(time.Second))
	}
	r.late = end >= limit
	s.at(min(end, limit), attempt, r.d, r)
	s.tally.begins(s, r)
}

// attempted ends an attempt, and goes on with its walk.
func (s *sim) attempted(r *request) {
	now := s.time()
	s.tally.ends(s, r)
	switch {
	case r.late && r.m.Expire(now):
	case r.fate.class == chain.OK:
		r.m.Feed(walk.Chunk{Data: s.chunk, Meaningful: true}, now)
		o := walk.Outcome{Class: chain.OK, Input: s.s.Profile.Input, Output: s.s.Profile.Output}
		if len(r.m.End(o, now)) > 0 {
			r.m.Delivered(now)
		}
	default:
		r.m.End(walk.Outcome{Class: r.fate.class}, now)
	}
	s.step(r)
}

// finish ends a request.
func (s *sim) finish(r *request) {
	r.ok = r.m.Result().End == walk.Answered
	r.d.busy--
	if !r.probe {
		r.d.idle = s.now
	}
	s.policy.ended(r.d, r)
	s.tally.finishes(s, r)
}

// bestFor gives the order of who knows everything about the present moment.
func (s *sim) bestFor(d *device) []int {
	if d.bestFor != s.turned {
		d.best, d.bestFor = s.w.knowing(d.place, true, 0, nil), s.turned
	}
	return d.best
}
