package daemon_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets many tests run side by side: those with faulty providers spend
// their time waiting for limits, not on a processor.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
