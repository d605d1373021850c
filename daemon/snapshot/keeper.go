package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/gate"
)

// Source says where a snapshot came from.
type Source string

// Sources.
const (
	FromRegistry Source = "registry"
	FromLastGood Source = "last-good"
	FromSeed     Source = "seed"
)

// Errors of [Keeper.Current].
var (
	ErrNoSnapshot = errors.New("there is no snapshot of the registry")
	ErrStale      = errors.New("the snapshot of the registry is too old")
	ErrClosed     = errors.New("the snapshot's keeper is closed")
)

// Times.
const (
	walkLimit = 15 * time.Second // of one refresh, whoever asked for it
	startWait = 2 * time.Second  // for the registry, before the files are looked at
)

// Snapshot is the list of agents at one time. It is immutable.
type Snapshot struct {
	Source    Source
	FetchedAt time.Time // when the walk began, or the seed's date
	Truncated bool      // the registry has more than 1,000
	Skipped   int       // records that could not be used
	Conflicts int       // agents that came twice and differently: not in the list

	agents []Agent
	index  map[key]Agent
}

func newSnapshot(source Source, at time.Time, agents []Agent) *Snapshot {
	s := &Snapshot{Source: source, FetchedAt: at, agents: agents, index: make(map[key]Agent, len(agents))}
	for _, a := range agents {
		s.index[a.key()] = a
	}
	return s
}

// Agents gives all of them, in the registry's order; not to be changed.
func (s *Snapshot) Agents() []Agent { return s.agents }

// Find looks an agent up.
func (s *Snapshot) Find(did, capability string) (Agent, bool) {
	a, ok := s.index[key{did, capability}]
	return a, ok
}

// age is the longer of what both clocks say: one stands still while a machine
// sleeps, the other can be set.
func (s *Snapshot) age(now time.Time) time.Duration {
	return max(0, now.Sub(s.FetchedAt), now.Round(0).Sub(s.FetchedAt.Round(0)))
}

// Config of a [Keeper].
type Config struct {
	Server   Server
	Registry string        // its URL: last-good of another one is not used
	Own      bool          // the registry is the own hub's: agents may be devices, endpoints in the LAN
	Store    Store         // nil: nothing is kept
	Seed     []byte        // of SEED_PATH, nil for none
	MaxAge   time.Duration // SNAPSHOT_MAX_AGE; 0: 1 h, the own hub's 168 h
	Interval time.Duration // CHORDWHEEL_SNAPSHOT_INTERVAL; 0: only when Refresh is called
	Log      *slog.Logger  // nil: none
}

// Keeper keeps the snapshot fresh. Its methods may be called at once from several
// goroutines. Start it, and close it to end its goroutines.
type Keeper struct {
	cfg     Config
	current atomic.Pointer[Snapshot] // nil: none

	ctx  context.Context // of refreshes, which no caller's leaving ends; here because Close ends it
	stop context.CancelFunc

	mu      sync.Mutex
	closed  bool
	flight  *flight
	cleared bool  // the registry said that it is empty
	lastErr error // of the last refresh, nil after a success
	running sync.WaitGroup

	pages map[string]page // of the last walk; of the flight alone
	saved time.Time       // FetchedAt of what is in the file; of the flight alone
}

// flight is one refresh under way; err may be read when done is closed.
type flight struct {
	done chan struct{}
	err  error
	next *flight // for those who asked when it had begun; nil: nobody
}

// New makes a keeper. A seed that cannot be read is an error now, not when it is
// needed.
func New(cfg Config) (*Keeper, error) {
	if cfg.Server == nil {
		return nil, errors.New("snapshot: want a registry")
	}
	if cfg.MaxAge <= 0 {
		cfg.MaxAge = time.Hour
		if cfg.Own {
			cfg.MaxAge = 168 * time.Hour
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Seed != nil {
		if _, _, err := decodeSeed(cfg.Seed, cfg.Own, time.Now()); err != nil {
			return nil, fmt.Errorf("SEED_PATH: %w", err)
		}
	}
	k := &Keeper{cfg: cfg}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k, nil
}

// Start asks the registry, and where that gives nothing within 2 seconds takes
// last-good, or without one the seed. Of the own hub's it takes last-good at once:
// what that says of suspensions holds until more is known. Then it refreshes at
// each interval. It returns when the first of that is done, with or without a
// snapshot.
func (k *Keeper) Start(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if k.cfg.Own {
		k.fallBack(time.Now())
	}
	if err := k.Refresh(wait); err != nil {
		k.fallBack(time.Now())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cfg.Interval > 0 && !k.closed {
		k.running.Go(k.loop)
	}
}

func (k *Keeper) loop() {
	for {
		// A tenth of jitter either way, so that a fleet does not ask in step.
		d := k.cfg.Interval*9/10 + rand.N(k.cfg.Interval/5+1)
		select {
		case <-k.ctx.Done():
			return
		case <-time.After(d):
			_ = k.Refresh(k.ctx) // State tells, and the log
		}
	}
}

// Close ends a refresh under way and waits for it. The snapshot can still be read.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.stop()
	k.running.Wait()
}

// Refresh asks the registry now, or after the refresh under way, which may have asked already
// for what is new. All who call meanwhile share one, which has 15 seconds and does not end when
// a caller leaves.
func (k *Keeper) Refresh(ctx context.Context) error {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return ErrClosed
	}
	f := k.flight
	switch {
	case f == nil:
		f = newFlight()
		k.start(f)
	case f.next == nil:
		f.next = newFlight()
		f = f.next
	default:
		f = f.next
	}
	k.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return fmt.Errorf("refresh the snapshot: %w", ctx.Err())
	}
}

