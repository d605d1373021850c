package daemon

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/edge"
	jobs "github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/selection"
)

// runs reports whether this device has what runs o. Another device's local
// option is not in it.
func (d *Daemon) runs(o *chain.Option) bool {
	switch o.Kind {
	case chain.Local:
		_, ok := d.locals[o.ID]
		return ok
	case chain.Provider:
		return d.cfg.Adapters[o.Adapter] != nil
	}
	return true
}

// Run makes one attempt: at a peer for a slot, else with the adapter that the
// option names. Before anything leaves, the gate is asked.
func (r *run) Run(ctx context.Context, a walk.Attempt, emit func(walk.Chunk) error) walk.Outcome {
	agent, capability := selection.AgentOf(&a.Option, r.daemon.did), r.capability
	switch {
	case a.Peer == jobs.Peer: // this device vouches for its providers
		agent = r.daemon.did
	case a.Option.Kind == chain.Peer: // which is registered for what it executes
		agent, capability = a.Peer.DID(), ""
	}
	if capability == "" {
		capability = string(r.chain.Slot().Primitive)
	}
	cleared := r.daemon.clear(ctx, agent, capability)
	r.account.tried(agent, &cleared)
	if cleared.denied != nil {
		return r.deny(cleared.denied)
	}
	if a.Peer == jobs.Peer {
		return r.runAtProviders(ctx, a, emit)
	}
	r.sub.tried(&a)
	if a.Option.Kind == chain.Peer {
		return r.runAtPeer(ctx, a, &cleared, emit)
	}
	return r.daemon.attempt(ctx, &r.request, a, emit)
}

// deny passes over an option that the gate let no work through to.
func (r *run) deny(no *edge.Refusal) walk.Outcome {
	r.denied.CompareAndSwap(nil, no)
	return walk.Outcome{Class: chain.Denied, Why: string(no.Code)}
}

// denial is why nothing was let through, nil if something was.
func (r *run) denial() *edge.Refusal { return r.denied.Load() }

// attempt makes one with the adapter that the option names.
func (d *Daemon) attempt(ctx context.Context, request *adapter.Request, a walk.Attempt, emit func(walk.Chunk) error) walk.Outcome {
	runs := d.cfg.Adapters[a.Option.Adapter]
	if runs == nil {
		return walk.Outcome{Class: chain.Absent}
	}
	call := adapter.Call{Request: request, Attempt: a}
	if a.Key != "" {
		secret, ok := d.cfg.Keys.Get(a.Key)
		if !ok {
			return walk.Outcome{Class: chain.KeyMissing}
		}
		call.Secret = secret
	}
	return d.contained(ctx, runs, call, emit)
}

// panicked logs that v ended what about names. What v says may be content: its type and
// its place alone are logged.
func (d *Daemon) panicked(v any, about ...any) {
	d.cfg.Log.Error("panic", append(about, "panic_type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))...)
}

// contained runs an adapter. Its panic ends the attempt, not the process, and not the
// request.
func (d *Daemon) contained(ctx context.Context, runs adapter.Adapter, call adapter.Call, emit func(walk.Chunk) error) (o walk.Outcome) {
	emitting := false // what panics there is not the adapter
	defer func() {
		if emitting {
			return
		}
		if v := recover(); v != nil {
			d.panicked(v, "request_id", call.Request.ID, "adapter", call.Attempt.Option.Adapter)
			o = walk.Outcome{Class: chain.Internal}
		}
	}()
	return runs.Run(ctx, call, func(c walk.Chunk) error {
		emitting = true
		err := emit(c)
		emitting = false
		return err
	})
}
