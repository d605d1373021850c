package orchestrator

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"

	"github.com/chordwheel/chordwheel/chain"
)

// agent gives the DID of a provider option: the catalogue's, else a did:key of
// a key derived from the hub's own, so that it stays the same for ever and no
// secret of the provider is needed.
func (h *Hub) agent(id chain.OptionID) string {
	if did := h.catalogue.Agent(id); did != "" {
		return did
	}
	if did, ok := h.agents[id]; ok {
		return did
	}
	did := deriveDID(h.cfg.Key, id)
	if h.agents == nil || len(h.agents) > 1<<16 {
		h.agents = map[chain.OptionID]string{}
	}
	h.agents[id] = did
	return did
}

func deriveDID(key chain.Key, id chain.OptionID) string {
	secret, err := key.Bytes()
	if err != nil {
		return ""
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "chordwheel-agent-v1\n"+string(id), ed25519.SeedSize)
	if err != nil {
		return ""
	}
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	return chain.DIDKey(public)
}
