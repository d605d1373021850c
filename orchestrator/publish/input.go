package publish

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// Rules adds to a primitive's rules what devices need to weigh options as the
// hub does. What is as usual is left out of the body.
func Rules(r chain.Rules, in resolve.Input) chain.Rules {
	whole := func(x float64) chain.MicroUSD { return chain.MicroUSD(math.Round(x)) }
	usual := chain.DefaultRules()
	r.Fixed = in.Mode == resolve.Fixed
	if w := in.Weights; w != (resolve.Weights{}) {
		r.Weights = chain.Weights{Second: whole(w.Second), Failure: whole(w.Failure), Exhausted: whole(w.Exhausted), Warm: whole(w.Preference)}
	}
	if p := in.Profile; p != (resolve.Profile{}) {
		r.Profile = chain.Profile{Input: int64(math.Ceil(p.InputTokens)), Output: int64(math.Ceil(p.OutputTokens))}
	}
	if r.Weights == usual.Weights {
		r.Weights = chain.Weights{}
	}
	if r.Profile == usual.Profile {
		r.Profile = chain.Profile{}
	}
	return r
}

// Fingerprint names everything that policy depended on but the estimates. That
// an option is suspect counts as an input. It is the same for scopes that differ
// by their name alone.
func Fingerprint(in resolve.Input, rules chain.Rules, suspects []chain.OptionID) string {
	in.Seeds = slices.Clone(in.Seeds)
	for i := range in.Seeds {
		if in.Seeds[i].Source == string(in.Slot.Scope.Base()) {
			in.Seeds[i].Source = ""
		}
	}
	in.Slot.Scope = ""
	in.Candidates, in.Measured = slices.Clone(in.Candidates), resolve.Measured{}
	for i := range in.Candidates {
		in.Candidates[i].Estimates, in.Candidates[i].Trend = resolve.Estimates{}, resolve.Trend{}
		in.Candidates[i].Ceilings = slices.Clone(in.Candidates[i].Ceilings)
		for j := range in.Candidates[i].Ceilings {
			in.Candidates[i].Ceilings[j].Used = 0
		}
	}
	b, err := json.Marshal(struct {
		Input    resolve.Input
		Rules    chain.Rules
		Suspects []chain.OptionID
	}{in, rules, suspects})
	if err != nil {
		return "" // no number in it is infinite: the catalogue bounds them
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
