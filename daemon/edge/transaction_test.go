package edge

import (
	"strings"
	"testing"
	"time"
)

// Whoever copies the id behind `chordwheel receipts show` has it read as an id: of
// random bytes one in 64 begins with a dash.
func TestNoTransactionBeginsWithADash(t *testing.T) {
	secret, now := []byte("secret"), time.Unix(1_800_000_000, 0)
	for range 2_000 {
		id := newTransaction(secret, now, "hash", "token", "model")
		if strings.HasPrefix(id, "-") {
			t.Fatalf("%s looks like a flag", id)
		}
		if at, ok := openTransaction(secret, id, "hash", "token", "model"); !ok || !at.Equal(now) {
			t.Fatalf("%s: opened as %v, %v", id, at, ok)
		}
	}
}
