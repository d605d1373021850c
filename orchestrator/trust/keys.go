package trust

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Overlap is how long a key stays published after another took its place: longer
// than a token lives, with room for clocks.
const Overlap = time.Hour

// maxPublished bounds a JWKS; rotating faster than that drops the oldest keys.
const maxPublished = 8

// DeriveKey gives the n-th key for tokens of a hub, from its identity: a hub that
// was restored from its identity alone signs with the same keys again. Rotating is
// counting n up.
func DeriveKey(identity chain.Key, n uint32) (ed25519.PrivateKey, error) {
	secret, err := identity.Bytes()
	if err != nil {
		return nil, fmt.Errorf("derive a key for tokens: %w", err)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, fmt.Sprintf("chordwheel-trust-v1\n%d", n), ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive a key for tokens: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// Ring holds the keys of a trust server: one signs, those before it stay published
// for [Overlap]. Its methods may be called at once from several goroutines.
type Ring struct {
	mu   sync.Mutex
	keys []ringKey // the one that signs first
}

type ringKey struct {
	private ed25519.PrivateKey
	kid     string
	until   time.Time // zero for the one that signs
}

// NewRing makes a ring with one key.
func NewRing(key ed25519.PrivateKey) *Ring {
	return &Ring{keys: []ringKey{{private: key, kid: Thumbprint(public(key))}}}
}

// Rotate makes next the key that signs. Rotating to the key that signs already does
// nothing.
func (r *Ring) Rotate(next ed25519.PrivateKey, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kid := Thumbprint(public(next))
	if r.keys[0].kid == kid {
		return
	}
	r.keys[0].until = now.Add(Overlap)
	keys := []ringKey{{private: next, kid: kid}}
	for _, k := range r.keys {
		if k.kid != kid && now.Before(k.until) && len(keys) < maxPublished {
			keys = append(keys, k)
		}
	}
	r.keys = keys
}

// sign makes a token of claims.
func (r *Ring) sign(claims []byte) string {
	r.mu.Lock()
	key := r.keys[0]
	r.mu.Unlock()
	header := `{"alg":"EdDSA","kid":"` + key.kid + `","typ":"JWT"}` // a thumbprint is base64url
	signed := b64([]byte(header)) + "." + b64(claims)
	return signed + "." + b64(ed25519.Sign(key.private, []byte(signed)))
}

type jwk struct {
	KTY string `json:"kty"`
	CRV string `json:"crv"`
	X   string `json:"x"`
	KID string `json:"kid"`
	Use string `json:"use"`
	Alg string `json:"alg"`
}

// published gives the keys of the JWKS.
func (r *Ring) published(now time.Time) []jwk {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []jwk
	for _, k := range r.keys {
		if k.until.IsZero() || now.Before(k.until) {
			out = append(out, jwk{"OKP", "Ed25519", b64(public(k.private)), k.kid, "sig", "EdDSA"})
		}
	}
	return out
}

// Thumbprint is the JWK thumbprint of a key (RFC 7638 with RFC 8037).
func Thumbprint(key ed25519.PublicKey) string {
	text, err := json.Marshal(struct {
		CRV string `json:"crv"`
		KTY string `json:"kty"`
		X   string `json:"x"`
	}{"Ed25519", "OKP", b64(key)})
	if err != nil {
		panic("BUG: three texts are JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return b64(sum[:])
}

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
