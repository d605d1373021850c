// Package daemon is a device: it holds signed chains, walks them for the work
// that its edge is asked for, and keeps its spoke to the hub alive. It puts
// together the rooms below it (edge, adapters, report, control) and owns what
// they share: which chains are in force, what is resting, who is out of reach.
//
// It must not know the hub's inside, a host or a stream, or a database: what it
// needs of them are the interfaces [Node], [Chains], [Marks], [State] and [Keys].
// docs/daemon.md says why it is as it is.
package daemon

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/chain/purse"
	"github.com/chordwheel/chordwheel/chain/throttle"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/apps"
	"github.com/chordwheel/chordwheel/daemon/bind"
	"github.com/chordwheel/chordwheel/daemon/control"
	jobs "github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
	"github.com/chordwheel/chordwheel/daemon/report"
	"github.com/chordwheel/chordwheel/daemon/sharing"
	"github.com/chordwheel/chordwheel/daemon/witness"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/store/spool"
)

// Chains keeps verified chains. Accept is the only way in: it verifies, keeps,
// and raises the high-water mark, in that order. A chain that comes with an error
// is in force, but may not survive a restart. Its methods are safe for concurrent
// use.
type Chains interface {
	Accept(trust chain.Trust, slot chain.Slot, head, body []byte, now time.Time) (*chain.Chain, error)
	Get(slot chain.Slot) *chain.Chain // nil if none is held
	All() []*chain.Chain              // sorted by slot
	Drop(slot chain.Slot) error       // forgets a chain; its mark stays
}

// Marks are the high-water marks of all slots, also of those whose chain was
// lost.
type Marks interface {
	All() map[chain.Slot]chain.Mark
}

// Keys is the device's key ring. Generation grows whenever the key is set, and
// is 0 for a key that is not there.
type Keys interface {
	Get(name string) (chain.Secret, bool)
	Generation(name string) uint64
	Names() []string
}

// Config is what a daemon is made of. All fields but Version, Name, Defaults,
// Sharing, Sensors, Selection and those of receipts are required.
type Config struct {
	Key      chain.Key
	DID      string // what receipts are signed as, a did:webvh that lists Key; "": the key's own
	DeviceID chain.DeviceID
	Name     string
	Version  string
	Metered  bool // the network costs money: visit, do not stay
	Explore  bool // probe options while idle, as far as the rules allow

	Chains   Chains
	Marks    Marks
	State    State
	Keys     Keys
	Adapters map[string]adapter.Adapter // by the name that options give
	Locals   []wire.LocalOption         // this device's own services
	Defaults chain.Limits               // for options without limits of their own
	Sharing  sharing.Policy             // what its owner lets the device do for others; zero: all it can
	Sensors  sharing.Sensors            // what the policy asks about the device; nil: nothing is known

	Spool        Spool        // keeps receipts; nil: none are made
	Ledger       spool.Sender // takes them; nil: they wait
	Backpressure bool         // a full spool refuses new requests
	// Proofs is the ledger of the hub, which is held to what it signed; nil: it is
	// not, because receipts go to another one, say.
	Proofs witness.Ledger

	Selection Selection // how `auto` comes to its options
	Gating    Gating    // who may be asked, and by whose leave

	Pipeline pipeline.Settings // what becomes of hard questions; the zero value is off
	Jobs     jobs.Keeper       // keeps the records of jobs; nil: they end with the process
	Provided jobs.Keeper       // keeps who may work over HTTP; nil: they end with the process
	Speeds   jobs.Keeper       // keeps how fast the pipeline's jobs were at whom; nil: that is measured anew

	// Connect makes the node of a joined device and starts it. The daemon
	// closes it.
	Connect func(ctx context.Context, j Joined, events Events) (Node, error)
	Log     *slog.Logger
	Random  *rand.Rand // jitter and samples; the daemon's own from now on
}

