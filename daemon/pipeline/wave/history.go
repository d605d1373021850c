package wave

import (
	"cmp"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

const (
	slots     = 12  // in which a window is kept: what is older than a window goes away a twelfth at a time
	maxPlaces = 256 // that are remembered; the one not heard of for longest makes room
	enough    = 3   // answers after which a place's own time counts more than what the chain expects
)

// place is where a copy runs: an option, and of a slot the peer that fills it.
type place struct {
	option chain.OptionID
	peer   chain.PeerID
}

func (o *Offer) place() place { return place{o.Option, o.Peer} }

// Count is what is remembered of one place: counts, and no word of what was asked or
// answered.
type Count struct {
	Since    time.Time      `json:"since,omitzero"` // of a kept one: when the part of the window began that it is of
	Option   chain.OptionID `json:"option"`
	Peer     chain.PeerID   `json:"peer,omitempty"`
	Provider string         `json:"provider,omitempty"`
	Model    string         `json:"model,omitempty"`
	Jobs     int64          `json:"jobs"`         // that ended there
	Done     int64          `json:"done"`         // with an answer
	Tokens   int64          `json:"tokens"`       // of those answers
	Busy     time.Duration  `json:"busy_ns"`      // that they took
	Wins     int64          `json:"hedge_wins"`   // against another copy of the same task
	Losses   int64          `json:"hedge_losses"` // to one
}

func (c *Count) add(o *Count) {
	c.Jobs += o.Jobs
	c.Done += o.Done
	c.Tokens += o.Tokens
	c.Busy += o.Busy
	c.Wins += o.Wins
	c.Losses += o.Losses
}

// speed gives tokens per second of an answer, 0 where none is known.
func (c *Count) speed() float64 {
	if c.Busy <= 0 {
		return 0
	}
	return float64(c.Tokens) / c.Busy.Seconds()
}

// standing is how a place did against others on the same task: 1 for one that never
// lost, towards 0 for one that only does.
func (c *Count) standing() float64 {
	return float64(1+c.Wins) / float64(1+c.Wins+c.Losses)
}

// ring keeps sums over a window in slots of equal width.
type ring[T any] struct {
	newest int64 // the number of the newest slot, counted from the epoch
	sums   [slots]T
}

// at gives the slot of number n, or the newest if n is before it (a clock set back).
func (r *ring[T]) at(n int64) *T {
	var zero T
	for next := max(r.newest+1, n-slots+1); next <= n; next++ {
		r.sums[next%slots] = zero
	}
	r.newest = max(r.newest, n)
	return &r.sums[r.newest%slots]
}

// known is one place of the history.
type known struct {
	provider, model string
	heard           time.Time
	ring[Count]
}

// effort is what the budget of hedges is counted by.
type effort struct{ jobs, hedges int64 }

// history remembers the last window of a device. It has no lock of its own.
type history struct {
	width  time.Duration // of a slot
	places map[place]*known
	effort ring[effort]
}

// slot gives the number of now's slot. Another window than before begins anew.
func (h *history) slot(window time.Duration, now time.Time) int64 {
	width := max(window/slots, time.Second)
	if width != h.width {
		*h = history{width: width, places: make(map[place]*known)}
	}
	return now.UnixNano() / int64(width)
}

func (h *history) observe(at place, provider, model string, c Count, window time.Duration, now time.Time) {
	n := h.slot(window, now)
	k := h.places[at]
	if k == nil {
		if len(h.places) >= maxPlaces {
			oldest, first := at, now
			for p, other := range h.places {
				if oldest == at || other.heard.Before(first) {
					oldest, first = p, other.heard
				}
			}
			delete(h.places, oldest)
		}
		k = &known{}
		h.places[at] = k
	}
	k.heard = now
	k.provider, k.model = cmp.Or(provider, k.provider), cmp.Or(model, k.model)
	k.ring.at(n).add(&c)
}

// sum gives what is known of a place, zero for a stranger.
func (h *history) sum(at place, window time.Duration, now time.Time) Count {
	n := h.slot(window, now)
	all := Count{Option: at.option, Peer: at.peer}
	if k := h.places[at]; k != nil {
		k.ring.at(n)
		for i := range k.sums {
			all.add(&k.sums[i])
		}
		all.Provider, all.Model = k.provider, k.model
	}
	return all
}

func (h *history) spend(e effort, window time.Duration, now time.Time) {
	to := h.effort.at(h.slot(window, now))
	to.jobs += e.jobs
	to.hedges += e.hedges
}

func (h *history) spent(window time.Duration, now time.Time) (all effort) {
	h.effort.at(h.slot(window, now))
	for _, e := range h.effort.sums {
		all.jobs += e.jobs
		all.hedges += e.hedges
	}
	return all
}
