package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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

// TimeForm is how a receipt writes times: RFC 3339 with milliseconds, of times in UTC.
const TimeForm = "2006-01-02T15:04:05.000Z"

// form appends the RFC 8785 form of r without a signature: the members in the order of their
// names, texts with no more escapes than they need.
func (r *Receipt) form(b []byte) []byte {
	member := func(name, value string) {
		b = append(append(append(b, ',', '"'), name...), '"', ':')
		b = appendText(b, value)
	}
	b = append(b, `{"agent_did":`...)
	b = appendText(b, r.AgentDID)
	member("capability", r.Capability)
	if e := r.Executor; e != nil {
		b = append(b, `,"executor":{"nonce":`...)
		b = appendText(b, e.Nonce)
		member("signature", e.Signature)
		b = append(b, '}')
	}
	member("message_id", r.MessageID)
	member("request_at", r.RequestAt.UTC().Format(TimeForm))
	member("request_hash", r.RequestHash)
	member("response_at", r.ResponseAt.UTC().Format(TimeForm))
	member("response_hash", r.ResponseHash)
	member("seeker_did", r.SeekerDID)
	b = append(b, afterSignature...)
	b = appendText(b, string(r.Status))
	member("token_id", r.TokenID)
	member("transaction_id", r.TransactionID)
	b = append(b, `,"version":`...)
	return append(strconv.AppendInt(b, Version, 10), '}')
}

// appendText appends s as a JSON text. What is no printable ASCII has no place in a
// receipt, and [Parse] says so.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

// Sign gives r with key's signature: Ed25519 over the prefix of receipts and the
// RFC 8785 form. It fails for members that no receipt has, wrapping [ErrReceipt],
// and for a did:key that is another key's.
func (r Receipt) Sign(key chain.Key) (Signed, error) {
	if by := r.Signer(); strings.HasPrefix(by, "did:key:") && by != key.DID() {
		return Signed{}, fmt.Errorf("sign a receipt: %w: it is another device's", ErrReceipt)
	}
	r.RequestAt, r.ResponseAt = r.RequestAt.UTC().Truncate(time.Millisecond), r.ResponseAt.UTC().Truncate(time.Millisecond)
	if err := r.wrong(); err != nil {
		return Signed{}, fmt.Errorf("sign a receipt: %w: %w", ErrReceipt, err)
	}
	s := Signed{Receipt: r, text: r.form(make([]byte, 0, usual))}
	var err error
	if s.signature, err = key.SignText(chain.PrefixReceipt, s.text); err != nil {
		return Signed{}, fmt.Errorf("sign a receipt: %w", err)
	}
	if s.Line = signedForm(s.text, s.signature); len(s.Line) > MaxReceipt {
		return Signed{}, fmt.Errorf("sign a receipt: %w: %d bytes, at most %d", ErrReceipt, len(s.Line), MaxReceipt)
	}
	return s, nil
}

// signedForm puts the signature into the form of a receipt without one.
func signedForm(text, signature []byte) []byte {
	at := bytes.LastIndex(text, []byte(afterSignature)) // no value holds it: its quotes would be escaped
	b := append(make([]byte, 0, usual), text[:at]...)
	b = append(b, `,"signature":"`...)
	b = base64.RawURLEncoding.AppendEncode(b, signature)
	return append(append(b, '"'), text[at:]...)
}

// afterSignature begins the member that stands behind the signature.
const afterSignature = `,"status":`

// usual is more than most receipts have.
const usual = 1 << 10

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
	if s.Line[0] != '{' {
		return no("want a JSON object")
	}
	m := make(map[string][]byte, 16) // by their exact names, which encoding/json does not ask for
	s.text = append(make([]byte, 0, len(s.Line)), '{')
	for name, value := range members(s.Line) {
		if m[string(name)] = value; string(name) == "signature" {
			continue
		}
		if len(s.text) > 1 {
			s.text = append(s.text, ',')
		}
		s.text = append(append(append(append(s.text, '"'), name...), '"', ':'), value...)
	}
	s.text = append(s.text, '}')
	if s.Receipt, s.signature, err = read(m); err != nil {
		return Signed{}, fmt.Errorf("%w: %w", ErrReceipt, err)
	}
	return s, nil
}

// Glance reads the ID and the time of a receipt's end off a line, in a tenth of the time
// that Parse takes: for who looks through many. What else stands there is not looked at.
// Errors wrap [ErrReceipt].
func Glance(line []byte) (id string, at time.Time, err error) {
	var r Receipt
	var ended string
	in := reader{b: line, at: blanks(line, 0)}
	ok := len(line) <= MaxReceipt && in.object(func(name []byte) bool {
		from := in.at
		ok := in.value()
		switch string(name) {
		case "transaction_id":
			r.TransactionID, _ = textOf(line[from:in.at])
		case "message_id":
			r.MessageID, _ = textOf(line[from:in.at])
		case "response_at":
			ended, _ = textOf(line[from:in.at])
		}
		return ok
	})
	if !ok || !in.end() {
		return "", at, fmt.Errorf("%w: want a JSON object", ErrReceipt)
	}
	if at, err = moment(ended); err != nil {
		return "", at, fmt.Errorf("%w: response_at: %w", ErrReceipt, err)
	}
	if word(r.TransactionID, 1, 128) != nil || messageID(r.MessageID) != nil {
		return "", at, fmt.Errorf("%w: without a name", ErrReceipt)
	}
	return r.ID(), at, nil
}