// Daemon is a running device. Make it with [New], then Start; Close ends
// everything that Start began and waits for it.
type Daemon struct {
	cfg      Config
	did      string // this device's, as an agent
	bootID   string
	started  time.Time
	locals   map[chain.OptionID]chain.Option
	standing *walk.Standing
	reports  *report.Collector
	peers    *bind.Table
	counts   counts
	traces   traces
	foreign  *foreign
	receipts *receipts
	gating   gating
	flights  flights
	deltas   deltas
	apps     *apps.Book
	witness  *witness.Witness // nil: nobody watches the ledger
	purse    *purse.Purse
	jobs     *jobs.Table
	board    *jobs.Board
	pipeline *pipeline.Pipeline // nil: off
	pool     *wave.Pool
	speeds   []byte             // of pool, as they were kept last
	stopJobs context.CancelFunc // ends the keeping of jobs; nil before Start
	throttle *throttle.Throttle
	lastEnd  atomic.Int64 // when the last request ended, Unix milliseconds

	group  sync.WaitGroup
	cancel context.CancelFunc
	run    context.Context // the daemon's life: of visits, and of protests that outlive their request
	kicked chan struct{}   // wakes the visitor; room for one, further ones are the same news

	visited   chan struct{} // closed after the first whole visit
	visitOnce sync.Once     // closes visited

	gathering chan struct{} // capacity 1: one peer is asked for chains at a time
	joining   sync.Mutex    // one Join at a time
	keeping   sync.Mutex    // one change of joined at a time, its write included; taken before mu
	mu        sync.Mutex    // of all below
	random    *rand.Rand
	closing   bool
	joined    Joined
	self      member.Membership // of joined, verified; zero without one
	isJoined  bool
	moved     struct { // the hub's services
		from string // where they were; "" if nowhere else
		at   time.Time
	}
	twins      []string // problems: what was seen twice
	node       Node
	wanted     map[chain.Slot]bool
	extensions map[chain.Slot]extension
	gathered   map[chain.PeerID]time.Time // when a peer was last asked for chains
	visit      visitState
	leases     leaseState
	stopProbe  context.CancelFunc // ends the probe under way; nil without one
}

// counts are what `status` shows of the edge's work.
type counts struct {
	total, failed, protests, extended, attempts, probes atomic.Uint64
	unproven                                            atomic.Uint64 // answers of peers whose statement did not hold
	inFlight                                            atomic.Int64
}

// New makes a daemon from cfg. It reads what joining gave from cfg.State and
// starts nothing.
func New(cfg Config) (*Daemon, error) {
	joined, ok, err := LoadJoined(cfg.State)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	joined.Revoked = joined.Revoked || joined.ended(now)
	bootID := crand.Text() // not of cfg.Random: nonces begin with it, and it must never come again
	d := &Daemon{
		cfg: cfg, did: cfg.Key.DID(), bootID: bootID, started: now, locals: map[chain.OptionID]chain.Option{},
		standing: walk.NewStanding(rand.NewPCG(cfg.Random.Uint64(), cfg.Random.Uint64())),
		reports:  report.New(bootID, rand.New(rand.NewPCG(cfg.Random.Uint64(), cfg.Random.Uint64())), now),
		peers:    bind.New(cfg.Key.PeerID(), rand.New(rand.NewPCG(cfg.Random.Uint64(), cfg.Random.Uint64()))),
		kicked:   make(chan struct{}, 1),
		random:   cfg.Random, joined: joined, isJoined: ok, node: alone{}, visited: make(chan struct{}),
		gathering: make(chan struct{}, 1), wanted: map[chain.Slot]bool{}, extensions: map[chain.Slot]extension{}, gathered: map[chain.PeerID]time.Time{},
	}
	if err := cfg.Sharing.Validate(); err != nil {
		return nil, err
	}
	if cfg.Proofs != nil {
		d.witness = witness.New(cfg.Proofs, cfg.State, cfg.Log)
	}
	if r := cfg.Gating.Registry; r != nil {
		d.cfg.Selection.Agents = active{r}
	}
	d.foreign, d.receipts = newForeign(d), newReceipts(d)
	if err := cfg.Selection.check(); err != nil {
		return nil, err
	}
	d.loadPause(now)
	if ok {
		d.readOwn(&d.joined)
		d.revokedPeers(&d.joined)
	}
	d.deltas, d.purse, d.throttle, d.leases.needs = newDeltas(), purse.New(), throttle.New(), map[leaseNeed]need{}
	d.lastEnd.Store(now.UnixMilli())
	d.loadDeltas()
	d.deltas.book.Begin(now)
	if err := d.loadApps(); err != nil {
		return nil, err
	}
	if err := d.loadPurse(); err != nil {
		return nil, err
	}
	for _, l := range cfg.Locals {
		if err := l.Option.Validate(); err != nil {
			return nil, fmt.Errorf("own service: %w", err)
		}
		if cfg.Adapters[l.Option.Adapter] == nil {
			return nil, fmt.Errorf("own service %s: there is no adapter %q; known: %v", l.Option.ID, l.Option.Adapter, adapterNames(cfg.Adapters))
		}
		d.locals[l.Option.ID] = l.Option
	}
	if err := d.openPipeline(); err != nil {
		return nil, err
	}
	return d, nil
}

