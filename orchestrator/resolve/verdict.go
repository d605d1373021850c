package resolve

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
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
	Option   chain.OptionID `json:"option"`
	Kind     chain.Kind     `json:"kind"`
	Status   Status         `json:"status"`
	Position int            `json:"position,omitempty"` // from 1, within its status; 0 for those that are out
	Reasons  []string       `json:"reasons"`            // who put it in, or who kept it out
	P        float64        `json:"p"`                  // probability of success, 0.001 to 0.999
	S        float64        `json:"s"`                  // micro-dollars if it succeeds: the sum of the terms of S
	F        float64        `json:"f"`                  // micro-dollars if it fails: the sum of the terms of F
	Index    float64        `json:"index"`              // (p·s + (1−p)·f)/p: the lower, the earlier
	Success  []Term         `json:"success"`            // the terms of S
	Failure  []Term         `json:"failure"`            // the terms of F
	Axes     []Axis         `json:"axes,omitempty"`     // its place on each axis among those of its status
	Pareto   bool           `json:"pareto,omitempty"`   // no other option of its status is as good on every axis and better on one
	Declared bool           `json:"declared"`           // a list or a pin names it, whether it is in or out
	Outside  bool           `json:"outside,omitempty"`  // outside the workspace's geo
	LowN     bool           `json:"low_n,omitempty"`    // few devices behind its estimates
	Learned  bool           `json:"learned,omitempty"`  // at least one value was learned; otherwise all are declared
}

// Term is one summand of a cost.
type Term struct {
	Name  string  `json:"name"`
	Value float64 `json:"micro_usd"`
	Of    string  `json:"of,omitempty"` // how it came about, for people
}

// Axis is an option's standing on one cost axis.
type Axis struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"` // in the axis's own unit, less is better but for reliability and quality
	Rank  int     `json:"rank"`  // from 1; equals share a rank
}

// placed is a verdict in the making.
type placed struct {
	Verdict
	candidate *Candidate
	values    values
}

// judge prices a candidate and decides whether it is in.
func judge(in Input, s seeds, c *Candidate) *placed {
	p := &placed{candidate: c, values: valuesOf(in, c)}
	p.Option, p.Kind = c.Option.ID, c.Option.Kind
	p.price(in, s)

	by := s.declaredBy(in, c)
	against := kept(in, c)
	p.Declared = len(by) > 0 || c.Withheld
	switch {
	case len(against) > 0:
		p.Status, p.Reasons = Out, against
	case c.Withheld && !pinned(in, c):
		p.Status, p.Reasons = Withheld, []string{"withheld by the catalogue"}
	case len(by) == 0:
		p.Status, p.Reasons = Out, []string{"declared by nobody: not in the default list, not pinned"}
		if s.prefers(c.Option.ID) {
			p.Reasons = []string{"preferred, but not in the default list and not pinned"}
		}
	default:
		p.Status, p.Reasons = In, by
	}
	return p
}

// kept says who keeps a candidate out. Out is out: nothing brings it back.
func kept(in Input, c *Candidate) (reasons []string) {
	for _, pattern := range in.Deny {
		if Match(pattern, c.Option.ID) {
			reasons = append(reasons, "denied by "+pattern)
		}
	}
	if c.Unreachable != "" {
		reasons = append(reasons, "unreachable: "+c.Unreachable)
	}
	for _, l := range c.Ceilings {
		if l.Breached {
			reasons = append(reasons, "ceiling: "+l.Name)
		}
	}
	if err := c.Option.Validate(); err != nil {
		reasons = append(reasons, "invalid: "+err.Error())
	}
	return reasons
}

// seeds is who declared what, as far as this chain is concerned: a list per
// tier. The tier's weight is 8^tier.
type seeds struct {
	global    []chain.OptionID // the default list, with every local option in its place
	workspace []chain.OptionID // the prefer list
}

const tierWeight = 8

// builtinPrefix begins the ids of the models that every device has inside
// ([chain.BuiltinOption]). They are in a chain only where a list names them: else
// they would stand in front of the services that a catalogue is about.
const builtinPrefix = "local/builtin/"

// seedsOf spells the lists out: local options stand where the default list
// says "local", else in front.
func seedsOf(in Input) seeds {
	var locals []chain.OptionID
	for _, c := range sorted(in.Candidates) {
		if c.Option.Kind == chain.Local && !strings.HasPrefix(string(c.Option.ID), builtinPrefix) && !c.Withheld && !slices.Contains(in.Default, c.Option.ID) {
			locals = append(locals, c.Option.ID)
		}
	}
	at := slices.Index(in.Default, LocalSlot)
	if at < 0 {
		return seeds{slices.Concat(locals, in.Default), in.Prefer}
	}
	return seeds{slices.Concat(in.Default[:at], locals, in.Default[at+1:]), in.Prefer}
}

// declaredBy says who puts a candidate in.
func (s seeds) declaredBy(in Input, c *Candidate) (reasons []string) {
	id := c.Option.ID
	if i := slices.Index(s.global, id); i >= 0 {
		if slices.Contains(in.Default, id) {
			reasons = append(reasons, fmt.Sprintf("default, place %d of %d", i+1, len(s.global)))
		} else {
			reasons = append(reasons, "local: a device of the scope declares it")
		}
	}
	for _, pattern := range in.Pin {
		if Match(pattern, id) {
			reasons = append(reasons, "pinned by "+pattern)
		}
	}
	if i := slices.Index(s.workspace, id); i >= 0 && len(reasons) > 0 {
		reasons = append(reasons, fmt.Sprintf("preferred, place %d of %d", i+1, len(s.workspace)))
	}
	return reasons
}

// pinned reports whether the workspace's owner wants c in, also against the
// catalogue's wish to keep it back.
func pinned(in Input, c *Candidate) bool {
	return slices.ContainsFunc(in.Pin, func(pattern string) bool { return Match(pattern, c.Option.ID) })
}

func (s seeds) prefers(id chain.OptionID) bool { return slices.Contains(s.workspace, id) }

// listed is an option's place where the order is fixed: what the list does not
// hold comes after it.
func (s seeds) listed(id chain.OptionID) int {
	if i := slices.Index(s.global, id); i >= 0 {
		return i
	}
	return len(s.global)
}

// preference is an option's standing, 0 to 1: the mean over the tiers that hold
// any entry, weighted by 8^tier.
func (s seeds) preference(id chain.OptionID) float64 {
	sum, of, weight := 0.0, 0.0, 1.0
	for _, tier := range [][]chain.OptionID{s.global, s.workspace} {
		if n := len(tier); n > 0 {
			of += weight
			if i := slices.Index(tier, id); i >= 0 {
				sum += float64(weight * float64(n-i) / float64(n))
			}
		}
		weight *= tierWeight
	}
	if of == 0 {
		return 0
	}
	return sum / of
}

// Match reports whether an option's id fits a pattern: an id, in which each "*"
// stands for any run of characters, slashes among them.
func Match(pattern string, id chain.OptionID) bool { return chain.Match(pattern, string(id)) }
