package wave

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Pool is what the requests of a device share: what runs where, how fast whom was,
// the budget of hedges, and the goroutines of the copies. Its methods may be called
// at once from many goroutines.
type Pool struct {
	stopping context.Context
	stop     context.CancelFunc

	mu        sync.Mutex
	closed    bool
	left      chan struct{} // closed when closed and nothing runs any more
	running   int           // goroutines of copies
	legs      map[*leg]struct{}
	providers map[string]int // copies that hold a place in its queue
	devices   map[string]int
	history   history
	totals    Totals
}

// Totals are the counts of a device since it started.
type Totals struct {
	Running int    // copies that run now
	Jobs    uint64 // copies that began, hedges among them
	Raced   uint64 // copies beyond the first of a race
	Hedges  uint64 // second copies of tasks that took long
	Won     uint64 // of them
	Poor    uint64 // tasks that got none because the budget was spent
	Nowhere uint64 // tasks that got none because nobody else was there, or all were slow
	Stuck   uint64 // copies that did not end within a second after they were cancelled
}

// NewPool makes the pool of a device. Close it.
func NewPool() *Pool {
	p := &Pool{legs: map[*leg]struct{}{}, providers: map[string]int{}, devices: map[string]int{}, left: make(chan struct{})}
	p.stopping, p.stop = context.WithCancel(context.Background())
	return p
}

// Close cancels every copy, refuses new ones, and waits until the goroutines have
// ended, or until ctx ends: then its error says how many have not. It may be called
// again to wait on.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		p.stop()
		if p.running == 0 {
			close(p.left)
		}
	}
	p.mu.Unlock()
	select {
	case <-p.left:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.running == 0 {
			return nil
		}
		return fmt.Errorf("%d sub-jobs ignore that they are cancelled: %w", p.running, context.Cause(ctx))
	}
}

// Totals gives the counts since the start.
func (p *Pool) Totals() Totals {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.totals
	t.Running = p.running
	return t
}

// Counts gives what is remembered over the window, to be kept over a restart: one count
// for each place and twelfth of the window, sorted by time, option and peer. At most 256
// places are remembered.
func (p *Pool) Counts(window time.Duration) []Count {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.history.slot(window, time.Now()) // a new window forgets
	counts := make([]Count, 0, len(p.history.places))
	for at, k := range p.history.places {
		k.at(n)
		for slot := k.newest - slots + 1; slot <= k.newest; slot++ {
			c := k.sums[slot%slots]
			if c.Jobs+c.Wins+c.Losses == 0 {
				continue
			}
			c.Since = time.Unix(0, slot*int64(p.history.width)).UTC()
			c.Option, c.Peer, c.Provider, c.Model = at.option, at.peer, k.provider, k.model
			counts = append(counts, c)
		}
	}
	slices.SortFunc(counts, older)
	return counts
}

func older(a, b Count) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Option, b.Option), cmp.Compare(a.Peer, b.Peer))
}

// Restore takes what [Pool.Counts] gave before a restart, of a pool that has seen
// nothing. Counts below 0, from before the window or from after now are passed over, as
// are all beyond what a pool may hold.
func (p *Pool) Restore(counts []Count, window time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	counts = slices.Clone(counts[:min(len(counts), slots*maxPlaces)])
	slices.SortFunc(counts, older)
	for i := range counts {
		c := counts[i]
		since := c.Since
		if min(c.Jobs, c.Done, c.Tokens, int64(c.Busy), c.Wins, c.Losses) < 0 || since.After(now) || now.Sub(since) >= window+window/slots {
			continue
		}
		c.Since = time.Time{}
		p.history.observe(place{c.Option, c.Peer}, c.Provider, c.Model, c, window, since)
	}
}

