package wire

import (
	"crypto/sha256"
	"fmt"

	"github.com/chordwheel/chordwheel/chain"
)

// ExecOpen is the first frame of an exec stream: what a device wants another to
// run, and why it may. The envelopes that are named in the request by their hash
// may be left out where the executor has them; if it lacks one after all, it
// refuses with ExecNeed and is sent them all.
type ExecOpen struct {
	Request    []byte `cbor:"request"`              // signed, see SealExecRequest
	Membership []byte `cbor:"membership,omitempty"` // signed by the hub
	Head       []byte `cbor:"head,omitempty"`       // signed by the hub
	Body       []byte `cbor:"body,omitempty"`       // addressed by its CID
	Extension  []byte `cbor:"extension,omitempty"`  // signed by the hub, where the slot came from one
}

// ExecRequest is what the submitter signs, for one executor and one attempt.
// The payload follows the opening frame: PayloadBytes bytes with PayloadHash.
type ExecRequest struct {
	Executor   chain.PeerID    `cbor:"executor"`
	Membership []byte          `cbor:"membership"`          // EnvelopeHash of the submitter's membership
	Head       []byte          `cbor:"head"`                // EnvelopeHash of the head
	Body       chain.CID       `cbor:"body"`                // that the head names
	Extension  []byte          `cbor:"extension,omitempty"` // EnvelopeHash, where the slot came from an extension
	Option     chain.OptionID  `cbor:"option"`              // the peer slot
	Scope      chain.ScopeID   `cbor:"scope"`
	Primitive  chain.Primitive `cbor:"primitive"`

	PayloadBytes int64  `cbor:"payload_bytes"`
	PayloadHash  []byte `cbor:"payload_hash"` // SHA-256

	// What the receipts of both sides say, and the executor signs. DIDs and the
	// token's ID may be empty where a mesh uses none.
	TransactionID string `cbor:"transaction_id"`
	Nonce         string `cbor:"nonce"` // 16 to 64 bytes, never used twice: see ExecNonce
	RequestHash   string `cbor:"request_hash"`
	Seeker        string `cbor:"seeker_did,omitempty"`
	Agent         string `cbor:"agent_did,omitempty"`
	TokenID       string `cbor:"token_id,omitempty"`
	Token         []byte `cbor:"token,omitempty"` // a bearer token: never logged

	// What the executor's adapter is told.
	RequestID string `cbor:"request_id"`      // the one of headers and logs
	Model     string `cbor:"model,omitempty"` // the name that the caller asked for
	Stream    bool   `cbor:"stream,omitempty"`
	Usage     bool   `cbor:"usage,omitempty"` // of a stream: the caller wants the usage event

	Attempts int           `cbor:"attempts"` // upstream calls that it may spend, from 1
	Budget   chain.Millis  `cbor:"budget"`   // time that it may take, above 0
	Hop      int           `cbor:"hop"`      // 1: work is handed on once
	Expires  chain.Instant `cbor:"expires"`
}

// ExecReply is one frame from the executor: exactly one field is set. Any number
// of Data frames, then a Trailer; or a Refusal and nothing else.
type ExecReply struct {
	Data    *ExecData    `cbor:"data,omitempty"`
	Trailer *ExecTrailer `cbor:"trailer,omitempty"`
	Refusal *ExecRefusal `cbor:"refusal,omitempty"`
}

// ExecData is a chunk of the answer or a part of one. A chunk is whole when a
// frame without Part ends it; Meaningful and More stand in that frame and mean what
// they mean in package walk. An empty chunk is no output: it says that what was
// held back because of More should be written now.
type ExecData struct {
	Bytes      []byte `cbor:"bytes,omitempty"` // at most MaxExecData
	Meaningful bool   `cbor:"meaningful,omitempty"`
	More       bool   `cbor:"more,omitempty"`
	Part       bool   `cbor:"part,omitempty"` // the chunk goes on in the next frame
}

// ExecTrailer ends an answer: how it went, by the executor's account.
type ExecTrailer struct {
	Class         chain.Class    `cbor:"class"`
	Status        int            `cbor:"status,omitempty"` // of the upstream's answer
	RetryAfter    chain.Millis   `cbor:"retry_after,omitempty"`
	HasRetryAfter bool           `cbor:"has_retry_after,omitempty"`
	Used          int            `cbor:"used,omitempty"` // upstream calls
	Input         int64          `cbor:"input,omitempty"`
	Output        int64          `cbor:"output,omitempty"`
	FirstOutput   chain.Millis   `cbor:"first_output,omitempty"` // from the request's arrival
	Option        chain.OptionID `cbor:"option,omitempty"`       // of the executor's chain, that answered
	Model         string         `cbor:"model,omitempty"`
	Answer        *ExecAnswer    `cbor:"answer,omitempty"` // for caller errors: passed through
	ResponseHash  string         `cbor:"response_hash,omitempty"`
	Signature     []byte         `cbor:"signature,omitempty"` // the executor's; what it covers is not this package's to know
}

// ExecAnswer is an upstream's refusal that the caller gets as it is.
type ExecAnswer struct {
	Status      int    `cbor:"status"`
	ContentType string `cbor:"content_type,omitempty"`
	Body        []byte `cbor:"body,omitempty"` // at most MaxExecAnswer
}

// MaxBoot bounds the boot ID in a nonce.
const MaxBoot = 36

// ExecNonce makes the nonce of a request out of the executor's boot ID and a text that
// was never used, of 26 bytes at most. An executor takes no nonce of another boot than
// the present one: what it took before a restart, and remembers no more, cannot come
// again. Without a boot ID, or with one that no nonce may have, the executor refuses, and
// names its own.
func ExecNonce(boot, random string) string {
	if boot == "" || len(boot) > MaxBoot || !isID(boot) {
		return random
	}
	return boot + "." + random
}

