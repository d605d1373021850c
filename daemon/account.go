package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/store/spool"
)

// Spool keeps receipts until the ledger has them; docs/spool.md tells what its
// methods promise. A [spool.Spool] is one.
type Spool interface {
	Append(ctx context.Context, id string, line []byte) error
	Begin(id string) error
	End(id string)
	Full() bool
	Status() spool.Status
	Drain(ctx context.Context, to spool.Sender) error
}

// Bounds of receipts on their way to the disk.
const (
	maxPending  = 4096 // receipts that wait for it in memory; beyond, new requests are refused
	firstRetry  = 50 * time.Millisecond
	longestSpan = 5 * time.Second // between two tries
	lastChance  = 2 * time.Second // for what waits when the daemon closes
)

// receipts makes the receipt of every finished request and sees to it that the
// spool has it. A reply never waits for that.
type receipts struct {
	d       *Daemon
	spool   Spool // nil: no receipts
	pending atomic.Int64
	said    atomic.Int64 // when trouble was said last, Unix nanoseconds

	idle    chan *account // to a keeper that has nothing to do
	resting atomic.Int64  // keepers that wait for one

	ending chan struct{} // closed when the daemon closes
	ended  sync.Once
	done   chan struct{} // closed when nothing more is closed
	mu     sync.Mutex    // orders the last write before the wait for it
	closed bool
	group  sync.WaitGroup
}

func newReceipts(d *Daemon) *receipts {
	return &receipts{d: d, spool: d.cfg.Spool, idle: make(chan *account), ending: make(chan struct{}), done: make(chan struct{})}
}

// start begins to send.
func (r *receipts) start(ctx context.Context) {
	if r.spool == nil || r.d.cfg.Ledger == nil {
		return
	}
	r.d.group.Go(func() {
		if err := r.spool.Drain(ctx, r.d.cfg.Ledger); err != nil {
			r.d.cfg.Log.Error("receipts are not sent any more", "error", err)
		}
	})
}

// wait ends when everything that was made is on disk, or cannot be brought there.
func (r *receipts) wait() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.done)
	}
	r.mu.Unlock()
	timer := time.AfterFunc(lastChance, func() { r.ended.Do(func() { close(r.ending) }) })
	defer timer.Stop()
	r.group.Wait()
}

// taken is nil while a new request may be begun, for its receipt has room.
func (r *receipts) taken() error {
	if r.spool != nil && (r.pending.Load() >= maxPending || r.d.cfg.Backpressure && r.spool.Full()) {
		return edge.Refuse(edge.SpoolFull, "too many receipts wait for the ledger; chordwheel status says why")
	}
	return nil
}

// ready is nil while the disk takes receipts.
func (r *receipts) ready() error {
	if r.spool == nil {
		return nil
	}
	if s := r.spool.Status(); !s.Writable {
		return edge.Refuse(edge.SpoolFull, "receipts cannot be written: %s", chain.Clip(s.Fault))
	}
	return nil
}

func (r *receipts) status() *control.Receipts {
	if r.spool == nil {
		return nil
	}
	s := r.spool.Status()
	return &control.Receipts{Waiting: s.Depth, Oldest: moment(s.Oldest), Pending: r.pending.Load(), Sent: s.Sent, Rejected: s.Rejected, Lost: s.Lost,
		Writable: s.Writable, Fault: s.Fault, LastError: s.Reason}
}

// account is one request on its way to its receipt.
type account struct {
	of      *receipts
	receipt receipt.Receipt // TransactionID and MessageID are fixed from the start
	body    []byte          // as it was received
	answer  *receipt.Response
	says    func() receipt.Statement // of work for a peer; nil for this device's own

	unfit    bool              // the answer was none that the edge can pass on
	executor *receipt.Executor // of the peer that answered; set by the walk's caller

	hashing sync.Once
	hash    string
	hashErr error
	mu      sync.Mutex // an attempt that was given up may still be on its way
	agent   string     // of the last attempt, as all below
	word    string     // the gate's
	tokenID string
}

// open begins the account of a request from the edge.
func (r *receipts) open(w *edge.Work) *account {
	a := &account{of: r, body: w.Body, answer: receipt.NewResponse(w.Primitive, w.Stream)}
	if w.Received != nil {
		a.body = w.Received
	}
	id := w.Transaction
	if id == "" {
		id = rand.Text()
	}
	a.receipt = receipt.Receipt{TransactionID: id, MessageID: receipt.MessageID(id, receipt.RoleRoot), SeekerDID: r.d.cfg.Key.DID(),
		Capability: string(w.Primitive), RequestAt: time.Now()}
	a.begin()
	return a
}

// openJob begins the account of a part of the request that whole is of: it shares
// its transaction.
func (r *receipts) openJob(whole *account, id string, body []byte, p chain.Primitive, stream bool) *account {
	a := &account{of: r, body: body, answer: receipt.NewResponse(p, stream)}
	tx := whole.receipt.TransactionID
	a.receipt = receipt.Receipt{TransactionID: tx, MessageID: receipt.MessageID(tx, receipt.RoleJob(id)), SeekerDID: whole.receipt.SeekerDID,
		Capability: string(p), RequestAt: time.Now()}
	a.begin()
	return a
}

// openForeign begins the account of work for a peer, which said what its request's
// hash is and signed that.
func (r *receipts) openForeign(j *job) *account {
	q := &j.Job.Request
	a := &account{of: r, answer: j.answer, says: j.says, hash: q.RequestHash}
	a.hashing.Do(func() {})
	a.receipt = receipt.Receipt{TransactionID: q.TransactionID, MessageID: receipt.MessageID(q.TransactionID, receipt.RoleExec(q.Nonce)), SeekerDID: j.Seeker,
		AgentDID: j.Agent, Capability: string(q.Primitive), TokenID: q.TokenID, RequestAt: j.began}
	a.begin()
	return a
}

