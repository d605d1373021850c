package chain

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/record"
)

// Domain separates signatures: one made in one domain means nothing in another.
type Domain string

// The domains. One kind of object each.
const (
	DomainChain       Domain = "chordwheel-chain"
	DomainMembership  Domain = "chordwheel-membership"
	DomainRevocation  Domain = "chordwheel-revocation"
	DomainExtension   Domain = "chordwheel-extension"
	DomainExecRequest Domain = "chordwheel-exec-request"
	DomainExecResult  Domain = "chordwheel-exec-result"
)

// Errors of signed envelopes. They are refusals: whoever sent the bytes is to
// blame, and nothing of them may be kept.
var (
	ErrSignature = errors.New("the signature does not fit the bytes")
	ErrSigner    = errors.New("signed by another key than the pinned one")
	ErrDomain    = errors.New("signed for another purpose")
)

// MaxEnvelopeBytes bounds a signed envelope of any kind.
const MaxEnvelopeBytes = 64 << 10

var errNoKey = errors.New("no identity key")

// Key is the identity of a node: an Ed25519 key. The zero value signs nothing
// and is nobody.
type Key struct {
	private crypto.PrivKey
	names   *names // what others call it
}

// names are made once for a key: they are asked for with each request.
type names struct {
	peerID PeerID
	did    string
}

// NewKey makes a key from random, or from the system's source if random is nil.
func NewKey(random io.Reader) (Key, error) {
	if random == nil {
		random = rand.Reader
	}
	private, _, err := crypto.GenerateEd25519Key(random)
	if err != nil {
		return Key{}, fmt.Errorf("make an identity key: %w", err)
	}
	return keyOf(private), nil
}

// ParseKey reads what [Key.Bytes] wrote. The error holds nothing of b.
func ParseKey(b []byte) (Key, error) {
	private, err := crypto.UnmarshalPrivateKey(b)
	if err != nil || private.Type() != crypto.Ed25519 {
		return Key{}, errors.New("not an Ed25519 key in the libp2p form")
	}
	return keyOf(private), nil
}

// Bytes gives the key in the libp2p protobuf form: a secret.
func (k Key) Bytes() ([]byte, error) {
	if k.private == nil {
		return nil, errNoKey
	}
	return crypto.MarshalPrivateKey(k.private)
}

// Private gives the key to the host, the only other place that signs with it.
func (k Key) Private() crypto.PrivKey { return k.private }

func keyOf(private crypto.PrivKey) Key {
	id, err := peer.IDFromPrivateKey(private)
	if err != nil {
		panic("BUG: an Ed25519 key has a peer ID: " + err.Error())
	}
	p := PeerID(id.String())
	return Key{private, &names{p, p.DID()}}
}

// PeerID is the identity that others see; "" for the zero value.
func (k Key) PeerID() PeerID {
	if k.names == nil {
		return ""
	}
	return k.names.peerID
}

// DID is the did:key of the same key; "" for the zero value.
func (k Key) DID() string {
	if k.names == nil {
		return ""
	}
	return k.names.did
}

// String keeps the secret out of logs and errors.
func (k Key) String() string { return "***" }

// sealed is a payload on its way into or out of an envelope.
type sealed struct {
	domain  Domain
	payload []byte
}

func (s *sealed) Domain() string                 { return string(s.domain) }
func (s *sealed) Codec() []byte                  { return []byte("/" + string(s.domain)) }
func (s *sealed) MarshalRecord() ([]byte, error) { return s.payload, nil }
func (s *sealed) UnmarshalRecord(b []byte) error { s.payload = b; return nil }

// Seal signs payload in domain d. The envelope's payload type is "/" and the
// domain's name.
func (k Key) Seal(d Domain, payload []byte) ([]byte, error) {
	if k.private == nil {
		return nil, fmt.Errorf("sign for %s: %w", d, errNoKey)
	}
	envelope, err := record.Seal(&sealed{d, payload}, k.private)
	if err != nil {
		return nil, fmt.Errorf("sign for %s: %w", d, err)
	}
	return envelope.Marshal()
}

// Open checks an envelope's form, key, payload type, and signature in a domain, and
// returns who signed it and what. Whether that signer may say so is the caller's
// question. Errors wrap ErrEncoding, ErrSigner, ErrDomain or ErrSignature, in
// that order: what is cheap to refuse is refused before a signature is checked.
func Open(d Domain, envelope []byte) (PeerID, []byte, error) {
	plain, err := parseEnvelope(envelope)
	if err != nil {
		return "", nil, err
	}
	if plain.PublicKey.Type() != crypto.Ed25519 {
		return "", nil, fmt.Errorf("%w: not an Ed25519 key", ErrSigner)
	}
	// The library signs over the domain, but never compares the payload type.
	// Here each domain has one type: comparing it first tells an object of
	// another kind from a false signature.
	opened := &sealed{domain: d}
	if !bytes.Equal(plain.PayloadType, opened.Codec()) {
		return "", nil, fmt.Errorf("%w: want %s", ErrDomain, d)
	}
	if _, err := record.ConsumeTypedEnvelope(envelope, opened); err != nil {
		return "", nil, ErrSignature
	}
	id, err := peer.IDFromPublicKey(plain.PublicKey)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrSigner, err)
	}
	return PeerID(id.String()), opened.payload, nil
}

// parseEnvelope reads an envelope whose bytes are the ones that we would write
// ourselves. Protobuf accepts unknown fields and several encodings of one
// message; only one form has one hash.
func parseEnvelope(b []byte) (*record.Envelope, error) {
	if len(b) > MaxEnvelopeBytes {
		return nil, fmt.Errorf("%w: envelope of %d bytes, at most %d", ErrEncoding, len(b), MaxEnvelopeBytes)
	}
	e, err := record.UnmarshalEnvelope(b)
	if err != nil {
		return nil, fmt.Errorf("%w: envelope", ErrEncoding)
	}
	if again, err := e.Marshal(); err != nil || !bytes.Equal(again, b) {
		return nil, fmt.Errorf("%w: envelope has other bytes than its content", ErrEncoding)
	}
	return e, nil
}
