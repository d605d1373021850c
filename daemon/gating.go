package daemon

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/daemon/selection"
	"github.com/chordwheel/chordwheel/daemon/snapshot"
	"github.com/chordwheel/chordwheel/daemon/token"
)

// Gating says who may be asked for work, and who vouches for it. With the zero Gating
// every agent of a chain is active, and work goes on without tokens.
type Gating struct {
	Registry Registry
	Tokens   Tokens
	Gate     *gate.Gate
}

// Registry is what this device knows of the registry. A [snapshot.Keeper] is one.
type Registry interface {
	gate.Agents
	Start(ctx context.Context)         // returns within seconds
	Refresh(ctx context.Context) error // asks now, or joins who asks
	Fresh(now time.Time) error         // wraps [snapshot.ErrNoSnapshot] or [snapshot.ErrStale]
	Own() bool                         // the hub's: it is asked with each visit
	Listed(agent, capability string) bool
	State(now time.Time) snapshot.State
}

// Tokens is where tokens come from. A [token.Client] is one.
type Tokens interface {
	TokenFor(ctx context.Context, mode gate.Mode, agent, capability string) (token.Token, error)
}

// Patience with the authority services.
const (
	snapshotWait = 2 * time.Second        // of a visit, for the hub's registry
	strangerGap  = 10 * time.Second       // between two refreshes for agents that are not known, and two visits for a hub that may have moved
	keysWait     = 100 * time.Millisecond // of a decision that nothing depends on, for the trust server's keys
	keysLongWait = 3 * time.Second        // of one that matters
)

// gating is what became of work at this device's gate since the start.
type gating struct {
	allowed, denied, tokenless atomic.Uint64
	asked                      atomic.Int64 // when an unknown agent made the snapshot refresh, Unix nanoseconds
	sought                     atomic.Int64 // when a token of another address made a visit due, the same
}

// clearance is what the gate says of one attempt. The zero clearance is that of a
// device without a gate.
type clearance struct {
	token  chain.Secret  // "" without one
	id     string        // of a token whose signature holds, else ""
	word   string        // allow or deny; "" without a gate
	denied *edge.Refusal // the work may not go on; nil: it may
}

// clear gets the token for an agent and has the gate judge it.
func (d *Daemon) clear(ctx context.Context, agent, capability string) clearance {
	g := &d.cfg.Gating
	if g.Gate == nil {
		return clearance{}
	}
	var c clearance
	var none error
	if g.Tokens != nil && agent != "" {
		var t token.Token
		t, none = g.Tokens.TokenFor(ctx, g.Gate.Mode(), agent, capability)
		c.token = t.Value
	}
	decision := d.judge(ctx, gate.Request{Token: c.token, Agent: agent, Capability: capability})
	c.word, c.id = decision.Word(), decision.TokenID
	if err := decision.Err(); err != nil {
		c.denied = edge.Refuse(edge.Code(decision.Denial.Code), "%s", decision.Denial.Reason)
		if none != nil {
			c.denied = tokenless(none)
		}
	}
	return c
}

// judge has the gate decide, and counts.
func (d *Daemon) judge(ctx context.Context, r gate.Request) gate.Decision {
	now, patience := time.Now(), keysWait
	if d.cfg.Gating.Gate.Mode() == gate.Enforce {
		patience = keysLongWait
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	decision := d.cfg.Gating.Gate.Decide(ctx, now, r)
	if r.Token == "" {
		d.gating.tokenless.Add(1)
	}
	if decision.Allowed() {
		d.gating.allowed.Add(1)
		return decision
	}
	d.gating.denied.Add(1)
	switch {
	case decision.Denial.Code == gate.NoAgent:
		d.stranger(now)
	case decision.Denial == gate.ErrIssuer:
		d.elsewhere(now)
	}
	d.cfg.Log.Debug("the gate denies", "gate", decision, "agent_did", chain.Clip(r.Agent), "capability", chain.Clip(r.Capability))
	return decision
}

// tokenless is what is said where a token is needed and there is none: what the
// trust server said of this device or the agent, else that it is missing.
func tokenless(err error) *edge.Refusal {
	var e *token.Error
	if errors.As(err, &e) {
		switch code := edge.Code(e.Code); code {
		case edge.ProofOfControlFailed, edge.UnresolvableDID, edge.AgentSuspended, edge.NoAgent:
			return edge.Refuse(code, "%s", e.Message)
		}
	}
	return edge.Refuse(edge.TokenMissing, "no token could be had: %s", chain.ClipTo(err.Error(), 256))
}

// stranger makes the snapshot refresh, where an agent is not in it that may have
// come since.
func (d *Daemon) stranger(now time.Time) {
	if r := d.cfg.Gating.Registry; r != nil && r.Own() && again(&d.gating.asked, now) {
		d.background(func(ctx context.Context) { _ = r.Refresh(ctx) }) // status says what became of it
	}
}

// elsewhere makes a visit due, where a token that the hub's keys signed is of another address
// than the one known here: the hub may have moved.
func (d *Daemon) elsewhere(now time.Time) {
	if again(&d.gating.sought, now) {
		d.visitSoon()
	}
}

// again reports whether strangerGap is over since last, which is now then: for one of those who
// ask at once.
func again(last *atomic.Int64, now time.Time) bool {
	was := last.Load()
	return now.UnixNano()-was >= int64(strangerGap) && last.CompareAndSwap(was, now.UnixNano())
}

// refreshAgents asks the hub's registry, before chains are fetched that may name
// agents which are not known yet. One that does not answer holds nothing up for long.
func (d *Daemon) refreshAgents(ctx context.Context) {
	r := d.cfg.Gating.Registry
	if r == nil || !r.Own() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotWait)
	defer cancel()
	_ = r.Refresh(ctx) // status says what became of it
}

