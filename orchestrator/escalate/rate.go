package escalate

import (
	"math"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// rateHalfLife is after which a request counts half in a rate.
const rateHalfLife = 24 * time.Hour

// Rate measures how many of a chain's requests protest. The zero value has seen
// none. Requests are known by their ends: answers, from the devices' counters, and
// protests that got a final no.
type Rate struct {
	requests, protests float64
	newest             time.Time
}

// Count adds requests that ended, and requests that protested, at a moment. A
// moment before the newest counts as the newest.
func (r *Rate) Count(requests, protests uint64, at time.Time) {
	if fade := r.fade(at); fade < 1 {
		r.requests, r.protests, r.newest = r.requests*fade, r.protests*fade, at
	} else if r.newest.IsZero() {
		r.newest = at
	}
	r.requests += float64(requests)
	r.protests += float64(protests)
}

func (r *Rate) fade(at time.Time) float64 {
	if r.newest.IsZero() || !at.After(r.newest) {
		return 1
	}
	return math.Exp2(-float64(at.Sub(r.newest)) / float64(rateHalfLife))
}

// Share gives the share of requests that protested, about as of the last two days,
// and the number of requests behind it. Protests arrive at once and answers with
// the next report, so that a young rate is too high rather than too low.
func (r *Rate) Share(now time.Time) (share chain.PPM, requests float64) {
	fade := r.fade(now)
	requests = float64(max(r.requests, r.protests) * fade)
	if requests < 0.5 {
		return 0, 0
	}
	return chain.PPMOf(min(r.protests/max(r.requests, r.protests), 1)), requests
}
