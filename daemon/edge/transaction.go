package edge

import (
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

// newTransaction makes the id of a chat that is let in now.
func newTransaction(secret []byte, now time.Time, requestHash, tokenID, model string) string {
	b := make([]byte, transactionHead, transactionSize)
	_, _ = rand.Read(b[:16]) // it never fails
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
