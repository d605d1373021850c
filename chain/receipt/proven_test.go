package receipt_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain/receipt"
)

// What is no receipt with its proof is refused for what it lacks.
func TestWhatAProvenReceiptLacks(t *testing.T) {
	for text, want := range map[string]string{
		"not JSON": "want JSON",
		"3":        "want a receipt, or",
		`{"receipt":{},"checkpoint":"x","inclusion":{"index":0,"size":1,"hashes":["zz"]}}`: "want a receipt, or",
		`{"receipt":{},"inclusion":{"index":0,"size":1,"hashes":null}}`:                    "no checkpoint",
		`{"receipt":{},"checkpoint":"x"}`:                                                  "no inclusion",
	} {
		if _, _, err := receipt.ParseProven([]byte(text)); !errors.Is(err, receipt.ErrProven) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