// read takes the members one by one.
func read(m map[string][]byte) (r Receipt, signature []byte, err error) {
	if string(m["version"]) != "1" {
		return r, nil, errors.New("version: want 1")
	}
	var requestAt, responseAt, status, signed string
	for _, c := range []struct {
		name string
		to   *string
	}{
		{"transaction_id", &r.TransactionID},
		{"message_id", &r.MessageID},
		{"seeker_did", &r.SeekerDID},
		{"agent_did", &r.AgentDID},
		{"capability", &r.Capability},
		{"request_hash", &r.RequestHash},
		{"response_hash", &r.ResponseHash},
		{"token_id", &r.TokenID},
		{"request_at", &requestAt},
		{"response_at", &responseAt},
		{"status", &status},
		{"signature", &signed},
	} {
		var ok bool
		if *c.to, ok = textOf(m[c.name]); !ok {
			return r, nil, fmt.Errorf("%s: want a text", c.name)
		}
	}
	r.Status = Status(status)
	if r.RequestAt, err = moment(requestAt); err != nil {
		return r, nil, fmt.Errorf("request_at: %w", err)
	}
	if r.ResponseAt, err = moment(responseAt); err != nil {
		return r, nil, fmt.Errorf("response_at: %w", err)
	}
	if signature, err = readSignature(signed); err != nil {
		return r, nil, fmt.Errorf("signature: %w", err)
	}
	if raw, ok := m["executor"]; ok {
		if r.Executor, err = executor(raw); err != nil {
			return r, nil, err
		}
	}
	return r, signature, r.wrong()
}

// wrong names the first member that no receipt has in that form.
func (r *Receipt) wrong() error {
	for _, c := range []struct {
		name string
		err  error
	}{
		{"transaction_id", word(r.TransactionID, 1, 128)},
		{"message_id", messageID(r.MessageID)},
		{"seeker_did", aDID(r.SeekerDID)},
		{"agent_did", anyDID(r.AgentDID)},
		{"capability", word(r.Capability, 1, 128)},
		{"request_hash", ParseHash(r.RequestHash)},
		{"response_hash", ParseHash(r.ResponseHash)},
		{"token_id", word(r.TokenID, 0, 256)},
		{"request_at", aYear(r.RequestAt)},
		{"response_at", aYear(r.ResponseAt)},
		{"status", aStatus(r.Status)},
		{"executor", r.Executor.wrong()},
	} {
		if c.err != nil {
			return fmt.Errorf("%s: %w", c.name, c.err)
		}
	}
	return nil
}

func executor(raw []byte) (*Executor, error) {
	var m map[string]string
	if err := json.Unmarshal(raw, &m); err != nil || len(m) != 2 {
		return nil, errors.New("executor: want nonce and signature")
	}
	return &Executor{Nonce: m["nonce"], Signature: m["signature"]}, nil
}

func (e *Executor) wrong() error {
	if e == nil {
		return nil
	}
	_, err := readSignature(e.Signature)
	if errors.Join(err, word(e.Nonce, 1, 128)) != nil {
		return errors.New("want nonce and signature")
	}
	return nil
}

func word(s string, least, most int) error {
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

func messageID(s string) error {
	if len(s) != 32 || strings.Trim(s, "0123456789abcdef") != "" {
		return errors.New("want 32 hex digits in lower case")
	}
	return nil
}

func aDID(s string) error {
	if !chain.IsDID(s) {
		return errors.New("want a DID")
	}
	return nil
}

func anyDID(s string) error {
	if s == "" {
		return nil
	}
	return aDID(s)
}

func moment(s string) (time.Time, error) {
	t, err := time.Parse(TimeForm, s)
	if err != nil || t.Format(TimeForm) != s {
		return t, errors.New("want a time like 2026-05-01T10:00:00.000Z")
	}
	return t, nil
}

// aYear refuses what its form would not name.
func aYear(t time.Time) error {
	if y := t.Year(); y < 0 || y > 9999 {
		return errors.New("want a year of four digits")
	}
	return nil
}

func aStatus(s Status) error {
	switch s {
	case OK, UpstreamError, ClientAborted, Rejected:
		return nil
	}
	return errors.New("want ok, upstream_error, client_aborted or rejected")
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
	if s.signedWith(keys) == nil {
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

// signedWith gives the key that made the signature, nil if it is none of keys.
func (s *Signed) signedWith(keys []ed25519.PublicKey) ed25519.PublicKey {
	for _, k := range keys {
		if chain.VerifyText(k, chain.PrefixReceipt, s.text, s.signature) {
			return k
		}
	}
	return nil
}

// statement is what the executor signed.
func (r *Receipt) statement() Statement {
	return Statement{TransactionID: r.TransactionID, Nonce: r.Executor.Nonce, SeekerDID: r.SeekerDID, AgentDID: r.AgentDID,
		RequestHash: r.RequestHash, ResponseHash: r.ResponseHash, TokenID: r.TokenID}
}
