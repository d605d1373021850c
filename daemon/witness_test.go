package daemon_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/mesh"
)

// shown is a ledger that gives its newest checkpoint and proves nothing.
type shown struct{ checkpoint []byte }

func (s shown) Checkpoint(context.Context) ([]byte, error) { return s.checkpoint, nil }

func (shown) Consistency(context.Context, int64, int64) (merkle.Consistency, error) {
	return merkle.Consistency{}, errors.New("not asked for here")
}

// A device shows the checkpoint that it has seen to those it meets, and one of theirs that
// does not fit stands among its problems.
func TestASplitLedgerIsAProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := chaintest.NewHub()
		raw, err := chaintest.Key(0).Private().Raw()
		if err != nil {
			t.Fatal(err)
		}
		signed := func(root byte) []byte {
			b, err := merkle.Checkpoint{Origin: merkle.Origin(hub.Trust.Mesh), Size: 7, Root: merkle.Hash{root}}.Sign(ed25519.PrivateKey(raw))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		m := newMemory()
		b := assemble(t, &provider{fails: map[chain.OptionID]walk.Outcome{}}, func(c *daemon.Config) {
			c.Chains, c.Marks, c.State, c.Proofs = chains{m}, marks{m}, m, shown{signed(1)}
		})
		b.hub.serve(options)
		if err := b.Join(t.Context(), b.invitation()); err != nil {
			t.Fatal(err)
		}
		if got := b.hub.events.Checkpoint(); got != nil {
			t.Errorf("before it was looked at: %q", got)
		}
		time.Sleep(2 * time.Minute)
		if got := b.hub.events.Checkpoint(); string(got) != string(signed(1)) {
			t.Errorf("shown is %q", got)
		}
		problem := func() string { return strings.Join(b.Status().Problems, "\n") }
		b.hub.events.Contact(mesh.Contact{Peer: chaintest.PeerID(stranger), Checkpoint: signed(1)})
		b.hub.events.Contact(mesh.Contact{Peer: chaintest.PeerID(stranger), Checkpoint: []byte("nonsense")})
		if p := problem(); strings.Contains(p, "ledger") {
			t.Errorf("the same checkpoint: %s", p)
		}
		b.hub.events.Contact(mesh.Contact{Peer: chaintest.PeerID(stranger), Checkpoint: signed(2)})
		if p := problem(); !strings.Contains(p, "two roots for 7 lines") || !strings.Contains(p, "ledger-split") {
			t.Errorf("another past: %s", p)
		}
	})
}
