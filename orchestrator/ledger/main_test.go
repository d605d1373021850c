package ledger_test

import (
	"testing"

	"github.com/chordwheel/chordwheel/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m, nil) }
