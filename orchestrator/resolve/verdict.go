package resolve

import (
	"fmt"
	"slices"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/order"
)

// Status says whether a candidate is in the chain.
type Status string

// Statuses.
const (
	In       Status = "in"
	Withheld Status = "withheld" // revealed on protest only
	Out      Status = "out"
)

// Verdict is what was decided about one candidate, and why: a row of `chain
// explain`. P, S, F, Terms and Index are given for options that are out, too.
type Verdict struct {
	Option    chain.OptionID `json:"option"`
	Kind      chain.Kind     `json:"kind"`
	Domain    string         `json:"domain,omitempty"` // what it fails together with
	Status    Status         `json:"status"`
	Position  int            `json:"position,omitempty"`  // from 1, within its status; 0 for those that are out
	Reasons   []string       `json:"reasons"`             // who put it in, or who kept it out
	P         float64        `json:"p"`                   // probability of success, 0.001 to 0.999
	S         float64        `json:"s"`                   // micro-dollars if it succeeds: the sum of the terms of S
	F         float64        `json:"f"`                   // micro-dollars if it fails: the sum of the terms of F
	Index     float64        `json:"index"`               // (p·s + (1−p)·f)/p: the lower, the earlier, where options are independent
	Reach     float64        `json:"reach,omitempty"`     // of those in: probability that it is tried; 0 past the cap
	Posterior float64        `json:"posterior,omitempty"` // of those in: probability that it succeeds once all before it failed
	Success   []Term         `json:"success"`             // the terms of S
	Failure   []Term         `json:"failure"`             // the terms of F
	Seeds     []Entry        `json:"seeds,omitempty"`     // the lists that name it, the least specific first
	Credit    float64        `json:"credit,omitempty"`    // its standing in all lists, 0 to 1
	Axes      []Axis         `json:"axes,omitempty"`      // its place on each axis among those of its status
	Pareto    bool           `json:"pareto,omitempty"`    // no other option of its status is as good on every axis and better on one
	Declared  bool           `json:"declared"`            // a list or a pin names it, whether it is in or out
	Outside   bool           `json:"outside,omitempty"`   // outside the workspace's geo
	LowN      bool           `json:"low_n,omitempty"`     // few devices behind its estimates
	Learned   bool           `json:"learned,omitempty"`   // at least one value was learned; otherwise all are declared
	Trend     string         `json:"trend,omitempty"`     // what its newest witnesses see that the estimate does not, for people
	Sought    int            `json:"sought,omitempty"`    // samples a day that the fleet is asked for because of that
}

// Term is one summand of a cost.
type Term struct {
	Name  string  `json:"name"`
	Value float64 `json:"micro_usd"`
	Of    string  `json:"of,omitempty"` // how it came about, for people
}

// Entry is one list's word on an option: an entry of the tensor.
type Entry struct {
	Tier   string `json:"tier"`
	Source string `json:"source"`
	Place  int    `json:"place"` // from 1
	Of     int    `json:"of"`
}

// Axis is an option's standing on one cost axis.
type Axis struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"` // in the axis's own unit, less is better but for reliability and quality
	Rank  int     `json:"rank"`  // from 1; equals share a rank
}

// placed is a candidate in the making of a resolution.
type placed struct {
	c         *Candidate
	values    values
	parts     parts
	s, f      float64
	share     float64 // of the credit, 0 to 1
	seeds     int     // lists that name it
	listed    int     // place in a fixed order
	inDefault bool    // some default list names it
	cut       bool    // more than a body may hold
	sought    int     // samples a day
	status    Status
}

// judge decides whether a candidate is in. Out is out: nothing brings it back.
func (p *placed) judge(in *Input) {
	id := p.c.Option.ID
	pinned := slices.ContainsFunc(in.Pin, func(r Ruling) bool { return Match(r.Pattern, id) })
	switch {
	case p.c.Unreachable != "",
		slices.ContainsFunc(in.Deny, func(r Ruling) bool { return Match(r.Pattern, id) }),
		slices.ContainsFunc(p.c.Ceilings, func(l Ceiling) bool { return l.Breached }),
		p.c.Option.Validate() != nil:
		p.status = Out
	case pinned, p.inDefault: // also against the catalogue's wish to keep it back
		p.status = In
	case p.c.Withheld:
		p.status = Withheld
	case p.seeds >= quorum:
		p.status = In
	default:
		p.status = Out
	}
}

