package merkle

import (
	"crypto/ed25519"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

// For the tests outside.
var (
	Parse = parse
	Text  = Checkpoint.text
)

// SignText signs any text as if it were a checkpoint.
func SignText(t testing.TB, text, origin string, key ed25519.PrivateKey) []byte {
	t.Helper()
	v, err := verifier(origin, key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	b, err := note.Sign(&note.Note{Text: text}, signer{v, key})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
