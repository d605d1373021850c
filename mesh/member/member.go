// Package member owns who belongs to a mesh: memberships, the invitations that
// lead to them and the list that ends them. It issues and verifies, and is pure:
// it knows no network, no disk and no clock; the time comes in. Who may be
// invited, and which capabilities a device is given, is the hub's decision.
//
// # Bytes
//
// A membership and a revocation list are libp2p signed envelopes of
// deterministic CBOR (package chain), each in its own domain. An invitation is
// text: "chordwheel1:" and base64url without padding of
//
//	length of the CBOR, 2 bytes, big endian
//	CBOR {mesh, orchestrator, addresses, scope, secret, expires, uses}
//	the first 4 bytes of SHA-256 over all that stands before, prefix included
//
// The layouts stand in docs/wire.md; testdata holds vectors.
package member

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/chordwheel/chordwheel/chain"
)

// Lifetime is how long a membership lasts. Devices renew it daily, so that one
// that was offline for a week is still a member when it returns.
const Lifetime = 8 * 24 * time.Hour

// RenewAfter is the age at which a device asks for a new membership.
const RenewAfter = 24 * time.Hour

// Caps on foreign memberships, far above what a device needs.
const (
	maxScopes  = 64
	maxGranted = 256
	maxPattern = 128
	maxName    = 256
	maxBytes   = 16 << 10
)

// Refusals beside those of package chain. Verify and Check say which holds.
var (
	ErrPeer    = errors.New("the membership is of another peer")
	ErrScope   = errors.New("the membership does not cover that scope")
	ErrRevoked = errors.New("the membership was revoked")
)

// Pattern grants capabilities: those that [chain.Match] it.
type Pattern string

// Matches reports whether c fits p.
func (p Pattern) Matches(c chain.Capability) bool { return chain.Match(string(p), string(c)) }

// Everything is the pattern that grants all a device declares: the default.
const Everything Pattern = "*"

// Membership says that a device belongs to a mesh, signed by its orchestrator.
type Membership struct {
	Mesh     chain.MeshID    `cbor:"mesh" json:"mesh"`
	DeviceID chain.DeviceID  `cbor:"device_id" json:"device_id"`
	Peer     chain.PeerID    `cbor:"peer" json:"peer_id"`
	Name     string          `cbor:"name" json:"name"`
	Scopes   []chain.ScopeID `cbor:"scopes" json:"scopes"`
	Granted  []Pattern       `cbor:"granted" json:"granted"`
	Issued   chain.Instant   `cbor:"issued" json:"issued"`
	Expires  chain.Instant   `cbor:"expires" json:"expires"`
	Serial   uint64          `cbor:"serial" json:"serial"`
}

// Issue signs m with the orchestrator's key. A zero Expires becomes Issued +
// Lifetime, empty Granted becomes Everything. The error says which field is
// out of range.
func Issue(key chain.Key, m Membership) ([]byte, error) {
	if m.Expires == 0 {
		m.Expires = m.Issued + chain.Instant(Lifetime/time.Millisecond)
	}
	if len(m.Granted) == 0 {
		m.Granted = []Pattern{Everything}
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("issue membership: %w", err)
	}
	payload, err := chain.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("issue membership: %w", err)
	}
	envelope, err := key.Seal(chain.DomainMembership, payload)
	if err == nil && len(envelope) > maxBytes {
		err = fmt.Errorf("%w: %d bytes, at most %d", chain.ErrContent, len(envelope), maxBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("issue membership: %w", err)
	}
	return envelope, nil
}

// Verify opens a membership. The error wraps one refusal of package chain:
// ErrEncoding, ErrSignature, ErrDomain, ErrSigner, ErrMesh, ErrContent, ErrFuture
// or ErrExpired. Whether it is the right one for a peer and a scope is
// [Membership.Check]'s question.
func Verify(trust chain.Trust, envelope []byte, now time.Time) (Membership, error) {
	m, err := verify(trust, envelope, now)
	if err != nil {
		return Membership{}, fmt.Errorf("membership refused: %w", err)
	}
	return m, nil
}

func verify(trust chain.Trust, envelope []byte, now time.Time) (Membership, error) {
	if len(envelope) > maxBytes {
		return Membership{}, fmt.Errorf("%w: %d bytes, at most %d", chain.ErrContent, len(envelope), maxBytes)
	}
	payload, err := trust.Open(chain.DomainMembership, envelope)
	if err != nil {
		return Membership{}, err
	}
	var m Membership
	if err := chain.Unmarshal(payload, &m); err != nil {
		return Membership{}, err
	}
	if m.Mesh != trust.Mesh {
		return Membership{}, chain.ErrMesh
	}
	if err := m.validate(); err != nil {
		return Membership{}, err
	}
	return m, m.Current(now)
}

// Current reports whether m holds at now: nil, chain.ErrFuture or
// chain.ErrExpired. It serves those who keep a verified membership for long.
func (m *Membership) Current(now time.Time) error {
	switch {
	case m.Issued > chain.InstantOf(now.Add(chain.Leeway)):
		return chain.ErrFuture
	case chain.InstantOf(now) >= m.Expires:
		return chain.ErrExpired
	}
	return nil
}

func (m *Membership) validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{chain.ErrContent}, args...)...)
	}
	if peer, err := chain.ParsePeerID(string(m.Peer)); err != nil || peer != m.Peer {
		return bad("peer ID")
	}
	switch {
	case !text(string(m.Mesh), 1, 64):
		return bad("mesh ID")
	case !text(string(m.DeviceID), 1, 64):
		return bad("device ID")
	case !text(m.Name, 0, maxName):
		return bad("name")
	case len(m.Scopes) == 0 || len(m.Scopes) > maxScopes:
		return bad("%d scopes, want 1 to %d", len(m.Scopes), maxScopes)
	case len(m.Granted) == 0 || len(m.Granted) > maxGranted:
		return bad("%d granted patterns, want 1 to %d", len(m.Granted), maxGranted)
	case m.Issued <= 0 || m.Expires <= m.Issued || m.Expires-m.Issued > chain.Instant(Lifetime/time.Millisecond):
		return bad("times out of order, or over %s apart", Lifetime)
	}
	for _, s := range m.Scopes {
		if _, err := chain.ParseScope(string(s)); err != nil {
			return bad("%w", err)
		}
	}
	for _, p := range m.Granted {
		if !text(string(p), 1, maxPattern) {
			return bad("a granted pattern")
		}
	}
	return nil
}

// Check says whether m lets peer act in scope, given the revocations known:
// nil, or ErrPeer, ErrScope or ErrRevoked. revoked may be nil.
func (m *Membership) Check(peer chain.PeerID, scope chain.ScopeID, revoked *Revocations) error {
	switch {
	case m.Peer != peer:
		return ErrPeer
	case !slices.Contains(m.Scopes, scope):
		return fmt.Errorf("%w: %s", ErrScope, scope)
	case revoked.Ends(m):
		return ErrRevoked
	}
	return nil
}

// Counts gives the capabilities that a device with m counts as having: what it
// declared and was granted, in its own order.
func (m *Membership) Counts(declared []chain.Capability) []chain.Capability {
	var counts []chain.Capability
	for _, c := range declared {
		if m.Allows(c) {
			counts = append(counts, c)
		}
	}
	return counts
}

// Allows reports whether m grants c to a device that declares it.
func (m *Membership) Allows(c chain.Capability) bool {
	return slices.ContainsFunc(m.Granted, func(p Pattern) bool { return p.Matches(c) })
}

// text reports whether s is least to most bytes that a terminal can show.
func text(s string, least, most int) bool {
	return len(s) >= least && len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
