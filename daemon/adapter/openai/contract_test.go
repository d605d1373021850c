package openai

import (
	"testing"

	"github.com/chordwheel/chordwheel/daemon/adapter/adaptertest"
	"github.com/chordwheel/chordwheel/daemon/adapter/providertest"
)

func TestContract(t *testing.T) {
	p := providertest.New(t, providertest.Healthy("an answer of several words"))
	c := chat(p.Endpoint(), true)
	adaptertest.Run(t, adaptertest.Subject{Adapter: newAdapter(t), Attempt: c.Attempt, Secret: c.Secret})
}
