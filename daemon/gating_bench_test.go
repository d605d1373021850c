package daemon_test

import (
	"crypto/ed25519"
	"log/slog"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/gate"
)

// BenchmarkPassingTheGate is what an attempt pays for its gate with a token that is
// kept: looking it up, the verdict, the counts. Its floor is one bare signature check
// in the same run, which is what it would cost to verify the token each time.
func BenchmarkPassingTheGate(b *testing.B) {
	o, m := newBureau(new(testing.T)), newMemory()
	o.lists("did:web:a.example")
	cfg := daemon.Config{Key: chaintest.Key(device), DeviceID: "d", Name: "a", Version: "test", Keys: &ring{}, Chains: chains{m}, Marks: marks{m}, State: m, Spool: &shelf{},
		Log: slog.New(slog.DiscardHandler), Random: random()}
	o.gated(gate.Enforce, true)(&cfg)
	defer o.ends()
	d, err := daemon.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	if err := d.Refresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	message := make([]byte, 400)
	signature, public := ed25519.Sign(o.signer, message), o.signer.Public().(ed25519.PublicKey)
	const rounds = 500
	began := time.Now()
	for range rounds {
		if !ed25519.Verify(public, message, signature) {
			b.Fatal("no")
		}
	}
	floor := float64(time.Since(began).Nanoseconds()) / rounds
	b.ReportAllocs()
	for b.Loop() {
		if decision := d.Pass(b.Context(), "did:web:a.example", "llm.chat"); decision.Err != nil {
			b.Fatal(decision.Err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/floor, "x/verify")
}
