// Package executor owns the decision whether this device runs a peer's work: who
// asks, by which policy, with what right, and whether there is room and a will. It
// decides over signed bytes, before a payload is read, and keeps count of what it
// admitted. It knows no stream, runs nothing, and asks what it must know of the
// device through [Device] and [Sharing]. The checks and their order stand in
// docs/executor.md.
package executor

import (
	"slices"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/sharing"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Device is what the decision asks of the device. Every method answers at once,
// from memory, and may be called from many goroutines.
type Device interface {
	// Member tells what the device belongs to; ok is false for one that joined
	// nothing, or whose membership ended.
	Member() (m Member, ok bool)
	// Has gives the capabilities that the device declared and was granted.
	Has() []chain.Capability
	// Chain gives the chain in force for a slot, nil for none. It may have expired.
	Chain(slot chain.Slot) *chain.Chain
	// Mark gives the high-water mark of a slot.
	Mark(slot chain.Slot) chain.Mark
	// Runs reports whether the device has what runs o, which is no peer slot.
	Runs(o *chain.Option) bool
}

// Member is the device's own place in its mesh.
type Member struct {
	Trust       chain.Trust
	Scopes      []chain.ScopeID
	Revocations *member.Revocations // the newest list, nil for none
}

// Sharing is the owner's will. A [sharing.Switch] is one.
type Sharing interface {
	May(scope chain.ScopeID, now time.Time) sharing.Decision
	Jobs(scope chain.ScopeID) (device, ofScope int)
}

// Gate judges the token that came with a request which is right in all else, for the
// peer from which it came.
type Gate interface {
	// Judge gives the token's id, "" where its signature does not hold, the verdict
	// (allow or deny), and a refusal where the work may not go on.
	Judge(from chain.PeerID, r *wire.ExecRequest) (tokenID, verdict string, refusal *wire.ExecRefusal)
}

// Limits bound what peers can ask for. A zero field means the default.
type Limits struct {
	Payload int64 // bytes; 16 MiB
}

// Bounds of what an executor remembers.
const (
	// Ahead is how far in the future a request may expire. It bounds how long a
	// nonce is kept, and leaves room for clocks that differ by minutes.
	Ahead = 10 * time.Minute

	defaultPayload = 16 << 20
	maxNonces      = 1 << 17 // of all peers: 6 MB
)

// Executor decides. Its methods may be called from many goroutines.
type Executor struct {
	self    chain.PeerID
	did     string
	device  Device
	sharing Sharing
	limits  Limits
	gate    Gate // nil: everything passes
	seen    cache

	mu      sync.Mutex
	epoch   epoch
	nonces  window // of it
	running int
	peers   map[chain.PeerID]int // jobs running, by submitter; nothing at 0
	scopes  map[chain.ScopeID]int
	counts  Counts
}

// Counts are what became of foreign work since the start.
type Counts struct {
	Running  int
	Admitted uint64
	Refused  map[wire.ExecCode]uint64 // by code
}

// New makes an executor for the device that is self. boot names this run of it, never
// again used, in 1 to [wire.MaxBoot] printable characters: nonces of its requests have to
// begin with it, or with what the executor says in its place once the clock has jumped.
func New(self chain.PeerID, boot string, device Device, will Sharing, limits Limits) *Executor {
	if limits.Payload == 0 {
		limits.Payload = defaultPayload
	}
	return &Executor{
		self: self, did: self.DID(), device: device, sharing: will, limits: limits, epoch: newEpoch(boot), nonces: newWindow(maxNonces),
		peers: map[chain.PeerID]int{}, scopes: map[chain.ScopeID]int{}, counts: Counts{Refused: map[wire.ExecCode]uint64{}},
	}
}

// Guard has g judge every request from now on. It is called before the first Admit.
func (e *Executor) Guard(g Gate) { e.gate = g }

// Counts gives what became of foreign work so far. The map is the caller's.
func (e *Executor) Counts() Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.counts
	c.Running = e.running
	c.Refused = make(map[wire.ExecCode]uint64, len(e.counts.Refused))
	for code, n := range e.counts.Refused {
		c.Refused[code] = n
	}
	return c
}

// Job is an admitted request. Release gives its place back.
type Job struct {
	Request wire.ExecRequest
	From    chain.PeerID
	Name    string       // of the submitter, by its membership; "" if it has none
	Seeker  string       // the submitter's DID
	Agent   string       // this device's
	Slot    chain.Option // that the work came through
	Chain   *chain.Chain // this device's own, to be walked
	Options []chain.Option
	Kinds   []chain.Kind // of options that may be walked: never peers
	TokenID string       // of the token that came, "" for none whose signature holds
	Verdict string       // the gate's: allow or deny; "" without a gate

	executor *Executor
	once     sync.Once
}

