package receipt

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
)

// scheme stands before every hash as text.
const scheme = "sha256:"

// ErrHash is wrapped by the refusal of a text that should be a hash.
var ErrHash = errors.New("want sha256: and 64 hex digits in lower case")

// ParseHash checks the text of a hash: foreign ones above all.
func ParseHash(s string) error {
	digits, ok := strings.CutPrefix(s, scheme)
	if !ok || len(digits) != hex.EncodedLen(sha256.Size) || strings.Trim(digits, "0123456789abcdef") != "" {
		return fmt.Errorf("%w, not %q", ErrHash, chain.Clip(s))
	}
	return nil
}

// RequestHash is the hash of a request: over the RFC 8785 form of the whole body
// without a top-level member request_hash. Errors wrap [ErrJSON].
func RequestHash(body []byte) (string, error) {
	c := forms.Get().(*canon)
	defer c.recycle()
	form, err := c.document(body, "request_hash")
	if err != nil {
		return "", fmt.Errorf("request hash: %w", err)
	}
	return hashOf(form), nil
}

// ResponseHash is the hash of an answer in words: over text, and where calls of
// tools came with it (a JSON array, not empty), a newline and the RFC 8785 form of
// that array. Calls that have no such form count with the bytes they came in: an
// answer that was given always has a hash.
func ResponseHash(text string, toolCalls []byte) string {
	h := sha256.New()
	h.Write([]byte(text))
	writeCalls(h, toolCalls)
	return sumOf(h)
}

// OutputHash is the hash of an answer of any other kind: over its RFC 8785 form,
// or over its bytes where it has none.
func OutputHash(output []byte) string { return hashOf(formOf(output)) }

// formOf is the canonical form, or b itself where there is none.
func formOf(b []byte) []byte {
	if form, err := Canonical(b); err == nil {
		return form
	}
	return b
}

// writeCalls adds the calls of tools to the hash of a text.
func writeCalls(h hash.Hash, calls []byte) {
	if len(calls) == 0 { // most answers
		return
	}
	form := formOf(calls)
	if s := string(form); s == "" || s == "[]" || s == "null" {
		return
	}
	h.Write([]byte{'\n'})
	h.Write(form)
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return scheme + hex.EncodeToString(sum[:])
}

func sumOf(h hash.Hash) string { return scheme + hex.EncodeToString(h.Sum(nil)) }
