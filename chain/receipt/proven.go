package receipt

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/chordwheel/chordwheel/chain/merkle"
)

// Proven is a receipt with the proof that a ledger has it: what an auditor needs
// beside two public keys, and nothing else.
type Proven struct {
	Receipt    json.RawMessage  `json:"receipt"`
	Checkpoint string           `json:"checkpoint"` // signed by the ledger; package merkle tells its form
	Inclusion  merkle.Inclusion `json:"inclusion"`
}

// ErrProven is wrapped by the refusal of bytes that are no proven receipt.
var ErrProven = errors.New("not a receipt with its proof")

// ParseProven reads a receipt with its proof, or a receipt alone, which has
// Checkpoint "". Errors wrap [ErrProven] or [ErrReceipt].
func ParseProven(b []byte) (Proven, Signed, error) {
	var p Proven
	if err := json.Unmarshal(b, &p); err != nil {
		if json.Valid(b) {
			return p, Signed{}, fmt.Errorf("%w: want a receipt, or {\"receipt\", \"checkpoint\", \"inclusion\"} as the ledger gave them", ErrProven)
		}
		return p, Signed{}, fmt.Errorf("%w: want JSON", ErrProven)
	}
	switch {
	case len(p.Receipt) == 0:
		p = Proven{Receipt: b}
	case p.Checkpoint == "":
		return p, Signed{}, fmt.Errorf("%w: it has no checkpoint", ErrProven)
	case p.Inclusion.Size == 0: // no tree that has a line is so small
		return p, Signed{}, fmt.Errorf("%w: it has no inclusion", ErrProven)
	}
	s, err := Parse(p.Receipt)
	return p, s, err
}

// Verify checks that the ledger called origin, whose key is given, has s in it,
// and gives the checkpoint that says so. Errors are those of package merkle.
func (p *Proven) Verify(s *Signed, origin string, ledger ed25519.PublicKey) (merkle.Checkpoint, error) {
	c, err := merkle.OpenCheckpoint([]byte(p.Checkpoint), origin, ledger)
	if err != nil {
		return c, err
	}
	return c, merkle.VerifyInclusion(c, s.Line, p.Inclusion)
}
