package edge

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// A transaction id is handed to whoever carries a chat and comes back with its
// outlet. It authenticates itself, so that nothing is kept in between:
//
//	16 random bytes | Unix milliseconds, 8 bytes big-endian | HMAC-SHA-256, 32 bytes
//
// as base64url without padding. The HMAC covers the 24 bytes before it, and the
// request hash, the token id and the agent's model id, each behind its length.
const (
	transactionHead = 24
	transactionSize = transactionHead + sha256.Size
)

// unlinked begins the transaction id of a receipt whose outlet named no inlet that
// this device knows of.
const unlinked = "unlinked-"

// dashDigit is the dash among the digits of base64url.
const dashDigit = 62

// newTransaction makes the id of a chat that is let in now.
func newTransaction(secret []byte, now time.Time, requestHash, tokenID, model string) string {
	b := make([]byte, transactionHead, transactionSize)
	_, _ = rand.Read(b[:16])   // it never fails
	for b[0]>>2 == dashDigit { // a command would take it for a flag
		_, _ = rand.Read(b[:1])
	}
	binary.BigEndian.PutUint64(b[16:], uint64(now.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(seal(secret, b, requestHash, tokenID, model))
}

// seal appends the HMAC to the head of an id.
func seal(secret, head []byte, requestHash, tokenID, model string) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write(head)
	for _, s := range []string{requestHash, tokenID, model} {
		m.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s))))
		m.Write([]byte(s))
	}
	return m.Sum(head)
}

// openTransaction gives the time at which an id was made, if this device made it for
// just these.
func openTransaction(secret []byte, id, requestHash, tokenID, model string) (time.Time, bool) {
	if len(id) != base64.RawURLEncoding.EncodedLen(transactionSize) { // the library passes over line feeds
		return time.Time{}, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(b) != transactionSize {
		return time.Time{}, false
	}
	want := seal(secret, append(make([]byte, 0, transactionSize), b[:transactionHead]...), requestHash, tokenID, model)
	if !hmac.Equal(want, b) {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b[16:]))), true
}

// carry takes a chat for that of the inlet whose transaction it carries, so that both and
// the outlet leave one receipt. The member is this edge's own: providers refuse what they do not
// know, so it goes no further, whether or not the inlet is known (any more). A member of
// that name in another form is the caller's, and passes like any other.
func (x *exchange) carry(w *Work, value span) {
	raw := w.Body[value.from:value.to]
	if len(raw) != base64.RawURLEncoding.EncodedLen(transactionSize)+2 {
		return
	}
	id := string(raw[1 : len(raw)-1])
	if b, err := base64.RawURLEncoding.Strict().DecodeString(id); err != nil || len(b) != transactionSize {
		return
	}
	body, ok := cut(w.Body, value)
	if !ok {
		return
	}
	w.Body, w.Received = body, w.Body
	if x.edge.inlets.carry(id) {
		w.Transaction = id
	}
}

// cut gives a copy of body without the member transaction_id that has its value at value.
// It fails where the name is spelt with escapes.
func cut(body []byte, value span) ([]byte, bool) {
	const blanks = " \t\r\n"
	before, named := bytes.CutSuffix(bytes.TrimRight(body[:value.from], blanks), []byte(":"))
	before, spelt := bytes.CutSuffix(bytes.TrimRight(before, blanks), []byte(`"transaction_id"`))
	after := bytes.TrimLeft(body[value.to:], blanks)
	if rest, more := bytes.CutPrefix(after, []byte(",")); more {
		after = rest
	} else { // the last one: the comma before it goes
		before = bytes.TrimSuffix(bytes.TrimRight(before, blanks), []byte(","))
	}
	return append(append(make([]byte, 0, len(body)), before...), after...), named && spelt
}
