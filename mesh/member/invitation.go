package member

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/chordwheel/chordwheel/chain"
)

// What an invitation is worth unless its maker says otherwise.
const (
	DefaultUses = 1
	DefaultTTL  = 24 * time.Hour
)

// Limits of invitations.
const (
	prefix        = "chordwheel1:"
	maxInvitation = 16 << 10 // of text; 32 long addresses take 4 KB
	maxAddresses  = 32
	maxUses       = 1 << 20
	secretBytes   = 32
	sumBytes      = 4
)

// What can be wrong with an invitation. The text of each says what to do.
var (
	ErrNoInvitation = fmt.Errorf("not an invitation: it must begin with %s", prefix)
	ErrNewer        = errors.New("the invitation has a format that this version does not read: update chordwheel")
	ErrCut          = errors.New("the invitation is cut short: copy the whole line")
	ErrDamaged      = errors.New("the invitation is damaged (its checksum does not fit): copy it again")
	ErrOver         = errors.New("the invitation has expired: ask for a new one")
)

// Invitation leads a device to a mesh and proves that it may enrol. Whoever
// holds it can enrol: it is a secret and does not print itself.
type Invitation struct {
	Mesh         chain.MeshID  `cbor:"mesh"`
	Orchestrator chain.PeerID  `cbor:"orchestrator"` // pinned by whoever joins
	Addresses    []string      `cbor:"addresses"`    // multiaddrs without the peer ID
	Scope        chain.ScopeID `cbor:"scope"`
	Secret       []byte        `cbor:"secret"`
	Expires      chain.Instant `cbor:"expires"`
	Uses         int           `cbor:"uses"`
}

// NewSecret makes the secret of one invitation.
func NewSecret() []byte {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // it never fails
	return b
}

// HashSecret is what the hub keeps of a secret: hex of SHA-256 over
// "chordwheel-invitation", a newline and the secret.
func HashSecret(secret []byte) string {
	h := sha256.New()
	h.Write([]byte("chordwheel-invitation\n"))
	h.Write(secret)
	return hex.EncodeToString(h.Sum(nil))
}

// Trust is what a device that accepts i obeys from then on.
func (i Invitation) Trust() chain.Trust {
	return chain.Trust{Mesh: i.Mesh, Orchestrator: i.Orchestrator}
}

// OnlyLoopback reports whether nobody but this machine can reach any of addresses
// (multiaddrs): an invitation with them is of no use anywhere else.
func OnlyLoopback(addresses []string) bool {
	return !slices.ContainsFunc(addresses, func(a string) bool {
		return !slices.ContainsFunc([]string{"/ip4/127.", "/ip6/::1/", "/dns/localhost/", "/dns4/localhost/", "/dns6/localhost/"},
			func(loopback string) bool { return strings.HasPrefix(a, loopback) })
	})
}

// Current reports whether i may still be used at now: nil or ErrOver. The hub
// has the last word.
func (i Invitation) Current(now time.Time) error {
	if chain.InstantOf(now) >= i.Expires {
		return fmt.Errorf("%w (%s)", ErrOver, i.Expires.Time().Format(time.RFC3339))
	}
	return nil
}

// String hides the secret.
func (i Invitation) String() string {
	return fmt.Sprintf("invitation to %s of mesh %s", i.Scope, i.Mesh)
}

// GoString hides the secret from %#v.
func (i Invitation) GoString() string { return i.String() }

// LogValue hides the secret from structured logs.
func (i Invitation) LogValue() slog.Value { return slog.StringValue(i.String()) }

