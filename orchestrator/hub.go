package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/orchestrator/escalate"
	"github.com/chordwheel/chordwheel/orchestrator/fleet"
	"github.com/chordwheel/chordwheel/orchestrator/learn"
	"github.com/chordwheel/chordwheel/orchestrator/publish"
	"github.com/chordwheel/chordwheel/orchestrator/quota"
)

// Publisher is how the hub speaks to whoever is connected: best effort, for
// devices fetch what they miss. Package mesh has one. Its methods are called
// from one goroutine at a time. If it also has Drop(chain.PeerID) error, revoked
// peers lose their connections; if it has DialsAsked() uint64, the status shows it;
// if it has Network(chain.PeerID) string, which then is called from any goroutine, the
// devices of one network count for few together in what is learned.
type Publisher interface {
	Join(keys ...wire.TopicKey) error
	Invalidate(ctx context.Context, slot chain.Slot, seq uint64, body chain.CID) error
	Revoked(ctx context.Context, list []byte) error
}

// Config of a hub. All but Log, Version, Name and Authority are required.
type Config struct {
	Key       chain.Key
	Mesh      chain.MeshID // see [MeshID]
	Catalogue catalog.Catalog
	Storage   Storage
	Addrs     func() []string // multiaddrs that devices can reach the hub at, without the peer ID
	Log       *slog.Logger    // nil: nothing is logged
	Version   string          // of the program
	Name      string          // of the mesh, for people
	// Authority gives the URL of the authority services and the SHA-256 of their
	// certificate, for devices to pin; nil: there are none.
	Authority func() (url string, certificate []byte)
}

// Hub is the orchestrator of one mesh. Its methods may be called from many
// goroutines, between Start and Close.
type Hub struct {
	// fixed
	cfg      Config
	log      *slog.Logger
	trust    chain.Trust
	bodies   Bucket
	editions Bucket
	oplog    *oplog
	outbox   *outbox

	// channels in
	turn  chan struct{} // capacity 1: who has put something in may touch the state below
	poke  chan struct{} // capacity 1: the loop has something to wait for that it did not have
	ready chan struct{} // closed by Start
	stop  chan struct{}
	done  chan struct{} // closed when the loop ended
	life  sync.Mutex    // start and close
	up    bool

	// state, for whoever has the turn
	catalogue    catalog.Catalog
	fleet        *fleet.Fleet
	book         *learn.Book
	sizes        *learn.Book // of requests, see profile.go
	press        *publish.Press
	desk         *escalate.Desk
	quota        *quota.Book
	declared     *limits // of the catalogue; nil until they are asked for
	plans        map[chain.Slot]*escalate.Plan
	protests     map[chain.Slot]*protestCount
	rated        map[chain.Slot]bool // slots whose escalation rate is not kept yet
	invitations  map[string]invitation
	admitted     admitted
	callers      map[chain.PeerID]*caller       // of those who spoke, since their minute began
	gone         map[chain.PeerID]chain.Instant // devices that were to stay, and when their connection ended
	topics       map[chain.ScopeID]topic
	rejoin       bool      // the publisher does not know all of them yet
	nextJoin     time.Time // when it is told, at the earliest
	revoked      *member.Revocations
	revokedBytes []byte
	serial       uint64
	again        map[chain.Slot]time.Time // slots to offer again, and when
	soonest      time.Time                // of again
	looked       map[chain.Slot]time.Time // when news of a slot were last looked at
	overrideSeq  uint64                   // of the newest word on chains of qualifiers
	fresh        map[learn.Key]bool       // options of which something was learned and not looked at
	nextLook     time.Time                // at those, at the earliest
	unkept       map[chain.ScopeID]bool   // chains of these changed and are not on disk yet
	kept         map[chain.CID]bool       // bodies that are
	sweep        []chain.ScopeID          // scopes to look over, bit by bit
	sweepSlots   []chain.Slot             // of the first of these, what is left
	swept        time.Duration            // work of the sweep that runs
	trim         bool                     // much garbage was made: the loop gives it back once others have the turn
	memo         memo
	orders       uint64 // worked out since the start
	news         uint64 // grows with everything that was learned or declared
	namesDevices bool   // see there
	started      time.Time
	reloaded     time.Time
	unread       string            // what was wrong with the catalogue that was refused last; "" once one was taken
	refused      map[string]uint64 // refusals by code
	alarms       []Alarm
	agents       map[chain.OptionID]string // derived DIDs

	listed   atomic.Uint64 // grows when the register changes
	listEnds atomic.Int64  // when the first membership in it ends, Unix milliseconds; 0: none does
}

