package gate

import (
	"context"
	"sync"

	"github.com/chordwheel/chordwheel/chain"
)

// Bounds of what is remembered of tokens whose signature was checked.
const (
	maxProofs     = 1024
	maxProofToken = 2 << 10 // bytes; longer ones are checked each time
)

// proofs remembers tokens, byte for byte, whose form and signature hold. A device
// uses one token for many requests, and checking the same signature again is nearly
// all that a decision costs. What may change is looked at each time: the server's
// keys, the clock, the agent's standing.
type proofs struct {
	mu sync.Mutex
	of map[chain.Secret]proof
}

// proof checks a token, or knows that it was checked.
func (g *Gate) proof(ctx context.Context, token chain.Secret) (proof, error) {
	m := &g.proofs
	m.mu.Lock()
	p, ok := m.of[token]
	m.mu.Unlock()
	if ok && g.verifier.known(ctx, p) {
		return p, nil
	}
	p, err := g.verifier.prove(ctx, token)
	if err != nil || len(token) > maxProofToken {
		return p, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil || len(m.of) >= maxProofs {
		m.of = map[chain.Secret]proof{}
	}
	m.of[token] = p
	return p, nil
}
