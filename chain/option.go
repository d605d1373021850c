package chain

import (
	"fmt"
	"slices"
)

// Kind says how an option is run.
type Kind string

// The kinds that a device of this version can run. An option of another kind
// is skipped and counted, never an error: newer chains hold newer kinds.
const (
	Local    Kind = "local"    // an adapter on this device
	Provider Kind = "provider" // a remote service, with a key by reference
	Peer     Kind = "peer"     // an abstract slot, bound to a live peer at call time
)

// DataClass says where data of an option may go.
type DataClass string

// Data classes. LocalOnly never becomes a peer slot.
const (
	AnyData   DataClass = ""
	LocalOnly DataClass = "local-only"
)

// Option is one way to do a primitive. Keys are references into the device's
// own key ring, in the order to try them, never secrets.
type Option struct {
	ID       OptionID     `cbor:"id" json:"id"`
	Kind     Kind         `cbor:"kind" json:"kind"`
	Agent    string       `cbor:"agent,omitempty" json:"agent,omitempty"`
	Adapter  string       `cbor:"adapter,omitempty" json:"adapter,omitempty"`
	Model    string       `cbor:"model,omitempty" json:"model,omitempty"`
	Endpoint string       `cbor:"endpoint,omitempty" json:"endpoint,omitempty"`
	Keys     []string     `cbor:"keys,omitempty" json:"keys,omitempty"`
	Domain   string       `cbor:"domain,omitempty" json:"domain,omitempty"` // failure domain
	Requires []Capability `cbor:"requires,omitempty" json:"requires,omitempty"`
	Tries    int          `cbor:"tries,omitempty" json:"tries,omitempty"` // peers a slot tries before it has failed
	Via      []Kind       `cbor:"via,omitempty" json:"via,omitempty"`     // what a slot's executor may walk
	Cost     Cost         `cbor:"cost,omitempty" json:"cost"`
	Limits   Limits       `cbor:"limits,omitempty" json:"limits"`
	Data     DataClass    `cbor:"data,omitempty" json:"data,omitempty"`
	Accounts []Account    `cbor:"accounts,omitempty" json:"accounts,omitempty"` // ceilings that its use counts against
}

// Account is a ceiling on money or calls that an option's use counts against. A
// device uses the option only under leases of the account, see docs/quotas.md.
type Account struct {
	Name  string `cbor:"name" json:"name"`                       // what leases call it
	Key   string `cbor:"key,omitempty" json:"key,omitempty"`     // only attempts with this key count; "": all do
	Calls bool   `cbor:"calls,omitempty" json:"calls,omitempty"` // it counts calls; otherwise micro-dollars
}

// Cost is the vector of an option: what the catalogue declares (price,
// quality, geo) and what the fleet measured (latency, reliability), rounded.
type Cost struct {
	InputPerMtok   MicroUSD `cbor:"input_per_mtok,omitempty" json:"input_per_mtok,omitempty"`
	OutputPerMtok  MicroUSD `cbor:"output_per_mtok,omitempty" json:"output_per_mtok,omitempty"`
	PerCall        MicroUSD `cbor:"per_call,omitempty" json:"per_call,omitempty"`
	Latency        Millis   `cbor:"latency,omitempty" json:"latency_ms,omitempty"`                 // to the end of the answer, given success
	FailureLatency Millis   `cbor:"failure_latency,omitempty" json:"failure_latency_ms,omitempty"` // to the failure, given failure
	Reliability    PPM      `cbor:"reliability,omitempty" json:"reliability_ppm,omitempty"`
	Quality        PPM      `cbor:"quality,omitempty" json:"quality_ppm,omitempty"`
	Outside        bool     `cbor:"outside,omitempty" json:"outside,omitempty"` // outside the scope's geo
	Weight         int64    `cbor:"weight,omitempty" json:"weight,omitempty"`   // observations behind the estimates
	LowN           bool     `cbor:"low_n,omitempty" json:"low_n,omitempty"`     // fewer than 5 devices behind them
	Usual          PPM      `cbor:"usual,omitempty" json:"usual_ppm,omitempty"` // while it is suspect: the reliability without that mark
	Beside         MicroUSD `cbor:"beside,omitempty" json:"beside,omitempty"`   // what a success costs beside its time, by the hub's weights and before credit
	Credit         MicroUSD `cbor:"credit,omitempty" json:"credit,omitempty"`   // what preference takes off
	FailureBill    MicroUSD `cbor:"failure_bill,omitempty" json:"failure_bill,omitempty"`
}

// Limits bound one attempt. A zero means the default of the device.
type Limits struct {
	FirstOutput Millis   `cbor:"first_output,omitempty" json:"first_output_ms,omitempty"`
	Idle        Millis   `cbor:"idle,omitempty" json:"idle_ms,omitempty"`
	Total       Millis   `cbor:"total,omitempty" json:"total_ms,omitempty"`
	Payload     int64    `cbor:"payload,omitempty" json:"payload_bytes,omitempty"`
	Concurrency int      `cbor:"concurrency,omitempty" json:"concurrency,omitempty"`
	Context     int      `cbor:"context,omitempty" json:"context_tokens,omitempty"`
	Features    []string `cbor:"features,omitempty" json:"features,omitempty"` // declared: tools, images, …; empty means not declared
	Thinking    bool     `cbor:"thinking,omitempty" json:"thinking,omitempty"` // reasons for long before it speaks
}

