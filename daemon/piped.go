package daemon

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/edge"
	jobs "github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// pipelineOption is what an answer of the pipeline names as its option: no single
// one gave it. Its jobs say which did.
const pipelineOption chain.OptionID = "pipeline"

// piped is one request of the edge on its way through the pipeline, and the
// [wave.Runner] of its jobs.
type piped struct {
	daemon *Daemon
	work   *edge.Work
	whole  *account
	began  time.Time
	until  time.Time     // when the request's budget ends
	budget time.Duration // of it

	opening sync.Mutex // of the root
	root    string     // the job of the request; "" until a part of it begins
	calls   atomic.Int64
	open    atomic.Int64 // jobs whose walk has not ended
	answers atomic.Bool  // a part was answered: the request will be

	mu    sync.Mutex
	named map[string]string // the job that answered the task of a name
	last  walk.Result       // of the last direct walk that failed
	no    error             // why a walk was not even begun, or allowed; the direct one's goes first
	word  string            // the gate's, where it says the same of all jobs
	mixed bool              // it does not
}

// stages reports whether w is a chat that the pipeline may take: the caller left the
// choice of a model to the device, and no capability of the taxonomy has an answer
// of its own.
func (d *Daemon) stages(w *edge.Work) bool {
	if d.pipeline == nil || w.Primitive != chain.LLMChat || w.Model != "" && w.Model != edge.Auto {
		return false
	}
	if d.cfg.Selection.Taxonomy == nil || w.Ask == nil {
		return true
	}
	c, ok := d.selectMatched(w, chain.Qualifier{Stage: w.Stage, Consumer: w.Consumer, Instance: w.Instance})
	return !ok || c.chain.Slot().Primitive == chain.LLMChat
}

// answer runs one request: through the pipeline where that is on and the request is hard
// enough, else as one walk.
func (d *Daemon) answer(ctx context.Context, w *edge.Work, a *account, deliver walk.Deliver) (walk.Result, error) {
	if !d.stages(w) {
		return d.walk(ctx, w, a, nil, deliver)
	}
	p := &piped{daemon: d, work: w, whole: a, began: time.Now(), named: map[string]string{}}
	budget := w.Budget
	budget.Batch = budget.Batch || !budget.Named // several models one after the other are not for the impatient
	p.budget = budget.Within(d.budgets(w))
	p.until, a.budget = p.began.Add(p.budget), p.budget
	waves := wave.New(d.pipeline.Settings().Waves, p, d.pool)
	request := pipeline.Request{Body: w.Body, Stream: w.Stream, Budget: p.budget}
	if w.Ask != nil {
		_ = json.Unmarshal(w.Ask, &request.Ask) // the edge has checked it
	}
	decision := d.pipeline.Decide(ctx, waves, request)
	w.Complexity = decision.String()
	if !decision.Staged {
		waves.Close()
		result, err := d.walk(ctx, w, a, nil, deliver)
		p.close(ctx, pipeline.Result{Class: string(decision.Class), Reasons: decision.Reasons}, &result, err)
		return result, err
	}
	p.begin()
	w.Job = p.root
	d.noted(d.jobs.Update(p.root, func(r *jobs.Record) { r.Class, r.Reasons = string(decision.Class), decision.Reasons }))
	words := &spoken{piped: p, deliver: deliver}
	told, err := d.pipeline.Run(ctx, waves, request, decision, pipeline.Output{Text: words.text, Progress: words.progress})
	waves.Close()
	result, err := p.result(ctx, words, told, err)
	p.close(ctx, told, &result, err)
	return result, err
}

// budgets gives the rules that bound how long w may take.
func (d *Daemon) budgets(w *edge.Work) chain.Budgets {
	for _, p := range []chain.Primitive{chain.LLMChat, chain.T3, chain.T2, chain.T1} {
		if c, err := d.inForceFor(w.App, p, chain.Qualifier{}); err == nil {
			return c.Rules().Budgets
		}
	}
	return chain.DefaultRules().Budgets
}

// begin opens the job of the request, once.
func (p *piped) begin() {
	p.opening.Lock()
	defer p.opening.Unlock()
	if p.root != "" {
		return
	}
	hash, err := p.whole.requestHash()
	if err != nil {
		hash = receipt.OutputHash(p.whole.body)
	}
	id, err := p.daemon.jobs.Open(jobs.Record{RequestID: p.work.ID, Transaction: p.whole.receipt.TransactionID, Role: jobs.Root, Primitive: p.work.Primitive, RequestHash: hash})
	if err != nil { // the table is full: the work goes on, without a record
		p.daemon.cfg.Log.Warn("a request of the pipeline has no record", "request_id", p.work.ID, "error", err)
		return
	}
	p.root = id
	p.daemon.noted(p.daemon.jobs.Accept(id, jobs.Place{Option: pipelineOption}))
}

