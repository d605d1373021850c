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
	"sync"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/order"
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
	Default    []chain.OptionID // the catalogue's list for the primitive, best first: the seed of tier 0; may hold [LocalSlot]
	Seeds      []Seed           // the other lists that speak of this chain, in any order
	Pin        []Ruling         // options that are in without being listed
	Deny       []Ruling         // options that are out, whatever else holds
	Geo        []string         // where the workspace wants its work done: "IN", "IN-KA"; empty: anywhere
	Weights    Weights
	Profile    Profile     // declared
	Measured   Measured    // what requests turned out to be; replaces the profile
	Cap        int         // attempts of one request; 0: no cap
	Rho        float64     // see [order.Terms]; 0: the default
	Candidates []Candidate // in any order; every option that a list may mean

	// What the rules let devices explore, beside which nothing is sought. It is told
	// with the rules and so no part of an input's fingerprint.
	Explore       []string `json:"-"` // patterns; empty: all
	NoExploration bool     `json:"-"`
}

// Seed is one source's list of options for one chain, best first. Tiers are an
// open ordered list; a seed of tier t weighs 8^t beside those of other tiers.
type Seed struct {
	Tier    int    // from 0, the least specific: the catalogue's own list
	Name    string // of the tier: "workspace"
	Source  string // who declares it: "home", "stage extract"
	Options []chain.OptionID
	Default bool // what it lists is in by itself, and a fixed order starts with it; otherwise it only prefers
}

// Ruling is a pattern (see [Match]) by which somebody lets options in or keeps them out.
type Ruling struct {
	Pattern string
	By      string // who said so; "" the workspace
}

// String gives the pattern, and who said so where it was not the workspace.
func (r Ruling) String() string {
	if r.By == "" {
		return r.Pattern
	}
	return r.Pattern + " (" + r.By + ")"
}

// Measured is the size of requests as they were. A value of weight 0 was not measured.
type Measured struct {
	InputTokens  Estimate
	OutputTokens Estimate
}

// Candidate is one option that might be in the chain, with what is known of it.
type Candidate struct {
	Option      chain.Option // as it should stand in the body; Cost holds what is declared: prices and quality
	Geo         string       // where a provider is; "" not declared
	Prior       Prior        // declared expectations
	Estimates   Estimates    // what the fleet learned
	Trend       Trend        // and what its newest word says against that
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
	Used       float64 // share that is spent
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
	Method   order.Method   `json:"method,omitempty"` // how a learned order was found; "approximate" where more options compete than can be tried out
	Options  []chain.Option `json:"-"`                // the chain, first to last, ready for a body: estimates filled in and rounded
	Withheld []chain.Option `json:"-"`                // kept back for protests, in the order to reveal them
	Sought   []chain.Sought `json:"sought,omitempty"` // of what is in, by id: more samples are wanted of these
	Expected float64        `json:"expected"`         // micro-dollars of trying Options until one succeeds
	Weights  Weights        `json:"weights"`
	Profile  Profile        `json:"profile"`            // as used: measured where it was
	Cap      int            `json:"attempts,omitempty"` // the cap that the order minds; 0: none
	Gradient []AxisOrder    `json:"gradient,omitempty"` // of [Explain]
	Why      []Verdict      `json:"options,omitempty"`  // of [Explain]: every candidate: the chain, then the withheld, then those that are out, by id

	terms  order.Terms
	priced []order.Option // all that are in or withheld, by id
}

// Order decides which candidates are in and in which order. It cannot fail: an
// option that cannot be priced or placed is out. It leaves Gradient and Why empty.
func Order(in Input) Resolution {
	w := resolve(&in)
	return w.resolution()
}

// Explain is Order with the gradient and the verdict about every candidate.
func Explain(in Input) Resolution {
	w := resolve(&in)
	r := w.resolution()
	w.explain(&r)
	return r
}

// ExpectedCost gives the expected micro-dollars of trying the named options in
// that order until one succeeds, with the numbers of r: what another order, such
// as the published one, would cost now. It fails for an option that r has no
// price for.
func (r *Resolution) ExpectedCost(list []chain.OptionID) (float64, error) {
	options := make([]order.Option, len(list))
	for i, id := range list {
		o, ok := r.Priced(id)
		if !ok {
			return 0, fmt.Errorf("option %s is not in the chain of %s", id, r.Slot)
		}
		options[i] = o
	}
	return order.Cost(options, r.terms), nil
}

// Priced gives an option that is in or withheld as the arithmetic sees it.
func (r *Resolution) Priced(id chain.OptionID) (order.Option, bool) {
	i, ok := slices.BinarySearchFunc(r.priced, id, func(o order.Option, id chain.OptionID) int { return cmp.Compare(o.ID, id) })
	if !ok {
		return order.Option{}, false
	}
	return r.priced[i], true
}