func newFlight() *flight { return &flight{done: make(chan struct{})} }

// start begins f. The lock is held, and no other is under way.
func (k *Keeper) start(f *flight) {
	k.flight = f
	k.running.Go(func() { k.fly(f) })
}

func (k *Keeper) fly(f *flight) {
	ctx, cancel := context.WithTimeout(k.ctx, walkLimit)
	defer cancel()
	began := time.Now()
	w, err := walk(ctx, k.cfg.Server, k.pages, k.cfg.Own)
	if err == nil {
		err = k.take(w, began)
	} else {
		err = fmt.Errorf("refresh the snapshot: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.lastErr == nil && !errors.Is(err, authority.ErrUnknown) && k.ctx.Err() == nil { // one line for an outage
		k.cfg.Log.Warn("the registry's snapshot was not refreshed", "error", chain.ClipTo(err.Error(), 256))
	}
	k.flight, k.lastErr, f.err = nil, err, err
	close(f.done)
	switch {
	case f.next == nil:
	case k.closed:
		f.next.err = ErrClosed
		close(f.next.done)
	default:
		k.start(f.next)
	}
}

// take publishes what a walk found. An error says that last-good could not be
// written or deleted; the snapshot is right all the same.
func (k *Keeper) take(w walked, began time.Time) error {
	if w.records == 0 {
		return k.clear()
	}
	s := newSnapshot(FromRegistry, began, w.agents)
	s.Truncated, s.Skipped, s.Conflicts = w.truncated, w.skipped(), len(w.conflicts)
	k.publish(s, w.pages)
	if w.changed {
		k.report(s, w.conflicts)
	} else if began.Sub(k.saved) < k.cfg.MaxAge/8 {
		return nil // the file is fresh enough, and the same
	}
	return k.save(s)
}

func (k *Keeper) publish(s *Snapshot, pages map[string]page) {
	k.mu.Lock()
	k.cleared, k.pages = false, pages
	k.current.Store(s)
	k.mu.Unlock()
}

// clear is what an empty registry asks for. Its validators go too: no later 304
// can then bring back what it said was gone.
func (k *Keeper) clear() error {
	k.mu.Lock()
	k.cleared, k.pages = true, nil
	k.current.Store(nil)
	k.mu.Unlock()
	k.saved = time.Time{}
	k.cfg.Log.Error("the registry lists no agents: nothing is selected until it does")
	if k.cfg.Store == nil {
		return nil
	}
	if err := k.cfg.Store.Delete(); err != nil {
		return fmt.Errorf("delete last-good of a registry that is empty: %w", err)
	}
	return nil
}

func (k *Keeper) report(s *Snapshot, conflicts []string) {
	k.cfg.Log.Info("registry snapshot", "agents", len(s.agents), "skipped", s.Skipped, "conflicts", s.Conflicts, "truncated", s.Truncated)
	for _, c := range conflicts[:min(len(conflicts), 5)] {
		k.cfg.Log.Warn("an agent is registered twice and differently: neither is used", "agent", chain.ClipTo(c, 256))
	}
}

func (k *Keeper) save(s *Snapshot) error {
	if k.cfg.Store == nil {
		return nil
	}
	b, err := lastGood{k.cfg.Registry, s.FetchedAt, s.Truncated, s.agents}.encode()
	if err == nil {
		err = k.cfg.Store.Save(b)
	}
	if err != nil {
		k.saved = time.Time{} // what is in the file may be more than is still so: the next refresh tries again
		return fmt.Errorf("write last-good: %w", err)
	}
	k.saved = s.FetchedAt
	return nil
}

// fallBack takes last-good, or the seed where there is none. A last-good that is
// too old is taken too, and fails as stale: a seed must not revive what the registry
// may have ended since.
func (k *Keeper) fallBack(now time.Time) {
	s := k.fromLastGood(now)
	if s == nil && k.cfg.Seed != nil {
		if date, agents, err := decodeSeed(k.cfg.Seed, k.cfg.Own, now); err == nil && len(agents) > 0 {
			s = newSnapshot(FromSeed, date, agents)
		}
	}
	if s == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cleared || k.current.Load() != nil {
		return // the registry answered meanwhile
	}
	k.current.Store(s)
	k.cfg.Log.Info("the registry did not answer yet", "source", string(s.Source), "fetched_at", s.FetchedAt, "agents", len(s.agents))
}

func (k *Keeper) fromLastGood(now time.Time) *Snapshot {
	if k.cfg.Store == nil {
		return nil
	}
	b, err := k.cfg.Store.Load(maxFile)
	if err != nil || b == nil {
		return nil
	}
	l, err := decodeLastGood(b, k.cfg.Registry, k.cfg.Own, now)
	if err != nil {
		k.cfg.Log.Warn("last-good is not used", "error", err)
		return nil
	}
	s := newSnapshot(FromLastGood, l.FetchedAt, l.Agents)
	s.Truncated = l.Truncated
	return s
}

// Current gives the snapshot, unless there is none or it is too old: [ErrNoSnapshot],
// [ErrStale].
func (k *Keeper) Current(now time.Time) (*Snapshot, error) {
	s := k.current.Load()
	switch {
	case s == nil:
		return nil, ErrNoSnapshot
	case s.age(now) > k.cfg.MaxAge:
		return nil, ErrStale
	}
	return s, nil
}

// unheard reports whether the own hub's registry has said nothing yet, neither now
// nor in a run before. Until then the chains that the same hub signs say who its
// agents are.
func (k *Keeper) unheard() bool {
	if !k.cfg.Own || k.current.Load() != nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.cleared
}

// Fresh is nil while the registry's word may be relied on: there is a snapshot that
// is fresh enough, or it is the own hub's and was never heard. Else it is
// [ErrNoSnapshot] or [ErrStale].
func (k *Keeper) Fresh(now time.Time) error {
	if _, err := k.Current(now); err != nil && !k.unheard() {
		return err
	}
	return nil
}

// Own reports whether the registry is the own hub's.
func (k *Keeper) Own() bool { return k.cfg.Own }

// Listed reports whether the snapshot, however old, has an agent for a capability.
func (k *Keeper) Listed(agent, capability string) bool {
	s := k.current.Load()
	if s == nil {
		return false
	}
	_, ok := s.Find(agent, capability)
	return ok
}

// Standing tells the gate how an agent stands now. Before the own hub's registry was
// heard, all stand as active. So does one that a truncated snapshot of it does not
// list: the same hub signs the chains and mints tokens for active agents alone.
func (k *Keeper) Standing(agent, capability string, now time.Time) gate.Standing {
	s, err := k.Current(now)
	switch {
	case err != nil && k.unheard():
		return gate.Active
	case errors.Is(err, ErrStale):
		return gate.Stale
	case err != nil:
		return gate.Missing
	}
	a, ok := s.Find(agent, capability)
	switch {
	case ok && a.Status == StatusActive, !ok && s.Truncated && k.cfg.Own && s.Source != FromSeed:
		return gate.Active
	case ok && a.Status == StatusSuspended:
		return gate.Suspended
	}
	return gate.Unknown
}

var _ gate.Agents = (*Keeper)(nil)

// State is what readiness and pages show.
type State struct {
	Err       error // as [Keeper.Fresh] has it
	Own       bool
	Refresh   error // of the last refresh, nil after a success
	Empty     bool  // the registry said that it lists no agents
	Source    Source
	FetchedAt time.Time
	Agents    int
	Truncated bool
	Skipped   int
	Conflicts int
}

// State tells how the keeper is.
func (k *Keeper) State(now time.Time) State {
	st := State{Err: k.Fresh(now), Own: k.cfg.Own}
	k.mu.Lock()
	st.Refresh, st.Empty = k.lastErr, k.cleared
	k.mu.Unlock()
	if s := k.current.Load(); s != nil {
		st.Source, st.FetchedAt, st.Agents = s.Source, s.FetchedAt, len(s.agents)
		st.Truncated, st.Skipped, st.Conflicts = s.Truncated, s.Skipped, s.Conflicts
	}
	return st
}
