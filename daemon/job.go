package daemon

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/executor"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// job is one request of a peer that was admitted. It walks this device's own chain
// without peer slots: its submitter goes on where it fails.
type job struct {
	*executor.Job
	foreign *foreign
	began   time.Time
	request adapter.Request
	answer  *receipt.Response
	first   time.Duration // to the first output; 0 without one
	account *account
}

// Terms implements exec.Job. How long it may take is the walk's matter.
func (j *job) Terms() exec.Terms {
	return exec.Terms{PayloadBytes: j.Request.PayloadBytes, PayloadHash: j.Request.PayloadHash}
}

// Release implements exec.Job.
func (j *job) Release() {
	j.Job.Release()
	j.foreign.sharing.Job(false)
	j.foreign.running.Done()
}

// Run implements exec.Job.
func (j *job) Run(ctx context.Context, payload []byte, emit exec.Emit) (t wire.ExecTrailer) {
	d, r := j.foreign.d, &j.Job.Request
	j.request = adapter.Request{ID: r.RequestID, Primitive: r.Primitive, Body: payload, Model: r.Model, Stream: r.Stream, Usage: r.Usage}
	j.answer = receipt.NewResponse(r.Primitive, r.Stream)
	if err := edge.CheckForeign(r.Primitive, payload, r.Stream); err != nil {
		// Nothing of an honest device's. It must not reach an upstream, whose answer
		// to it would be held against an option of ours.
		j.count(chain.Status)
		d.cfg.Log.Warn("a peer's request is none that an edge lets through", "request_id", r.RequestID, "peer", j.From, "name", j.Name, "error", err)
		return wire.ExecTrailer{Class: chain.Status}
	}
	j.account = d.receipts.openForeign(j)
	accounted := false
	defer func() {
		if v := recover(); v != nil { // a defect of ours ends this work, not the device
			d.panicked(v, "request_id", r.RequestID)
			if !accounted {
				j.account.close(receipt.UpstreamError)
			}
			t = wire.ExecTrailer{Class: chain.Internal, Used: 1}
			j.count(t.Class)
		}
	}()
	result := j.walk(ctx, payload, emit)
	accounted = true
	j.account.close(statusOf(ctx, &result, nil))
	t = j.trailer(&result)
	j.count(t.Class)
	d.cfg.Log.Info("ran work of a peer", "request_id", r.RequestID, "peer", j.From, "name", j.Name, "scope", r.Scope, "primitive", r.Primitive, "slot", r.Option,
		"option", result.Option, "end", result.End, "class", t.Class, "attempts", result.Attempts, "gate_decision", j.Verdict, "token_id", j.TokenID, "ms", time.Since(j.began).Milliseconds())
	return t
}

// walk walks the chain, with a trace of it.
func (j *job) walk(ctx context.Context, payload []byte, emit exec.Emit) walk.Result {
	d, r := j.foreign.d, &j.Job.Request
	plan := walk.Plan{
		Options: j.mine(), Rules: j.Chain.Rules(), Limits: d.cfg.Defaults, Stream: r.Stream, Budget: r.Budget.Duration(),
		Needs: walk.Needs{Payload: int64(len(payload))}, Attempts: r.Attempts, Kinds: j.Kinds, Hooks: j.hooks(),
	}
	traced := new(trace)
	plan.Hooks.Measure = traced.of(plan.Hooks.Measure)
	result := walk.Run(ctx, plan, d.standing, attempts{j}, func(a walk.Attempt, data [][]byte) error { return j.deliver(a, data, emit) })
	traced.close(d, control.Trace{RequestID: r.RequestID, Transaction: r.TransactionID, For: j.From, ForName: j.Name}, j.Chain.Slot(), j.began, &result)
	return result
}

// mine gives the options that this work may use, in this device's own order.
func (j *job) mine() []chain.Option {
	var options []chain.Option
	for _, o := range j.foreign.d.ordered(j.Chain, delta.Conversation{}) {
		if slices.ContainsFunc(j.Options, func(may chain.Option) bool { return may.ID == o.ID }) {
			options = append(options, o)
		}
	}
	return options
}

// hooks ties the walk to this device. It never protests: that is the submitter's.
func (j *job) hooks() walk.Hooks {
	d := j.foreign.d
	h := d.hooks(j.Chain)
	h.Current = func(id chain.OptionID) *chain.Option {
		o := d.current(j.Chain.Slot(), id)
		if o == nil || o.Data == chain.LocalOnly {
			return nil
		}
		return o
	}
	h.Notice = func(f chain.Failure, key string) { d.sayKeyRests(f, key) }
	h.Reserve = d.spends(j.Chain.Slot(), j.request.Body, j.Chain.Rules().Profile) // the device that bills keeps the ceilings
	return h
}

// attempts makes the attempts of j's walk, with this device's own adapters and keys.
type attempts struct{ j *job }

