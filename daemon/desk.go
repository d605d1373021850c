package daemon

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/selection"
	"github.com/chordwheel/chordwheel/store/spool"
)

// transactionInfo names what the key of transaction ids is derived for.
const transactionInfo = "chordwheel-transaction-v1"

// Desk gives what inlet and outlet of this device need; nil if it keeps no receipts.
func (d *Daemon) Desk() (*edge.Desk, error) {
	if d.cfg.Spool == nil {
		return nil, nil
	}
	secret, err := d.cfg.Key.Bytes()
	if err == nil {
		secret, err = hkdf.Key(sha256.New, secret, nil, transactionInfo, sha256.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("derive the key of transaction ids: %w", err)
	}
	desk := &edge.Desk{Select: d, Snapshot: freshness{d}, Receipts: d.receipts, Secret: secret}
	if d.cfg.Gating.Gate != nil {
		desk.Gate = d
	}
	return desk, nil
}

// freshness implements [edge.Snapshot].
type freshness struct{ d *Daemon }

// Fresh implements [edge.Snapshot].
func (f freshness) Fresh(now time.Time) error { return f.d.fresh(now) }

// Truncated implements [edge.Snapshot].
func (f freshness) Truncated(now time.Time) bool {
	r := f.d.cfg.Gating.Registry
	return r != nil && r.State(now).Truncated
}

// Pass implements [edge.Gate].
func (d *Daemon) Pass(ctx context.Context, agent, capability string) edge.Decision {
	c := d.clear(ctx, agent, capability)
	decision := edge.Decision{Word: c.word, TokenID: c.id}
	if c.denied != nil {
		decision.Err = c.denied
	}
	return decision
}

// Select chooses for a chat that its caller carries. A slot is no agent that could
// be called: the first option that is one counts.
func (d *Daemon) Select(w *edge.Work) (edge.Selected, error) {
	if err := d.receipts.taken(); err != nil { // the chat's outlet is one more
		return edge.Selected{}, err
	}
	c, err := d.selects(w)
	if err != nil {
		return edge.Selected{}, err
	}
	at := slices.IndexFunc(c.options, func(o chain.Option) bool { return o.Kind != chain.Peer && d.runs(&o) })
	if at < 0 { // only peers: who runs it is known when it runs
		return edge.Selected{Model: edge.Auto, Capability: c.capability, Method: string(c.method)}, nil
	}
	o := &c.options[at]
	return edge.Selected{Agent: selection.AgentOf(o, d.did), Model: string(o.ID), Capability: c.capability, Method: string(c.method)}, nil
}

// Agent finds the agent of an option that Select named.
func (d *Daemon) Agent(model string) (did, capability string) {
	for _, c := range d.cfg.Chains.All() {
		if options := named(c.Options(), model, d.did); len(options) > 0 {
			return selection.AgentOf(&options[0], d.did), string(c.Slot().Primitive)
		}
	}
	return "", ""
}

// keepWait bounds how long an outlet waits for the disk.
const keepWait = 10 * time.Second

// Keep signs a receipt of a chat that its caller carried, and returns when it is on
// disk. It implements [edge.Receipts].
func (r *receipts) Keep(ctx context.Context, q receipt.Receipt) error {
	q.SeekerDID = r.d.seeker()
	s, err := q.Sign(r.d.cfg.Key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, keepWait)
	defer cancel()
	if err := r.spool.Append(ctx, q.ID(), s.Line); err != nil {
		if errors.Is(err, spool.ErrLine) {
			return err
		}
		r.trouble("the receipt of an outlet is not on disk", err)
		return edge.Refuse(edge.SpoolFull, "the receipt could not be written: send the outlet again")
	}
	return nil
}
