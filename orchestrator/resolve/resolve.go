// Package resolve owns the order of a chain: which options are in and out for
// one scope and primitive, what each is expected to cost, in which order a
// device should try them, and why. It is pure: the catalogue's facts, what the
// fleet can reach and what was learned come in as plain values, and the same
// values give the same bytes. It must not know where they come from, nor a
// store, a clock or a network. The arithmetic stands in docs/ordering.md.
package resolve

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/chordwheel/chordwheel/chain"
)

// Mode says how options are put in order.
type Mode string

// Modes. Cool-downs, ceilings and denials apply in both.
const (
	Learned Mode = "learned" // by least expected cost; also the zero value's meaning
	Fixed   Mode = "fixed"   // as listed
)

// LocalSlot is the entry of a default list that stands for every local option.
const LocalSlot chain.OptionID = "local"

// Input is all that the order of one chain depends on. Order changes none of it.
type Input struct {
	Slot       chain.Slot
	Mode       Mode
	Default    []chain.OptionID // the catalogue's list for the primitive, best first; may hold [LocalSlot]
	Prefer     []chain.OptionID // the workspace's own list for the primitive, best first
	Pin        []string         // patterns of options that are in without being listed; see [Match]
	Deny       []string         // patterns of options that are out, whatever else holds
	Geo        []string         // where the workspace wants its work done: "IN", "IN-KA"; empty: anywhere
	Weights    Weights
	Profile    Profile
	Candidates []Candidate // in any order; every option that a list may mean
}

// Candidate is one option that might be in the chain, with what is known of it.
type Candidate struct {
	Option      chain.Option // as it should stand in the body; Cost holds what is declared: prices and quality
	Geo         string       // where a provider is; "" not declared
	Prior       Prior        // declared expectations
	Estimates   Estimates    // what the fleet learned
	Withheld    bool         // the catalogue keeps it back for protests
	Unreachable string       // why no device of the scope can run it; "" if one can
	Ceilings    []Ceiling    // those that count this option's use
	FailureBill chain.MicroUSD
}

// Prior is what the catalogue declares of an option. A zero means not declared:
// the product's own prior stands, see [DefaultPrior]. Quality is not here: it
// is declared in the option's cost.
type Prior struct {
	Latency        float64 // seconds to the end of an answer
	FailureLatency float64 // seconds to a failure; not declared: as Latency
	Reliability    float64 // share of attempts that succeed, 0 to 1
}

// DefaultPrior is what an option is expected to do of which nothing is declared.
func DefaultPrior() Prior { return Prior{Latency: 2, Reliability: 0.95} }

// defaultQuality is the quality of an option that declares none.
const defaultQuality = 0.5

// Estimates is what was learned of an option, already pulled towards its prior
// (package chain/estimate). A value of weight 0 was not learned.
type Estimates struct {
	Latency        Estimate // seconds, given success
	FailureLatency Estimate // seconds, given failure
	Reliability    Estimate // share, 0 to 1
	Quality        Estimate // share, 0 to 1
	Usual          float64  // while the option is suspect: the share without that mark; else 0
	LowN           bool     // fewer than 5 devices behind them
}

// Estimate is a learned value and the number of observations it counts for.
type Estimate struct {
	Value  float64
	Weight float64
}

// Ceiling is a limit on use as it stands at this moment.
type Ceiling struct {
	Name       string  // as people know it: "workspace home: gamma/*"
	Calls      bool    // it counts calls; otherwise money
	Multiplier float64 // the price of its scarcity, 0 to 10
	Breached   bool    // used up: the option is out
}

// Weights turn the axes into micro-dollars. The zero value means
// [DefaultWeights]; one field of zero means that its axis does not count.
type Weights struct {
	Second     float64 `json:"second"`     // a second of waiting
	Failure    float64 `json:"failure"`    // a failed attempt, beside its time
	Quality    float64 `json:"quality"`    // the whole range of quality
	Geo        float64 `json:"geo"`        // running outside the workspace's geo
	Preference float64 `json:"preference"` // the credit of the most preferred option
	Quota      float64 `json:"quota"`      // a call, times the multipliers of call ceilings
	Exhausted  float64 `json:"exhausted"`  // no option answered
}

// DefaultWeights is what holds where a workspace says nothing.
func DefaultWeights() Weights {
	return Weights{Second: 200, Failure: 5000, Quality: 2000, Geo: 0, Preference: 1000, Quota: 1000, Exhausted: 20000}
}

// Profile is the size of a typical request. The zero value means [DefaultProfile].
type Profile struct {
	InputTokens  float64 `json:"input_tokens"`
	OutputTokens float64 `json:"output_tokens"`
}