// Release gives the place of j back. It may be called twice.
func (j *Job) Release() {
	j.once.Do(func() {
		e := j.executor
		e.mu.Lock()
		defer e.mu.Unlock()
		e.running--
		less(e.peers, j.From)
		less(e.scopes, j.Request.Scope.Base())
	})
}

func less[K comparable](count map[K]int, key K) {
	if count[key]--; count[key] <= 0 {
		delete(count, key)
	}
}

// Admit decides about the opening frame that peer from sent at now. The error is a
// *wire.ExecRefusal. A job that is admitted holds its place until Release.
func (e *Executor) Admit(from chain.PeerID, open *wire.ExecOpen, now time.Time) (*Job, error) {
	j, refusal := e.judge(from, open, now)
	if refusal == nil && e.gate != nil {
		refusal = e.pass(j)
	}
	if refusal == nil {
		refusal = e.claim(j, now)
	}
	switch {
	case refusal == nil:
		return j, nil
	case !refusal.Question():
		e.mu.Lock()
		e.counts.Refused[refusal.Code]++ // the codes are ours: their number is bounded
		e.mu.Unlock()
	}
	return nil, refusal
}

// pass asks the gate. What the request says of its token has to be so.
func (e *Executor) pass(j *Job) *wire.ExecRefusal {
	var refusal *wire.ExecRefusal
	j.TokenID, j.Verdict, refusal = e.gate.Judge(j.From, &j.Request)
	if refusal == nil && j.TokenID != "" && j.TokenID != j.Request.TokenID {
		return wire.RefuseExec(wire.ExecProtocol, "the request names another token than it carries")
	}
	return refusal
}

// claim takes a place for j, where there is one. Nothing of a request is remembered
// before all else is right with it, so that a stranger cannot fill a memory.
func (e *Executor) claim(j *Job, now time.Time) *wire.ExecRefusal {
	r, scope := &j.Request, j.Request.Scope.Base()
	will := e.sharing.May(scope, now)
	device, ofScope := e.sharing.Jobs(scope)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !r.OfBoot(e.epoch.id): // the clock jumped a moment ago
		return stale(e.epoch.id)
	case e.nonces.has(j.From, r.Nonce, now):
		return wire.RefuseExec(wire.ExecReplayed, "the nonce was used before")
	case r.PayloadBytes > e.limits.Payload:
		return wire.RefuseExec(wire.ExecTooLarge, "a payload of %d bytes, at most %d", r.PayloadBytes, e.limits.Payload)
	case e.running >= device:
		return wire.RefuseExec(wire.ExecBusy, "it runs %d jobs of others, the most that its owner allows", e.running)
	case e.scopes[scope] >= ofScope:
		return wire.RefuseExec(wire.ExecBusy, "it runs %d jobs of scope %s, the most that its owner allows", ofScope, scope)
	case e.peers[j.From] >= share(device):
		return wire.RefuseExec(wire.ExecBusy, "it runs %d jobs of yours; the other places are for others", share(device))
	case !will.OK:
		refusal := wire.RefuseExec(wire.ExecSharingOff, "%s", chain.ClipTo(will.Why, 200))
		if !will.Back.IsZero() {
			refusal.ComeBack = max(0, min(chain.MillisOf(will.Back.Sub(now)), chain.MillisOf(sharing.MaxPause)))
		}
		return refusal
	case !e.nonces.add(j.From, r.Nonce, r.Expires.Time().Add(2*maxDrift), now): // so far back the clock goes within an epoch at most
		return wire.RefuseExec(wire.ExecBusy, "it took too many requests in the last minutes")
	}
	e.running++
	e.peers[j.From]++
	e.scopes[scope]++
	e.counts.Admitted++
	return nil
}

// share is how many of all places one peer may take: where there are two or more,
// one at least is left for another peer.
func share(places int) int { return max(1, places-max(1, places/4)) }

// mayWalk gives the kinds of own options that work through a slot may use.
func mayWalk(slot *chain.Option, rules chain.Rules) []chain.Kind {
	via := slot.Through(rules)
	var kinds []chain.Kind
	for _, k := range []chain.Kind{chain.Local, chain.Provider} { // never what came over the wire as it is
		if slices.Contains(via, k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}
