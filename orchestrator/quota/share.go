package quota

import (
	"math"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Claim is one party's part in what several compete for.
type Claim struct {
	Weight float64 // above 0
	Demand float64 // it wants no more than this; infinite for all it can get
}

// FairShare divides capacity by weighted max-min fairness: nobody gets more than
// it wants, and what one does not want goes to the others by weight.
func FairShare(capacity float64, claims []Claim) []float64 {
	shares := make([]float64, len(claims))
	order := make([]int, len(claims))
	weight := 0.0
	for i, c := range claims {
		order[i] = i
		weight += c.Weight
	}
	slices.SortFunc(order, func(i, j int) int { // by how soon they have enough
		return compare(claims[i].Demand/claims[i].Weight, claims[j].Demand/claims[j].Weight)
	})
	for _, i := range order {
		shares[i] = min(claims[i].Demand, capacity*claims[i].Weight/weight)
		capacity -= shares[i]
		weight -= claims[i].Weight
	}
	return shares
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Early is the share of a period before which its use says nothing of its end.
const Early = 0.1

// entitled is what primitive p may still take of c: its fair share of the whole
// ceiling, less what it had. A primitive wants what it has used so far, carried on
// to the period's end and doubled; early in the period, all that it can get.
// It follows a look, and p is among those that are wanted.
func (a *Account) entitled(c *Ceiling, p chain.Primitive, t Terms, now time.Time) int64 {
	from, to := c.Period(a.Period.Time())
	elapsed := float64(now.Sub(from)) / float64(to.Sub(from))
	var names []chain.Primitive
	var claims []Claim
	for x := range a.had {
		names = append(names, x)
	}
	for x := range a.since.wants {
		if _, known := a.had[x]; !known {
			names = append(names, x)
		}
	}
	slices.Sort(names)
	own := 0
	for i, x := range names {
		claim := Claim{Weight: 1, Demand: float64(a.had[x])}
		if w, ok := t.Shares[x]; ok {
			claim.Weight = max(w, 1e-9)
		}
		switch {
		case x == p:
			own, claim.Demand = i, math.Inf(1)
		case !a.since.wants[x]: // it rests: what it had is all it needs
		case elapsed < Early:
			claim.Demand = math.Inf(1)
		default:
			claim.Demand = max(claim.Demand, 2*float64(a.had[x])/elapsed)
		}
		claims = append(claims, claim)
	}
	return int64(FairShare(float64(c.Limit), claims)[own]) - a.had[p]
}
