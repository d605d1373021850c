package simulate

import (
	"math"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Bytes that things take on the wire, without those of the transport: an estimate.
const (
	sizeVisit   = 160
	sizeCounter = 48
	sizeSample  = 64
	sizeFetch   = 420
	sizeLease   = 120
)

// tally counts what a policy did. Devices that lie are not in it.
type tally struct {
	requests, answered, attempts uint64
	cost, probing                float64
	latency                      histogram
	best                         uint64 // requests whose first try was the best there is
	protests, extensions         uint64
	bytes                        int
	probes                       uint64

	editions, hubReorders, ownReorders, orders uint64 // orders: a device's order at a request was another than at its last

	dead, deadLate uint64 // first tries at an option that is down; and for over 5 min
	since          []moment
	spent          map[string]*Account
	accounts       []*Account
	series         []Hour
	cur            Hour
	waits          float64
}

// deadAfter is when first tries at an option that is down should have ended.
const deadAfter = moment(5 * time.Minute)

func (t *tally) begin(s *sim) {
	t.since, t.spent = make([]moment, len(s.w.options)), map[string]*Account{}
	for _, l := range s.ceilings() {
		a := &Account{Name: l.Account, Calls: l.Calls, Limit: l.Limit}
		t.spent[l.Account], t.accounts = a, append(t.accounts, a)
	}
}

// outages notes since when options are down.
func (t *tally) outages(s *sim) {
	for i := range s.w.options {
		switch o := &s.w.options[i]; {
		case o.down == 0:
			t.since[i] = -1
		case t.since[i] < 0 || t.since[i] == 0:
			t.since[i] = s.now
		}
	}
}

func (t *tally) arrives(s *sim, d *device, options []chain.Option) {
	digest := uint64(1)
	for i := range options {
		digest = mix(digest ^ uint64(s.places[options[i].ID]))
	}
	if d.last != 0 && d.last != digest && !d.liar {
		t.orders++
	}
	d.last = digest
}

// moved counts what a device changed in its own order.
func (t *tally) moved(d *device, n int) {
	if !d.liar {
		t.ownReorders += uint64(n)
		t.cur.Reorders += float64(n)
	}
}

// first takes in what a request tries first.
func (t *tally) first(s *sim, r *request) {
	if r.d.liar {
		return
	}
	best := s.bestFor(r.d)
	if r.first == best[0] {
		t.best++
		t.cur.Best++
	}
	if o := &s.w.options[r.first]; o.down > 0 {
		t.dead++
		if s.now-t.since[r.first] > deadAfter {
			t.deadLate++
			t.cur.Dead++
		}
	}
}

func (t *tally) begins(s *sim, r *request) {
	if b, ok := s.policy.(*baseline); ok {
		b.begins(r)
	}
	r.asked = s.now
}

// ends prices an attempt.
func (t *tally) ends(s *sim, r *request) {
	w, o := &s.s.Weights, &s.w.options[r.option]
	seconds := time.Duration(s.now - r.asked).Seconds()
	ok := !r.late && r.fate.class == chain.OK
	cost := w.Second * seconds
	if ok {
		cost += o.money + w.Quality*(1-o.quality)
	} else {
		cost += w.Failure
	}
	if b, is := s.policy.(*baseline); is {
		b.ends(r, seconds, cost, ok)
	}
	switch {
	case r.d.liar:
	case r.probe: // nobody waits for it; it is paid for all the same
		if ok {
			t.probing += o.money
		}
		t.probes++
	default:
		r.cost += cost
		t.attempts++
	}
}

func (t *tally) finishes(s *sim, r *request) {
	if r.probe || r.d.liar {
		return
	}
	if !r.ok {
		r.cost += s.s.Weights.Exhausted
	} else {
		t.answered++
		t.cur.Answered++
	}
	t.requests++
	took := time.Duration(s.now - r.began).Seconds()
	t.latency.add(took)
	t.waits += took
	t.cost += r.cost
	t.cur.Requests++
	t.cur.Cost += r.cost
	t.cur.Seconds += took
}

// hour closes an hour of the series.
func (t *tally) hour(s *sim) {
	if s.now > 0 {
		c := t.cur
		if n := c.Requests; n > 0 {
			c.Cost, c.Seconds, c.Answered, c.Best, c.Dead = c.Cost/n, c.Seconds/n, c.Answered/n, min(c.Best/n, 1), min(c.Dead/n, 1)
		}
		c.Protests = float64(t.protests) - t.sum(func(h *Hour) float64 { return h.Protests })
		c.Bytes = (float64(t.bytes) - t.sum(func(h *Hour) float64 { return h.Bytes })*float64(len(s.devices))) / float64(len(s.devices))
		c.Reorders /= float64(len(s.devices))
		if list := s.policy.listed(); len(list) > 0 {
			best := s.w.knowingMiddle()
			c.Hub = s.w.cost(list, 8)/s.w.cost(best, 8) - 1
		}
		t.series = append(t.series, c)
	}
	t.cur = Hour{}
}

func (t *tally) sum(of func(*Hour) float64) (sum float64) {
	for i := range t.series {
		sum += of(&t.series[i])
	}
	return sum
}

// block notes the largest block of a ceiling that was handed out.
func (t *tally) block(l *ceiling, amount int64) {
	a := t.spent[l.Account]
	a.Block = max(a.Block, amount)
}

// spend notes what a ceiling was used for, and by how much it was exceeded.
func (t *tally) spend(l *ceiling, amount int64, now time.Time) {
	a := t.spent[l.Account]
	from, _ := l.Period(now)
	if from.After(a.period) {
		a.period, a.now = from, 0
	}
	a.now += amount
	a.Most = max(a.Most, a.now)
	a.Over = max(a.Over, a.now-a.Limit)
}

// histogram counts seconds in steps of 2 %.
type histogram struct {
	steps [1024]uint32
	n     uint64
}

const (
	least = 0.001
	ratio = 0.0198026 // ln 1.02
)

func (h *histogram) add(seconds float64) {
	i := int(math.Log(max(seconds, least)/least) / ratio)
	h.steps[min(i, len(h.steps)-1)]++
	h.n++
}

// quantile gives the seconds below which a share of them lies.
func (h *histogram) quantile(share float64) float64 {
	want, sum := uint64(share*float64(h.n)), uint64(0)
	for i, n := range h.steps {
		if sum += uint64(n); sum > want {
			return least * math.Exp(ratio*(float64(i)+0.5))
		}
	}
	return 0
}
