package daemon

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/executor"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/daemon/sharing"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// foreign is this device as an executor: what package executor asks of it, and
// what becomes of the work of peers. job.go runs one piece of it.
type foreign struct {
	d       *Daemon
	decide  *executor.Executor
	sharing *sharing.Switch
	lines   *rate.Limiter // of the log about refusals, which strangers must not fill
	revoked atomic.Pointer[member.Revocations]
	can     atomic.Pointer[abilities]

	answered, failed, left atomic.Uint64

	mu      sync.Mutex // orders the last admission before the wait for it
	closing bool
	running sync.WaitGroup // jobs that hold a place
}

// A refusal is said in the log this often; all are counted.
const (
	refusalLines = 10 // at once
	refusalEvery = time.Second
)

func newForeign(d *Daemon) *foreign {
	f := &foreign{d: d, sharing: sharing.New(d.cfg.Sharing, d.cfg.Sensors), lines: rate.NewLimiter(rate.Every(refusalEvery), refusalLines)}
	f.decide = executor.New(d.cfg.Key.PeerID(), d.bootID, f, f.sharing, executor.Limits{})
	if d.cfg.Gating.Gate != nil {
		f.decide.Guard(f)
	}
	return f
}

// Judge implements executor.Gate: this device is the agent, and the token has to be
// bound to the peer at the other end of the stream.
func (f *foreign) Judge(from chain.PeerID, r *wire.ExecRequest) (tokenID, verdict string, refusal *wire.ExecRefusal) {
	decision := f.d.judge(f.d.run, gate.Request{Token: chain.Secret(r.Token), Agent: f.d.did, Capability: string(r.Primitive), From: from, Nonce: r.Nonce})
	if decision.Err() != nil {
		code := wire.ExecCode(decision.Denial.Code)
		if decision.Denial.Code == gate.Overloaded {
			code = wire.ExecBusy
		}
		refusal = wire.RefuseExec(code, "%s", decision.Denial.Reason)
	}
	return decision.TokenID, decision.Word(), refusal
}

// Member implements executor.Device.
func (f *foreign) Member() (executor.Member, bool) {
	_, _, ok := f.d.own()
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return executor.Member{Trust: f.d.joined.Trust, Scopes: f.d.joined.Scopes, Revocations: f.revoked.Load()}, ok
}

// abilities are what the device declares and was granted, as it was a moment ago:
// listing it for each request costs as much as verifying its signature.
type abilities struct {
	at     time.Time
	serial uint64 // of the membership that grants
	has    []chain.Capability
}

// abilitiesHold is how long that moment may be past.
const abilitiesHold = time.Second

// Has implements executor.Device: declared and granted.
func (f *foreign) Has() []chain.Capability {
	m, _, ok := f.d.own()
	if !ok {
		return nil
	}
	now := time.Now()
	if a := f.can.Load(); a != nil && a.serial == m.Serial && now.Sub(a.at) < abilitiesHold {
		return a.has
	}
	a := &abilities{at: now, serial: m.Serial, has: m.Counts(f.d.capabilities())}
	f.can.Store(a)
	return a.has
}

// Chain implements executor.Device.
func (f *foreign) Chain(slot chain.Slot) *chain.Chain { return f.d.cfg.Chains.Get(slot) }

// Mark implements executor.Device. The chain in force is the one accepted last,
// unless it was lost.
func (f *foreign) Mark(slot chain.Slot) chain.Mark {
	if c := f.d.cfg.Chains.Get(slot); c != nil {
		return c.Mark()
	}
	return f.d.cfg.Marks.All()[slot]
}

// Runs implements executor.Device.
func (f *foreign) Runs(o *chain.Option) bool { return o.Known() && f.d.runs(o) }

// Admit implements exec.Executor.
func (f *foreign) Admit(_ context.Context, from chain.PeerID, open *wire.ExecOpen) (exec.Job, error) {
	now := time.Now()
	admitted, err := f.admit(from, open, now)
	if err != nil {
		if !question(err) && f.lines.AllowN(now, 1) {
			f.d.cfg.Log.Info("refused a peer's work", "peer", from, "reason", err)
		}
		return nil, err
	}
	f.sharing.Job(true)
	return &job{Job: admitted, foreign: f, began: now}, nil
}

// question reports whether a refusal is one that is answered at once.
func question(err error) bool {
	var no *wire.ExecRefusal
	return errors.As(err, &no) && no.Question()
}

// admit decides, and counts whom drain waits for.
func (f *foreign) admit(from chain.PeerID, open *wire.ExecOpen, now time.Time) (*executor.Job, error) {
	f.mu.Lock()
	if f.closing {
		f.mu.Unlock()
		return nil, wire.RefuseExec(wire.ExecShutdown, "it is stopping")
	}
	if f.d.receipts.taken() != nil { // what runs for a peer leaves a receipt here as well
		f.mu.Unlock()
		return nil, wire.RefuseExec(wire.ExecBusy, "too many of its receipts wait")
	}
	f.running.Add(1)
	f.mu.Unlock()
	admitted, err := f.decide.Admit(from, open, now)
	if err != nil {
		f.running.Done()
	}
	return admitted, err
}

// Drain takes no more work of others, and waits until what runs has ended or ctx
// has. Close ends the rest.
func (d *Daemon) Drain(ctx context.Context) {
	f := d.foreign
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	ended := make(chan struct{})
	go func() { // ends with the jobs, at the latest with the node
		f.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// load is what peers are told of it.
func (f *foreign) load() wire.Load {
	places, _ := f.sharing.Jobs("")
	return wire.Load{Running: int64(f.decide.Counts().Running), Slots: int64(places)}
}

// status is what `chordwheel status` shows of it.
func (f *foreign) status(now time.Time) control.Foreign {
	counts := f.decide.Counts()
	s := control.Foreign{Running: counts.Running, Answered: f.answered.Load(), Failed: f.failed.Load(), Left: f.left.Load(), Refused: map[string]uint64{}}
	for code, n := range maps.All(counts.Refused) {
		s.Refused[string(code)] = n
	}
	f.d.mu.Lock()
	scopes := f.d.joined.Scopes
	f.d.mu.Unlock()
	for _, scope := range scopes {
		decision := f.sharing.May(scope, now)
		_, places := f.sharing.Jobs(scope)
		s.Sharing = append(s.Sharing, control.Sharing{Scope: scope, On: decision.OK, Why: decision.Why, Back: moment(decision.Back), Jobs: places})
	}
	return s
}