// noted says that a state was not kept, which is a defect of ours.
func (d *Daemon) noted(err error) {
	if err != nil {
		d.cfg.Log.Debug("the state of a job was not noted", "error", err)
	}
}

// part is the request of one sub-job.
func (p *piped) part(primitive chain.Primitive) *edge.Work {
	w := p.work
	return &edge.Work{ID: w.ID, Primitive: primitive, Model: edge.Auto, Stage: w.Stage, Consumer: w.Consumer, Instance: w.Instance, App: w.App, Usage: true, Async: w.Async}
}

// Offers implements [wave.Runner].
func (p *piped) Offers(primitive chain.Primitive) []wave.Offer {
	return p.daemon.offers(p.part(primitive))
}

// Run implements [wave.Runner]: one walk of the chain of the task's primitive.
func (p *piped) Run(ctx context.Context, c wave.Copy, begun func(string), accepted func(chain.OptionID, chain.PeerID)) wave.Outcome {
	p.open.Add(1)
	defer p.open.Add(-1)
	p.begin()
	d, t := p.daemon, c.Task
	w := p.part(t.Primitive)
	if t.Role == jobs.Direct { // it is the request itself
		w.Session = p.work.Session
	}
	w.Stream = t.Deliver != nil
	w.Body = withModel(t.Body, w.Stream)
	w.Budget.Duration = t.Budget
	if w.Budget.Duration <= 0 {
		w.Budget.Duration = max(time.Millisecond, time.Until(p.until))
	}
	id := p.openPart(&c)
	begun(id)
	s := &subjob{id: id, copy: &c, self: d.did, deliver: t.Deliver}
	s.accepted = func(option chain.OptionID, peer chain.PeerID) {
		p.calls.Add(1)
		d.noted(d.jobs.Accept(id, jobs.Place{Option: option, Peer: peer, Device: d.nameOf(peer)}))
		accepted(option, peer)
	}
	a := d.receipts.openJob(p.whole, id, w.Body, t.Primitive, w.Stream)
	hash, err := a.requestHash()
	if err != nil {
		hash = receipt.OutputHash(w.Body)
	}
	d.noted(d.jobs.Update(id, func(r *jobs.Record) { r.RequestHash = hash }))
	result, err := d.walk(ctx, w, a, s, a.watch(s.take(w.Stream)))
	a.close(statusOf(ctx, &result, err))
	o := s.outcome(ctx, &result, err)
	p.ended(id, &c, &o, a, &result, err)
	return o
}

// openPart opens the job of a copy. Without room in the table it has an ID all the
// same, for its receipt.
func (p *piped) openPart(c *wave.Copy) string {
	t := c.Task
	r := jobs.Record{Root: p.root, CopyOf: c.First, RequestID: p.work.ID, Transaction: p.whole.receipt.TransactionID, Role: t.Role, Primitive: t.Primitive,
		After: t.After, Wave: t.Wave, Rung: c.Rung, Iteration: t.Iteration}
	if t.Role == jobs.Subtask {
		r.Task = t.Name
	}
	id, err := "", errors.New("the request has no record")
	if p.root != "" {
		id, err = p.daemon.jobs.Open(r)
	}
	if err != nil {
		p.daemon.cfg.Log.Debug("a sub-job has no record", "request_id", p.work.ID, "error", err)
		return rand.Text()
	}
	return id
}

// ended notes how the job of a copy ended.
func (p *piped) ended(id string, c *wave.Copy, o *wave.Outcome, a *account, r *walk.Result, no error) {
	state, reason := jobs.Done, ""
	switch o.Class {
	case chain.OK:
		p.answers.Store(true)
	case chain.Canceled:
		state, reason = jobs.Cancelled, string(o.Class)
	default:
		state, reason = jobs.Failed, string(o.Class)
	}
	p.daemon.noted(p.daemon.jobs.End(id, state, reason, func(r *jobs.Record) {
		note(o)(r)
		r.Device = p.daemon.nameOf(o.Peer)
		r.ResponseHash = a.answer.Hash()
	}))
	_, word, _ := a.last()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mixed = p.mixed || word != "" && p.word != "" && word != p.word
	if p.word == "" {
		p.word = word
	}
	direct := c.Task.Primitive == chain.LLMChat
	switch {
	case state == jobs.Done:
		p.named[c.Task.Name] = id
	case direct:
		p.last = *r
	}
	if no != nil && (p.no == nil || lacksChain(p.no) || direct && !lacksChain(no)) {
		p.no = no
	}
}

// lacksChain reports whether no is about this device's chains, and not about the
// request or who may do it.
func lacksChain(no error) bool {
	var r *edge.Refusal
	return errors.As(no, &r) && (r.Code == edge.NoChain || r.Code == edge.ChainExpired)
}

// gated gives what the gate said of the jobs of a request, "" where that differs.
func (p *piped) gated() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mixed {
		return ""
	}
	return p.word
}

