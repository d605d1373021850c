package mesh

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Rates above which gossip is not honest any more. A device announces a few
// times an hour; a hub that publishes for a thousand scopes at once is exempt.
const (
	forwarderRate, forwarderBurst = 100, 500 // messages a second from one neighbour, of any author
	authorRate, authorBurst       = 1, 20    // announcements, or lists of chords, a second by one author
	maxTracked                    = 1 << 16  // entries of each table; a full one forgets a random half
)

// judge decides which gossip is believed and passed on. It keeps what it needs
// for that: the highest sequence numbers, the verified memberships, the
// revocations, and how much each neighbour sent.
type judge struct {
	trust     chain.Trust
	self, hub peer.ID

	mu         sync.Mutex
	policySeq  map[string]uint64              // scope hash and primitive
	authors    map[string]*author             // topic and peer
	verified   map[[32]byte]member.Membership // by hash of the envelope
	neighbours map[peer.ID]*neighbour
	revoked    *member.Revocations
	list       []byte // revoked, as signed
}

type author struct {
	number  uint64 // of the last message, rising over restarts
	boot    string
	seq     uint64
	limiter *rate.Limiter
}

type neighbour struct {
	limiter *rate.Limiter
	over    float64 // messages beyond the rate, halved each minute
	at      time.Time
}

func newJudge(trust chain.Trust, self, hub peer.ID) *judge {
	return &judge{trust: trust, self: self, hub: hub, policySeq: map[string]uint64{}, authors: map[string]*author{},
		verified: map[[32]byte]member.Membership{}, neighbours: map[peer.ID]*neighbour{}}
}

// validator checks one message of a topic and gives what it holds.
type validator func(from peer.ID, m *pubsub.Message) (any, pubsub.ValidationResult)

func (v validator) pubsub() pubsub.ValidatorEx {
	return func(_ context.Context, from peer.ID, m *pubsub.Message) pubsub.ValidationResult {
		data, result := v(from, m)
		m.ValidatorData = data
		return result
	}
}

// policy lets pass what the pinned hub says, and each thing once.
func (j *judge) policy() validator {
	return func(_ peer.ID, m *pubsub.Message) (any, pubsub.ValidationResult) {
		var i wire.Invalidation
		if m.GetFrom() != j.hub || len(m.Data) > wire.MaxInvalidation || wire.Decode(m.Data, &i) != nil {
			return nil, pubsub.ValidationReject
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		key := string(i.Scope) + "/" + string(i.Primitive)
		if i.Seq <= j.policySeq[key] {
			return nil, pubsub.ValidationIgnore
		}
		makeRoom(j.policySeq)
		j.policySeq[key] = i.Seq
		return i, pubsub.ValidationAccept
	}
}

// revocations lets pass lists of the hub that are newer than the one held.
func (j *judge) revocations() validator {
	return func(_ peer.ID, m *pubsub.Message) (any, pubsub.ValidationResult) {
		if m.GetFrom() != j.hub || len(m.Data) > wire.MaxGossip {
			return nil, pubsub.ValidationReject
		}
		fresh, err := j.revoke(m.Data, time.Now())
		switch {
		case errors.Is(err, chain.ErrRollback), errors.Is(err, chain.ErrFuture): // late, or our clock: nobody is to blame
			return nil, pubsub.ValidationIgnore
		case err != nil:
			return nil, pubsub.ValidationReject
		case !fresh && m.ReceivedFrom != j.self:
			return nil, pubsub.ValidationIgnore
		}
		return m.Data, pubsub.ValidationAccept
	}
}

// revoke takes a signed list over if it is newer, and reports whether it was.
func (j *judge) revoke(list []byte, now time.Time) (fresh bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var least uint64
	if j.revoked != nil {
		least = j.revoked.Seq
	}
	r, err := member.VerifyRevocations(j.trust, list, least, now)
	if err != nil || r.Seq == least {
		return false, err
	}
	j.revoked, j.list = &r, list
	return true, nil
}

// announce lets pass what a member of scope says about itself.
func (j *judge) announce(scope chain.ScopeID) validator {
	return func(from peer.ID, m *pubsub.Message) (any, pubsub.ValidationResult) {
		var a wire.Announce
		if len(m.Data) > wire.MaxAnnounce || len(m.GetSeqno()) != 8 || wire.Decode(m.Data, &a) != nil {
			return nil, pubsub.ValidationReject
		}
		ms, result := j.member(from, m, scope, a.Membership, a.BootID, a.Seq)
		return Presence{Scope: scope, Membership: ms, Capabilities: ms.Counts(a.Capabilities), BootID: a.BootID, Seq: a.Seq, Addresses: a.Addresses}, result
	}
}

// chords lets pass what a member of scope says of its own contacts.
func (j *judge) chords(scope chain.ScopeID) validator {
	return func(from peer.ID, m *pubsub.Message) (any, pubsub.ValidationResult) {
		var k wire.Chords
		if len(m.Data) > wire.MaxChords || len(m.GetSeqno()) != 8 || wire.Decode(m.Data, &k) != nil {
			return nil, pubsub.ValidationReject
		}
		ms, result := j.member(from, m, scope, k.Membership, k.BootID, k.Seq)
		return Adjacency{Scope: scope, Peer: ms.Peer, Chords: k.Chords}, result
	}
}

// member says whether a message in a topic of scope is by a member of it, who
// showed envelope, and newer than the last.
func (j *judge) member(from peer.ID, m *pubsub.Message, scope chain.ScopeID, envelope []byte, boot string, seq uint64) (member.Membership, pubsub.ValidationResult) {
	by := m.GetFrom()
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	ms, err := j.membership(envelope, now)
	if err == nil {
		err = ms.Check(chain.PeerID(by.String()), scope, j.revoked)
	}
	switch {
	case err == nil:
	case from != by && (errors.Is(err, chain.ErrExpired) || errors.Is(err, chain.ErrFuture) || errors.Is(err, member.ErrRevoked)):
		return ms, pubsub.ValidationIgnore // the forwarder may not have known
	default:
		return ms, pubsub.ValidationReject
	}
	if !j.next(m.GetTopic()+by.String(), binary.BigEndian.Uint64(m.GetSeqno()), boot, seq, now) {
		return ms, pubsub.ValidationIgnore
	}
	return ms, pubsub.ValidationAccept
}

// verify judges a membership that peer shows in person; ours are the scopes of
// this device. The error is one of packages chain and member.
func (j *judge) verify(envelope []byte, from chain.PeerID, ours []chain.ScopeID, now time.Time) (member.Membership, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	ms, err := j.membership(envelope, now)
	if err != nil {
		return member.Membership{}, err
	}
	err = member.ErrScope
	for _, s := range ours {
		if err = ms.Check(from, s, j.revoked); !errors.Is(err, member.ErrScope) {
			break
		}
	}
	return ms, err
}

// ended reports whether the list held makes m void.
func (j *judge) ended(m *member.Membership) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.revoked.Ends(m)
}

