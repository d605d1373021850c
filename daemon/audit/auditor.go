package audit

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/did"
)

// Auditor checks receipts against what their signers and the ledger say, and
// believes neither.
type Auditor struct {
	Origin  string                                                             // of the ledger
	Key     ed25519.PublicKey                                                  // the ledger's
	Resolve func(ctx context.Context, did string) ([]ed25519.PublicKey, error) // keys for signing receipts
	Ledger  *Client                                                            // nil: offline, nothing is asked for
}

// Seen is a checkpoint that was shown before, which the ledger must have grown
// from.
type Seen struct {
	Checkpoint []byte              // signed; nil: none was
	Growth     *merkle.Consistency // between it and the one at hand; nil: the ledger is asked
}

// Finding is what became of the check of one receipt. Each part is "ok", what is
// wrong, or "" where it was not looked at.
type Finding struct {
	Transaction string `json:"transaction_id,omitempty"`
	Message     string `json:"message_id,omitempty"`
	Signer      string `json:"signer,omitempty"`
	Form        string `json:"form"` // is it a receipt at all
	Signature   string `json:"signature,omitempty"`
	Inclusion   string `json:"inclusion,omitempty"`
	Index       int64  `json:"index"` // in the ledger, if Inclusion is ok
	Size        int64  `json:"size"`
	Consistency string `json:"consistency,omitempty"`
	OK          bool   `json:"ok"`

	Proven     receipt.Proven `json:"-"` // with the proof that was looked at
	Checkpoint []byte         `json:"-"` // signed, if Inclusion is ok
}

const fine = "ok"

// Check looks at a receipt, or one with its proof, and at the ledger's growth since
// seen. An error says that something could not be looked at; what is wrong stands
// in the finding.
func (a *Auditor) Check(ctx context.Context, b []byte, seen Seen) (Finding, error) {
	f := Finding{Form: fine}
	proven, s, err := receipt.ParseProven(b)
	if err != nil {
		f.Form = err.Error()
		return f, nil
	}
	f.Transaction, f.Message, f.Signer = s.TransactionID, s.MessageID, s.Signer()
	keys, err := a.Resolve(ctx, f.Signer)
	if errors.Is(err, did.ErrInvalid) { // no signer has that name: it was altered
		f.Signature = said(err)
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("resolve %s: %w", f.Signer, err)
	}
	f.Signature = said(s.Verify(keys...))
	if proven.Checkpoint == "" {
		if a.Ledger == nil {
			f.OK = f.Signature == fine
			return f, nil
		}
		proven, err = a.Ledger.Proven(ctx, &s)
		if errors.Is(err, ErrNotFound) {
			f.Inclusion = err.Error()
			return f, nil
		}
		if err != nil {
			return f, err
		}
	}
	f.Proven = proven
	c, err := proven.Verify(&s, a.Origin, a.Key)
	if f.Inclusion = said(err); err != nil {
		return f, nil
	}
	f.Index, f.Size, f.Checkpoint = proven.Inclusion.Index, c.Size, []byte(proven.Checkpoint)
	if err := a.grew(ctx, &f, c, seen); err != nil {
		return f, err
	}
	f.OK = f.Signature == fine && (f.Consistency == "" || f.Consistency == fine)
	return f, nil
}

// grew checks that one of two checkpoints is the beginning of the other.
func (a *Auditor) grew(ctx context.Context, f *Finding, c merkle.Checkpoint, seen Seen) error {
	if seen.Checkpoint == nil {
		return nil
	}
	older, err := merkle.OpenCheckpoint(seen.Checkpoint, a.Origin, a.Key)
	if err != nil {
		f.Consistency = "the checkpoint that was seen before: " + err.Error()
		return nil
	}
	newer := c
	if older.Size > newer.Size {
		older, newer = newer, older
	}
	proof := merkle.Consistency{From: older.Size, To: newer.Size}
	switch {
	case older.Size == newer.Size || older.Size == 0:
	case seen.Growth != nil:
		proof = *seen.Growth
	case a.Ledger == nil:
		return nil
	default:
		if proof, err = a.Ledger.Consistency(ctx, older.Size, newer.Size); errors.Is(err, ErrNotFound) {
			f.Consistency = merkle.ErrShortened.Error() // it does not know a size that it signed for
			return nil
		}
		if err != nil {
			return err
		}
	}
	f.Consistency = said(merkle.VerifyConsistency(older, newer, proof))
	return nil
}

func said(err error) string {
	if err != nil {
		return err.Error()
	}
	return fine
}

// Wrong gives what is wrong in one line, "" if nothing is.
func (f *Finding) Wrong() string {
	for _, part := range []string{f.Form, f.Signature, f.Inclusion, f.Consistency} {
		if part != "" && part != fine {
			return part
		}
	}
	return ""
}