// enter takes a copy in: false once the pool is closed.
func (p *Pool) enter(l *leg, offer *Offer, window time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running++
	p.legs[l] = struct{}{}
	p.hold(l, offer)
	p.totals.Jobs++
	switch {
	case l.copy.Rung > 0:
		p.totals.Hedges++
		p.history.spend(effort{hedges: 1}, window, time.Now())
	default:
		if l.n > 0 {
			p.totals.Raced++
		}
		p.history.spend(effort{jobs: 1}, window, time.Now())
	}
	return true
}

// leave lets the goroutine of a copy go.
func (p *Pool) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running--; p.running == 0 && p.closed {
		close(p.left)
	}
}

// hold moves a copy's place in the queues to offer's; nil: it holds none.
func (p *Pool) hold(l *leg, offer *Offer) {
	if l.held != nil {
		drop(p.providers, asked(l.held))
		drop(p.devices, l.held.Device)
	}
	if l.held = offer; offer != nil {
		p.providers[asked(offer)]++
		p.devices[offer.Device]++
	}
}

func drop(counts map[string]int, name string) {
	if counts[name]--; counts[name] <= 0 {
		delete(counts, name)
	}
}

// accepted notes who took a copy.
func (p *Pool) accepted(l *leg, offer *Offer, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, in := p.legs[l]; in {
		p.hold(l, offer)
		l.since = now
	}
}

// free frees what a copy holds: it ended or was given up. Once is enough.
func (p *Pool) free(l *leg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, in := p.legs[l]; in {
		p.hold(l, nil)
		delete(p.legs, l)
	}
}

// seen gives what is known of each offer. The lock is held.
func (p *Pool) seen(offers []Offer, window time.Duration, now time.Time) []seen {
	all := make([]seen, len(offers))
	for i := range offers {
		o := &offers[i]
		all[i] = seen{p.history.sum(o.place(), window, now), p.providers[asked(o)], p.devices[o.Device]}
	}
	return all
}

// slow reports whether more than half of what runs at o's provider has run for longer
// than after, or an answer of o usually does. The lock is held.
func (p *Pool) slow(o *Offer, c *Count, after time.Duration, now time.Time) bool {
	if expected(o, c) > after {
		return true
	}
	var late, all int
	for l := range p.legs {
		if l.held == nil || l.since.IsZero() || asked(l.held) != asked(o) {
			continue
		}
		if all++; now.Sub(l.since) >= after {
			late++
		}
	}
	return 2*late > all
}

// affordable reports whether one more hedge is within the budget: over the window, and
// of what runs now, where one is always allowed. The lock is held.
func (p *Pool) affordable(s *Settings, now time.Time) bool {
	spent := p.history.spent(s.Window, now)
	if float64(spent.hedges+1) > s.HedgeBudget*float64(spent.jobs)+1e-9 {
		return false
	}
	var hedges, others int
	for l := range p.legs {
		if l.copy.Rung > 0 {
			hedges++
		} else {
			others++
		}
	}
	return hedges == 0 || float64(hedges+1) <= s.HedgeBudget*float64(others)+1e-9
}

// learn notes how a copy ended. Tokens that nobody counted are taken to be four bytes
// of the answer each.
func (p *Pool) learn(l *leg, out *Outcome, hedge result, window time.Duration) {
	if out.Option == "" {
		return
	}
	c := Count{Jobs: 1}
	switch hedge {
	case won:
		c.Wins = 1
	case lost:
		c.Losses = 1
	}
	if out.Class == chain.OK {
		c.Done, c.Busy, c.Tokens = 1, max(0, out.Took), max(0, out.Output)
		if c.Tokens == 0 {
			c.Tokens = int64(len(out.Text)+3) / 4
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if hedge == won && l.copy.Rung > 0 {
		p.totals.Won++
	}
	p.history.observe(place{out.Option, out.Peer}, out.Provider, out.Model, c, window, time.Now())
}

// refused counts a task that wanted a hedge and got none, once.
func (p *Pool) refused(poor bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if poor {
		p.totals.Poor++
	} else {
		p.totals.Nowhere++
	}
}

// stuck counts a copy that was given up.
func (p *Pool) stuck() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.totals.Stuck++
}
