package chain

// Class is how an attempt, or a whole request, ended. It decides what the walk
// does next (package walk), what a device's standing learns from it, and what
// the caller is told. Classes travel in reports and protests; an unknown one is
// refused there.
type Class string

// Classes of an attempt that ran.
const (
	OK            Class = "ok"
	Unreachable   Class = "unreachable"    // refused, reset, DNS, TLS
	Status        Class = "status"         // 3xx, 408, 409, 5xx but 529, and any 4xx not named below
	Timeout       Class = "timeout"        // first output, idle or total limit
	BadAnswer     Class = "bad_answer"     // a 200 that is no answer
	RateLimited   Class = "rate_limited"   // 429, 529
	Credentials   Class = "credentials"    // 401, 402, 403
	CallerError   Class = "caller_error"   // 400, 422: passed through
	ContextLength Class = "context_length" // the request is longer than the model's context
	Feature       Class = "feature"        // the request needs what the model lacks
	Filtered      Class = "filtered"       // a content filter's no
	Cut           Class = "cut"            // failed or stalled after the first meaningful byte
	Canceled      Class = "canceled"       // the caller left
	Busy          Class = "busy"           // the peer has no room
	Declined      Class = "declined"       // the peer does no such work now: its owner shares nothing, nothing there runs it, it stops
	Denied        Class = "denied"         // a gate let no token for it through, here or at the peer
	Offline       Class = "offline"        // this device has no network
	Internal      Class = "internal"       // a defect of ours; counts against nobody
)

// Classes of an option that was passed over without an attempt.
const (
	NoPeer     Class = "no_peer"     // no live peer fits the slot
	KeyMissing Class = "key_missing" // none of the option's keys is in the ring
	Cooling    Class = "cooling"     // cooling down, or all its keys rest
	Ceiling    Class = "ceiling"     // its estimate could not be reserved
	Absent     Class = "absent"      // another device's local option, or a kind or adapter this device lacks
	Withdrawn  Class = "withdrawn"   // no longer in the chain
)

// Known reports whether c is a class of this version.
func (c Class) Known() bool {
	switch c {
	case OK, Unreachable, Status, Timeout, BadAnswer, RateLimited, Credentials, CallerError, ContextLength, Feature, Filtered, Cut,
		Canceled, Busy, Declined, Denied, Offline, Internal, NoPeer, KeyMissing, Cooling, Ceiling, Absent, Withdrawn:
		return true
	}
	return false
}

// Ran reports whether c is how an upstream call ended, as against a peer that had
// no room or took no such work, a gate's no, or an option that was passed over: such
// are no attempts.
func (c Class) Ran() bool {
	switch c {
	case Busy, Declined, Denied, NoPeer, KeyMissing, Cooling, Ceiling, Absent, Withdrawn:
		return false
	}
	return true
}

// Blames reports whether an attempt that ended in c counts against the option. The
// caller's own errors, a caller that left, a device without a network, a peer
// without room or will, a gate's no and defects of ours say nothing about it.
func (c Class) Blames() bool {
	switch c {
	case Unreachable, Status, Timeout, BadAnswer, RateLimited, Credentials, Cut:
		return true
	}
	return false
}

// Failure is one failed option and why, as protests and error answers carry it.
type Failure struct {
	Option OptionID `cbor:"option" json:"option"`
	Class  Class    `cbor:"class" json:"class"`
	Why    string   `cbor:"-" json:"why,omitempty"` // more than the class says, for the caller; it goes to nobody else
}