// Settle implements [wave.Runner].
func (p *piped) Settle(id string, state jobs.State, hedge jobs.Hedge) {
	p.daemon.noted(p.daemon.jobs.Settle(id, state, hedge))
}

// nameOf gives the name of a peer, "" for this device.
func (d *Daemon) nameOf(p chain.PeerID) string {
	if p == "" {
		return ""
	}
	return d.peers.Name(p)
}

// result says of a staged request what the edge and its receipt want to know.
func (p *piped) result(ctx context.Context, words *spoken, told pipeline.Result, err error) (walk.Result, error) {
	total := p.total()
	r := walk.Result{End: walk.Answered, Option: pipelineOption, Attempts: total.Attempts, Input: total.Input, Output: total.Output, Delivered: words.began}
	p.whole.tried(p.daemon.did, &clearance{word: p.gated()})
	switch {
	case err == nil:
		if err = words.end(total, told.Short); err == nil {
			return r, nil
		}
		r.End = walk.Left
	case errors.Is(err, pipeline.ErrBroken):
		r.End = walk.Broken
	case ctx.Err() != nil || words.gone:
		r.End = walk.Left
	case errors.Is(err, pipeline.ErrNoModels):
		p.mu.Lock()
		r.End, r.Failures, r.RetryAfter = walk.NothingToTry, p.last.Failures, p.last.RetryAfter
		if p.last.End == walk.Escalating || p.last.End == walk.OverBudget {
			r.End, r.Why = p.last.End, p.last.Why
		}
		refused, no := p.last.End == walk.Refused, p.no
		p.mu.Unlock()
		if no != nil && p.calls.Load() == 0 {
			return r, no // no chain, say, or no token: nobody was asked
		}
		if refused { // every model finds the request itself at fault: the caller gets the words of one
			return p.daemon.walk(ctx, p.work, p.whole, nil, words.deliver)
		}
	default:
		return r, fmt.Errorf("pipeline: %w", err)
	}
	return r, nil
}

// total sums up what the jobs of the request spent so far.
func (p *piped) total() (sum jobs.Record) {
	if p.root == "" {
		return sum
	}
	for _, r := range p.daemon.jobs.Tree(p.root) {
		if r.ID == p.root || r.Role == jobs.Provided { // what a provider over HTTP did is in the job that it did it for
			continue
		}
		sum.Attempts, sum.Input, sum.Output, sum.Cost = sum.Attempts+r.Attempts, sum.Input+r.Input, sum.Output+r.Output, sum.Cost+r.Cost
		sum.AtLeast = sum.AtLeast || r.AtLeast
	}
	sum.AtLeast = sum.AtLeast || p.open.Load() > 0 // a loser that does not heed
	return sum
}

// close ends the job of the request.
func (p *piped) close(ctx context.Context, told pipeline.Result, result *walk.Result, err error) {
	if p.root == "" {
		return
	}
	state, reason := jobs.Done, ""
	switch status := statusOf(ctx, result, err); {
	case status == receipt.ClientAborted:
		state, reason = jobs.Cancelled, string(status)
	case err == nil && (result.End == walk.NothingToTry || result.End == walk.OverBudget || result.End == walk.Escalating):
		state, reason = jobs.Failed, string(edge.NoModels)
	case status != receipt.OK:
		state, reason = jobs.Failed, string(status)
	}
	total := p.total()
	p.daemon.noted(p.daemon.jobs.End(p.root, state, reason, func(r *jobs.Record) {
		r.Class, r.Reasons, r.Notes = told.Class, told.Reasons, told.Notes
		r.Attempts, r.Input, r.Output, r.Cost, r.AtLeast = total.Attempts, total.Input, total.Output, total.Cost, total.AtLeast
		if told.Scored {
			first, last := told.First, told.Score
			r.First, r.Score = &first, &last
		}
		r.Iteration, r.Issues, r.Unscored = told.Iterations, told.Issues, told.Unscored > 0
		r.ResponseHash = p.whole.answer.Hash()
	}))
	p.daemon.cfg.Log.Info("pipeline", "request_id", p.work.ID, "job", p.root, "class", told.Class, "reasons", told.Reasons, "notes", told.Notes, "state", state,
		"attempts", total.Attempts, "iterations", told.Iterations, "ms", time.Since(p.began).Milliseconds())
}

// scored keeps in the record of a score what came of it.
func (p *piped) scored(task string, it *pipeline.Iteration) {
	p.mu.Lock()
	id := p.named[task]
	p.mu.Unlock()
	if id == "" {
		return
	}
	score := it.Score
	p.daemon.noted(p.daemon.jobs.Update(id, func(r *jobs.Record) {
		r.Score, r.Unscored, r.Issues, r.Fixed, r.NewIssues = &score, it.Unscored, it.Issues, it.Fixed, it.NewIssues
	}))
}