// against says who keeps a candidate out.
func (p *placed) against(in *Input) (reasons []string) {
	for _, r := range in.Deny {
		if Match(r.Pattern, p.c.Option.ID) {
			reasons = append(reasons, "denied by "+r.String())
		}
	}
	if p.c.Unreachable != "" {
		reasons = append(reasons, "unreachable: "+p.c.Unreachable)
	}
	for _, l := range p.c.Ceilings {
		if l.Breached {
			reasons = append(reasons, "ceiling: "+l.Name)
		}
	}
	if err := p.c.Option.Validate(); err != nil {
		reasons = append(reasons, "invalid: "+err.Error())
	}
	if p.cut {
		reasons = append(reasons, fmt.Sprintf("a chain holds at most %d options", chain.MaxOptions))
	}
	return reasons
}

// explain fills in the gradient and the verdicts.
func (w *work) explain(r *Resolution) {
	r.Gradient = gradient(w.open)
	steps := order.Steps(options(w.open), w.terms)
	for i, v := range ranked(w.open) {
		if v.Position = i + 1; i < len(steps) {
			v.Reach, v.Posterior = steps[i].Reach, steps[i].P
		}
		r.Why = append(r.Why, w.verdict(w.open[i], v))
	}
	for i, v := range ranked(w.withheld) {
		v.Position = i + 1
		r.Why = append(r.Why, w.verdict(w.withheld[i], v))
	}
	for _, p := range w.out {
		r.Why = append(r.Why, w.verdict(p, Verdict{}))
	}
}

// verdict completes v, which holds p's place among its like.
func (w *work) verdict(p *placed, v Verdict) Verdict {
	o := p.option()
	v.Option, v.Kind, v.Domain, v.Status = o.ID, p.c.Option.Kind, o.Domain, p.status
	v.P, v.S, v.F, v.Index = o.P, o.S, o.F, o.Index()
	v.Success, v.Failure = p.success(w.in), p.failed()
	v.Credit, v.Outside, v.LowN, v.Learned = p.share, p.values.outside, p.c.Estimates.LowN, p.values.learned
	v.Trend, v.Sought = p.c.Trend.words(), p.sought
	for i := range w.seeds {
		s := &w.seeds[i]
		if at := slices.Index(s.Options, o.ID); at >= 0 {
			v.Seeds = append(v.Seeds, Entry{s.Name, s.Source, at + 1, len(s.Options)})
		}
	}
	by := w.inFavour(p, v.Seeds)
	v.Declared = p.inDefault || len(by) > 0 || p.c.Withheld
	switch p.status {
	case Out:
		if v.Reasons = p.against(w.in); len(v.Reasons) == 0 {
			v.Reasons = []string{"declared by nobody: not in the default list, not pinned"}
			if p.seeds > 0 {
				v.Reasons = []string{fmt.Sprintf("preferred by %d list, but not in the default list and not pinned: %d are a quorum", p.seeds, quorum)}
			}
		}
	case Withheld:
		v.Reasons = []string{"withheld by the catalogue"}
	case In:
		v.Reasons = by
	}
	return v
}

// inFavour says who puts a candidate in, and who prefers what is in.
func (w *work) inFavour(p *placed, entries []Entry) (reasons []string) {
	id, preferred := p.c.Option.ID, []string(nil)
	for _, e := range entries {
		i := slices.IndexFunc(w.seeds, func(s Seed) bool { return s.Name == e.Tier && s.Source == e.Source })
		switch s := &w.seeds[i]; {
		case s.Default && s.Tier == 0 && !slices.Contains(w.in.Default, id):
			reasons = append(reasons, "local: a device of the scope declares it")
		case s.Default && s.Tier == 0:
			reasons = append(reasons, fmt.Sprintf("default, place %d of %d", e.Place, e.Of))
		case s.Default:
			reasons = append(reasons, fmt.Sprintf("default of %s, place %d of %d", s.Source, e.Place, e.Of))
		default:
			preferred = append(preferred, fmt.Sprintf("preferred by %s, place %d of %d", s.Source, e.Place, e.Of))
		}
	}
	for _, r := range w.in.Pin {
		if Match(r.Pattern, id) {
			reasons = append(reasons, "pinned by "+r.String())
		}
	}
	if len(reasons) == 0 && p.seeds < quorum {
		return nil
	}
	if len(reasons) == 0 {
		reasons = append(reasons, fmt.Sprintf("quorum: %d lists declare it", p.seeds))
	}
	return append(reasons, preferred...)
}
