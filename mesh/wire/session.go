package wire

import "github.com/chordwheel/chordwheel/chain"

// Request is one frame from a device to the hub: exactly one field is set. A
// request of a later version has none that this one knows; it is refused and
// the session goes on.
type Request struct {
	Hello   *Hello   `cbor:"hello,omitempty"`
	Report  *Report  `cbor:"report,omitempty"`
	Fetch   *Fetch   `cbor:"fetch,omitempty"`
	Protest *Protest `cbor:"protest,omitempty"`
	Lease   *Lease   `cbor:"lease,omitempty"`

	Provider *Provider `cbor:"provider,omitempty"`
}

// Reply answers the request before it: the field of the same kind, or a
// refusal.
type Reply struct {
	Welcome *Welcome      `cbor:"welcome,omitempty"`
	Report  *ReportReply  `cbor:"report,omitempty"`
	Fetch   *FetchReply   `cbor:"fetch,omitempty"`
	Protest *ProtestReply `cbor:"protest,omitempty"`
	Lease   *LeaseReply   `cbor:"lease,omitempty"`
	Refusal *Refusal      `cbor:"refusal,omitempty"`

	Provider *ProviderReply `cbor:"provider,omitempty"`
}

// Refusal is the hub's no. Code is for programs, Message one line for people.
type Refusal struct {
	Code     string       `cbor:"code"`
	Message  string       `cbor:"message"`
	ComeBack chain.Millis `cbor:"come_back,omitempty"` // not before; 0: as the rules say
}