// Run implements walk.Runner.
func (r attempts) Run(ctx context.Context, a walk.Attempt, emit func(walk.Chunk) error) walk.Outcome {
	return r.j.foreign.d.attempt(ctx, &r.j.request, a, emit)
}

// deliver sends what the walk lets through. It holds back what is no output until
// some is there, so that all of it counts as output to the submitter, whose own walk
// would drop what does not beyond the first few pieces.
func (j *job) deliver(_ walk.Attempt, data [][]byte, emit exec.Emit) error {
	if j.first == 0 {
		j.first = time.Since(j.began)
	}
	for i, b := range data {
		if err := emit(b, true, i < len(data)-1); err != nil {
			return err
		}
		j.answer.Add(b)
	}
	return nil
}

// Sign implements exec.Job: with what was sent, this device says that it ran it.
func (j *job) Sign(t *wire.ExecTrailer) {
	if t.Class != chain.OK {
		return
	}
	r := &j.Job.Request
	says := j.says()
	signature, err := says.Sign(j.foreign.d.cfg.Key)
	if err != nil { // of a device without a key, which runs nothing
		j.foreign.d.cfg.Log.Error("a statement was not signed", "request_id", r.RequestID, "error", err)
		return
	}
	t.ResponseHash, t.Signature = says.ResponseHash, []byte(signature)
}

// says is what this device states of what was sent so far.
func (j *job) says() receipt.Statement {
	r := &j.Job.Request
	return receipt.Statement{TransactionID: r.TransactionID, Nonce: r.Nonce, SeekerDID: j.Seeker, AgentDID: j.Agent, RequestHash: r.RequestHash,
		ResponseHash: j.answer.Hash(), TokenID: r.TokenID}
}

func (j *job) count(class chain.Class) {
	switch class {
	case chain.OK:
		j.foreign.answered.Add(1)
	case chain.Canceled:
		j.foreign.left.Add(1)
	default:
		j.foreign.failed.Add(1)
	}
}

// trailer is this device's account of how it went.
func (j *job) trailer(r *walk.Result) wire.ExecTrailer {
	t := wire.ExecTrailer{Class: ended(r), Used: r.Attempts, Input: max(0, r.Input), Output: max(0, r.Output)}
	if r.End == walk.AllCooling {
		t.RetryAfter, t.HasRetryAfter = max(0, chain.MillisOf(r.RetryAfter)), true
	}
	if j.Job.Request.Stream {
		t.FirstOutput = chain.MillisOf(j.first)
	}
	if r.End == walk.Answered {
		t.Option = r.Option
		if i := slices.IndexFunc(j.Options, func(o chain.Option) bool { return o.ID == r.Option }); i >= 0 {
			t.Model = shown(j.Options[i].Model, 256)
		}
	}
	if a := r.Answer; a != nil && r.End == walk.Refused {
		t.Status = a.Status
		t.Answer = &wire.ExecAnswer{Status: a.Status, ContentType: shown(a.ContentType, 256), Body: a.Body[:min(len(a.Body), wire.MaxExecAnswer)]}
	}
	return t
}

// ended gives the class of a whole walk, as its submitter should take it: as one
// attempt at this device. Classes without an attempt say that nothing was spent.
func ended(r *walk.Result) chain.Class {
	for _, class := range []chain.Class{chain.ContextLength, chain.Feature} {
		short := func(f chain.Failure) bool { return f.Class == class }
		if r.End != walk.Answered && r.End != walk.Left && len(r.Failures) > 0 && all(r.Failures, short) {
			return class // for an option that declares more
		}
	}
	switch r.End {
	case walk.Answered:
		return chain.OK
	case walk.Refused: // the caller's own error: the last failure says which
		return last(r, chain.CallerError)
	case walk.Broken:
		return chain.Cut
	case walk.Left:
		return chain.Canceled
	case walk.AllTimedOut:
		return chain.Timeout
	case walk.AllCooling:
		if r.Attempts > 0 {
			return chain.RateLimited
		}
		if len(r.Failures) > 0 && all(r.Failures, func(f chain.Failure) bool { return f.Class == chain.Busy }) {
			return chain.Busy // all places are taken: soon they are not
		}
		return chain.Cooling
	case walk.AllFailed:
		return chain.Status
	}
	// Nothing could be tried, or all keys were refused. Whose keys they are is
	// nobody else's matter: to a peer that is a failure like another.
	if r.Attempts > 0 {
		return chain.Status
	}
	return chain.Absent
}

func all[T any](list []T, holds func(T) bool) bool {
	return !slices.ContainsFunc(list, func(t T) bool { return !holds(t) })
}

func last(r *walk.Result, otherwise chain.Class) chain.Class {
	if n := len(r.Failures); n > 0 {
		return r.Failures[n-1].Class
	}
	return otherwise
}

// shown makes foreign text fit for a trailer: short, and printable.
func shown(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "")
	}
	return s
}
