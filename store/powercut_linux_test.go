package store_test

import (
	"errors"
	"testing"

	"github.com/chordwheel/chordwheel/store/storetest"
)

// What a power cut leaves of a data directory in which a writer works holds
// every promise that was made before.
func TestPowerCut(t *testing.T) {
	storetest.PowerCuts(t, max(3, *kills/3), *seed, "powercut")
}

// powercut cuts the power under work.
func powercut(args []string) int {
	promised := make(promises)
	kept := func(dir string) error {
		d, err := openDevice(dir, storetest.Options(), now)
		if err != nil {
			return err
		}
		return errors.Join(promised.kept(d), d.close())
	}
	if err := storetest.CutPower(args, "work", promised.hear, kept); err != nil {
		return fail(err)
	}
	storetest.Ack("last promise %v", promised)
	return 0
}

func init() { verbs["powercut"] = powercut }