// Terms is what the order minds beside the options.
func (r *Resolution) Terms() order.Terms { return r.terms }

// work is a resolution in the making.
type work struct {
	in       *Input
	seeds    []Seed    // by tier and source, the catalogue's spelled out
	all      []placed  // by id
	open     []*placed // in the order of the chain
	withheld []*placed
	out      []*placed // by id
	method   order.Method
	terms    order.Terms
	expected float64
	sought   []chain.Sought
}

func resolve(in *Input) *work {
	if in.Mode != Fixed {
		in.Mode = Learned
	}
	if in.Profile == (Profile{}) {
		in.Profile = DefaultProfile()
	}
	in.Profile.InputTokens = pick(in.Measured.InputTokens, in.Profile.InputTokens, maxTokens)
	in.Profile.OutputTokens = pick(in.Measured.OutputTokens, in.Profile.OutputTokens, maxTokens)
	if in.Weights == (Weights{}) {
		in.Weights = DefaultWeights()
	}
	w := &work{in: in, terms: order.Terms{Cap: in.Cap, Exhausted: in.Weights.Exhausted, Rho: in.Rho}}
	w.place()
	w.sow()
	for i := range w.all {
		p := &w.all[i]
		p.price(in)
		switch p.judge(in); p.status {
		case In:
			w.open = append(w.open, p)
		case Withheld:
			w.withheld = append(w.withheld, p)
		case Out:
			w.out = append(w.out, p)
		}
	}
	s := solvers.Get().(*order.Solver)
	defer solvers.Put(s)
	arrange(s, Learned, w.terms, w.withheld)
	w.method = arrange(s, in.Mode, w.terms, w.open)
	w.cutOff()
	w.expected = order.Cost(options(w.open), w.terms)
	w.sought = w.seek()
	return w
}

// solvers keep the room that exact orders need.
var solvers = sync.Pool{New: func() any { return new(order.Solver) }}

// place sorts the candidates by id, so that the caller's order has no say. Of two
// with one id the first stays.
func (w *work) place() {
	list := make([]*Candidate, len(w.in.Candidates))
	for i := range w.in.Candidates {
		list[i] = &w.in.Candidates[i]
	}
	slices.SortStableFunc(list, func(a, b *Candidate) int { return cmp.Compare(a.Option.ID, b.Option.ID) })
	list = slices.CompactFunc(list, func(a, b *Candidate) bool { return a.Option.ID == b.Option.ID })
	w.all = make([]placed, len(list))
	for i, c := range list {
		w.all[i] = placed{c: c, values: valuesOf(w.in, c)}
	}
}

func (w *work) find(id chain.OptionID) *placed {
	i, ok := slices.BinarySearchFunc(w.all, id, func(p placed, id chain.OptionID) int { return cmp.Compare(p.c.Option.ID, id) })
	if !ok {
		return nil
	}
	return &w.all[i]
}

// arrange puts options in the order to try them.
func arrange(s *order.Solver, mode Mode, t order.Terms, list []*placed) order.Method {
	if mode == Fixed {
		slices.SortFunc(list, func(a, b *placed) int {
			return cmp.Or(cmp.Compare(a.listed, b.listed), cmp.Compare(a.c.Option.ID, b.c.Option.ID))
		})
		return ""
	}
	places, method := s.Best(options(list), t)
	sorted := make([]*placed, len(list))
	for i, at := range places {
		sorted[i] = list[at]
	}
	copy(list, sorted)
	return method
}

func options(list []*placed) []order.Option {
	out := make([]order.Option, len(list))
	for i, p := range list {
		out[i] = p.option()
	}
	return out
}

// cutOff takes away what is more than a body may hold.
func (w *work) cutOff() {
	if len(w.open) <= chain.MaxOptions {
		return
	}
	for _, p := range w.open[chain.MaxOptions:] {
		p.status, p.cut = Out, true
		w.out = append(w.out, p)
	}
	w.open = w.open[:chain.MaxOptions]
	slices.SortFunc(w.out, func(a, b *placed) int { return cmp.Compare(a.c.Option.ID, b.c.Option.ID) })
}

func (w *work) resolution() Resolution {
	r := Resolution{Slot: w.in.Slot, Mode: w.in.Mode, Method: w.method, Expected: w.expected, Weights: w.in.Weights, Profile: w.in.Profile, Cap: w.in.Cap, Sought: w.sought, terms: w.terms}
	r.Options, r.Withheld = published(w.open), published(w.withheld)
	r.priced = make([]order.Option, 0, len(w.open)+len(w.withheld))
	for i := range w.all {
		if p := &w.all[i]; p.status != Out {
			r.priced = append(r.priced, p.option())
		}
	}
	return r
}