// MarshalText hides the secret from JSON and YAML.
func (i Invitation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// plain is an Invitation that prints and encodes itself.
type plain Invitation

// Encode gives the text of i. Zero Uses become DefaultUses. The error says
// which field is out of range.
func (i Invitation) Encode() (string, error) {
	if i.Uses == 0 {
		i.Uses = DefaultUses
	}
	if err := i.validate(); err != nil {
		return "", fmt.Errorf("encode invitation: %w", err)
	}
	b, err := chain.Marshal(plain(i))
	if err != nil {
		return "", fmt.Errorf("encode invitation: %w", err)
	}
	b = append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
	b = append(b, checksum(b)...)
	return prefix + base64.RawURLEncoding.EncodeToString(b), nil
}

func checksum(b []byte) []byte {
	h := sha256.New()
	h.Write([]byte(prefix))
	h.Write(b)
	return h.Sum(nil)[:sumBytes]
}

// ParseInvitation reads the text of an invitation. White space round it and in
// it (a terminal that broke the line) is passed over. The error is one line that
// says what is wrong and what to do, wraps ErrNoInvitation, ErrNewer, ErrCut,
// ErrDamaged or chain.ErrContent, and holds nothing of s.
func ParseInvitation(s string) (Invitation, error) {
	if len(s) > maxInvitation {
		return Invitation{}, fmt.Errorf("%w, and is at most %d characters", ErrNoInvitation, maxInvitation)
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return Invitation{}, foreign(s)
	}
	if !wellFormed(rest) {
		return Invitation{}, ErrDamaged
	}
	whole := rest
	if len(whole)%4 == 1 { // no text ends like this; what stands before may show that the rest is missing
		whole = whole[:len(whole)-1]
	}
	b, err := base64.RawURLEncoding.DecodeString(whole)
	if err != nil {
		return Invitation{}, ErrDamaged
	}
	return parse(b, base64.RawURLEncoding.EncodeToString(b) != rest)
}

func wellFormed(rest string) bool {
	return !strings.ContainsFunc(rest, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})
}

// parse reads the bytes of an invitation. ragged says that the text was not
// exactly the encoding of b.
func parse(b []byte, ragged bool) (Invitation, error) {
	if len(b) < 2 {
		return Invitation{}, ErrCut
	}
	want := 2 + int(binary.BigEndian.Uint16(b)) + sumBytes
	switch {
	case len(b) < want:
		return Invitation{}, ErrCut
	case len(b) > want || ragged:
		return Invitation{}, ErrDamaged
	}
	body := b[:want-sumBytes]
	if string(checksum(body)) != string(b[want-sumBytes:]) {
		return Invitation{}, ErrDamaged
	}
	var p plain
	if err := chain.Unmarshal(body[2:], &p); err != nil {
		return Invitation{}, fmt.Errorf("invitation: %w", err)
	}
	i := Invitation(p)
	if err := i.validate(); err != nil {
		return Invitation{}, fmt.Errorf("invitation: %w", err)
	}
	return i, nil
}

// foreign tells an invitation of another version from something else.
func foreign(s string) error {
	head, _, found := strings.Cut(s, ":")
	version, ours := strings.CutPrefix(head, "chordwheel")
	if !found && strings.HasPrefix(prefix, s) && s != "" {
		return ErrCut
	}
	if !found || !ours || version == "" || len(version) > 4 || strings.Trim(version, "0123456789") != "" {
		return ErrNoInvitation
	}
	return fmt.Errorf("%w (format %s)", ErrNewer, version)
}

func (i *Invitation) validate() error {
	bad := func(what string) error { return fmt.Errorf("%w: %s", chain.ErrContent, what) }
	if peer, err := chain.ParsePeerID(string(i.Orchestrator)); err != nil || peer != i.Orchestrator {
		return bad("the orchestrator's peer ID")
	}
	if _, err := chain.ParseScope(string(i.Scope)); err != nil {
		return fmt.Errorf("%w: %w", chain.ErrContent, err)
	}
	switch {
	case !text(string(i.Mesh), 1, 64):
		return bad("mesh ID")
	case len(i.Addresses) == 0 || len(i.Addresses) > maxAddresses:
		return bad("it needs 1 to 32 addresses")
	case len(i.Secret) < 16 || len(i.Secret) > 64:
		return bad("the secret's length")
	case i.Expires <= 0:
		return bad("time of expiry")
	case i.Uses < 1 || i.Uses > maxUses:
		return bad("uses")
	}
	for _, a := range i.Addresses {
		if !text(a, 1, 256) {
			return bad("an address")
		}
	}
	return nil
}