// Visited is closed when the first whole visit is over: what the hub has for this
// device, or why it has nothing, is known then.
func (d *Daemon) Visited() <-chan struct{} { return d.visited }

func adapterNames(adapters map[string]adapter.Adapter) []string {
	var names []string
	for name := range adapters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Start connects to the hub, if the device has joined one, and begins to
// visit it. A hub out of reach is no error: the cached chains work on.
func (d *Daemon) Start(ctx context.Context) error {
	d.run, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if d.isJoined {
		if err := d.connect(d.joined); err != nil {
			d.cancel()
			return err
		}
	}
	d.group.Go(func() { d.visits(d.run) })
	d.group.Go(func() { d.tend(d.run) })
	if r := d.cfg.Gating.Registry; r != nil {
		d.group.Go(func() { r.Start(d.run) })
	}
	if d.witness != nil {
		d.group.Go(func() { d.witness.Run(d.run) })
	}
	d.receipts.start(d.run)
	d.startJobs(d.run)
	return nil
}

// Close ends the visits and the spoke. Calls of Do that are under way end with
// their own contexts, not with it.
func (d *Daemon) Close() error {
	d.mu.Lock()
	d.closing = true // nothing new begins, so that Wait waits for all
	d.mu.Unlock()
	if d.cancel != nil {
		d.cancel()
	}
	d.closeJobs()
	d.group.Wait()
	if err := d.keepAll(); err != nil {
		d.cfg.Log.Warn("not all that this device knows was kept", "error", err)
	}
	err := d.use(alone{}).Close() // ends the work of peers that still runs
	d.receipts.wait()
	return err
}

// use takes node into use and gives the one before it.
func (d *Daemon) use(node Node) Node {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.node
	d.node = node
	return before
}

// watchLedger holds the ledger of j's hub to what it signs, and gives what there is to show of
// it to others.
func (d *Daemon) watchLedger(j Joined) func() []byte {
	if d.witness == nil {
		return nil
	}
	key, err := j.Trust.Orchestrator.Public()
	if err != nil { // no ledger can be that hub's
		d.cfg.Log.Warn("the hub's ledger is not watched", "error", err)
		return nil
	}
	d.witness.Watch(merkle.Origin(j.Trust.Mesh), key)
	return d.witness.Newest
}

// connect makes the node for j and takes it into use.
func (d *Daemon) connect(j Joined) error {
	node, err := d.cfg.Connect(d.run, j, Events{Invalidated: d.invalidated, Revoked: d.hearRevocations, Refused: d.refusedByHub, HubUp: d.hubUp, Moved: d.standing.AddressChanged,
		Contact: d.met, Parted: d.parted, Announced: d.announced, Cloned: d.cloned, Chains: cached{d},
		Executor: d.foreign, Load: d.foreign.load, Checkpoint: d.watchLedger(j)})
	if err != nil {
		return fmt.Errorf("start the mesh: %w", err)
	}
	if len(j.Revocations) > 0 {
		if err := node.SetRevocations(j.Revocations); err != nil {
			d.cfg.Log.Warn("the kept revocation list was refused", "error", err)
		}
	}
	d.gossip(node, j)
	introduce(node, j)
	_ = d.use(node) // the device's first, or the one before was closed
	return nil
}

// gossip takes part in what j's scopes gossip, and presents the device there.
func (d *Daemon) gossip(node Node, j Joined) {
	if err := node.Join(j.Topics...); err != nil {
		d.cfg.Log.Warn("gossip of the scopes is not available; chains still arrive with visits", "error", err)
	}
	if len(j.Membership) > 0 {
		node.Announce(wire.Announce{Membership: j.Membership, Capabilities: d.capabilities(), BootID: d.bootID})
	}
}

// Join enrols the device with an invitation and keeps what the hub gave. On a
// running daemon the visits begin at once. Joining the same mesh again adds the
// invitation's scope and takes over the hub's addresses. Refusals wrap
// control.ErrRefused.
func (d *Daemon) Join(ctx context.Context, text string) error {
	invitation, err := member.ParseInvitation(text)
	if err == nil {
		err = invitation.Current(time.Now())
	}
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRefused, err)
	}
	d.joining.Lock()
	defer d.joining.Unlock()
	d.mu.Lock()
	before, was := d.joined, d.isJoined
	d.mu.Unlock()
	if was && before.Trust != invitation.Trust() {
		return fmt.Errorf("%w: this device belongs to mesh %s already; use another --dir for mesh %s", control.ErrRefused, before.Trust.Mesh, invitation.Mesh)
	}
	joined := before
	joined.Trust, joined.Addresses = invitation.Trust(), invitation.Addresses
	if err := d.use(alone{}).Close(); err != nil {
		d.cfg.Log.Warn("closing the mesh to join anew", "error", err)
	}
	d.peers.PartedAll(time.Now())
	err = d.connect(joined)
	if err == nil {
		err = d.enrol(ctx, &joined, invitation)
	}
	if err != nil {
		err = errors.Join(err, d.use(alone{}).Close())
		if was {
			err = errors.Join(err, d.connect(before))
		}
		return err
	}
	d.visitSoon()
	return nil
}

