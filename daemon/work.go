package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/apps"
	"github.com/chordwheel/chordwheel/daemon/bind"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/edge"
	jobs "github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/selection"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// extension is what an asynchronous protest brought: it holds for one request. It
// is kept as it was signed and verified when it is used.
type extension struct {
	nonce  string
	signed []byte
	until  time.Time
}

// extensionHold is how long an asynchronous extension waits for its request at
// most; its own expiry may be sooner.
const extensionHold = 2 * time.Minute

// scope is what work is done for where no application chose another.
func (d *Daemon) scope() chain.ScopeID {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.joined.Scopes) > 0 {
		return d.joined.Scopes[0]
	}
	return chain.DefaultScope
}

// scopeOf is what work of app is done for; nil is the device's own key.
func (d *Daemon) scopeOf(app *apps.App) chain.ScopeID {
	if app != nil && app.Scope != "" {
		return app.Scope
	}
	return d.scope()
}

// inForce gives the chain that work for primitive p walks, or the refusal that
// says why there is none. Of the chains that the hub prepared for what the request
// says of itself it is the most specific, else the scope's own.
func (d *Daemon) inForce(p chain.Primitive, of chain.Qualifier) (*chain.Chain, error) {
	return d.inForceFor(nil, p, of)
}

// inForceFor is inForce for work of an application.
func (d *Daemon) inForceFor(app *apps.App, p chain.Primitive, of chain.Qualifier) (*chain.Chain, error) {
	d.mu.Lock()
	joined, revoked := d.isJoined, d.joined.Revoked
	d.mu.Unlock()
	switch {
	case !joined:
		return nil, edge.Refuse(edge.NoChain, "%s", ErrNotJoined)
	case revoked:
		return nil, edge.Refuse(edge.NoChain, "this device's membership was revoked; ask the mesh's owner for a new invitation")
	}
	slot := chain.Slot{Scope: d.scopeOf(app), Primitive: p}
	c := d.cfg.Chains.Get(slot)
	if of != (chain.Qualifier{}) {
		for _, q := range of.Wider() {
			if own := d.cfg.Chains.Get(chain.Slot{Scope: slot.Scope.With(q), Primitive: p}); own != nil && !own.Expired(time.Now()) {
				c = own
				break
			}
		}
	}
	switch {
	case c == nil:
		if why := d.whyNone(); why != "" && p == chain.LLMChat {
			return nil, edge.Refuse(edge.NoChain, "there is no chain: %s", why)
		}
		return nil, edge.Refuse(edge.NoChain, "there is no chain for %s; chordwheel chain explain says why on the hub's machine", slot)
	case c.Expired(time.Now()):
		return nil, edge.Refuse(edge.ChainExpired, "the chain for %s expired at %s and the hub is out of reach", slot, c.Head().Expires.Time().Format(time.RFC3339))
	}
	return c, nil
}

// Do runs one request of the edge and accounts for it.
func (d *Daemon) Do(ctx context.Context, w *edge.Work, deliver walk.Deliver) (walk.Result, error) {
	if err := d.receipts.taken(); err != nil {
		return walk.Result{}, err
	}
	a := d.receipts.open(w)
	d.counts.total.Add(1)
	d.begins()
	defer d.ends()
	used := d.foreign.sharing.Owns()
	defer func() { used(time.Now()) }()
	ended := false
	defer func() {
		if !ended { // a defect is on its way up, and what the caller will see is a failure
			d.counts.failed.Add(1)
			a.close(receipt.UpstreamError)
		}
	}()
	result, err := d.once(ctx, w, a, deliver)
	ended = true
	w.Agent, w.Gate, w.TokenID = a.last()
	d.count(w, &result, err)
	a.close(statusOf(ctx, &result, err))
	return result, err
}

