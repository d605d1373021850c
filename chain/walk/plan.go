package walk

import (
	"context"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Plan is one request as the walk sees it. Its slices are shared and not
// changed. The zero value of every field but Options has a meaning.
type Plan struct {
	Options   []chain.Option // the effective chain, in the order to try
	Extension []chain.Option // of an earlier asynchronous protest: tried after Options
	Rules     chain.Rules    // of the chain; defaults are filled in
	Limits    chain.Limits   // the device's defaults for first output, idle and total; zeros are those of DefaultLimits
	Stream    bool           // the caller wants events; otherwise one whole answer
	Needs     Needs          // what is known of the request
	Budget    time.Duration  // 0 is the rules' interactive one; never above the rules' most
	Strict    bool           // the budget also ends an answer that is reaching the caller; otherwise only the option's limits do
	Attempts  int            // upstream calls allowed, if lower than the rules': what a submitter lent to an executor
	Kinds     []chain.Kind   // kinds that may be walked, for foreign work; empty is all
	Hooks     Hooks
}

// Needs is what a request demands of an option. An option that declares less
// is passed over; one that declares nothing is tried, until an upstream has said
// that the request is too long or lacks a feature.
type Needs struct {
	Context  int      // tokens, only where certain; 0 unknown
	Payload  int64    // bytes
	Features []string // such as "tools"
}

// Hooks are what the walk asks of the device that it runs on. Each may be nil.
// All but Protest answer at once, from memory; they are called from the
// goroutine of the request.
type Hooks struct {
	// Current gives the option as the chain in force has it now, nil if it
	// was withdrawn. It is asked before each attempt, not for extensions.
	Current func(chain.OptionID) *chain.Option
	// Runs reports whether the device has what runs o. If nil, it has.
	Runs func(o *chain.Option) bool
	// Key reports whether a key is in the ring, and a number that differs
	// whenever its value changed, above 0. If nil, every key is there.
	Key func(name string) (generation uint64, ok bool)
	// Bind picks the best live peer for a slot for which except is false. If
	// nil, there is none.
	Bind func(o *chain.Option, except func(chain.PeerID) bool) (chain.PeerID, bool)
	// Reserve sets aside what one attempt with this key may cost, or says what it is short
	// of. settle may be nil and is called once when the attempt is over.
	Reserve func(o *chain.Option, key string) (settle func(Measurement), short *Short)
	// Admit lets one attempt of an option that this device runs itself begin, or says
	// why it may not now: [chain.Busy], all places of the option are taken, or
	// [chain.RateLimited], this device's calls of the primitive are used up until free.
	// leave may be nil and is called once when the attempt is over. If nil, all begin.
	Admit func(o *chain.Option) (leave func(), no chain.Class, free time.Time)
	// Hub reports whether the hub can be reached. If nil, it can.
	Hub func() bool
	// Protest asks the hub for further options. It returns before ctx ends,
	// none for a final no, and an error if the hub could not be reached. If
	// nil, there is no protest: so for foreign work.
	Protest func(ctx context.Context, failed []chain.Failure, budget time.Duration) ([]chain.Option, error)
	// Escalate, where set, takes the place of Protest: it starts the protest,
	// and the request ends with Escalating.
	Escalate func(failed []chain.Failure)
	// Measure takes each finished attempt.
	Measure func(Measurement)
	// Notice takes a key that was refused, or is missing, each time that it
	// goes to rest: a protest to be queued.
	Notice func(f chain.Failure, key string)
}

// Short says why the cost of an attempt could not be set aside. The zero Short is a ceiling
// of the option.
type Short struct {
	Own   bool          // a budget of the caller's own forbids it: other options would cost it as well
	Why   string        // with Own: one line for the caller, whose budget and until when
	Again time.Duration // with Own: until there may be more; 0 unknown
}

// DefaultLimits are the limits of an option where neither the chain nor the
// device says otherwise.
func DefaultLimits() chain.Limits {
	return chain.Limits{FirstOutput: chain.MillisOf(time.Minute), Idle: chain.MillisOf(time.Minute), Total: chain.MillisOf(5 * time.Minute)}
}

// An option marked as thinking gets its defaults longer by these factors.
// What it declares itself is taken as it stands.
const (
	thinkingSilence = 5 // first output and idle
	thinkingTotal   = 3
)

// limits fills in what o leaves open.
func (p *Plan) limits(o *chain.Option) chain.Limits {
	l, d := o.Limits, DefaultLimits()
	for _, f := range []struct {
		field            *chain.Millis
		device, fallback chain.Millis
		thinking         chain.Millis
	}{
		{&l.FirstOutput, p.Limits.FirstOutput, d.FirstOutput, thinkingSilence},
		{&l.Idle, p.Limits.Idle, d.Idle, thinkingSilence},
		{&l.Total, p.Limits.Total, d.Total, thinkingTotal},
	} {
		if *f.field > 0 {
			continue
		}
		*f.field = f.fallback
		if f.device > 0 {
			*f.field = f.device
		}
		if o.Limits.Thinking {
			*f.field *= f.thinking
		}
	}
	return l
}

// fair is how long an attempt must have been given before a cut by the
// request's budget says something about the option: its own limit, or less where
// it is known to be quick. Otherwise callers in a hurry would cool down
// what works for everybody else.
func fair(o *chain.Option, own time.Duration) time.Duration {
	if o.Cost.Latency > 0 {
		return min(own, max(time.Second, 3*o.Cost.Latency.Duration()))
	}
	return min(own, 10*time.Second)
}

// lacks says in which class o falls short of what the request needs, "" if it
// does not. What upstreams said so far is in long and lacking.
func (m *Machine) lacks(o *chain.Option) chain.Class {
	n, l := &m.plan.Needs, &o.Limits
	switch {
	case l.Payload > 0 && n.Payload > l.Payload, l.Context > 0 && n.Context > l.Context:
		return chain.ContextLength
	case m.long && l.Context <= m.longest:
		return chain.ContextLength
	case len(l.Features) > 0 && !containsAll(l.Features, n.Features):
		return chain.Feature
	case m.lacking && len(n.Features) > 0 && !containsAll(l.Features, n.Features):
		return chain.Feature
	case m.lacking && len(n.Features) == 0 && containsAll(m.useless, l.Features):
		return chain.Feature
	}
	return ""
}

func containsAll(have, want []string) bool {
	for _, w := range want {
		if !slices.Contains(have, w) {
			return false
		}
	}
	return true
}
