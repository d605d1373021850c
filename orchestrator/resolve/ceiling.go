package resolve

import "math"

// Constants of the multipliers.
const (
	multiplierStep = 0.1 // how far one hour moves it
	maxMultiplier  = 10
	leastElapsed   = 0.1 // share of a period before which nothing is projected
)

// NextMultiplier gives a ceiling's multiplier μ for the next hour:
// clamp(μ + 0.1·(projected/ceiling − 1), 0, 10), where projected is what the
// period will have used at this pace: used / elapsed share. elapsed is the share
// of the period that has passed, 0 to 1; below a tenth μ stays as it is. A ceiling
// of nothing that is used at all is as scarce as can be. What is no number
// changes nothing.
func NextMultiplier(mu, used, ceiling, elapsed float64) float64 {
	if !(mu >= 0) {
		mu = 0
	}
	mu = min(mu, maxMultiplier)
	if !(elapsed >= leastElapsed) || !(used >= 0) || !(ceiling >= 0) {
		return mu
	}
	ratio := used / min(elapsed, 1) / ceiling
	switch {
	case used == 0:
		ratio = 0
	case math.IsInf(ratio, 0) || math.IsNaN(ratio):
		return maxMultiplier
	}
	return min(max(mu+float64(multiplierStep*(ratio-1)), 0), maxMultiplier)
}
