package chain

import (
	"fmt"
	"slices"
	"time"
)

// Rules are what a chain tells a device beside the options. A zero field means
// the default of [DefaultRules].
type Rules struct {
	Sampling       PPM      `cbor:"sampling,omitempty" json:"sampling_ppm"`              // share of successes reported in detail
	ReportInterval Millis   `cbor:"report_interval,omitempty" json:"report_interval_ms"` // between visits without news
	Reorder        PPM      `cbor:"reorder,omitempty" json:"reorder_ppm"`                // gain below which a device keeps the order
	Exploration    PPM      `cbor:"exploration,omitempty" json:"exploration_ppm"`        // probes an hour and device
	NoExploration  bool     `cbor:"no_exploration,omitempty" json:"no_exploration,omitempty"`
	Explore        []string `cbor:"explore,omitempty" json:"explore"`         // patterns of the options that may be probed
	Sought         []Sought `cbor:"sought,omitempty" json:"sought,omitempty"` // of these the fleet wants more samples now
	Idle           Millis   `cbor:"idle,omitempty" json:"idle_ms"`            // without a request, before a device explores
	Fixed          bool     `cbor:"fixed,omitempty" json:"fixed,omitempty"`   // the order is the owner's: a device keeps it
	Weights        Weights  `cbor:"weights,omitempty" json:"weights"`
	Profile        Profile  `cbor:"profile,omitempty" json:"profile"`
	NoPeers        bool     `cbor:"no_peers,omitempty" json:"no_peers,omitempty"` // peer routing is not allowed
	Attempts       int      `cbor:"attempts,omitempty" json:"attempts"`           // cap for one request
	CoolDown       CoolDown `cbor:"cool_down,omitempty" json:"cool_down"`
	Budgets        Budgets  `cbor:"budgets,omitempty" json:"budgets"`
	Via            []Kind   `cbor:"via,omitempty" json:"via,omitempty"`                               // for slots that name none
	FilterNext     bool     `cbor:"filter_next,omitempty" json:"filter_next,omitempty"`               // a content filter's no goes to the next option
	Escalation     PPM      `cbor:"escalation,omitempty" json:"escalation_target_ppm"`                // wanted share of requests that protest
	CallsPerMinute PPM      `cbor:"calls_per_minute,omitempty" json:"calls_per_minute_ppm,omitempty"` // of the primitive, on one device; 0: as many as there are
}

// Sought is an option of which the hub wants samples: what its newest witnesses say
// differs from what is believed of it, in a way that would matter.
type Sought struct {
	Option OptionID `cbor:"option" json:"option"`
	Daily  int      `cbor:"daily" json:"daily"` // samples a day, of all devices of the scope together; 1 to MaxDaily
}

// Bounds of what a chain seeks.
const (
	MaxSought = 16
	MaxDaily  = 10_000
)

// Weights are the micro-dollars by which the hub compares options, as far as a
// device needs them to price its own measurements. All of them zero means the
// default; else a zero is one that does not count.
type Weights struct {
	Second    MicroUSD `cbor:"second,omitempty" json:"second"`       // a second of waiting
	Failure   MicroUSD `cbor:"failure,omitempty" json:"failure"`     // a failed attempt, beside its time
	Exhausted MicroUSD `cbor:"exhausted,omitempty" json:"exhausted"` // no option answered
	Warm      MicroUSD `cbor:"warm,omitempty" json:"warm"`           // the credit of a conversation's last good option
}

// Profile is the size of a typical request, in tokens.
type Profile struct {
	Input  int64 `cbor:"input,omitempty" json:"input"`
	Output int64 `cbor:"output,omitempty" json:"output"`
}

// CoolDown bounds how long something that failed is left alone.
type CoolDown struct {
	Base       Millis `cbor:"base,omitempty" json:"base_ms"` // an option's first
	Max        Millis `cbor:"max,omitempty" json:"max_ms"`   // an option's longest
	PeerBase   Millis `cbor:"peer_base,omitempty" json:"peer_base_ms"`
	PeerMax    Millis `cbor:"peer_max,omitempty" json:"peer_max_ms"`
	KeyBase    Millis `cbor:"key_base,omitempty" json:"key_base_ms"`
	KeyMax     Millis `cbor:"key_max,omitempty" json:"key_max_ms"`
	RetryAfter Millis `cbor:"retry_after,omitempty" json:"retry_after_ms"` // the longest Retry-After that is believed
}

// Budgets are the time budgets that a call may name, and the most it may ask for.
type Budgets struct {
	Interactive Millis `cbor:"interactive,omitempty" json:"interactive_ms"`
	Batch       Millis `cbor:"batch,omitempty" json:"batch_ms"`
	Max         Millis `cbor:"max,omitempty" json:"max_ms"`
}

