package chain

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// PrefixControl is for a proof that its signer controls a DID.
const PrefixControl Prefix = "chordwheel-control-v1\n"

// ErrControl is wrapped by every refusal of a proof of control.
var ErrControl = errors.New("the signature does not prove control of the DID")

// Control is what is signed to prove control of a DID: to one service, and for one
// of its challenges, so that the proof is good for nothing else.
type Control struct {
	Audience  string // origin of the service: https://HOST[:PORT], without a path
	Challenge string
	DID       string
}

// text is the RFC 8785 form of {aud, challenge, did}. The members are limited to
// characters that stand for themselves there.
func (c Control) text() ([]byte, error) {
	for _, s := range []string{c.Audience, c.Challenge, c.DID} {
		if s == "" || len(s) > 2048 || strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) >= 0 {
			return nil, fmt.Errorf("%w: %q cannot be signed", ErrControl, Clip(s))
		}
	}
	return []byte(`{"aud":"` + c.Audience + `","challenge":"` + c.Challenge + `","did":"` + c.DID + `"}`), nil
}

// Sign gives key's proof as base64url without padding.
func (c Control) Sign(key Key) (string, error) {
	text, err := c.text()
	if err != nil {
		return "", err
	}
	signature, err := key.SignText(PrefixControl, text)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(signature), nil
}

// Verify checks a proof against one key of the DID. Errors wrap ErrControl.
func (c Control) Verify(public ed25519.PublicKey, signature string) error {
	text, err := c.text()
	if err != nil {
		return err
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	if err != nil || len(signature) != base64.RawURLEncoding.EncodedLen(len(raw)) || !VerifyText(public, PrefixControl, text, raw) { // the library skips line breaks
		return ErrControl
	}
	return nil
}
