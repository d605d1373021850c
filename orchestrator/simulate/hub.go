package simulate

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/orchestrator/escalate"
	"github.com/chordwheel/chordwheel/orchestrator/learn"
	"github.com/chordwheel/chordwheel/orchestrator/publish"
	"github.com/chordwheel/chordwheel/orchestrator/quota"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// lookEvery is how often reports make the simulated hub look its order over. The real
// one looks once a second, and publishes what estimates change once a minute.
const lookEvery = moment(time.Minute)

// hub is the strategist: it learns from reports and publishes one chain.
type hub struct {
	s        *sim
	book     *learn.Book
	press    *publish.Press
	ceilings []*ceiling
	quota    *quota.Book
	plan     *escalate.Plan
	rate     escalate.Rate

	edition *edition
	fresh   bool // something was learned since the last look
	looked  moment
	again   time.Time // look then in any case; zero: not
}

// ceiling is a limit and the options it is on.
type ceiling struct {
	quota.Ceiling
	pattern string
	covered []bool // by place of an option
}

// edition is a chain as it was published.
type edition struct {
	view    delta.View
	places  []int           // of its options
	suspect []bool          // by place
	latency []time.Duration // by place
	bytes   int
	number  int
}

// numbers is a sequence that outlives nothing.
type numbers uint64

func (n *numbers) Highest() uint64       { return uint64(*n) }
func (n *numbers) Raise(to uint64) error { *n = numbers(to); return nil }

func newHub(s *sim) *hub {
	h := &hub{s: s, book: learn.NewBook(), press: publish.New(chain.Key{}, "simulated", new(numbers)), quota: quota.New(), looked: -lookEvery}
	h.ceilings = s.ceilings()
	return h
}

// ceilings gives the limits of the scenario.
func (s *sim) ceilings() (list []*ceiling) {
	for i, c := range s.s.Ceilings {
		l := &ceiling{pattern: c.Options}
		l.Account, l.Limit = c.Options+" "+strconv.Itoa(i+1), int64(math.Round(c.USDPerMonth*1e6))
		if l.Calls = c.CallsPerDay > 0; l.Calls {
			l.Limit = c.CallsPerDay
		}
		for i := range s.w.options {
			l.covered = append(l.covered, resolve.Match(c.Options, s.w.options[i].id))
		}
		list = append(list, l)
	}
	return list
}

// input gathers what the order depends on.
func (h *hub) input(now time.Time) (resolve.Input, chain.Rules) {
	sc, w := h.s.s, h.s.w
	in := resolve.Input{Slot: slot, Mode: resolve.Learned, Cap: sc.rules().WithDefaults().Attempts,
		Weights: resolve.Weights{Second: sc.Weights.Second, Failure: sc.Weights.Failure, Quality: sc.Weights.Quality, Exhausted: sc.Weights.Exhausted, Quota: resolve.DefaultWeights().Quota},
		Profile: resolve.Profile{InputTokens: float64(sc.Profile.Input), OutputTokens: float64(sc.Profile.Output)}}
	for i := range w.options {
		if !w.options[i].there {
			continue
		}
		o := &sc.Options[i]
		c := resolve.Candidate{Option: w.option(i), Withheld: o.Withheld, Prior: h.prior(i)}
		if !o.Withheld {
			in.Default = append(in.Default, c.Option.ID)
		}
		c.Estimates = h.book.Estimates(key(c.Option.ID), learn.Segment{}, c.Prior, now)
		if !sc.Rules.NoTrends {
			c.Trend = h.book.Trend(key(c.Option.ID), learn.Segment{}, now)
		}
		for _, l := range h.ceilings {
			if l.covered[i] {
				least := int64(1)
				if !l.Calls {
					least = int64(math.Ceil(w.options[i].money))
				}
				state := h.quota.State(&l.Ceiling, least, now)
				c.Option.Accounts = append(c.Option.Accounts, chain.Account{Name: l.Account, Calls: l.Calls})
				c.Ceilings = append(c.Ceilings, resolve.Ceiling{Name: l.Account, Calls: l.Calls, Multiplier: state.Mu, Breached: state.Breached, Used: state.Used()})
			}
		}
		in.Candidates = append(in.Candidates, c)
	}
	rules := sc.rules()
	in.Explore, in.NoExploration = rules.Explore, rules.NoExploration
	return in, publish.Rules(rules, in)
}

