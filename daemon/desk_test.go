package daemon_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/selection"
	"github.com/chordwheel/chordwheel/store/spool"
)

// lines is a spool in memory.
type lines struct {
	fails error
	full  bool
	kept  map[string][]byte
}

func (l *lines) Append(_ context.Context, id string, line []byte) error {
	if _, ok := l.kept[id]; !ok && l.fails == nil {
		l.kept[id] = line
	}
	return l.fails
}
func (l *lines) Begin(string) error                              { return nil }
func (l *lines) End(...string)                                   {}
func (l *lines) AppendAll(context.Context, []spool.Line) error   { return l.fails }
func (l *lines) Full() bool                                      { return l.full }
func (l *lines) Status() spool.Status                            { return spool.Status{Writable: true} }
func (l *lines) Drain(ctx context.Context, _ spool.Sender) error { <-ctx.Done(); return nil }

// The desk of a device selects as its work does, and keeps signed receipts.
func TestDesk(t *testing.T) {
	taxonomy, err := selection.Parse([]byte(seedText))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		m, l := newMemory(), &lines{kept: map[string][]byte{}}
		b := assemble(t, &provider{fails: map[chain.OptionID]walk.Outcome{}}, func(c *daemon.Config) {
			c.Chains, c.Marks, c.State, c.Spool, c.Backpressure, c.Selection = chains{m}, marks{m}, m, l, true, daemon.Selection{Taxonomy: taxonomy}
		})
		b.hub.serve("peer kind=peer | chat/a agent=did:web:a | local/own/m kind=local adapter=openai model=m")
		if err := b.Join(t.Context(), b.invitation()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		desk, err := b.Desk()
		if err != nil {
			t.Fatal(err)
		}
		self := b.hub.peer.DID()
		for model, want := range map[string]edge.Selected{
			"auto":        {Agent: "did:web:a", Model: "chat/a", Capability: "llm.chat", Method: "fallback-default"},
			"local/own/m": {Agent: self, Model: "local/own/m", Capability: "llm.chat", Method: "direct"},
			"did:web:a":   {Agent: "did:web:a", Model: "chat/a", Capability: "llm.chat", Method: "direct"},
		} {
			got, err := desk.Select.Select(&edge.Work{Primitive: chain.LLMChat, Model: model, Ask: []byte(`"hello"`)})
			if err != nil || got != want {
				t.Errorf("%s: %+v %v, want %+v", model, got, err, want)
			}
			if did, capability := desk.Select.Agent(got.Model); did != want.Agent || capability != want.Capability {
				t.Errorf("%s: found %s %s", got.Model, did, capability)
			}
		}
		if _, err := desk.Select.Select(&edge.Work{Primitive: chain.LLMChat, Model: "nobody"}); codeOf(err) != edge.ModelNotFound {
			t.Error(err)
		}
		l.full = true
		if _, err := desk.Select.Select(&edge.Work{Primitive: chain.LLMChat, Model: edge.Auto}); codeOf(err) != edge.SpoolFull {
			t.Errorf("a chat is let in while no new requests are taken: %v", err)
		}
		l.full = false
		if did, capability := desk.Select.Agent("nobody"); did != "" || capability != "" {
			t.Errorf("%s %s", did, capability)
		}

		hash := receipt.OutputHash(nil)
		q := receipt.Receipt{TransactionID: "t", MessageID: receipt.MessageID("t", receipt.RoleRoot), Capability: "llm.chat", RequestHash: hash, ResponseHash: hash,
			RequestAt: time.Now(), ResponseAt: time.Now(), Status: receipt.OK}
		l.fails = errors.New("no room")
		if err := desk.Receipts.Keep(t.Context(), q); codeOf(err) != edge.SpoolFull {
			t.Errorf("a full disk: %v", err)
		}
		l.fails = nil
		if err := desk.Receipts.Keep(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		signed, err := receipt.Parse(l.kept[q.ID()])
		if err != nil || signed.SeekerDID != self {
			t.Errorf("%+v %v", signed.Receipt, err)
		}
	})
}
