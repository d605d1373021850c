// Package sharing owns what a device's owner allows it to do for others: when,
// on which power, over which network, and how much at once. It decides from a
// policy, from what sensors say and from the time; it knows neither peers nor
// work. What it decides, and in which words, stands in docs/sharing.md.
package sharing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Mode says when a device works for others at all.
type Mode string

// Modes.
const (
	Off    Mode = "off"
	Idle   Mode = "idle"   // while its owner does not use it
	Always Mode = "always" // the default
)

// DefaultJobs is how many jobs of others run at once where the owner says nothing:
// what a local model server works on in parallel, and as much again.
const DefaultJobs = 8

// MaxJobs is the most that an owner can allow.
const MaxJobs = 1024

// maxScopes bounds the overrides.
const maxScopes = 64

// Rules are what holds for a scope. The zero value is the default: always, at any
// hour, on any power, not over a metered network, [DefaultJobs].
type Rules struct {
	Mode    Mode
	Hours   []Hours // none: any hour
	Mains   bool    // only on mains power
	Metered bool    // also over a metered network
	Jobs    int     // at once; 0: DefaultJobs
}

// Override replaces the rules that it names for one scope.
type Override struct {
	Mode    Mode    // "": as for all
	Hours   []Hours // nil: as for all; empty: any hour
	Mains   *bool
	Metered *bool
	Jobs    int // of this scope, within those of the device; 0: as for all
}

// Policy is an owner's sharing policy. The zero value shares always.
type Policy struct {
	Rules
	Scopes map[chain.ScopeID]Override
}

// For gives the rules of a scope.
func (p *Policy) For(scope chain.ScopeID) Rules {
	r := p.Rules
	if o, ok := p.Scopes[scope]; ok {
		if o.Mode != "" {
			r.Mode = o.Mode
		}
		if o.Hours != nil {
			r.Hours = o.Hours
		}
		if o.Mains != nil {
			r.Mains = *o.Mains
		}
		if o.Metered != nil {
			r.Metered = *o.Metered
		}
		if o.Jobs > 0 {
			r.Jobs = o.Jobs
		}
	}
	if r.Mode == "" {
		r.Mode = Always
	}
	if r.Jobs == 0 {
		r.Jobs = DefaultJobs
	}
	return r
}

// Validate names every rule that cannot be kept, in one line.
func (p *Policy) Validate() error {
	var wrong []string
	check := func(where string, mode Mode, jobs int) {
		if mode != "" && mode != Off && mode != Idle && mode != Always {
			wrong = append(wrong, fmt.Sprintf("%smode %q must be off, idle or always", where, chain.Clip(mode)))
		}
		if jobs < 0 || jobs > MaxJobs {
			wrong = append(wrong, fmt.Sprintf("%sjobs must be 1 to %d", where, MaxJobs))
		}
	}
	check("", p.Mode, p.Jobs)
	if len(p.Scopes) > maxScopes {
		wrong = append(wrong, fmt.Sprintf("scopes: over %d of them", maxScopes))
	}
	var names []string
	for name := range p.Scopes {
		names = append(names, string(name))
	}
	slices.Sort(names)
	for _, name := range names {
		if _, err := chain.ParseScope(name); err != nil {
			wrong = append(wrong, "scopes: "+err.Error())
			continue
		}
		o := p.Scopes[chain.ScopeID(name)]
		check("scopes: "+name+": ", o.Mode, o.Jobs)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("sharing: %s", strings.Join(wrong, "; "))
	}
	return nil
}

// Reading is what a sensor says.
type Reading int

// Readings. Where nobody can tell, a rule that asks is not met, but for idle: there
// the owner's own requests alone decide.
const (
	Unknown Reading = iota
	Yes
	No
)

// Readings are what is known of the device at one moment.
type Readings struct {
	Quiet   Reading       // nothing else keeps the machine busy
	Mains   Reading       // it is on mains power
	Metered Reading       // its network costs money
	Since   time.Duration // since the owner's last own request ended; 0 while one runs
	Own     bool          // whether there was one at all
}

// Patience is how long a device without a request of its owner's counts as used.
const Patience = time.Minute

// Reasons that are the owner's own will, as Decision.Why has them.
const (
	IsOff  = "sharing is off"
	Paused = "sharing is paused"
)

// Decision is whether a device works for others now.
type Decision struct {
	OK   bool
	Why  string    // for people, where it does not: one line without a full stop
	Back time.Time // when that may change by itself; zero: unknown
}

// Decide says whether rules r let the device work for others at now, whose
// location is the owner's.
func (r Rules) Decide(is Readings, now time.Time) Decision {
	switch {
	case r.Mode == Off:
		return Decision{Why: IsOff}
	case len(r.Hours) > 0 && !slices.ContainsFunc(r.Hours, func(h Hours) bool { return h.Holds(now) }):
		return Decision{Why: "it is outside of the hours for sharing", Back: next(r.Hours, now)}
	case r.Mains && is.Mains == No:
		return Decision{Why: "the device runs on its battery"}
	case r.Mains && is.Mains == Unknown:
		return Decision{Why: "it is not known whether the device is on mains power"}
	case !r.Metered && is.Metered == Yes:
		return Decision{Why: "the device's network is metered"}
	case r.Mode == Idle && is.Own && is.Since < Patience:
		return Decision{Why: "the device is in use by its owner", Back: now.Add(Patience - is.Since)}
	case r.Mode == Idle && is.Quiet == No:
		return Decision{Why: "the device is busy with other programs"}
	}
	return Decision{OK: true}
}
