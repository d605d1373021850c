package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// joinedFile is the name under which a device keeps what joining gave it.
const joinedFile = "joined.cbor"

// Joined is what a device knows of its mesh: whom it obeys, where the hub is,
// and the proof that it is a member. It is kept in a small checked file, apart
// from the database, so that losing the database never means joining again.
type Joined struct {
	Trust         chain.Trust        `cbor:"trust"`
	Addresses     []string           `cbor:"addresses"`
	Membership    []byte             `cbor:"membership"`
	Topics        []wire.TopicKey    `cbor:"topics,omitempty"`
	Scopes        []chain.ScopeID    `cbor:"scopes"`
	Expires       chain.Instant      `cbor:"expires"`
	Revocations   []byte             `cbor:"revocations,omitempty"` // the newest signed list
	RevocationSeq uint64             `cbor:"revocation_seq,omitempty"`
	Peers         []wire.PeerAddress `cbor:"peers,omitempty"`       // where the hub said that others are
	Authority     string             `cbor:"authority,omitempty"`   // URL of the hub's authority services
	Certificate   []byte             `cbor:"certificate,omitempty"` // SHA-256 of theirs, over DER
	Revoked       bool               `cbor:"revoked,omitempty"`     // the membership was ended, by that list or by the hub's own refusal
}

// ended reports whether the kept list ends the kept membership.
func (j *Joined) ended(now time.Time) bool {
	own, err := member.Verify(j.Trust, j.Membership, now)
	if err != nil {
		return false
	}
	list, err := member.VerifyRevocations(j.Trust, j.Revocations, 0, now)
	return err == nil && list.Ends(&own)
}

// State keeps small files that survive a restart, each written whole or not at
// all. Read answers fs.ErrNotExist for a file that was never written.
type State interface {
	ReadChecked(name string) ([]byte, error)
	WriteChecked(name string, content []byte) error
}

// LoadJoined reads what the device was told when it joined. ok is false for a
// device that has not.
func LoadJoined(s State) (j Joined, ok bool, err error) {
	b, err := s.ReadChecked(joinedFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Joined{}, false, nil
	}
	if err != nil {
		return Joined{}, false, fmt.Errorf("read what joining gave: %w", err)
	}
	if err := chain.Unmarshal(b, &j); err != nil {
		return Joined{}, false, fmt.Errorf("read %s: %w; move the file away and join again", joinedFile, err)
	}
	return j, true, nil
}

// Save keeps j.
func (j Joined) Save(s State) error {
	b, err := chain.Marshal(j)
	if err != nil {
		return err
	}
	if err := s.WriteChecked(joinedFile, b); err != nil {
		return fmt.Errorf("keep what joining gave: %w", err)
	}
	return nil
}
