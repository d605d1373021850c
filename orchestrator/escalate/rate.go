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

// backJump is from when on a moment before the newest says that the clock was
// wrong then: else a rate would not fade until that time has come.
const backJump = 2 * time.Hour

// Count adds requests that ended, and requests that protested, at a moment. A
// moment before the newest counts as the newest, unless the clock went back.
func (r *Rate) Count(requests, protests uint64, at time.Time) {
	if fade := r.fade(at); fade < 1 {
		r.requests, r.protests, r.newest = r.requests*fade, r.protests*fade, at
	} else if r.newest.IsZero() || r.newest.Sub(at) > backJump {
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

// Kept is a rate as it is kept over a restart: counts in thousandths, as of At.
type Kept struct {
	Requests uint64        `cbor:"r"`
	Protests uint64        `cbor:"p"`
	At       chain.Instant `cbor:"a"`
}

// Keep gives r for keeping.
func (r *Rate) Keep() Kept {
	thousandths := func(n float64) uint64 {
		if !(n > 0) {
			return 0
		}
		return uint64(min(n, maxKept) * 1000)
	}
	return Kept{thousandths(r.requests), thousandths(r.protests), chain.InstantOf(r.newest)}
}

// maxKept is as many requests as a rate may have behind it: more than any hub hears of.
const maxKept = 1e12

// Rate gives the rate that was kept, as of now at the latest: the clock may have
// been ahead.
func (k Kept) Rate(now time.Time) Rate {
	counted := func(n uint64) float64 { return min(float64(n)/1000, maxKept) }
	r := Rate{counted(k.Requests), counted(k.Protests), k.At.Time()}
	if r.newest.After(now) {
		r.newest = now
	}
	return r
}
