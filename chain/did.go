package chain

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multibase"
)

// ErrDID is wrapped by every refusal of a text that should be a did:key of an
// Ed25519 key.
var ErrDID = errors.New("want did:key:z6Mk… of an Ed25519 key")

// ed25519Code is the multicodec of an Ed25519 public key, as a varint.
const ed25519Code = "\xed\x01"

// DIDKey gives the did:key (W3C did:key method) of a public key: a name that is
// the key itself, so that nobody has to be asked what it stands for.
func DIDKey(public ed25519.PublicKey) string {
	text, err := multibase.Encode(multibase.Base58BTC, append([]byte(ed25519Code), public...))
	if err != nil { // of an encoding that the library does not know
		panic("BUG: base58btc: " + err.Error())
	}
	return "did:key:" + text
}

// ParseDIDKey gives the public key that a did:key names. Only its one usual
// spelling is accepted. Errors wrap ErrDID.
func ParseDIDKey(did string) (ed25519.PublicKey, error) {
	text, ok := strings.CutPrefix(did, "did:key:")
	if !ok || len(text) > 64 || !strings.HasPrefix(text, "z") {
		return nil, fmt.Errorf("%w, not %q", ErrDID, Clip(did))
	}
	_, b, err := multibase.Decode(text)
	if err != nil || len(b) != len(ed25519Code)+ed25519.PublicKeySize || string(b[:len(ed25519Code)]) != ed25519Code || DIDKey(b[len(ed25519Code):]) != did {
		return nil, fmt.Errorf("%w, not %q", ErrDID, Clip(did))
	}
	return b[len(ed25519Code):], nil
}

// IsDID reports whether s is a DID as DID core writes them, of any method: at most
// MaxDIDBytes, without path, query or fragment. A did:key has to be one that
// [ParseDIDKey] takes. Whether another stands for anything is not looked at. Everything
// that takes a DID from outside asks here, so that what one part takes no other refuses.
func IsDID(s string) bool {
	if strings.HasPrefix(s, "did:key:") {
		_, err := ParseDIDKey(s)
		return err == nil
	}
	rest, ok := strings.CutPrefix(s, "did:")
	method, id, both := strings.Cut(rest, ":")
	if !ok || !both || method == "" || id == "" || strings.HasSuffix(id, ":") || len(s) > MaxDIDBytes {
		return false
	}
	for i := range len(method) {
		if c := method[i]; c-'a' >= 26 && c-'0' >= 10 {
			return false
		}
	}
	for i := 0; i < len(id); i++ {
		switch c := id[i]; {
		case c-'a' < 26, c-'A' < 26, c-'0' < 10, c == '.', c == '-', c == '_', c == ':':
		case c == '%' && i+2 < len(id) && isHex(id[i+1]) && isHex(id[i+2]):
			i += 2
		default:
			return false
		}
	}
	return true
}

func isHex(c byte) bool { return c-'0' < 10 || c-'a' < 6 || c-'A' < 6 }

// Public gives the Ed25519 key that p is made of. It fails for what is no peer
// ID, and for one of another kind of key.
func (p PeerID) Public() (ed25519.PublicKey, error) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return nil, fmt.Errorf("peer ID %q: %w", Clip(p), err)
	}
	public, err := id.ExtractPublicKey()
	if err != nil || public.Type() != crypto.Ed25519 {
		return nil, fmt.Errorf("peer ID %q holds no Ed25519 key", Clip(p))
	}
	raw, err := public.Raw()
	if err != nil {
		return nil, fmt.Errorf("peer ID %q: %w", Clip(p), err)
	}
	return raw, nil
}

// PeerOfDID gives the peer ID of the same key as a did:key. Errors wrap ErrDID.
func PeerOfDID(did string) (PeerID, error) {
	raw, err := ParseDIDKey(did)
	if err != nil {
		return "", err
	}
	public, err := crypto.UnmarshalEd25519PublicKey(raw)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrDID, err)
	}
	id, err := peer.IDFromPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrDID, err)
	}
	return PeerID(id.String()), nil
}

// DID is the did:key of the same key, "" for what is no peer ID of an Ed25519
// key.
func (p PeerID) DID() string {
	public, err := p.Public()
	if err != nil {
		return ""
	}
	return DIDKey(public)
}