// walk runs one request, or the sub-job that it has in sub: it walks the chain in
// force. The errors wrap an [edge.Refusal].
func (d *Daemon) walk(ctx context.Context, w *edge.Work, a *account, sub *subjob, deliver walk.Deliver) (walk.Result, error) {
	began := time.Now()
	choice, err := d.selects(w)
	if err != nil {
		return walk.Result{}, err
	}
	c, options, direct := choice.chain, choice.options, choice.method == selection.Direct
	w.Method, a.receipt.Capability = string(choice.method), choice.capability
	r := &run{daemon: d, chain: c, capability: choice.capability, work: w, account: a, sub: sub, left: func() bool { return ctx.Err() != nil }, request: adapter.Request{ID: w.ID, Primitive: c.Slot().Primitive, Body: w.Body, Model: w.Model, Stream: w.Stream, Usage: w.Usage}}
	if sub != nil {
		r.request.MaxAnswer = maxText + maxText/2 // as JSON: what take refuses need not be read first
	}
	plan := walk.Plan{
		Options: options, Rules: c.Rules(), Limits: d.cfg.Defaults, Stream: w.Stream, Budget: w.Budget.Within(c.Rules().Budgets),
		Needs: walk.Needs{Payload: int64(len(w.Body))}, Hooks: r.hooks(direct),
	}
	if !direct && !w.App.Restricted() {
		plan.Extension = r.takeExtension()
	}
	a.budget = plan.Budget
	sub.shape(&plan)
	traced := new(trace)
	plan.Hooks.Measure = traced.of(plan.Hooks.Measure)
	result := walk.Run(ctx, plan, d.standing, r, deliver)
	traced.close(d, control.Trace{RequestID: w.ID, Transaction: a.receipt.TransactionID}, c.Slot(), began, &result)
	if result.End != walk.Answered {
		d.whyNoPeer(c, result.Failures)
		if result.End == walk.NothingToTry {
			result.Failures = append(d.passedOver(w, &choice), result.Failures...)
		}
	} else {
		r.account.executor = r.verify(&result)
	}
	d.counts.attempts.Add(uint64(result.Attempts))
	if result.Extended {
		d.counts.extended.Add(1)
	}
	d.evaluate(c, choice.talk, result)
	if no := r.denial(); no != nil && result.End == walk.NothingToTry {
		return result, no
	}
	return result, nil
}

// count adds a request of the edge to what `status` and `usage` show.
func (d *Daemon) count(w *edge.Work, r *walk.Result, err error) {
	if err != nil {
		d.apps.Count(w.App, "", apps.Row{Requests: 1, Failed: 1}, time.Now())
		d.counts.failed.Add(1)
		return
	}
	if r.End != walk.Answered && r.End != walk.Left && r.End != walk.Refused {
		d.counts.failed.Add(1)
	}
	d.countApp(w.App, r)
}

// named gives the options that a caller means by model: by id, by model name,
// or by agent.
func named(options []chain.Option, model, self string) []chain.Option {
	var out []chain.Option
	for i := range options {
		o := &options[i]
		if o.Kind == chain.Peer || string(o.ID) != model && o.Model != model && selection.AgentOf(o, self) != model {
			continue
		}
		if out == nil { // mostly the only one, which needs no copy
			out = options[i : i+1 : i+1]
		} else {
			out = append(out, *o)
		}
	}
	return out
}

// run is one request on its way through the walk.
type run struct {
	daemon     *Daemon
	chain      *chain.Chain
	capability string // that was selected; "" is the primitive's name
	work       *edge.Work
	request    adapter.Request
	left       func() bool // the caller is gone

	account    *account
	sub        *subjob // nil: the request itself
	handover   handover
	extensions map[chain.OptionID][]byte    // the signed extension that appended an option, for peers to see
	denied     atomic.Pointer[edge.Refusal] // the gate's first no that counted
}

// hooks ties the walk to this device. A request for one model is not widened by
// a protest: the caller did not ask for another.
func (r *run) hooks(direct bool) walk.Hooks {
	h := r.daemon.hooks(r.chain)
	h.Notice = r.keyRests
	h.Reserve = r.spends()
	if direct || r.work.App.Restricted() {
		return h
	}
	h.Bind = r.bind
	if r.work.Async {
		h.Escalate = r.escalate
	} else {
		h.Protest = r.protest
	}
	return h
}

