package job

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
)

// Peer stands for the board where a slot's work would name a peer. It is no peer
// ID: it never travels.
const Peer chain.PeerID = "providers"

// Reasons of jobs that failed.
const (
	NotAccepted = "not_accepted" // nobody took it in time
	LostLease   = "lost_lease"   // whoever took it fell silent, and nobody else was there
)

// Errors of [Board.Run].
var (
	// ErrNotAccepted says that nobody took the job in time, or that nobody is there.
	ErrNotAccepted = errors.New("no provider accepted the job")
	// ErrFailed says that providers took the job and none of them did it.
	ErrFailed = errors.New("no provider did the job")
	// ErrCut says that it failed after a part of the answer was delivered.
	ErrCut = errors.New("the provider fell silent in the middle of its answer")
)

// Bounds of work on the board.
const (
	MaxOffers    = 1_024            // jobs at once
	MaxResult    = 4 << 20          // bytes of an answer, and of all its parts
	LeaseTime    = 30 * time.Second // without a word from whoever took it
	maxLeases    = 4                // of one provider
	maxTries     = 3                // providers that take one job
	maxRecent    = 1_024            // ended jobs of which late results are told apart
	recheckEvery = 5 * time.Second  // whether providers came or went, while a job waits
)

// acceptance is how long a job waits to be accepted while n providers that can run
// it are online.
func acceptance(n int) time.Duration {
	switch {
	case n <= 1:
		return 10 * time.Minute
	case n <= 3:
		return 3 * time.Minute
	}
	return 90 * time.Second
}

// Work is one piece of work for a provider.
type Work struct {
	Root        string // the job that it is a part of; "" for none
	RequestID   string
	Transaction string
	RequestHash string         // of a request that is no part of another
	Option      chain.OptionID // the slot
	Scope       chain.ScopeID
	Primitive   chain.Primitive
	Requires    []chain.Capability
	Body        []byte // llm.*: a chat completion request; else the work call. JSON, kept in memory only
	Stream      bool   // parts of the answer are wanted as they are made
}

// Answer is what a provider gave.
type Answer struct {
	Provider string
	Output   json.RawMessage // one JSON value, not null, at most [MaxResult]
	Parts    bool            // parts of it were delivered
}

// Board holds the jobs that providers over HTTP may take, and who these are. Its
// methods may be called from many goroutines at once. [NewBoard] makes one.
type Board struct {
	table  *Table
	keeper Keeper

	mu        sync.Mutex
	providers map[string]*provider
	offers    []*offer // in the order in which they came
	recent    map[string]*ended
	order     []string      // of recent
	wanted    chan struct{} // closed when there is something new to take
	counts    BoardCounts
}

// BoardCounts is what status and metrics show of a board, since the start.
type BoardCounts struct {
	Strangers   uint64 `json:"strangers"`    // calls without a key that is known
	Limited     uint64 `json:"limited"`      // calls over a provider's rate
	Unknown     uint64 `json:"unknown"`      // results and heartbeats for jobs that are not there
	NotYours    uint64 `json:"not_yours"`    // of providers that a job is not leased to
	Over        uint64 `json:"over"`         // for jobs that have ended, or whose lease was lost
	Different   uint64 `json:"different"`    // a second result with other bytes
	Repeated    uint64 `json:"repeated"`     // an equal second result: acknowledged again
	Lost        uint64 `json:"lost"`         // leases
	NotAccepted uint64 `json:"not_accepted"` // jobs that nobody took in time
}

// offer is one job on the board.
type offer struct {
	id      string
	work    *Work
	since   time.Time // when it began to wait
	taker   *provider // nil: nobody
	lease   time.Time // until when the taker may be silent
	tried   map[string]bool
	taken   int
	parts   []string // that wait to be delivered
	partly  int      // bytes of all parts so far
	waiting int      // bytes of those that wait
	result  *Result
	news    chan struct{} // something for whoever waits; holds one
}

// ended is what is remembered of a job that is over.
type ended struct {
	provider string // whose result was taken; "" for none
	hash     [sha256.Size]byte
	lost     map[string]bool // who had it before
}

// NewBoard makes a board over table. Providers are kept in keeper; with a nil one
// they must register again after a restart.
func NewBoard(table *Table, keeper Keeper) *Board {
	return &Board{table: table, keeper: keeper, providers: map[string]*provider{}, recent: map[string]*ended{}, wanted: make(chan struct{})}
}

// Able gives how many providers could take w now.
func (b *Board) Able(w *Work) int {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.able(w, nil, now)
}

func (b *Board) able(w *Work, tried map[string]bool, now time.Time) (n int) {
	for id, p := range b.providers {
		if !tried[id] && p.can(w, now) {
			n++
		}
	}
	return n
}

// Counts gives the board's figures.
func (b *Board) Counts() BoardCounts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts
}

// Run has a provider do w and gives its answer. It calls accepted each time that
// one takes it, and for a stream part with each part of the answer, both from the
// calling goroutine. It ends soon after ctx does: then the job is cancelled, and
// whoever had it is told. Errors are those above, [ErrFull], and ctx's.
func (b *Board) Run(ctx context.Context, w *Work, accepted func(provider string), part func(text string) error) (Answer, error) {
	o, err := b.post(w)
	if err != nil {
		return Answer{}, err
	}
	defer b.withdraw(o)
	timer := time.NewTimer(0)
	defer timer.Stop()
	run := &running{board: b, offer: o, accepted: accepted, part: part}
	for {
		select {
		case <-ctx.Done():
			return Answer{}, run.end(Cancelled, string(chain.Canceled), ctx.Err())
		case <-o.news:
		case <-timer.C:
		}
		answer, over, err := run.step(time.Now())
		if over {
			return answer, err
		}
		timer.Reset(run.next)
	}
}

