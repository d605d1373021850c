package receipt

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Version is the one version of receipts.
const Version = 1

// MaxReceipt bounds a receipt in any spelling; real ones have about 900 bytes.
const MaxReceipt = 16 << 10

// Status is how a request ended, as far as its receipt says.
type Status string

// The statuses.
const (
	OK            Status = "ok"
	UpstreamError Status = "upstream_error" // nobody answered, or not to the end
	ClientAborted Status = "client_aborted" // the caller left
	Rejected      Status = "rejected"       // the caller's own error, or policy's no
)

// Refusals of a receipt.
var (
	ErrReceipt = errors.New("not a receipt")
	ErrSigned  = errors.New("the receipt's signature does not fit it")
)

// Receipt is what a device says of one request. docs/receipts.md tells its
// members. Times count in milliseconds.
type Receipt struct {
	TransactionID string
	MessageID     string // see [MessageID]
	SeekerDID     string // who asked
	AgentDID      string // who ran it last; "" if nobody was tried
	Capability    string
	RequestHash   string
	ResponseHash  string
	TokenID       string // "" without a token
	RequestAt     time.Time
	ResponseAt    time.Time
	Status        Status
	Executor      *Executor // nil unless a peer ran it and signed what it did
}

// Executor is the part of a [Statement] that cannot be read off the receipt that
// it is in.
type Executor struct {
	Nonce     string `json:"nonce"`
	Signature string `json:"signature"`
}

// Signed is a receipt as it was signed. The zero value is none.
type Signed struct {
	Receipt
	Line      []byte // its RFC 8785 form, signature included: what is kept, sent and proven
	text      []byte // what was signed, after the prefix
	signature []byte
}

// RoleRoot is the role of the device that took the request from an application.
const RoleRoot = "root"

// RoleExec is the role of a device that ran work for a peer, under the nonce of
// that peer's request.
func RoleExec(nonce string) string { return "exec/" + nonce }

// RoleJob is the role of a device for a part that it cut its request into, under
// the ID of that part's job.
func RoleJob(id string) string { return "job/" + id }

// MessageID tells the receipts of one transaction apart: 32 hex digits.
func MessageID(transaction, role string) string {
	sum := sha256.Sum256([]byte(transaction + "\n" + role))
	return hex.EncodeToString(sum[:16])
}

// Signer is the DID that a receipt has to be signed for: the seeker's, or the
// agent's where that keeps the receipt of what it ran for a peer.
func (r *Receipt) Signer() string {
	if r.Executor != nil && r.MessageID == MessageID(r.TransactionID, RoleExec(r.Executor.Nonce)) {
		return r.AgentDID
	}
	return r.SeekerDID
}

// ID names a receipt where it is one among many: in a spool, in a log.
func (r *Receipt) ID() string { return r.TransactionID + "/" + r.MessageID }

// wireForm is the JSON of a receipt. Which members there may be is what it says.
type wireForm struct {
	Version       int       `json:"version"`
	TransactionID string    `json:"transaction_id"`
	MessageID     string    `json:"message_id"`
	SeekerDID     string    `json:"seeker_did"`
	AgentDID      string    `json:"agent_did"`
	Capability    string    `json:"capability"`
	RequestHash   string    `json:"request_hash"`
	ResponseHash  string    `json:"response_hash"`
	TokenID       string    `json:"token_id"`
	RequestAt     string    `json:"request_at"`
	ResponseAt    string    `json:"response_at"`
	Status        Status    `json:"status"`
	Executor      *Executor `json:"executor,omitempty"`
	Signature     string    `json:"signature,omitempty"`
}

// timeForm is RFC 3339 in UTC with milliseconds.
const timeForm = "2006-01-02T15:04:05.000Z"

func (r *Receipt) form() wireForm {
	return wireForm{Version, r.TransactionID, r.MessageID, r.SeekerDID, r.AgentDID, r.Capability, r.RequestHash, r.ResponseHash, r.TokenID,
		r.RequestAt.UTC().Format(timeForm), r.ResponseAt.UTC().Format(timeForm), r.Status, r.Executor, ""}
}

// Sign gives r with key's signature: Ed25519 over the prefix of receipts and the
// RFC 8785 form. It fails for members that no receipt has, wrapping [ErrReceipt],
// and for a did:key that is another key's.
func (r Receipt) Sign(key chain.Key) (Signed, error) {
	if by := r.Signer(); strings.HasPrefix(by, "did:key:") && by != key.PeerID().DID() {
		return Signed{}, fmt.Errorf("sign a receipt: %w: it is another device's", ErrReceipt)
	}
	f := r.form()
	text, err := encode(f)
	if err != nil {
		return Signed{}, err
	}
	signature, err := key.SignText(chain.PrefixReceipt, text)
	if err != nil {
		return Signed{}, fmt.Errorf("sign a receipt: %w", err)
	}
	f.Signature = base64.RawURLEncoding.EncodeToString(signature)
	line, err := encode(f)
	if err != nil {
		return Signed{}, err
	}
	return Parse(line)
}