// hooks is what every walk of c asks of this device, for whomever it is.
func (d *Daemon) hooks(c *chain.Chain) walk.Hooks {
	return walk.Hooks{
		Current: func(id chain.OptionID) *chain.Option { return d.current(c.Slot(), id) },
		Runs:    d.runs,
		Key: func(name string) (uint64, bool) {
			generation := d.cfg.Keys.Generation(name)
			return generation, generation > 0
		},
		Admit:   func(o *chain.Option) (func(), chain.Class, time.Time) { return d.enter(c, o) },
		Hub:     func() bool { return d.nodeNow().HubReachable() },
		Measure: func(m walk.Measurement) { d.measured(c, m, c.Rules().Sampling) },
	}
}

// enter holds what an option and a primitive can take by nature: attempts at a time, and
// calls of this device in a minute.
func (d *Daemon) enter(c *chain.Chain, o *chain.Option) (leave func(), no chain.Class, free time.Time) {
	leave, ok := d.throttle.Enter(o.ID, o.Limits.Concurrency)
	if !ok {
		return nil, chain.Busy, free
	}
	rules := c.Rules()
	if free, ok = d.throttle.Call(c.Slot().Primitive, rules.CallsPerMinute.Share(), time.Now()); !ok {
		leave()
		return nil, chain.RateLimited, free
	}
	return leave, "", free
}

// keyRests says that a key was refused or is missing, to the owner at once and to
// the hub with the next report.
func (r *run) keyRests(f chain.Failure, key string) {
	r.daemon.sayKeyRests(f, key)
	r.daemon.reports.Queue(wire.Protest{Slot: r.chain.Slot(), Body: r.chain.Head().Body, Nonce: rand.Text(), Failed: []chain.Failure{f}})
	r.daemon.kick()
}

func (d *Daemon) sayKeyRests(f chain.Failure, key string) {
	d.cfg.Log.Warn("a key rests: it was refused, or is not in the ring", "option", f.Option, "key", key, "class", f.Class)
}

// current looks an option up in the chain of slot that is in force now: what was
// withdrawn while a request ran is not tried.
func (d *Daemon) current(slot chain.Slot, id chain.OptionID) *chain.Option {
	c := d.cfg.Chains.Get(slot)
	if c == nil || c.Expired(time.Now()) {
		return nil
	}
	options := c.Options()
	if i := slices.IndexFunc(options, func(o chain.Option) bool { return o.ID == id }); i >= 0 {
		return &d.effective(options[i : i+1])[0]
	}
	return nil
}

// effective gives options as this device runs them. What runs a local option,
// where and with which keys is this device's own configuration: a chain says only
// that it may, what it is thought to cost, and which ceilings its use counts against. Where none is local these are the
// options themselves, which nobody changes.
func (d *Daemon) effective(options []chain.Option) []chain.Option {
	out := options
	for i := range options {
		o := &options[i]
		own, ok := d.locals[o.ID]
		if !ok || o.Kind != chain.Local {
			continue
		}
		if &out[0] == &options[0] {
			out = slices.Clone(options)
		}
		own.Cost, own.Accounts = o.Cost, o.Accounts
		out[i] = own
	}
	return out
}

// measured hands an attempt to the reports and wakes the visitor for a failure.
func (d *Daemon) measured(c *chain.Chain, m walk.Measurement, sampling chain.PPM) {
	if m.Peer == jobs.Peer { // it is no peer, and its name never travels
		m.Peer = ""
	}
	d.observed(c, m)
	before := d.reports.News()
	d.reports.Observe(c.Slot(), m, sampling)
	if m.Peer != "" && !m.Neutral {
		d.peers.Observe(m.Peer, bind.Work{Primitive: c.Slot().Primitive, Option: m.Option}, m.Class, m.Total, m.At)
	}
	if !before && d.reports.News() {
		d.kick()
	}
}