// enrol redeems the invitation and keeps the membership that comes back.
func (d *Daemon) enrol(ctx context.Context, joined *Joined, invitation member.Invitation) error {
	node := d.nodeNow()
	hello := d.hello(*joined)
	hello.Membership = nil
	hello.Invitation = &wire.Redeem{Secret: invitation.Secret, Scope: invitation.Scope}
	welcome, err := node.Hello(ctx, hello)
	var no *spoke.Refusal
	if errors.As(err, &no) {
		return fmt.Errorf("%w by the hub of mesh %s: %w", control.ErrRefused, invitation.Mesh, err)
	}
	if err != nil {
		return fmt.Errorf("join mesh %s: %w", invitation.Mesh, err)
	}
	if len(welcome.Membership) == 0 {
		return fmt.Errorf("%w: the hub gave no membership", control.ErrRefused)
	}
	joined.Revoked = false
	d.keeping.Lock()
	defer d.keeping.Unlock()
	if err := d.admit(joined, welcome); err != nil {
		return err
	}
	if err := joined.Save(d.cfg.State); err != nil {
		return err
	}
	d.mu.Lock()
	d.joined, d.isJoined = *joined, true
	d.readOwn(joined)
	d.mu.Unlock()
	d.revokedPeers(joined)
	d.gossip(node, *joined)
	introduce(node, *joined)
	return nil
}

// jitter gives a duration between low and high.
func (d *Daemon) jitter(low, high time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return low + time.Duration(d.random.Int64N(int64(max(1, high-low))))
}