// running is one call of Run.
type running struct {
	board    *Board
	offer    *offer
	accepted func(string)
	part     func(string) error
	said     string // whom accepted was called with last
	parts    bool
	next     time.Duration // until it must be looked at again
}

// step does what there is to do now, and reports whether the job is over.
func (r *running) step(now time.Time) (Answer, bool, error) {
	b, o := r.board, r.offer
	b.mu.Lock()
	if o.taker != nil && o.result == nil && !now.Before(o.lease) {
		b.counts.Lost++
		b.lose(o, now)
	}
	taker, parts, result := "", o.parts, o.result
	if o.taker != nil {
		taker = o.taker.ID
	}
	o.parts, o.waiting = nil, 0
	able := b.able(o.work, o.tried, now)
	until := o.since.Add(acceptance(able))
	if o.taker != nil {
		until = o.lease
	}
	handed, again := o.taken > 0, o.taken >= maxTries
	b.mu.Unlock()

	if r.parts && taker != r.said { // the text of another is not glued on
		return Answer{}, true, r.end(Failed, LostLease, ErrCut)
	}
	if taker != "" && taker != r.said {
		r.said = taker
		_ = b.table.Accept(o.id, Place{Option: o.work.Option, Provider: taker})
		if r.accepted != nil {
			r.accepted(taker)
		}
	}
	for _, text := range parts {
		if r.part == nil || !o.work.Stream {
			break
		}
		r.parts = true
		if err := r.part(text); err != nil {
			return Answer{}, true, r.end(Cancelled, string(chain.Canceled), err)
		}
	}
	switch {
	case result != nil && result.State == Done:
		_ = b.table.End(o.id, Done, "", func(rec *Record) { rec.ResponseHash = receipt.OutputHash(result.Output) })
		return Answer{Provider: taker, Output: result.Output, Parts: r.parts}, true, nil
	case taker == "" && handed && (able == 0 || again):
		return Answer{}, true, r.end(Failed, LostLease, ErrFailed)
	case taker == "" && (able == 0 || !now.Before(until)):
		b.mu.Lock()
		b.counts.NotAccepted++
		b.mu.Unlock()
		return Answer{}, true, r.end(Failed, NotAccepted, ErrNotAccepted)
	}
	r.next = max(until.Sub(now), 0)
	if taker == "" {
		r.next = min(r.next, recheckEvery)
	}
	return Answer{}, false, nil
}

// end ends the job without an answer.
func (r *running) end(state State, reason string, err error) error {
	_ = r.board.table.End(r.offer.id, state, reason, nil)
	return err
}

// post puts w on the board and tells who could take it.
func (b *Board) post(w *Work) (*offer, error) {
	record := Record{Root: w.Root, RequestID: w.RequestID, Transaction: w.Transaction, RequestHash: w.RequestHash, Role: Provided, Primitive: w.Primitive, Option: w.Option}
	id, err := b.table.Open(record)
	if err != nil && w.Root != "" { // its request has ended, or is full
		record.Root = ""
		id, err = b.table.Open(record)
	}
	if err != nil {
		return nil, fmt.Errorf("open the job: %w", err)
	}
	now := time.Now()
	o := &offer{id: id, work: w, since: now, tried: map[string]bool{}, news: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.offers) >= MaxOffers {
		_ = b.table.End(id, Failed, NotAccepted, nil)
		return nil, fmt.Errorf("%w: %d wait for providers", ErrFull, MaxOffers)
	}
	b.offers = append(b.offers, o)
	b.announce(o, now)
	return o, nil
}

// announce tells those who could take o. The caller holds mu.
func (b *Board) announce(o *offer, now time.Time) {
	for id, p := range b.providers {
		if !o.tried[id] && p.can(o.work, now) {
			p.tell(Notice{Kind: Offered, Job: o.id, Primitive: o.work.Primitive})
		}
	}
	close(b.wanted)
	b.wanted = make(chan struct{})
}

// lose takes a job away from whoever had it, and offers it to the next. The caller
// holds mu.
func (b *Board) lose(o *offer, now time.Time) {
	p := o.taker
	b.release(o)
	p.blame(now)
	p.tell(Notice{Kind: Withdrawn, Job: o.id, Primitive: o.work.Primitive})
	o.tried[p.ID] = true
	o.since = now
	b.announce(o, now)
}

// release takes the lease back.
func (b *Board) release(o *offer) {
	o.taker.leases--
	o.taker, o.parts, o.waiting = nil, nil, 0
}

// withdraw takes o off the board.
func (b *Board) withdraw(o *offer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offers = slices.DeleteFunc(b.offers, func(x *offer) bool { return x == o })
	e := &ended{lost: o.tried}
	if o.taker != nil {
		if o.result != nil {
			e.provider, e.hash = o.taker.ID, o.result.hash()
		} else {
			e.lost[o.taker.ID] = true
			o.taker.tell(Notice{Kind: Withdrawn, Job: o.id, Primitive: o.work.Primitive})
		}
		b.release(o)
	}
	if len(b.order) >= maxRecent {
		delete(b.recent, b.order[0])
		b.order = b.order[1:]
	}
	b.recent[o.id], b.order = e, append(b.order, o.id)
}

// wake tells whoever waits for o.
func (o *offer) wake() {
	select {
	case o.news <- struct{}{}:
	default:
	}
}

// hash tells an equal result from another.
func (r *Result) hash() [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%d\n", r.State, len(r.Reason))
	h.Write([]byte(r.Reason))
	h.Write(bytes.TrimSpace(r.Output))
	return [sha256.Size]byte(h.Sum(nil))
}
