package gate

import (
	"context"
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// BenchmarkDecide compares a decision about a token that was not seen before with its
// floor, one bare signature check over the same bytes, in the same run.
func BenchmarkDecide(b *testing.B) {
	decide(b, func(g *Gate) { g.proofs.of = nil })
}

// BenchmarkDecideAgain is the same for a token that was seen.
func BenchmarkDecideAgain(b *testing.B) { decide(b, func(*Gate) {}) }

func decide(b *testing.B, before func(*Gate)) {
	g := newGate(b, Enforce, standing(Active))
	r := Request{Token: chain.Secret(good()), Agent: agent, Capability: work}
	token, err := parse(good())
	if err != nil {
		b.Fatal(err)
	}
	public := server.Public().(ed25519.PublicKey)
	var whole, floor time.Duration
	for b.Loop() {
		start := time.Now()
		if !ed25519.Verify(public, []byte(token.signed), token.signature) {
			b.Fatal("no")
		}
		before(g)
		middle := time.Now()
		if err := g.Decide(context.Background(), now, r).Err(); err != nil {
			b.Fatal(err)
		}
		floor += middle.Sub(start)
		whole += time.Since(middle)
	}
	b.ReportMetric(float64(whole)/float64(floor), "x-verify")
}
