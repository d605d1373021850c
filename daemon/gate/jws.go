package gate

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/chordwheel/chordwheel/chain/nesting"
	"github.com/chordwheel/chordwheel/chain/receipt"
)

// Bounds of a token.
const (
	MaxToken = 8 << 10 // bytes
	maxDepth = 8       // of nesting, in header and claims
	maxKid   = 256     // bytes
	maxClaim = 512     // bytes of a text that is compared
	maxID    = 128     // bytes of jti
)

// jws is a token whose form holds. Nothing in it is to be believed yet.
type jws struct {
	kid       string // "" without one
	payload   []byte
	signed    string // what the signature is over
	signature []byte
}

// parse takes a token apart. It is the only parser of tokens: nothing that it
// refuses ever reaches a signature check.
func parse(token string) (jws, error) {
	if len(token) > MaxToken {
		return jws{}, errLong
	}
	if strings.Count(token, ".") != 2 {
		return jws{}, errParts
	}
	parts := strings.Split(token, ".")
	var raw [3][]byte
	for i, part := range parts {
		b, err := decode(part)
		if err != nil {
			return jws{}, err
		}
		raw[i] = b
	}
	if len(raw[2]) != ed25519.SignatureSize {
		return jws{}, errSigLength
	}
	kid, err := header(raw[0])
	if err != nil {
		return jws{}, err
	}
	return jws{kid: kid, payload: raw[1], signed: token[:len(parts[0])+1+len(parts[1])], signature: raw[2]}, nil
}

// decode reads one part. The library skips line breaks, so the alphabet comes
// first; it is strict about the bits that a last character leaves over.
func decode(part string) ([]byte, error) {
	if part == "" {
		return nil, errEmptyPart
	}
	for _, c := range []byte(part) {
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return nil, errAlphabet
		}
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return nil, errBase64
	}
	return b, nil
}

// header checks a header and gives its kid.
func header(b []byte) (kid string, err error) {
	h, err := object(b, errHeaderJSON, errHeaderDeep, errHeaderKind)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"crit", "b64", "zip", "jku", "jwk", "x5u", "x5c"} {
		if _, there := h[name]; there {
			return "", errForbidden[name]
		}
	}
	alg, there := h["alg"]
	if !there {
		return "", errAlgMissing
	}
	if s, ok := text(alg); !ok || s != "EdDSA" {
		return "", errAlg
	}
	if typ, there := h["typ"]; there {
		if s, ok := text(typ); !ok || s != "JWT" {
			return "", errTyp
		}
	}
	if raw, there := h["kid"]; there {
		var ok bool
		if kid, ok = text(raw); !ok || kid == "" || len(kid) > maxKid {
			return "", errKid
		}
	}
	return kid, nil
}

// object reads a JSON object whose names are unique at every depth. Names are
// looked up in a map, because the library would match a struct's in any case.
func object(b []byte, notJSON, tooDeep, otherKind *Denial) (map[string]json.RawMessage, error) {
	if nesting.Depth(b) > maxDepth {
		return nil, tooDeep
	}
	if _, err := receipt.Canonical(b); err != nil {
		return nil, notJSON
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(b, &members) != nil || members == nil {
		return nil, otherKind
	}
	return members, nil
}

// text reads a JSON text, and nothing that is none.
func text(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}