// fresh is nil while the registry's word may be relied on, else an [edge.Refusal].
func (d *Daemon) fresh(now time.Time) error {
	r := d.cfg.Gating.Registry
	if r == nil {
		return nil
	}
	switch err := r.Fresh(now); {
	case errors.Is(err, snapshot.ErrStale):
		return edge.Refuse(edge.SnapshotStale, "the snapshot of the registry is older than SNAPSHOT_MAX_AGE and the registry is out of reach; chordwheel status says why")
	case err != nil:
		return edge.Refuse(edge.NoSnapshot, "there is no snapshot of the registry; chordwheel status says why")
	}
	return nil
}

// registered gives the name by which agents of a capability are registered, and
// tokens are for. The hub's own registry knows agents by primitive, unless its owner
// listed some of options for the capability itself.
func (d *Daemon) registered(capability selection.Capability, options []chain.Option) string {
	r := d.cfg.Gating.Registry
	if r == nil || !r.Own() || slices.ContainsFunc(options, func(o chain.Option) bool { return r.Listed(selection.AgentOf(&o, d.did), capability.ID) }) {
		return capability.ID
	}
	return string(capability.Primitive)
}

// active tells selection who is.
type active struct{ registry Registry }

// Active implements [selection.Agents].
func (a active) Active(did, capability string) bool {
	return a.registry.Standing(did, capability, time.Now()) == gate.Active
}

// Refresh asks the registry now, for the owner who wants to know.
func (d *Daemon) Refresh(ctx context.Context) error {
	r := d.cfg.Gating.Registry
	if r == nil {
		return control.Asked("this device knows no registry")
	}
	return r.Refresh(ctx)
}

// CheckToken implements [control.Gatekeeper].
func (d *Daemon) CheckToken(ctx context.Context, q control.TokenQuestion) (control.TokenVerdict, error) {
	g := d.cfg.Gating.Gate
	if g == nil {
		return control.TokenVerdict{}, control.Asked("this device has no gate")
	}
	v := control.TokenVerdict{Mode: string(g.Mode())}
	if says, err := gate.Read(q.Token); err == nil {
		v.ID, v.Issuer, v.Subject, v.Audience, v.Capability, v.Confirmation = says.ID, says.Issuer, says.Subject, says.Audience, says.Capability, says.Confirmation
		v.Issued, v.NotBefore, v.Expires = moment(says.Issued), moment(says.NotBefore), moment(says.Expires)
		q.Agent, q.Capability = cmp.Or(q.Agent, says.Audience), cmp.Or(q.Capability, says.Capability)
		if r := d.cfg.Gating.Registry; r != nil {
			v.Standing = string(r.Standing(q.Agent, q.Capability, time.Now()))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, keysLongWait)
	defer cancel()
	decision := g.Decide(ctx, time.Now(), gate.Request{Token: q.Token, Agent: q.Agent, Capability: q.Capability})
	v.Verdict, v.Signed = decision.Word(), decision.TokenID != ""
	switch {
	case decision.Denial != nil:
		v.Code, v.Reason = string(decision.Denial.Code), decision.Denial.Reason
	case q.From != "" && (v.Confirmation == "" || v.Confirmation != q.From.DID()): // what a peer's gate wants beyond that, without using a nonce up
		v.Verdict, v.Code, v.Reason = "deny", string(gate.InvalidToken), "the token is bound to another peer, or to none"
	}
	return v, nil
}

// gatingStatus is what `chordwheel status` shows of it; nil without a gate.
func (d *Daemon) gatingStatus(now time.Time) *control.Gating {
	if d.cfg.Gating.Gate == nil {
		return nil
	}
	s := &control.Gating{Mode: string(d.cfg.Gating.Gate.Mode()), Allowed: d.gating.allowed.Load(), Denied: d.gating.denied.Load(), Tokenless: d.gating.tokenless.Load()}
	if r := d.cfg.Gating.Registry; r != nil {
		s.Snapshot = snapshotStatus(r.State(now), now)
	}
	return s
}

func snapshotStatus(s snapshot.State, now time.Time) *control.Snapshot {
	v := &control.Snapshot{Registry: "external", Source: string(s.Source), FetchedAt: moment(s.FetchedAt), Agents: s.Agents, Empty: s.Empty, Truncated: s.Truncated, Skipped: s.Skipped, Conflicts: s.Conflicts}
	if s.Own {
		v.Registry = "hub"
	}
	if !s.FetchedAt.IsZero() {
		age := max(0, now.Sub(s.FetchedAt).Seconds())
		v.Age = &age
	}
	switch {
	case errors.Is(s.Err, snapshot.ErrStale):
		v.Problem = string(edge.SnapshotStale)
	case s.Err != nil:
		v.Problem = string(edge.NoSnapshot)
	}
	if s.Refresh != nil && !errors.Is(s.Refresh, authority.ErrUnknown) {
		v.LastError = chain.ClipTo(s.Refresh.Error(), 256)
	}
	return v
}
