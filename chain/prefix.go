package chain

import (
	"crypto/ed25519"
	"fmt"
)

// Prefix separates signatures over text (the RFC 8785 form of a JSON object)
// from each other, and from those of envelopes: it stands in front of what is
// signed, in the same bytes. No prefix is the beginning of another, and none
// begins like the bytes that an envelope or a handshake of libp2p signs.
type Prefix string

// The prefixes.
const (
	PrefixExec    Prefix = "chordwheel-exec-v1\n"    // what an executor says of work that it did for a peer
	PrefixReceipt Prefix = "chordwheel-receipt-v1\n" // what a device says of a request
)

// SignText gives the Ed25519 signature over p and text: 64 bytes.
func (k Key) SignText(p Prefix, text []byte) ([]byte, error) {
	if k.private == nil {
		return nil, fmt.Errorf("sign for %q: %w", string(p), errNoKey)
	}
	return k.private.Sign(append([]byte(p), text...))
}

// VerifyText reports whether signature was made by [Key.SignText] with the key
// that public belongs to.
func VerifyText(public ed25519.PublicKey, p Prefix, text, signature []byte) bool {
	return len(public) == ed25519.PublicKeySize && ed25519.Verify(public, append([]byte(p), text...), signature)
}
