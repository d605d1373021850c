package gate

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Mode is what becomes of a denial.
type Mode string

// Modes. Both verify in the same way and give the same verdicts.
const (
	Observe Mode = "observe" // a denial is logged, and the work goes on
	Enforce Mode = "enforce" // a denial ends the work
)

// ParseMode reads GATE_MODE. Anything but the two words is an error: a misspelt
// enforce must not become an observe.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Observe, Enforce:
		return m, nil
	}
	return "", fmt.Errorf("gate mode %q: want observe or enforce", chain.Clip(s))
}

// Verifier checks tokens of one trust server. It holds no state, and its methods may
// be called at once from several goroutines.
type Verifier struct {
	Keys   Keys
	Issuer func(iss string) bool // whether a token may be of this issuer; nil: of any that signs with one of Keys
}

// Exactly gives the [Verifier.Issuer] that takes one issuer, byte for byte; nil for "".
func Exactly(issuer string) func(iss string) bool {
	if issuer == "" {
		return nil
	}
	return func(iss string) bool { return iss == issuer }
}

// Verify checks form, signature, times, issuer, audience and capability of a token,
// in that order. What a token says is believed only once its signature holds:
// claims come with a denial too if it did, for the log. The error is a [*Denial].
func (v Verifier) Verify(ctx context.Context, now time.Time, token chain.Secret, audience, capability string) (Claims, error) {
	p, err := v.prove(ctx, token)
	if err != nil {
		return Claims{}, err
	}
	return p.claims, v.holds(p.claims, now, audience, capability)
}

// proof is a token whose form and signature hold: neither changes with time.
type proof struct {
	claims Claims
	kid    string
	key    ed25519.PublicKey // that signed it
}

func (v Verifier) prove(ctx context.Context, token chain.Secret) (proof, error) {
	if token == "" {
		return proof{}, errMissing
	}
	t, err := parse(token.Reveal())
	if err != nil {
		return proof{}, err
	}
	p := proof{kid: t.kid}
	if p.key, err = v.signature(ctx, t); err != nil {
		return proof{}, err
	}
	p.claims, err = claimsOf(t.payload)
	return p, err
}

// known reports whether the key that signed p is still one of the trust server's.
func (v Verifier) known(ctx context.Context, p proof) bool {
	keys, err := v.Keys.Keys(ctx, p.kid)
	return err == nil && slices.ContainsFunc(keys, func(k ed25519.PublicKey) bool { return bytes.Equal(k, p.key) })
}

// holds checks what may be different the next time.
func (v Verifier) holds(c Claims, now time.Time, audience, capability string) error {
	if err := c.inForce(now); err != nil {
		return err
	}
	switch {
	case v.Issuer != nil && !v.Issuer(c.Issuer):
		return ErrIssuer
	case c.Audience != audience:
		return errOtherAud
	case c.Capability != capability:
		return errOtherCap
	}
	return nil
}

// signature gives the key that signed t.
func (v Verifier) signature(ctx context.Context, t jws) (ed25519.PublicKey, error) {
	if v.Keys == nil {
		return nil, errKeys
	}
	keys, err := v.Keys.Keys(ctx, t.kid)
	if err != nil {
		return nil, errKeys
	}
	if len(keys) == 0 {
		return nil, errUnknownKey
	}
	for _, key := range keys {
		if len(key) == ed25519.PublicKeySize && ed25519.Verify(key, []byte(t.signed), t.signature) {
			return key, nil
		}
	}
	return nil, errSignature
}

// Read gives what a token says, without any check of who signed it and when. It is
// for showing a token to a person; the error is a [*Denial].
func Read(token chain.Secret) (Claims, error) {
	t, err := parse(token.Reveal())
	if err != nil {
		return Claims{}, err
	}
	return claimsOf(t.payload)
}

// Standing is how an agent stands in the registry's snapshot.
type Standing string

// Standings.
const (
	Active    Standing = "active"
	Suspended Standing = "suspended"
	Unknown   Standing = "unknown" // not listed, or deregistered
	Missing   Standing = "missing" // there is no snapshot
	Stale     Standing = "stale"   // the snapshot is too old to say
)

