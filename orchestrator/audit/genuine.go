package audit

import (
	"context"
	"crypto/ed25519"
	"errors"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/did"
	"github.com/chordwheel/chordwheel/orchestrator/authority"
)

// soon is when a document that was fetched a moment ago may be fetched again.
const soon = 10 * time.Second

// errUnfit is joined to the refusal of a signature that may yet turn out to be right: its
// check costs what that of any other costs, and whoever makes them up has the next one ready.
var errUnfit = errors.New("the signature does not fit the document that is remembered")

// genuine checks the signature against what the signer's DID stands for. One that does not
// fit is wrong only by a document that is newer than the receipt: a device that was given
// another key signs with it at once, while the document of before is still remembered.
// The keys are those that the DID stands for.
func (s *Service) genuine(ctx context.Context, got *receipt.Signed) ([]ed25519.PublicKey, error) {
	keys, err := s.keys(ctx, got.Signer())
	if err != nil {
		return nil, err
	}
	wrong := got.Verify(keys...)
	if wrong != nil && s.cfg.Doubt != nil {
		again, asOf := s.cfg.Doubt(got.Signer())
		switch {
		case again:
			if keys, err = s.keys(ctx, got.Signer()); err != nil {
				return nil, err
			}
			wrong = got.Verify(keys...)
		case !asOf.IsZero() && asOf.Before(got.ResponseAt):
			return nil, errors.Join(errUnfit, unresolvable(soon))
		}
	}
	if wrong != nil {
		return nil, authority.Refuse(authority.InvalidRequest, "%s", chain.ClipTo(wrong.Error(), 200))
	}
	return keys, nil
}

// keys are those that a signer's DID stands for; the error is a refusal.
func (s *Service) keys(ctx context.Context, signer string) ([]ed25519.PublicKey, error) {
	keys, err := s.cfg.Resolve(ctx, signer)
	switch {
	case errors.Is(err, did.ErrInvalid):
		return nil, authority.Refuse(authority.InvalidDID, "the signer's DID: %s", chain.ClipTo(err.Error(), 200))
	case err != nil:
		return nil, unresolvable(time.Minute)
	}
	return keys, nil
}

func unresolvable(wait time.Duration) error {
	r := authority.Refuse(authority.UnresolvableDID, "the signer's DID could not be resolved")
	r.RetryAfter = wait
	return r
}
