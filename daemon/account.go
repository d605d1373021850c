package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
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
	AppendAll(ctx context.Context, lines []spool.Line) error
	Begin(id string) error
	End(ids ...string)
	Full() bool
	Status() spool.Status
	Drain(ctx context.Context, to spool.Sender) error
}

// Bounds of receipts on their way to the disk.
const (
	maxPending  = 4096                 // receipts that wait for it in memory; beyond, new requests are refused
	maxHeld     = 128 << 20            // bytes of requests that are not hashed yet; likewise
	gather      = 5 * time.Millisecond // how long a receipt waits for others: nobody waits for it, and they share a sync
	maxTogether = 256                  // receipts that are brought to the disk at once
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
	held    atomic.Int64 // bytes of their requests
	said    atomic.Int64 // when trouble was said last, Unix nanoseconds

	ending  chan struct{} // closed when the daemon closes
	ended   sync.Once
	done    chan struct{} // closed when nothing more is closed
	mu      sync.Mutex    // also orders the last write before the wait for it
	closed  bool
	queue   []*account     // closed, and in no keeper's hands
	group   sync.WaitGroup // of the keepers
	keepers int
}

func newReceipts(d *Daemon) *receipts {
	return &receipts{d: d, spool: d.cfg.Spool, ending: make(chan struct{}), done: make(chan struct{})}
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
	if r.spool != nil && (r.pending.Load() >= maxPending || r.held.Load() >= maxHeld || r.pressed()) {
		return tooMany()
	}
	return nil
}

// pressed reports whether the owner wants no new requests while so many receipts wait.
func (r *receipts) pressed() bool { return r.d.cfg.Backpressure && r.spool.Full() }

func tooMany() error {
	return edge.Refuse(edge.SpoolFull, "too many receipts wait for the ledger; chordwheel status says why")
}

// ready is nil while the disk takes receipts and the owner's limit is not reached. Other than
// taken it does not count what waits for the disk, which is over in a moment.
func (r *receipts) ready() error {
	if r.spool == nil {
		return nil
	}
	if s := r.spool.Status(); !s.Writable {
		return edge.Refuse(edge.SpoolFull, "receipts cannot be written: %s", chain.Clip(s.Fault))
	}
	if r.pressed() {
		return tooMany()
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
	budget   time.Duration     // for finding an answer; likewise

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
	r.held.Add(int64(len(a.body)))
	r.queue = append(r.queue, a)
	// One keeper signs more than a device of a few processors answers; more of them come
	// when it does not keep up.
	if r.keepers == 0 || len(r.queue) > maxTogether && r.keepers < runtime.GOMAXPROCS(0) {
		r.keepers++
		r.group.Go(r.keeper)
	}
}

// keeper brings receipts to the disk, those of a moment together, until there are none.
func (r *receipts) keeper() {
	moment := time.NewTimer(gather)
	defer moment.Stop()
	for {
		select {
		case <-moment.C:
		case <-r.done:
		}
		r.mu.Lock()
		n := min(len(r.queue), maxTogether)
		if n == 0 {
			r.keepers--
			r.mu.Unlock()
			return
		}
		accounts := slices.Clone(r.queue[:n])
		r.queue = slices.Delete(r.queue, 0, n)
		next := gather
		if len(r.queue) > 0 {
			next = 0
		}
		r.mu.Unlock()
		r.keep(accounts)
		moment.Reset(next)
	}
}

// keep signs receipts that are pending and brings them to the disk. It clears the list.
func (r *receipts) keep(accounts []*account) {
	defer r.pending.Add(int64(-len(accounts)))
	lines := make([]spool.Line, 0, len(accounts))
	ids := make([]string, 0, len(accounts))
	for i, a := range accounts {
		text, err := a.sign()
		r.held.Add(int64(-len(a.body)))
		accounts[i] = nil // and with it the body, however long the disk takes
		if err == nil && len(text) > spool.MaxLine {
			err = fmt.Errorf("%w: %d bytes", spool.ErrLine, len(text))
		}
		if err != nil {
			r.trouble("a receipt was not made", err)
			continue
		}
		id := a.receipt.ID()
		lines, ids = append(lines, spool.Line{ID: id, Text: text}), append(ids, id)
	}
	for pause := firstRetry; len(lines) > 0; pause = min(2*pause, longestSpan) {
		err := r.spool.AppendAll(context.Background(), lines)
		if err == nil {
			r.spool.End(ids...)
			return
		}
		r.trouble("receipts are not on disk yet", err)
		if errors.Is(err, spool.ErrClosed) || errors.Is(err, spool.ErrLine) {
			return
		}
		select {
		case <-time.After(pause):
		case <-r.ending:
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
	case errors.Is(err, errDefect):
		return receipt.UpstreamError
	case err != nil, result.End == walk.Refused:
		return receipt.Rejected
	}
	return receipt.UpstreamError
}

// RecallReceipt reads no more of a line of the spool than its ID and time. Errors wrap
// [receipt.ErrReceipt].
func RecallReceipt(line []byte) (spool.Label, error) {
	id, at, err := receipt.Glance(line)
	return spool.Label{ID: id, At: at}, err
}

// LabelReceipt reads a line of the spool. Errors wrap [receipt.ErrReceipt].
func LabelReceipt(line []byte) (spool.Label, error) {
	s, err := receipt.Parse(line)
	if err != nil {
		return spool.Label{}, err
	}
	return spool.Label{ID: s.ID(), At: s.ResponseAt}, nil
}