// New checks cfg, reads what was kept and makes a hub that does not run yet.
func New(cfg Config) (*Hub, error) {
	if cfg.Key == (chain.Key{}) || cfg.Mesh == "" || cfg.Storage.Bucket == nil || cfg.Storage.Files == nil || cfg.Addrs == nil {
		return nil, errors.New("orchestrator: key, mesh, storage and addresses are required")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	numbers, err := openSequence(cfg.Storage.Files)
	if err != nil {
		return nil, fmt.Errorf("orchestrator: %w", err)
	}
	h := &Hub{
		cfg: cfg, log: cfg.Log, trust: chain.Trust{Mesh: cfg.Mesh, Orchestrator: cfg.Key.PeerID()},
		bodies: cfg.Storage.Bucket(bucketBodies), editions: cfg.Storage.Bucket(bucketEditions),
		oplog: newOplog(), outbox: newOutbox(cfg.Log),
		turn: make(chan struct{}, 1), poke: make(chan struct{}, 1), ready: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
		catalogue: cfg.Catalogue, fleet: fleet.New(), book: learn.NewBook(), sizes: learn.NewBook(),
		press: publish.New(cfg.Key, cfg.Mesh, numbers), desk: escalate.NewDesk(), quota: quota.New(),
		plans: map[chain.Slot]*escalate.Plan{}, protests: map[chain.Slot]*protestCount{}, rated: map[chain.Slot]bool{},
		invitations: map[string]invitation{}, topics: map[chain.ScopeID]topic{}, again: map[chain.Slot]time.Time{}, looked: map[chain.Slot]time.Time{},
		callers: map[chain.PeerID]*caller{}, gone: map[chain.PeerID]chain.Instant{},
		refused: map[string]uint64{}, fresh: map[learn.Key]bool{}, unkept: map[chain.ScopeID]bool{}, kept: map[chain.CID]bool{},
		namesDevices: namesDevices(&cfg.Catalogue),
	}
	if err := h.load(); err != nil {
		return nil, fmt.Errorf("orchestrator: %w", err)
	}
	return h, nil
}

// Start begins to answer. p must be running: what the hub has to say goes there.
// ctx is for the start alone; the hub runs until Close. It may be called once.
func (h *Hub) Start(ctx context.Context, p Publisher) error {
	h.life.Lock()
	defer h.life.Unlock()
	if h.up {
		return errors.New("orchestrator: started twice")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	h.started = time.Now()
	h.reloaded = h.started
	if err := h.resolveAll(); err != nil { // the other chains are as good as ever
		h.log.Error("publishing failed", "error", err)
	}
	h.keepEditions()
	h.outbox.start(p)
	h.joinTopics()
	if h.revokedBytes != nil {
		h.outbox.revoked(h.revokedBytes)
	}
	h.up = true
	close(h.ready)
	go h.loop()
	return nil
}

// Close stops answering, keeps what was learned and waits for both goroutines.
// It may be called twice, and without Start.
func (h *Hub) Close() error {
	h.life.Lock()
	defer h.life.Unlock()
	if !h.up {
		return nil
	}
	h.up = false
	close(h.stop)
	<-h.done
	h.turn <- struct{}{} // for good: nobody else gets it any more
	h.outbox.close()
	return h.keepLearned()
}

// Periods of the loop.
const (
	keepEvery    = 30 * time.Second // what was learned; a crash loses as much
	resolveEvery = 10 * time.Minute // estimates fade and memberships end also without news
)

func (h *Hub) loop() {
	defer close(h.done)
	keep, resolve := time.NewTicker(keepEvery), time.NewTicker(resolveEvery)
	defer keep.Stop()
	defer resolve.Stop()
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		h.turn <- struct{}{}
		wait, sweeping := h.untilAgain(), h.sweeping()
		<-h.turn
		again.Reset(wait)
		var due func()
		select {
		case <-h.stop:
			return
		case <-h.poke:
			continue
		case <-keep.C:
			due = func() {
				if err := h.keepLearned(); err != nil {
					h.log.Error("keeping what was learned failed", "error", err)
				}
			}
		case <-resolve.C:
			due = h.lookOverAll
		case <-again.C:
			due = h.lookAgain
		case <-sweeping:
			due = h.sweepOn
		}
		h.turn <- struct{}{}
		due()
		trim := h.trim
		h.trim = false
		<-h.turn
		if trim {
			debug.FreeOSMemory()
		}
	}
}

// lookOverAll is for what changes also without news.
func (h *Hub) lookOverAll() {
	h.expireTopics()
	if err := h.adjustCeilings(time.Now()); err != nil {
		h.log.Error("keeping the multipliers of ceilings failed", "error", err)
	}
	if err := h.resolveAll(); err != nil {
		h.log.Error("publishing failed", "error", err)
	}
	h.keepEditions()
	h.dropBodies()
}

// ask runs f when it is the caller's turn and gives what it returned. It runs on
// the caller's goroutine: waking another for each question costs more than most
// answers do.
func ask[T any](ctx context.Context, h *Hub, f func() (T, error)) (T, error) {
	var none T
	select {
	case <-h.ready:
	default:
		return none, &spoke.Refusal{Code: spoke.CodeShutdown, Message: "the hub is starting: come back", ComeBack: time.Second}
	}
	stopping := spoke.Refuse(spoke.CodeShutdown, "the hub is stopping: come back")
	select {
	case <-h.stop:
		return none, stopping
	default:
	}
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	case <-h.done:
		return none, stopping
	}
	defer func() { <-h.turn }()
	before := h.agenda()
	value, err := f()
	h.keepEditions()
	if h.agenda() != before {
		select {
		case h.poke <- struct{}{}:
		default: // it is awake already
		}
	}
	return value, err
}