// defaults is what holds where a chain says nothing. Nobody changes it: rules are read for
// every request.
var defaults = Rules{
	Sampling: PPMOf(0.1), ReportInterval: MillisOf(15 * time.Minute), Reorder: PPMOf(0.1), Exploration: PPMOf(0.3), Attempts: 8,
	CoolDown: CoolDown{Base: MillisOf(time.Minute), Max: MillisOf(time.Hour), PeerBase: MillisOf(time.Second), PeerMax: MillisOf(5 * time.Minute),
		KeyBase: MillisOf(10 * time.Minute), KeyMax: MillisOf(6 * time.Hour), RetryAfter: MillisOf(time.Hour)},
	Budgets:    Budgets{Interactive: MillisOf(time.Minute), Batch: MillisOf(10 * time.Minute), Max: MillisOf(time.Hour)},
	Via:        []Kind{Local},
	Escalation: PPMOf(0.01),
	Explore:    []string{"*"}, Idle: MillisOf(time.Minute),
	Weights: Weights{Second: 200, Failure: 5000, Exhausted: 20000, Warm: 1000},
	Profile: Profile{Input: 1000, Output: 300},
}

// DefaultRules is what holds where a chain says nothing. The caller may change it.
func DefaultRules() Rules {
	d := defaults
	d.Via, d.Explore = slices.Clone(d.Via), slices.Clone(d.Explore)
	return d
}

// WithDefaults fills every zero field of r. Lists are shared: they are only read.
func (r Rules) WithDefaults() Rules {
	d := &defaults
	or(&r.Sampling, d.Sampling)
	or(&r.ReportInterval, d.ReportInterval)
	or(&r.Reorder, d.Reorder)
	or(&r.Exploration, d.Exploration)
	or(&r.Attempts, d.Attempts)
	or(&r.CoolDown.Base, d.CoolDown.Base)
	or(&r.CoolDown.Max, d.CoolDown.Max)
	or(&r.CoolDown.PeerBase, d.CoolDown.PeerBase)
	or(&r.CoolDown.PeerMax, d.CoolDown.PeerMax)
	or(&r.CoolDown.KeyBase, d.CoolDown.KeyBase)
	or(&r.CoolDown.KeyMax, d.CoolDown.KeyMax)
	or(&r.CoolDown.RetryAfter, d.CoolDown.RetryAfter)
	or(&r.Budgets.Interactive, d.Budgets.Interactive)
	or(&r.Budgets.Batch, d.Budgets.Batch)
	or(&r.Budgets.Max, d.Budgets.Max)
	or(&r.Escalation, d.Escalation)
	or(&r.Idle, d.Idle)
	or(&r.Weights, d.Weights)
	or(&r.Profile, d.Profile)
	if len(r.Via) == 0 {
		r.Via = d.Via
	}
	if len(r.Explore) == 0 {
		r.Explore = d.Explore
	}
	return r
}

func or[T comparable](field *T, fallback T) {
	var zero T
	if *field == zero {
		*field = fallback
	}
}

// Validate refuses rules that no device could keep.
func (r Rules) Validate() error {
	d := r.WithDefaults()
	for _, m := range []Millis{d.ReportInterval, d.CoolDown.Base, d.CoolDown.Max, d.CoolDown.PeerBase, d.CoolDown.PeerMax, d.CoolDown.KeyBase,
		d.CoolDown.KeyMax, d.CoolDown.RetryAfter, d.Idle, d.Budgets.Interactive, d.Budgets.Batch, d.Budgets.Max} {
		if m < 0 || m > maxMillis {
			return fmt.Errorf("rules: a duration is negative or over a year")
		}
	}
	if d.Attempts < 1 || d.Attempts > 64 {
		return fmt.Errorf("rules: attempts must be 1 to 64, is %d", d.Attempts)
	}
	for _, p := range []PPM{d.Sampling, d.Reorder, d.Escalation} {
		if p < 0 || p > 1e6 {
			return fmt.Errorf("rules: a share is outside 0 to 1,000,000")
		}
	}
	for _, n := range []int64{int64(d.Weights.Second), int64(d.Weights.Failure), int64(d.Weights.Exhausted), int64(d.Weights.Warm), d.Profile.Input, d.Profile.Output} {
		if n < 0 || n > 1<<40 {
			return fmt.Errorf("rules: a weight or the profile is negative or too large")
		}
	}
	if len(r.Sought) > MaxSought {
		return fmt.Errorf("rules: over %d options are sought", MaxSought)
	}
	for _, s := range r.Sought {
		if s.Daily < 1 || s.Daily > MaxDaily || tooLong([]string{string(s.Option)}) {
			return fmt.Errorf("rules: an option is sought that cannot be, or out of range")
		}
	}
	if d.CallsPerMinute < 0 || d.CallsPerMinute > 1e15 {
		return fmt.Errorf("rules: calls_per_minute is out of range")
	}
	if len(r.Explore) > 64 || tooLong(r.Explore) {
		return fmt.Errorf("rules: explore has over 64 patterns, or one that is empty or too long")
	}
	if d.Exploration < 0 || d.Exploration > 1000e6 || len(d.Via) > 8 {
		return fmt.Errorf("rules: exploration or via is out of range")
	}
	return nil
}