// DefaultProfile is the size of a request of which nothing is known.
func DefaultProfile() Profile { return Profile{InputTokens: 1000, OutputTokens: 300} }

// Resolution is the outcome: the order, and why it is so.
type Resolution struct {
	Slot     chain.Slot     `json:"slot"`
	Mode     Mode           `json:"order"`
	Options  []chain.Option `json:"-"`        // the chain, first to last, ready for a body: estimates filled in and rounded
	Withheld []chain.Option `json:"-"`        // kept back for protests, in the order to reveal them
	Expected float64        `json:"expected"` // micro-dollars of trying Options until one succeeds
	Weights  Weights        `json:"weights"`
	Profile  Profile        `json:"profile"`
	Why      []Verdict      `json:"options"` // every candidate: the chain, then the withheld, then those that are out, by id
}

// Order decides which candidates are in and in which order. It cannot fail: an
// option that cannot be priced or placed is out, and the verdict says why.
func Order(in Input) Resolution {
	if in.Mode != Fixed {
		in.Mode = Learned
	}
	if in.Profile == (Profile{}) {
		in.Profile = DefaultProfile()
	}
	if in.Weights == (Weights{}) {
		in.Weights = DefaultWeights()
	}
	seeds := seedsOf(in)
	var open, withheld, out []*placed
	for _, c := range sorted(in.Candidates) {
		p := judge(in, seeds, c)
		switch p.Status {
		case In:
			open = append(open, p)
		case Withheld:
			withheld = append(withheld, p)
		case Out:
			out = append(out, p)
		}
	}
	arrange(in.Mode, seeds, open)
	arrange(Learned, seeds, withheld)
	open, cut := cutOff(open)
	rank(open)
	rank(withheld)

	r := Resolution{Slot: in.Slot, Mode: in.Mode, Weights: in.Weights, Profile: in.Profile}
	for i, p := range open {
		p.Position = i + 1
		r.Options = append(r.Options, p.published())
	}
	for i, p := range withheld {
		p.Position = i + 1
		r.Withheld = append(r.Withheld, p.published())
	}
	out = append(out, cut...)
	slices.SortFunc(out, func(a, b *placed) int { return cmp.Compare(a.Option, b.Option) })
	for _, p := range slices.Concat(open, withheld, out) {
		r.Why = append(r.Why, p.Verdict)
	}
	r.Expected, _ = r.ExpectedCost(ids(open))
	return r
}

// ExpectedCost gives the expected micro-dollars of trying the named options in
// that order until one succeeds, with the numbers of r: what another order, such
// as the published one, would cost now. It fails for an option that r has no
// price for.
func (r *Resolution) ExpectedCost(order []chain.OptionID) (float64, error) {
	total, reached := 0.0, 1.0
	for _, id := range order {
		i := slices.IndexFunc(r.Why, func(v Verdict) bool { return v.Option == id && v.Status != Out })
		if i < 0 {
			return 0, fmt.Errorf("option %s is not in the chain of %s", id, r.Slot)
		}
		v := &r.Why[i]
		total += float64(reached * expected(v.P, v.S, v.F))
		reached *= 1 - v.P
	}
	return total + float64(reached*r.Weights.Exhausted), nil
}

// arrange puts options in the order to try them.
func arrange(mode Mode, s seeds, options []*placed) {
	slices.SortStableFunc(options, func(a, b *placed) int {
		if mode == Fixed {
			return cmp.Or(cmp.Compare(s.listed(a.Option), s.listed(b.Option)), cmp.Compare(a.Option, b.Option))
		}
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Option, b.Option))
	})
}

// cutOff takes away what is more than a body may hold.
func cutOff(options []*placed) (kept, out []*placed) {
	if len(options) <= chain.MaxOptions {
		return options, nil
	}
	kept, out = options[:chain.MaxOptions], options[chain.MaxOptions:]
	for _, p := range out {
		p.Status = Out
		p.Reasons = append(p.Reasons, fmt.Sprintf("a chain holds at most %d options", chain.MaxOptions))
	}
	return kept, out
}

// sorted gives the candidates by id, so that the caller's order has no say.
func sorted(in []Candidate) []*Candidate {
	list := make([]*Candidate, len(in))
	for i := range in {
		list[i] = &in[i]
	}
	slices.SortStableFunc(list, func(a, b *Candidate) int { return cmp.Compare(a.Option.ID, b.Option.ID) })
	return slices.CompactFunc(list, func(a, b *Candidate) bool { return a.Option.ID == b.Option.ID })
}

func ids(options []*placed) []chain.OptionID {
	list := make([]chain.OptionID, len(options))
	for i, p := range options {
		list[i] = p.Option
	}
	return list
}