// OfBoot reports whether the nonce was made for an executor's boot.
func (r *ExecRequest) OfBoot(boot string) bool {
	return len(r.Nonce) > len(boot)+1 && r.Nonce[:len(boot)] == boot && r.Nonce[len(boot)] == '.'
}

// EnvelopeHash names a signed envelope by its bytes: their SHA-256.
func EnvelopeHash(envelope []byte) []byte {
	sum := sha256.Sum256(envelope)
	return sum[:]
}

// SealExecRequest signs r, in a domain of its own. A request that its executor
// would refuse for its form is not signed.
func SealExecRequest(key chain.Key, r ExecRequest) ([]byte, error) {
	payload, err := Encode(&r)
	if err != nil {
		return nil, err
	}
	return key.Seal(chain.DomainExecRequest, payload)
}

// OpenExecRequest checks the envelope of a request and tells who signed it. Whether
// that peer may ask, and asks this executor, is the caller's question. Errors wrap
// a refusal of package chain or ErrMessage.
func OpenExecRequest(envelope []byte) (from chain.PeerID, r ExecRequest, err error) {
	if len(envelope) > maxExecRequest {
		return "", r, fmt.Errorf("%w: exec request of %d bytes, at most %d", ErrTooLarge, len(envelope), maxExecRequest)
	}
	from, payload, err := chain.Open(chain.DomainExecRequest, envelope)
	if err != nil {
		return "", r, err
	}
	if err := Decode(payload, &r); err != nil {
		return "", ExecRequest{}, err
	}
	return from, r, nil
}

func (c *check) hash(what string, b []byte) { c.size(what, len(b), sha256.Size, sha256.Size) }

// Validate implements [Message].
func (o *ExecOpen) Validate() error {
	var c check
	c.size("request", len(o.Request), 1, maxExecRequest)
	c.size("membership", len(o.Membership), 0, maxMembership)
	c.size("head", len(o.Head), 0, maxHead)
	c.size("body", len(o.Body), 0, chain.MaxBodyBytes)
	c.size("extension", len(o.Extension), 0, chain.MaxEnvelopeBytes)
	return c.err
}

// Validate implements [Message].
func (r *ExecRequest) Validate() error {
	var c check
	c.peer(r.Executor)
	c.hash("membership's hash", r.Membership)
	c.hash("head's hash", r.Head)
	c.that(r.Body != "", "the body's address is missing")
	if len(r.Extension) > 0 {
		c.hash("extension's hash", r.Extension)
	}
	c.option(r.Option)
	c.scope(r.Scope)
	c.primitive(r.Primitive)
	c.that(r.PayloadBytes >= 0 && r.PayloadBytes <= MaxExecPayload, "a payload of %d bytes, at most %d", r.PayloadBytes, MaxExecPayload)
	c.hash("payload's hash", r.PayloadHash)
	c.id("transaction ID", r.TransactionID, 1, maxID) // the receipts of both ends have it, as the next and the token's
	c.id("nonce", r.Nonce, 16, 64)
	c.word("request hash", r.RequestHash, maxID)
	c.did("the seeker's DID", r.Seeker)
	c.did("the agent's DID", r.Agent)
	c.id("token's ID", r.TokenID, 0, maxText)
	c.size("token", len(r.Token), 0, maxToken)
	c.word("request ID", r.RequestID, maxID)
	c.line("model", r.Model, maxText)
	c.size("attempts", r.Attempts, 1, maxAttempts)
	c.duration("budget", r.Budget)
	c.that(r.Budget > 0, "the budget is spent")
	c.size("hop", r.Hop, 1, 1)
	c.instant("expires", r.Expires)
	return c.err
}

// Validate implements [Message].
func (r *ExecReply) Validate() error {
	return one(r.Data != nil, r.Data, r.Trailer != nil, r.Trailer, r.Refusal != nil, r.Refusal)
}

// Validate implements [Message].
func (d *ExecData) Validate() error {
	var c check
	c.size("data", len(d.Bytes), 0, MaxExecData)
	c.that(!d.Part || len(d.Bytes) > 0, "a part of a chunk is empty")
	c.that(!d.Part || !d.More && !d.Meaningful, "a part of a chunk says what only its end may")
	return c.err
}

// Validate implements [Message].
func (t *ExecTrailer) Validate() error {
	var c check
	c.class(t.Class)
	c.size("status", t.Status, 0, 999)
	c.duration("retry_after", t.RetryAfter)
	c.size("used", t.Used, 0, maxAttempts)
	c.count("input", t.Input)
	c.count("output", t.Output)
	c.duration("first_output", t.FirstOutput)
	c.line("option", string(t.Option), chain.MaxNameBytes)
	c.line("model", t.Model, maxText)
	if a := t.Answer; a != nil {
		c.size("status of the answer", a.Status, 100, 999)
		c.line("content type", a.ContentType, maxText)
		c.size("answer", len(a.Body), 0, MaxExecAnswer)
	}
	c.line("response hash", t.ResponseHash, maxID)
	c.size("signature", len(t.Signature), 0, maxSignature)
	return c.err
}

// Validate implements [Message].
func (r *ExecRefusal) Validate() error {
	var c check
	c.word("code", string(r.Code), 64)
	c.line("message", r.Message, maxMessage)
	c.duration("come_back", r.ComeBack)
	c.id("boot ID", r.Boot, 0, MaxBoot)
	return c.err
}