// Caps on foreign chains. A body over one of them is refused.
const (
	MaxOptions   = 256
	MaxBodyBytes = 512 << 10

	MaxAccounts = 16 // of one option

	maxText = 2048 // bytes of an endpoint, a model's name
)

// Validate checks o for what a device relies on. It does not refuse an
// unknown kind.
func (o *Option) Validate() error {
	switch {
	case o.ID == "" || len(o.ID) > MaxNameBytes || !printable(string(o.ID)):
		return fmt.Errorf("option id %q: want 1 to %d printable bytes without spaces", Clip(o.ID), MaxNameBytes)
	case o.Kind == "" || len(o.Kind) > MaxNameBytes || !printable(string(o.Kind)):
		return fmt.Errorf("option %s: kind is missing or no name", o.ID)
	case o.Data != AnyData && o.Data != LocalOnly: // what it forbids is not known here
		return fmt.Errorf("option %s: unknown data class %q", o.ID, Clip(o.Data))
	case o.Kind == Peer && o.Data == LocalOnly:
		return fmt.Errorf("option %s: local-only data cannot have a peer slot", o.ID)
	case len(o.Keys) > 16 || len(o.Requires) > 64 || len(o.Via) > 8 || len(o.Limits.Features) > 32:
		return fmt.Errorf("option %s: a list in it is too long", o.ID)
	case o.Tries < 0 || o.Tries > 64:
		return fmt.Errorf("option %s: tries must be 0 to 64", o.ID)
	case len(o.Accounts) > MaxAccounts:
		return fmt.Errorf("option %s: it counts against %d ceilings, at most %d", o.ID, len(o.Accounts), MaxAccounts)
	}
	if err := o.validTexts(); err != nil {
		return err
	}
	if o.Agent != "" && !IsDID(o.Agent) { // it goes into receipts and tokens
		return fmt.Errorf("option %s: its agent %q is no DID", o.ID, Clip(o.Agent))
	}
	return o.validNumbers()
}

// validTexts bounds every text but the id and the kind.
func (o *Option) validTexts() error {
	for _, s := range []string{o.Adapter, o.Model, o.Endpoint, o.Domain} {
		if len(s) > maxText {
			return fmt.Errorf("option %s: a text in it is longer than %d bytes", o.ID, maxText)
		}
	}
	for i := range o.Accounts {
		if a := &o.Accounts[i]; ParseAccount(a.Name) != nil || len(a.Key) > MaxNameBytes {
			return fmt.Errorf("option %s: the name of a ceiling is empty, too long or not printable", o.ID)
		}
	}
	long := tooLong(o.Keys) || tooLong(o.Requires) || tooLong(o.Via) || tooLong(o.Limits.Features)
	if long {
		return fmt.Errorf("option %s: a name in a list is empty or longer than %d bytes", o.ID, MaxNameBytes)
	}
	return nil
}

func tooLong[T ~string](names []T) bool {
	return slices.ContainsFunc(names, func(n T) bool { return n == "" || len(n) > MaxNameBytes })
}

func (o *Option) validNumbers() error {
	for _, n := range []int64{int64(o.Cost.InputPerMtok), int64(o.Cost.OutputPerMtok), int64(o.Cost.PerCall), o.Cost.Weight,
		int64(o.Cost.Beside), int64(o.Cost.Credit), int64(o.Cost.FailureBill),
		o.Limits.Payload, int64(o.Limits.Concurrency), int64(o.Limits.Context)} {
		if n < 0 || n > 1<<53 {
			return fmt.Errorf("option %s: a number in it is negative or too large", o.ID)
		}
	}
	for _, m := range []Millis{o.Cost.Latency, o.Cost.FailureLatency, o.Limits.FirstOutput, o.Limits.Idle, o.Limits.Total} {
		if m < 0 || m > maxMillis {
			return fmt.Errorf("option %s: a duration in it is negative or over a year", o.ID)
		}
	}
	for _, p := range []PPM{o.Cost.Reliability, o.Cost.Quality, o.Cost.Usual} {
		if p < 0 || p > 1e6 {
			return fmt.Errorf("option %s: a share in it is outside 0 to 1,000,000", o.ID)
		}
	}
	return nil
}

// Through gives the kinds of options that whoever fills the slot o may walk for it:
// what it says itself, else what the rules of its chain say.
func (o *Option) Through(rules Rules) []Kind {
	if len(o.Via) > 0 {
		return o.Via
	}
	return rules.Via
}

// Known reports whether this version can run options of o's kind.
func (o *Option) Known() bool { return slices.Contains([]Kind{Local, Provider, Peer}, o.Kind) }

// Suspect reports whether much of the fleet failed with o a moment ago. Its
// reliability is then what those attempts say, and Usual what was known before.
func (c *Cost) Suspect() bool { return c.Usual > 0 }

// Remote reports whether running o needs a network.
func (o *Option) Remote() bool { return o.Kind != Local }
