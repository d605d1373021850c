package testnet_test

import (
	"testing"

	"github.com/chordwheel/chordwheel/examples/testnet"
)

// The shortest test of a mesh: three devices join, one crashes, and the others go on
// answering.
func TestThreeDevices(t *testing.T) {
	testnet.Run(t, testnet.Config{Devices: 3}, func(n *testnet.Net) {
		n.JoinAll()
		n.Ask("a").WantAnswer()
		n.Kill("c")
		n.Ask("a").WantAnswer()
		n.Start("c")
		n.Ask("c").WantAnswer()
		n.Check()
	})
}