func (a *account) begin() {
	if a.of.spool == nil {
		return
	}
	if err := a.of.spool.Begin(a.receipt.ID()); err != nil {
		a.of.trouble("a crash would not count an open request", err)
	}
}

// requestHash is the hash of what was received; the error says that it has no
// canonical form, so that no peer could make the same.
func (a *account) requestHash() (string, error) {
	a.hashing.Do(func() { a.hash, a.hashErr = receipt.RequestHash(a.body) })
	return a.hash, a.hashErr
}

// tried notes who is asked in an attempt, and by which leave. A probe has no account.
func (a *account) tried(agent string, c *clearance) {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.agent, a.word, a.tokenID = agent, c.word, c.id
	a.mu.Unlock()
}

// last gives what the log says of the last attempt.
func (a *account) last() (agent, word, tokenID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.agent, a.word, a.tokenID
}

// watch hashes what reaches the caller as it passes.
func (a *account) watch(deliver walk.Deliver) walk.Deliver {
	return func(t walk.Attempt, data [][]byte) error {
		if err := deliver(t, data); err != nil {
			var no *edge.Refusal
			a.unfit = errors.As(err, &no)
			return err
		}
		for _, b := range data {
			if len(b) > 0 {
				a.answer.Add(b)
			}
		}
		return nil
	}
}

// close ends the account. Everything that takes time happens behind the reply.
func (a *account) close(status receipt.Status) {
	r := a.of
	if r.spool == nil {
		return
	}
	if a.unfit {
		status = receipt.UpstreamError
	}
	a.receipt.Status, a.receipt.ResponseAt = status, time.Now()
	if a.receipt.AgentDID == "" {
		a.receipt.AgentDID, _, a.receipt.TokenID = a.last()
	}
	r.pending.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed { // a request that outlived the daemon: the journal counts it
		r.pending.Add(-1)
		return
	}
	select {
	case r.idle <- a:
	default:
		r.group.Go(func() { r.keeper(a) })
	}
}

// maxResting is how many keepers wait for their next receipt; those of a burst beyond
// that end.
const maxResting = 64

// keeper brings a receipt to the disk, and more as they come: to sign takes a stack that
// a new goroutine would have to grow for each. It rests without a timer: one that is set
// for each receipt costs a wake-up of the processor's poller.
func (r *receipts) keeper(a *account) {
	for {
		a.keep()
		r.pending.Add(-1)
		if r.resting.Add(1) > maxResting {
			r.resting.Add(-1)
			return
		}
		select {
		case a = <-r.idle:
			r.resting.Add(-1)
		case <-r.done:
			return
		}
	}
}

// keep signs the receipt and brings it to the disk.
func (a *account) keep() {
	line, err := a.sign()
	if err != nil {
		a.of.trouble("a receipt was not made", err)
		return
	}
	id := a.receipt.ID()
	for pause := firstRetry; ; pause = min(2*pause, longestSpan) {
		err := a.of.spool.Append(context.Background(), id, line)
		if err == nil {
			a.of.spool.End(id)
			return
		}
		a.of.trouble("a receipt is not on disk yet", err)
		if errors.Is(err, spool.ErrClosed) || errors.Is(err, spool.ErrLine) {
			return
		}
		select {
		case <-time.After(pause):
		case <-a.of.ending:
			return
		}
	}
}

func (a *account) sign() ([]byte, error) {
	q := &a.receipt
	hash, err := a.requestHash()
	if err != nil {
		hash = receipt.OutputHash(a.body) // of the bytes: what was taken has a hash
	}
	q.RequestHash, q.ResponseHash, q.Executor = hash, a.answer.Hash(), a.executor
	if a.says != nil {
		says := a.says()
		signature, err := says.Sign(a.of.d.cfg.Key)
		if err != nil {
			return nil, err
		}
		q.Executor = &receipt.Executor{Nonce: says.Nonce, Signature: signature}
	}
	if q.Executor == nil && q.SeekerDID == a.of.d.did { // a peer's signature names the key that spoke to it
		q.SeekerDID = a.of.d.seeker()
	}
	s, err := q.Sign(a.of.d.cfg.Key)
	return s.Line, err
}

// seeker is what receipts of this device's own requests are signed as.
func (d *Daemon) seeker() string { return cmp.Or(d.cfg.DID, d.did) }

// trouble says what is wrong with receipts, once in a while.
func (r *receipts) trouble(what string, err error) {
	now := time.Now().UnixNano()
	if last := r.said.Load(); now-last < int64(time.Second) || !r.said.CompareAndSwap(last, now) {
		return
	}
	r.d.cfg.Log.Error(what, "error", err, "pending", r.pending.Load())
}

// statusOf says of a whole request how its receipt tells it.
func statusOf(ctx context.Context, result *walk.Result, err error) receipt.Status {
	switch {
	case err == nil && result.End == walk.Answered:
		return receipt.OK
	case result.End == walk.Left, ctx.Err() != nil:
		return receipt.ClientAborted
	case err != nil, result.End == walk.Refused:
		return receipt.Rejected
	}
	return receipt.UpstreamError
}

// LabelReceipt reads a line of the spool. Errors wrap [receipt.ErrReceipt].
func LabelReceipt(line []byte) (spool.Label, error) {
	s, err := receipt.Parse(line)
	if err != nil {
		return spool.Label{}, err
	}
	return spool.Label{ID: s.ID(), At: s.ResponseAt}, nil
}