// protest asks the hub for more options and verifies what it says.
func (r *run) protest(ctx context.Context, failed []chain.Failure, budget time.Duration) ([]chain.Option, error) {
	e, err := r.askForMore(ctx, failed, budget)
	if err != nil {
		return nil, err
	}
	return r.extended(e), nil // one that is refused is none: the hub was reached, this is not what being offline looks like
}

// askForMore brings the hub's extension as it came, without a signature if it
// had nothing to add.
func (r *run) askForMore(ctx context.Context, failed []chain.Failure, budget time.Duration) (extension, error) {
	d := r.daemon
	d.counts.protests.Add(1)
	nonce := rand.Text()
	head := r.chain.Head()
	reply, err := d.nodeNow().Protest(ctx, wire.Protest{Slot: r.chain.Slot(), Body: head.Body, Nonce: nonce, Failed: failed, Budget: chain.MillisOf(budget)})
	if err != nil {
		d.refusedByHub(err)
		return extension{}, fmt.Errorf("protest for %s: %w", r.chain.Slot(), err)
	}
	if len(reply.Extension) == 0 {
		d.cfg.Log.Info("the hub has nothing to add", "slot", r.chain.Slot().String(), "reason", chain.Clip(reply.Reason))
	}
	return extension{nonce, reply.Extension, time.Now().Add(extensionHold)}, nil
}

// extends gives the options that e appends to c, none if it may not.
func (d *Daemon) extends(c *chain.Chain, e extension) []chain.Option {
	if len(e.signed) == 0 {
		return nil
	}
	d.mu.Lock()
	trust := d.joined.Trust
	d.mu.Unlock()
	options, err := trust.VerifyExtension(c, e.nonce, d.cfg.Key.PeerID(), e.signed, time.Now())
	if err != nil {
		d.cfg.Log.Error("an extension was refused", "error", err)
		return nil
	}
	return options
}

// extended gives the options of e, and keeps what signs them.
func (r *run) extended(e extension) []chain.Option {
	options := r.daemon.extends(r.chain, e)
	for i := range options {
		if r.extensions == nil {
			r.extensions = map[chain.OptionID][]byte{}
		}
		r.extensions[options[i].ID] = e.signed
	}
	return options
}

// escalate protests without making the caller wait: what comes back holds for the
// next request of the slot.
func (r *run) escalate(failed []chain.Failure) {
	d := r.daemon
	d.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		e, err := r.askForMore(ctx, failed, callTimeout)
		if err != nil && !errors.Is(err, context.Canceled) {
			d.cfg.Log.Warn("an asynchronous protest failed", "error", err)
		}
		if err != nil || d.extends(r.chain, e) == nil {
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.extensions[r.chain.Slot()] = e
	})
}

// takeExtension gives the waiting extension of the run's chain, once. It is of no
// use to a newer chain, nor past its own expiry.
func (r *run) takeExtension() []chain.Option {
	d, slot := r.daemon, r.chain.Slot()
	d.mu.Lock()
	e, ok := d.extensions[slot]
	delete(d.extensions, slot)
	d.mu.Unlock()
	if !ok || !time.Now().Before(e.until) {
		return nil
	}
	return r.extended(e)
}

// PeerName gives what people call the peer p, "" if this device does not know it.
func (d *Daemon) PeerName(p chain.PeerID) string { return d.peers.Name(p) }

// Ready is nil when there is a chain that can be walked, it is known who may be
// asked, and what is done can be accounted for.
func (d *Daemon) Ready() error {
	if err := d.receipts.ready(); err != nil {
		return err
	}
	if err := d.fresh(time.Now()); err != nil {
		return err
	}
	_, err := d.inForce(chain.LLMChat, chain.Qualifier{})
	for _, c := range d.cfg.Chains.All() {
		if err == nil {
			break
		}
		_, err = d.inForce(c.Slot().Primitive, chain.Qualifier{})
	}
	return err
}