// prior is what the catalogue declares of an option.
func (h *hub) prior(i int) resolve.Prior {
	p := &h.s.s.Options[i].Prior
	return resolve.Prior{Latency: p.Latency.Seconds(), FailureLatency: p.Latency.Seconds(), Reliability: p.Reliability}
}

func key(id chain.OptionID) learn.Key { return learn.Key{Primitive: slot.Primitive, Option: id} }

// look orders the options and publishes what is worth it.
func (h *hub) look() {
	now := h.s.time()
	h.fresh, h.looked, h.again = false, h.s.now, time.Time{}
	in, rules := h.input(now)
	r := resolve.Order(in)
	var suspects []chain.OptionID
	for i := range in.Candidates {
		id := in.Candidates[i].Option.ID
		if _, until, suspect := h.book.Suspect(key(id), now); suspect {
			suspects = append(suspects, id)
			h.lookAt(until)
		}
	}
	if len(r.Options) == 0 { // every option is out: the chain is withdrawn
		if h.edition != nil && len(h.edition.places) > 0 {
			h.publish(r, nil, rules, "", 0)
		}
		h.press.Withdraw(slot)
		return
	}
	offer, err := publish.Prepare(r, rules, publish.Fingerprint(in, rules, suspects))
	if err != nil {
		panic("BUG: " + err.Error()) // the scenario's bounds are within a body's
	}
	out, err := h.press.Offer(slot, offer, now)
	if err != nil {
		panic("BUG: " + err.Error()) // numbers never fails
	}
	h.lookAt(out.Again)
	if out.Published {
		e, _ := h.press.Edition(slot)
		body, _ := h.press.Content(e.Body)
		h.publish(r, body.Options, body.Rules, e.Body, len(h.press.Body(e.Body)))
	} else if !h.plan.Fits(h.edition.view.Body, r.Withheld, escalate.DefaultLimits()) {
		h.plan = escalate.NewPlan(h.edition.view.Body, r.Options, r.Withheld, r.Priced, r.Terms(), escalate.DefaultLimits())
	}
}

// publish makes an edition and tells the devices.
func (h *hub) publish(r resolve.Resolution, options []chain.Option, rules chain.Rules, body chain.CID, bytes int) {
	e := &edition{view: delta.View{Slot: slot, Body: body, Options: options, Rules: rules.WithDefaults()}, bytes: bytes}
	e.suspect, e.latency = make([]bool, len(h.s.w.options)), make([]time.Duration, len(h.s.w.options))
	for i := range options {
		at := h.s.places[options[i].ID]
		e.places, e.suspect[at] = append(e.places, at), options[i].Cost.Suspect()
		e.latency[at] = options[i].Cost.Latency.Duration()
	}
	h.plan = escalate.NewPlan(body, r.Options, r.Withheld, r.Priced, r.Terms(), escalate.DefaultLimits())
	if h.edition != nil {
		e.number = h.edition.number + 1
		if !slices.Equal(e.places, h.edition.places) {
			h.s.tally.hubReorders++
		}
		h.s.tally.editions++
	}
	h.edition = e
}

// lookAt has the order looked over at a time, if none sooner is set.
func (h *hub) lookAt(t time.Time) {
	if !t.IsZero() && (h.again.IsZero() || t.Before(h.again)) {
		h.again = t
		h.s.at(moment(t.Sub(epoch)), dueLook, nil, nil)
	}
}

// dueLook is the event for it.
func (h *hub) dueLook() {
	if !h.again.IsZero() && !h.s.time().Before(h.again) || h.fresh && h.s.now >= h.looked+lookEvery {
		h.look()
	}
}

// report takes in what a device says.
func (h *hub) report(from *member, r *batch) {
	now := h.s.time()
	in := h.book.Batch(from.reporter, now)
	turned := false
	for i := range r.counts {
		c := &r.counts[i]
		if c.good+c.bad == 0 {
			continue
		}
		k := key(h.s.w.options[i].id)
		in.Count(k, c.good, c.bad, now)
		h.rate.Count(c.good, 0, now)
		_, _, before := h.book.Suspect(k, now)
		in.Last(k, c.lastOK, now)
		_, _, after := h.book.Suspect(k, now)
		turned = turned || before != after
		h.fresh = true
	}
	for _, x := range r.sample {
		in.Time(key(h.s.w.options[x.option].id), x.took, x.ok, x.at)
		h.fresh = true
	}
	switch {
	case turned || h.fresh && h.s.now >= h.looked+lookEvery:
		h.look()
	case h.fresh:
		h.lookAt((h.looked + lookEvery).time())
	}
}