// held gives the revocation list and its number.
func (j *judge) held() (list []byte, seq uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.revoked == nil {
		return nil, 0
	}
	return j.list, j.revoked.Seq
}

// membership verifies an envelope, or finds it verified before.
func (j *judge) membership(envelope []byte, now time.Time) (member.Membership, error) {
	key := sha256.Sum256(envelope)
	if ms, ok := j.verified[key]; ok {
		return ms, ms.Current(now)
	}
	ms, err := member.Verify(j.trust, envelope, now)
	if err == nil {
		makeRoom(j.verified)
		j.verified[key] = ms
	}
	return ms, err
}

// next reports whether a message is newer than the last of its author
// in this topic and within its rate. The number is the signed one of the
// gossip message: it begins with the clock at each start, so that a recorded
// message of an earlier boot stays old. The library's memory of what it has
// seen lasts two minutes and is no guard.
func (j *judge) next(key string, number uint64, boot string, seq uint64, now time.Time) bool {
	last := j.authors[key]
	if last == nil {
		makeRoom(j.authors)
		last = &author{limiter: rate.NewLimiter(authorRate, authorBurst)}
		j.authors[key] = last
	}
	if number <= last.number || boot == last.boot && seq <= last.seq || !last.limiter.AllowN(now, 1) {
		return false
	}
	last.number, last.boot, last.seq = number, boot, seq
	return true
}

var errFlood = errors.New("over the rate of messages")

// inspect is asked about each packet of a neighbour before signatures are
// checked, which is where a flood would cost most.
func (j *judge) inspect(from peer.ID, rpc *pubsub.RPC) error {
	n := 0
	for _, m := range rpc.GetPublish() {
		// What claims to be the hub's may come in bursts. A false claim is
		// an invalid message, and a few of those cut its sender off.
		if peer.ID(m.GetFrom()) != j.hub {
			n++
		}
	}
	if n == 0 || from == j.hub {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	nb := j.neighbours[from]
	if nb == nil {
		makeRoom(j.neighbours)
		nb = &neighbour{limiter: rate.NewLimiter(forwarderRate, forwarderBurst), at: now}
		j.neighbours[from] = nb
	}
	if nb.limiter.AllowN(now, n) {
		return nil
	}
	nb.decay(now)
	nb.over += float64(n)
	return errFlood
}

func (n *neighbour) decay(now time.Time) {
	for ; now.Sub(n.at) >= time.Minute; n.at = n.at.Add(time.Minute) {
		if n.over /= 2; n.over < 1 {
			n.over, n.at = 0, now
			return
		}
	}
}

// score is what the node itself thinks of a neighbour: the hub is always
// heard, one that floods ever less.
func (j *judge) score(p peer.ID) float64 {
	if p == j.hub {
		return 1000
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	nb := j.neighbours[p]
	if nb == nil {
		return 0
	}
	nb.decay(time.Now())
	return -nb.over / 10
}

// makeRoom forgets a random half of a table that is full.
func makeRoom[K comparable, V any](table map[K]V) {
	if len(table) < maxTracked {
		return
	}
	for k := range table {
		if delete(table, k); len(table) <= maxTracked/2 {
			return
		}
	}
}
