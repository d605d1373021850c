package wave

import (
	"math"
	"time"

	"github.com/chordwheel/chordwheel/daemon/job"
)

const (
	unsaid = 0.5  // the quality of an offer of which nobody said one
	anchor = 1.25 // what an anchored provider's rank is worth: a quarter more, so less than an idle provider beside a busy one
	answer = 300  // tokens that an expected latency is taken to be for
)

// seen is what a pool knows of an offer when a task is given away.
type seen struct {
	Count
	provider int // copies that run at its provider
	device   int // and on its device
}

// pace gives an offer's tokens per second as measured, else as the chain's latency
// lets expect; 0 unknown.
func pace(o *Offer, c *Count) float64 {
	if s := c.speed(); s > 0 {
		return s
	}
	if o.Latency > 0 {
		return answer / o.Latency.Seconds()
	}
	return 0
}

// speed gives an offer's speed as a part of the fastest's, with what came of its
// races and hedges, between floor and 1. Who was never measured counts as fastest,
// so that it is measured soon.
func speed(o *Offer, c *Count, fastest, floor float64) float64 {
	s := 1.0
	if p := pace(o, c); p > 0 && fastest > 0 {
		s = p / fastest
	}
	return max(floor, min(1, s*c.standing()))
}

// rank gives what each offer is worth for a task, above 0.
//
// Whoever writes a final answer is ranked by quality alone. The classifier's call is
// ranked by speed alone. A worker's rank is quality^α·speed^(1−α), a quarter more at the
// provider that its domain is anchored to, divided by the copies that already run at
// the provider and, half as heavy, on the device: so the second task of a wave goes
// elsewhere unless the rest is less than half as good.
func rank(s *Settings, task *Task, offers []Offer, seen []seen, anchored string) []float64 {
	var fastest float64
	for i := range offers {
		fastest = max(fastest, pace(&offers[i], &seen[i].Count))
	}
	ranks := make([]float64, len(offers))
	domain := grouped(task.Kind)
	for i := range offers {
		o := &offers[i]
		quality := o.Quality
		if !(quality > 0) {
			quality = unsaid
		}
		if task.Final {
			ranks[i] = quality
			continue
		}
		alpha := s.Alpha
		if task.Role == job.Classify {
			alpha = 0
		}
		if suits(o.Model, domain) {
			quality += affine
		}
		r := math.Pow(quality, alpha) * math.Pow(speed(o, &seen[i].Count, fastest, s.Floor), 1-alpha)
		if anchored != "" && anchored == asked(o) {
			r *= anchor
		}
		ranks[i] = r / (1 + float64(seen[i].provider) + float64(seen[i].device)/2)
	}
	return ranks
}

// best gives the place in offers of the highest rank that fits says may be taken, the
// first of equals; one that rests only if nothing else fits; -1 for none.
func best(offers []Offer, ranks []float64, fits func(*Offer) bool) int {
	at := -1
	for i := range offers {
		o := &offers[i]
		if !fits(o) {
			continue
		}
		if at < 0 || offers[at].Resting && !o.Resting || offers[at].Resting == o.Resting && ranks[i] > ranks[at] {
			at = i
		}
	}
	return at
}

// asked names whose queue an offer waits in.
func asked(o *Offer) string {
	if o.Provider != "" {
		return o.Provider
	}
	return string(o.Option) + "@" + string(o.Peer)
}

// expected gives how long an answer of an offer takes: as measured, once there are
// enough, else as the chain says; 0 unknown.
func expected(o *Offer, c *Count) time.Duration {
	if c.Done >= enough {
		return c.Busy / time.Duration(c.Done)
	}
	return o.Latency
}