// agenda is what the loop's waiting depends on.
type agenda struct {
	soonest, nextLook time.Time
	fresh, sweeping   bool
	rejoin            bool
}

func (h *Hub) agenda() agenda {
	return agenda{h.soonest, h.nextLook, len(h.fresh) > 0, len(h.sweep) > 0, h.rejoin}
}

// PeerID is the hub's identity.
func (h *Hub) PeerID() chain.PeerID { return h.trust.Orchestrator }

// Reload puts another catalogue in force: when it returns, the chains that
// change by it are published; in a mesh of thousands of chains soon after. The catalogue must come from package catalog.
func (h *Hub) Reload(ctx context.Context, c catalog.Catalog) error {
	_, err := ask(ctx, h, func() (struct{}, error) {
		before := h.standings()
		h.catalogue, h.namesDevices, h.declared = c, namesDevices(&c), nil
		h.changed()
		h.relist()
		h.reloaded, h.unread = time.Now(), ""
		err := h.resolveAll()
		h.tellStandings(before)
		return struct{}{}, err
	})
	return err
}

// CatalogueRefused notes that the owner saved a catalogue with faults, so that
// whoever looks at the hub sees why it is not in force. why is for people.
func (h *Hub) CatalogueRefused(ctx context.Context, why string) error {
	_, err := ask(ctx, h, func() (struct{}, error) {
		h.unread = why
		return struct{}{}, nil
	})
	return err
}

// keepLearned writes what changed since the last time.
func (h *Hub) keepLearned() error {
	return errors.Join(h.keepBook(h.book, bucketLearned), h.keepBook(h.sizes, bucketSizes), h.keepRates())
}

// keepBook does that for one book, in a sync or two.
func (h *Hub) keepBook(book *learn.Book, bucket string) error {
	dirty := book.Dirty()
	if len(dirty) == 0 {
		return nil
	}
	records, gone := make(map[string]any, len(dirty)), []string(nil)
	for key, b := range dirty {
		if b == nil {
			gone = append(gone, key)
		} else {
			records[key] = b
		}
	}
	to := h.cfg.Storage.Bucket(bucket)
	err := to.PutAll(records)
	if err == nil && len(gone) > 0 {
		err = to.Delete(gone...)
	}
	if err != nil {
		book.Unkept(dirty)
	}
	return err
}
