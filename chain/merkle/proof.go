package merkle

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// maxHashes bounds a proof: two for each level of the largest tree.
const maxHashes = 128

// What a proof can fail to show.
var (
	// ErrNotIncluded: the line is not at that place of the ledger, or is not the
	// one that was taken.
	ErrNotIncluded = errors.New("the line is not in the ledger")
	// ErrForked: two checkpoints of one ledger that cannot both be true: somebody was shown
	// another past.
	ErrForked = errors.New("the ledger was forked: its past is not what it was")
	// ErrShortened: the ledger has fewer lines than it had.
	ErrShortened = errors.New("the ledger was shortened")
	// ErrProof: the proof is about something else, or none at all.
	ErrProof = errors.New("not a proof of that")
)

// Inclusion proves that a line is in a ledger.
type Inclusion struct {
	Index  int64  `json:"index"` // of the line, from 0
	Size   int64  `json:"size"`  // of the ledger that is spoken of
	Hashes []Hash `json:"hashes"`
}

// Consistency proves that a ledger is the beginning of another.
type Consistency struct {
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Hashes []Hash `json:"hashes"`
}

// VerifyInclusion checks that line, exactly these bytes, is in the ledger of a
// checkpoint whose signature was checked. Errors wrap ErrProof, where the proof is for another
// checkpoint, or ErrNotIncluded.
func VerifyInclusion(c Checkpoint, line []byte, p Inclusion) error {
	if p.Size != c.Size || p.Index < 0 || p.Index >= p.Size || len(p.Hashes) > maxHashes {
		return fmt.Errorf("%w: index %d of %d, the checkpoint has %d lines", ErrProof, p.Index, p.Size, c.Size)
	}
	if err := tlog.CheckRecord(p.Hashes, p.Size, c.Root, p.Index, tlog.RecordHash(line)); err != nil {
		return fmt.Errorf("%w: index %d of %d", ErrNotIncluded, p.Index, p.Size)
	}
	return nil
}

// VerifyConsistency checks that the ledger of an older checkpoint is the beginning of that of
// a newer one; the signatures of both were checked. Errors wrap ErrShortened,
// ErrForked, ErrCheckpoint for two origins, or ErrProof. The two checkpoints that ErrForked
// is about are evidence: keep them. A proof that fails may also be the fault of who
// handed it over; the same from several says that it is the ledger's.
func VerifyConsistency(older, newer Checkpoint, p Consistency) error {
	switch {
	case older.Origin != newer.Origin:
		return fmt.Errorf("%w: two origins", ErrCheckpoint)
	case newer.Size < older.Size:
		return fmt.Errorf("%w: from %d to %d lines", ErrShortened, older.Size, newer.Size)
	case newer.Size == older.Size && newer.Root != older.Root:
		return fmt.Errorf("%w: two roots for %d lines", ErrForked, older.Size)
	case newer.Size == older.Size || older.Size == 0:
		return nil // nothing to prove
	case p.From != older.Size || p.To != newer.Size || len(p.Hashes) > maxHashes:
		return fmt.Errorf("%w: from %d to %d, the checkpoints have %d and %d", ErrProof, p.From, p.To, older.Size, newer.Size)
	}
	if err := tlog.CheckTree(p.Hashes, newer.Size, newer.Root, older.Size, older.Root); err != nil {
		return fmt.Errorf("%w: from %d to %d lines", ErrForked, older.Size, newer.Size)
	}
	return nil
}
