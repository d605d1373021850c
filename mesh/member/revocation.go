package member

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// MaxRevoked is how many peers a list can name: what fits one message of
// gossip. An entry older than a membership can be is of no more use and makes
// room ([Revocations.Add] drops it), so this is per eight days.
const MaxRevoked = 512

// Revocations is the list of memberships that ended before their time. Each
// list stands for itself: a newer one replaces the older.
type Revocations struct {
	Mesh   chain.MeshID  `cbor:"mesh" json:"mesh"`
	Seq    uint64        `cbor:"seq" json:"seq"` // rises with each list, from 1
	Issued chain.Instant `cbor:"issued" json:"issued"`
	Ended  []Ended       `cbor:"ended" json:"ended"` // ascending by peer, each once
}

// Ended says that every membership of a peer issued at or before a moment is
// void. A peer that was let in again has a later one.
type Ended struct {
	Peer chain.PeerID  `cbor:"peer" json:"peer_id"`
	At   chain.Instant `cbor:"at" json:"at"`
}

// Add gives the list after r in which the memberships of peer are void: Seq one
// higher, Issued now, entries that outlived every membership dropped. r is not
// changed; nil stands for no list yet, and then the caller sets Mesh. It fails
// when the list is full.
func (r *Revocations) Add(peer chain.PeerID, now time.Time) (Revocations, error) {
	next := Revocations{Seq: 1, Issued: chain.InstantOf(now)}
	if r != nil {
		next.Mesh, next.Seq = r.Mesh, r.Seq+1
		oldest := chain.InstantOf(now.Add(-Lifetime - chain.Leeway))
		for _, e := range r.Ended {
			if e.Peer != peer && e.At >= oldest {
				next.Ended = append(next.Ended, e)
			}
		}
	}
	if len(next.Ended) >= MaxRevoked {
		return Revocations{}, fmt.Errorf("revoke %s: the list is full with %d peers of the last %s", peer, MaxRevoked, Lifetime)
	}
	next.Ended = append(next.Ended, Ended{peer, next.Issued})
	slices.SortFunc(next.Ended, func(a, b Ended) int { return strings.Compare(string(a.Peer), string(b.Peer)) })
	return next, nil
}

// Ends reports whether r makes m void. A nil list ends nothing.
func (r *Revocations) Ends(m *Membership) bool {
	if r == nil {
		return false
	}
	i, found := slices.BinarySearchFunc(r.Ended, m.Peer, func(e Ended, p chain.PeerID) int {
		return strings.Compare(string(e.Peer), string(p))
	})
	return found && m.Issued <= r.Ended[i].At
}

// Revoke signs r with the orchestrator's key.
func Revoke(key chain.Key, r Revocations) ([]byte, error) {
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("issue revocations: %w", err)
	}
	payload, err := chain.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("issue revocations: %w", err)
	}
	return key.Seal(chain.DomainRevocation, payload)
}

// VerifyRevocations opens a list. least is the Seq of the list that the caller
// holds: a lower one is chain.ErrRollback, the same one is accepted (it is the
// same list, or the orchestrator broke its word, which a caller that keeps the
// bytes can tell). A list does not expire. Other errors wrap the refusals that
// [Verify] names.
func VerifyRevocations(trust chain.Trust, envelope []byte, least uint64, now time.Time) (Revocations, error) {
	r, err := verifyRevocations(trust, envelope, least, now)
	if err != nil {
		return Revocations{}, fmt.Errorf("revocation list refused: %w", err)
	}
	return r, nil
}

func verifyRevocations(trust chain.Trust, envelope []byte, least uint64, now time.Time) (Revocations, error) {
	payload, err := trust.Open(chain.DomainRevocation, envelope)
	if err != nil {
		return Revocations{}, err
	}
	var r Revocations
	if err := chain.Unmarshal(payload, &r); err != nil {
		return Revocations{}, err
	}
	switch {
	case r.Mesh != trust.Mesh:
		return Revocations{}, chain.ErrMesh
	case r.Seq < least:
		return Revocations{}, fmt.Errorf("%w: list %d after %d", chain.ErrRollback, r.Seq, least)
	case r.Issued > chain.InstantOf(now.Add(chain.Leeway)):
		return Revocations{}, chain.ErrFuture
	}
	return r, r.validate()
}

func (r *Revocations) validate() error {
	switch {
	case !text(string(r.Mesh), 1, 64):
		return fmt.Errorf("%w: mesh ID", chain.ErrContent)
	case r.Seq == 0 || r.Seq > 1<<62:
		return fmt.Errorf("%w: sequence", chain.ErrContent)
	case r.Issued <= 0:
		return fmt.Errorf("%w: time of issue", chain.ErrContent)
	case len(r.Ended) > MaxRevoked:
		return fmt.Errorf("%w: %d peers, at most %d", chain.ErrContent, len(r.Ended), MaxRevoked)
	}
	for i, e := range r.Ended {
		if i > 0 && r.Ended[i-1].Peer >= e.Peer {
			return fmt.Errorf("%w: peers must ascend", chain.ErrContent)
		}
		if peer, err := chain.ParsePeerID(string(e.Peer)); err != nil || peer != e.Peer || e.At <= 0 {
			return fmt.Errorf("%w: entry %d", chain.ErrContent, i)
		}
	}
	return nil
}