func encode(f wireForm) ([]byte, error) {
	b, err := json.Marshal(f)
	if err == nil {
		b, err = Canonical(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	return b, nil
}

// Parse reads a receipt in any spelling of its JSON, and checks every member but
// the signature, which is for [Signed.Verify]. What a later version adds is kept
// and covered by the signature. Errors wrap [ErrReceipt] and name the member.
func Parse(b []byte) (Signed, error) {
	no := func(format string, args ...any) (Signed, error) {
		return Signed{}, fmt.Errorf("%w: %w", ErrReceipt, fmt.Errorf(format, args...))
	}
	if len(b) > MaxReceipt {
		return no("%d bytes, at most %d", len(b), MaxReceipt)
	}
	s := Signed{}
	var err error
	if s.Line, err = Canonical(b); err != nil {
		return no("%w", err)
	}
	if s.text, err = canonical(b, "signature"); err != nil {
		return no("%w", err)
	}
	var members map[string]json.RawMessage // by their exact names, which the library does not ask for
	if err := json.Unmarshal(s.Line, &members); err != nil || members == nil {
		return no("want a JSON object")
	}
	if s.Receipt, s.signature, err = read(members); err != nil {
		return Signed{}, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	return s, nil
}

// read takes the members one by one.
func read(m map[string]json.RawMessage) (r Receipt, signature []byte, err error) {
	if string(m["version"]) != "1" {
		return r, nil, errors.New("version: want 1")
	}
	var requestAt, responseAt, status, signed string
	for _, c := range []struct {
		name string
		to   *string
		ok   func(string) error
	}{
		{"transaction_id", &r.TransactionID, word(1, 128)},
		{"message_id", &r.MessageID, messageID},
		{"seeker_did", &r.SeekerDID, aDID(false)},
		{"agent_did", &r.AgentDID, aDID(true)},
		{"capability", &r.Capability, word(1, 128)},
		{"request_hash", &r.RequestHash, ParseHash},
		{"response_hash", &r.ResponseHash, ParseHash},
		{"token_id", &r.TokenID, word(0, 256)},
		{"request_at", &requestAt, moment(&r.RequestAt)},
		{"response_at", &responseAt, moment(&r.ResponseAt)},
		{"status", &status, aStatus(&r.Status)},
		{"signature", &signed, aSignature(&signature)},
	} {
		raw, ok := m[c.name]
		if !ok || len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, c.to) != nil {
			return r, nil, fmt.Errorf("%s: want a text", c.name)
		}
		if err := c.ok(*c.to); err != nil {
			return r, nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if raw, ok := m["executor"]; ok {
		r.Executor, err = executor(raw)
	}
	return r, signature, err
}

func executor(raw json.RawMessage) (*Executor, error) {
	var m map[string]string
	if err := json.Unmarshal(raw, &m); err != nil || len(m) != 2 {
		return nil, errors.New("executor: want nonce and signature")
	}
	e := &Executor{Nonce: m["nonce"], Signature: m["signature"]}
	var signature []byte
	if err := errors.Join(word(1, 128)(e.Nonce), aSignature(&signature)(e.Signature)); err != nil {
		return nil, errors.New("executor: want nonce and signature")
	}
	return e, nil
}

func word(least, most int) func(string) error {
	return func(s string) error {
		for i := range len(s) {
			if s[i] <= ' ' || s[i] > '~' {
				return errors.New("want printable ASCII without blanks")
			}
		}
		if len(s) < least || len(s) > most {
			return fmt.Errorf("%d bytes, want %d to %d", len(s), least, most)
		}
		return nil
	}
}

func messageID(s string) error {
	if len(s) != 32 || strings.Trim(s, "0123456789abcdef") != "" {
		return errors.New("want 32 hex digits in lower case")
	}
	return nil
}

func aDID(empty bool) func(string) error {
	return func(s string) error {
		if s == "" && empty {
			return nil
		}
		if !strings.HasPrefix(s, "did:") {
			return errors.New("want a DID")
		}
		return word(8, 512)(s)
	}
}

func moment(to *time.Time) func(string) error {
	return func(s string) (err error) {
		if *to, err = time.Parse(timeForm, s); err != nil || to.Format(timeForm) != s {
			return errors.New("want a time like 2026-05-01T10:00:00.000Z")
		}
		return nil
	}
}

func aStatus(to *Status) func(string) error {
	return func(s string) error {
		switch *to = Status(s); *to {
		case OK, UpstreamError, ClientAborted, Rejected:
			return nil
		}
		return errors.New("want ok, upstream_error, client_aborted or rejected")
	}
}

func aSignature(to *[]byte) func(string) error {
	return func(s string) (err error) {
		*to, err = readSignature(s)
		return err
	}
}

// readSignature takes the one spelling of a signature. The library passes over
// line breaks, which would make many texts of one.
func readSignature(s string) ([]byte, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(raw) != ed25519.SignatureSize || len(s) != base64.RawURLEncoding.EncodedLen(len(raw)) {
		return nil, errors.New("want 64 bytes in base64url without padding")
	}
	return raw, nil
}

// Verify checks that one of keys, those that [Receipt.Signer] stands for, signed
// the receipt, and where an executor's statement is in it that the agent signed
// that. Errors wrap [ErrSigned], or [ErrSignature] for the executor's.
func (s *Signed) Verify(keys ...ed25519.PublicKey) error {
	signed := false
	for _, k := range keys {
		signed = signed || chain.VerifyText(k, chain.PrefixReceipt, s.text, s.signature)
	}
	if !signed {
		return ErrSigned
	}
	if s.Executor == nil {
		return nil
	}
	public, err := chain.ParseDIDKey(s.AgentDID)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAgent, err)
	}
	return s.statement().verify(public, s.Executor.Signature)
}

// statement is what the executor signed.
func (r *Receipt) statement() Statement {
	return Statement{TransactionID: r.TransactionID, Nonce: r.Executor.Nonce, SeekerDID: r.SeekerDID, AgentDID: r.AgentDID,
		RequestHash: r.RequestHash, ResponseHash: r.ResponseHash, TokenID: r.TokenID}
}