// Agents tells how agents stand. It answers from memory, at each call anew: a
// standing that was looked up before may be wrong by now.
type Agents interface {
	Standing(agent, capability string, now time.Time) Standing
}

// Request is a piece of work at the gate.
type Request struct {
	Token      chain.Secret // "" without one
	Agent      string       // DID of who is to run it
	Capability string

	// From is the peer that handed the work on, "" for an agent that is called over
	// HTTP. With it the token has to be bound to that peer's key, and to come with a
	// nonce that it did not come with before.
	From  chain.PeerID
	Nonce string
}

// Decision is a verdict and what becomes of it.
type Decision struct {
	Mode    Mode
	Denial  *Denial // nil: allowed
	TokenID string  // jti of a token whose signature holds, else ""
	Subject string  // sub of the same
}

// Allowed gives the verdict, which does not depend on the mode.
func (d Decision) Allowed() bool { return d.Denial == nil }

// Err is nil if the work may go on, else the [*Denial].
func (d Decision) Err() error {
	if d.Denial == nil || d.Mode == Observe {
		return nil
	}
	return d.Denial
}

// Word is the verdict as logs and receipts have it: allow or deny.
func (d Decision) Word() string {
	if d.Allowed() {
		return "allow"
	}
	return "deny"
}

// LogValue has the fields of a log line: the verdict, the token's ID, and of a
// denial code and reason.
func (d Decision) LogValue() slog.Value {
	fields := []slog.Attr{slog.String("gate_decision", d.Word()), slog.String("gate_mode", string(d.Mode)), slog.String("token_id", d.TokenID)}
	if d.Denial != nil {
		fields = append(fields, slog.String("gate_code", string(d.Denial.Code)), slog.String("gate_reason", d.Denial.Reason))
	}
	return slog.GroupValue(fields...)
}

// Gate decides. Its methods may be called at once from several goroutines.
type Gate struct {
	mode     Mode
	verifier Verifier
	agents   Agents
	seen     *window
	proofs   proofs
}

// New makes a gate; agents must not be nil.
func New(mode Mode, verifier Verifier, agents Agents) (*Gate, error) {
	if _, err := ParseMode(string(mode)); err != nil {
		return nil, err
	}
	if agents == nil {
		return nil, errors.New("a gate needs somebody who knows how agents stand")
	}
	return &Gate{mode: mode, verifier: verifier, agents: agents, seen: newWindow(maxSeen, maxSeenOfPeer)}, nil
}

// Mode gives the gate's mode.
func (g *Gate) Mode() Mode { return g.mode }

// Decide verifies the request's token and gives the decision. It waits for
// nothing but keys that are not known yet. A nonce counts as used only when all
// else holds, so that nobody can use up another's.
func (g *Gate) Decide(ctx context.Context, now time.Time, r Request) Decision {
	claims, err := g.decide(ctx, now, r)
	d := Decision{Mode: g.mode, TokenID: claims.ID, Subject: claims.Subject}
	if err != nil && !errors.As(err, &d.Denial) {
		panic("BUG: a denial of another type: " + err.Error())
	}
	return d
}

func (g *Gate) decide(ctx context.Context, now time.Time, r Request) (Claims, error) {
	p, err := g.proof(ctx, r.Token)
	if err != nil {
		return Claims{}, err
	}
	claims := p.claims
	if err := g.verifier.holds(claims, now, r.Agent, r.Capability); err != nil {
		return claims, err
	}
	switch g.agents.Standing(r.Agent, r.Capability, now) {
	case Active:
	case Suspended:
		return claims, errSuspended
	case Missing:
		return claims, errNoSnapshot
	case Stale:
		return claims, errStale
	default:
		return claims, errNoAgent
	}
	if r.From == "" {
		return claims, nil
	}
	return claims, g.bound(claims, now, r)
}

// bound checks what peers want beyond that: proof of possession came with the
// stream, whose remote end is From.
func (g *Gate) bound(c Claims, now time.Time, r Request) error {
	switch {
	case c.Confirmation == "":
		return errNoConfirm
	case c.Confirmation != r.From.DID():
		return errOtherPeer
	case r.Nonce == "":
		return errNoNonce
	}
	return g.seen.use(r.From, c.ID, r.Nonce, c.Expires.Add(afterwards), now)
}
