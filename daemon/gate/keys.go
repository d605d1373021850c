package gate

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/chordwheel/chordwheel/chain/receipt"
)

// ErrKeySet is wrapped by every refusal of bytes that should be a JWKS.
var ErrKeySet = errors.New("want a JWKS with Ed25519 keys")

// Bounds of a JWKS.
const (
	MaxKeySet = 64 << 10 // bytes
	maxKeys   = 16       // Ed25519 keys; each may cost a signature check
)

// Keys finds the trust server's keys. Which server that is was configured; nothing
// in a token has a say in it.
type Keys interface {
	// Keys gives the keys that are named kid exactly, all keys if kid is "", and
	// none if there is none. An error means that nothing is known.
	Keys(ctx context.Context, kid string) ([]ed25519.PublicKey, error)
}

// KeySet is a JWKS (RFC 7517) as it was at one time. It is immutable; the zero
// value has no keys.
type KeySet struct{ keys []namedKey }

type namedKey struct {
	kid string
	key ed25519.PublicKey
}

var _ Keys = KeySet{}

// Keys is as [Keys] has it; it never fails.
func (s KeySet) Keys(_ context.Context, kid string) ([]ed25519.PublicKey, error) {
	var out []ed25519.PublicKey
	for _, k := range s.keys {
		if kid == "" || k.kid == kid {
			out = append(out, k.key)
		}
	}
	return out, nil
}

// Len gives the number of keys.
func (s KeySet) Len() int { return len(s.keys) }

// ParseKeySet reads a JWKS. Keys of other kinds, curves or uses are passed over. The
// whole is refused if two different keys have one kid, if a private key stands in
// it, or if no key is left. Errors wrap [ErrKeySet].
func ParseKeySet(b []byte) (KeySet, error) {
	if len(b) > MaxKeySet {
		return KeySet{}, fmt.Errorf("%w, not %d bytes: at most %d", ErrKeySet, len(b), MaxKeySet)
	}
	if _, err := receipt.Canonical(b); err != nil {
		return KeySet{}, fmt.Errorf("%w: %w", ErrKeySet, err)
	}
	var doc map[string]json.RawMessage
	var list []map[string]json.RawMessage
	if json.Unmarshal(b, &doc) != nil || json.Unmarshal(doc["keys"], &list) != nil {
		return KeySet{}, fmt.Errorf("%w: no keys in it", ErrKeySet)
	}
	var s KeySet
	for i, jwk := range list {
		k, ok, err := keyOf(jwk)
		if err != nil {
			return KeySet{}, fmt.Errorf("%w: key %d: %w", ErrKeySet, i+1, err)
		}
		if !ok {
			continue
		}
		if err := s.add(k); err != nil {
			return KeySet{}, fmt.Errorf("%w: key %d: %w", ErrKeySet, i+1, err)
		}
	}
	if len(s.keys) == 0 {
		return KeySet{}, fmt.Errorf("%w: none of its %d keys is one", ErrKeySet, len(list))
	}
	return s, nil
}

// add appends a key, unless it is there.
func (s *KeySet) add(k namedKey) error {
	for _, other := range s.keys {
		switch {
		case other.kid == k.kid && other.key.Equal(k.key):
			return nil
		case other.kid == k.kid && k.kid != "":
			return errors.New("its kid is another key's too")
		}
	}
	if len(s.keys) == maxKeys {
		return fmt.Errorf("more than %d keys", maxKeys)
	}
	s.keys = append(s.keys, k)
	return nil
}

// keyOf reads one key; ok is false for one of another kind or use.
func keyOf(jwk map[string]json.RawMessage) (k namedKey, ok bool, err error) {
	if _, private := jwk["d"]; private {
		return k, false, errors.New("a private key: whoever published it must replace it")
	}
	kty, _ := text(jwk["kty"])
	crv, _ := text(jwk["crv"])
	use, alg := "sig", "EdDSA"
	if raw, there := jwk["use"]; there {
		use, _ = text(raw)
	}
	if raw, there := jwk["alg"]; there {
		alg, _ = text(raw)
	}
	if kty != "OKP" || crv != "Ed25519" || use != "sig" || alg != "EdDSA" {
		return k, false, nil
	}
	x, _ := text(jwk["x"])
	raw, err := decode(x)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return k, false, errors.New("x is not 32 bytes in base64url")
	}
	if rawKid, there := jwk["kid"]; there {
		if k.kid, ok = text(rawKid); !ok || k.kid == "" || len(k.kid) > maxKid {
			return k, false, errKid
		}
	}
	k.key = raw
	return k, true, nil
}
