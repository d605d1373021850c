package builtin

import (
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter/adaptertest"
)

func TestContract(t *testing.T) {
	adaptertest.Run(t, adaptertest.Subject{Adapter: Adapter{}, Attempt: walk.Attempt{Option: chain.Option{ID: chain.BuiltinOption, Kind: chain.Local, Model: Model}}})
}
