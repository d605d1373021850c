package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/orchestrator/fleet"
)

// Classes of errors that whoever asked can mend. Their own text does not show:
// an error of these classes says what was wrong and nothing else.
var (
	ErrAsked   = errors.New("the question cannot be answered") // a wrong scope, an unknown device
	ErrNothing = errors.New("there is no such thing")          // of ErrAsked: what is asked for is not there
)

// asked is an error for whoever asked.
type asked struct {
	error
	nothing bool
}

func (a asked) Is(target error) bool { return target == ErrAsked || target == ErrNothing && a.nothing }
func (a asked) Unwrap() error        { return a.error }

func wrong(format string, args ...any) error { return asked{fmt.Errorf(format, args...), false} }

func nothing(message string) error { return asked{errors.New(message), true} }

// Limits of invitations.
const (
	maxInvitations = 4096
	maxUses        = 10_000
	maxTTL         = 366 * 24 * time.Hour
)

// Invite asks for an invitation. Zero values mean: one use, 24 hours, every
// capability that the device declares.
type Invite struct {
	Scope chain.ScopeID
	Uses  int
	TTL   time.Duration
	Grant []member.Pattern
}

// Invited is a new invitation. Text is a secret: the hub keeps a hash of it only.
type Invited struct {
	Text     string           `json:"invitation"`
	Scope    chain.ScopeID    `json:"scope"`
	Uses     int              `json:"uses"`
	Expires  time.Time        `json:"expires"`
	Grant    []member.Pattern `json:"grant"`
	Warnings []string         `json:"warnings,omitempty"` // what would keep it from working as meant
}

// Invite makes an invitation to a scope. Errors that wrap ErrAsked say what was wrong
// with the question.
func (h *Hub) Invite(ctx context.Context, q Invite) (Invited, error) {
	if q.Scope == "" {
		q.Scope = chain.DefaultScope
	}
	if q.Uses == 0 {
		q.Uses = member.DefaultUses
	}
	if q.TTL == 0 {
		q.TTL = member.DefaultTTL
	}
	if len(q.Grant) == 0 {
		q.Grant = []member.Pattern{member.Everything}
	}
	if err := q.check(); err != nil {
		return Invited{}, err
	}
	addrs := h.cfg.Addrs()
	if len(addrs) == 0 {
		return Invited{}, wrong("the hub listens on no address that a device could reach: set --listen")
	}
	return ask(ctx, h, func() (Invited, error) {
		made, err := h.invite(q, addrs)
		h.note(Operation{Direction: "out", Kind: "invitation", Detail: string(q.Scope)}, err)
		return made, err
	})
}

func (q *Invite) check() error {
	if _, err := chain.ParseScope(string(q.Scope)); err != nil {
		return wrong("%w", err)
	}
	if q.Scope.Base() != q.Scope {
		return wrong("scope %q: devices join a scope as a whole: leave out what follows the semicolon", chain.Clip(q.Scope))
	}
	switch {
	case q.Uses < 1 || q.Uses > maxUses:
		return wrong("uses must be 1 to %d", maxUses)
	case q.TTL < time.Minute || q.TTL > maxTTL:
		return wrong("an invitation lasts from a minute to a year")
	case len(q.Grant) > 64:
		return wrong("at most 64 grants")
	}
	for _, g := range q.Grant {
		if g == "" || len(g) > 128 || strings.ContainsFunc(string(g), func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return wrong("grant %q: want a capability or a pattern, such as execute:*", g)
		}
	}
	return nil
}

func (h *Hub) invite(q Invite, addrs []string) (Invited, error) {
	now := time.Now()
	if err := h.forgetInvitations(now); err != nil {
		return Invited{}, err
	}
	if len(h.invitations) >= maxInvitations {
		return Invited{}, wrong("%d invitations are open: let some expire first", maxInvitations)
	}
	i := invitation{Scope: q.Scope, Grant: q.Grant, Uses: q.Uses, Made: chain.InstantOf(now), Expires: chain.InstantOf(now.Add(q.TTL))}
	secret := member.NewSecret()
	text, err := member.Invitation{Mesh: h.cfg.Mesh, Orchestrator: h.PeerID(), Addresses: addrs[:min(len(addrs), 32)], Scope: q.Scope, Secret: secret,
		Expires: i.Expires, Uses: q.Uses}.Encode()
	if err != nil {
		return Invited{}, err
	}
	hash := member.HashSecret(secret)
	if err := put(h.cfg.Storage.Bucket(bucketInvitations), hash, i); err != nil {
		return Invited{}, err
	}
	h.invitations[hash] = i
	made := Invited{Text: text, Scope: q.Scope, Uses: q.Uses, Expires: i.Expires.Time(), Grant: q.Grant}
	if member.OnlyLoopback(addrs) {
		made.Warnings = append(made.Warnings, "the hub listens on loopback only: devices on other machines cannot reach it; start it with --listen or --lan")
	}
	if _, known := h.catalogue.Workspace(q.Scope); !known {
		made.Warnings = append(made.Warnings, string(q.Scope)+" is not in the catalogue: the defaults will hold for it")
	}
	return made, nil
}

// valid gives the invitation of that hash if it may be used for scope now.
func (h *Hub) valid(hash string, scope chain.ScopeID, now time.Time) (i invitation, err error) {
	i, ok := h.invitations[hash]
	switch {
	case !ok:
		return i, spoke.Refuse(spoke.CodeInvitation, "the invitation is not known here, or was used up: ask for a new one")
	case chain.InstantOf(now) >= i.Expires:
		return i, spoke.Refuse(spoke.CodeInvitation, "the invitation expired at %s: ask for a new one", i.Expires.Time().Format(time.RFC3339))
	case i.Scope != scope:
		return i, spoke.Refuse(spoke.CodeInvitation, "the invitation is for another scope")
	}
	return i, nil
}

// forgetInvitations drops those that are over.
func (h *Hub) forgetInvitations(now time.Time) error {
	for hash, i := range h.invitations {
		if chain.InstantOf(now) >= i.Expires {
			if err := h.cfg.Storage.Bucket(bucketInvitations).Delete(hash); err != nil {
				return err
			}
			delete(h.invitations, hash)
		}
	}
	return nil
}

// spend takes one use of an invitation, durably.
func (h *Hub) spend(hash string, i invitation) error {
	b := h.cfg.Storage.Bucket(bucketInvitations)
	if i.Uses--; i.Uses <= 0 {
		if err := b.Delete(hash); err != nil {
			return err
		}
		delete(h.invitations, hash)
		return nil
	}
	if err := put(b, hash, i); err != nil {
		return err
	}
	h.invitations[hash] = i
	return nil
}

// Revoke ends the membership of a device, named by its peer ID, device ID or
// name: for its own visits at once, for its peers as the signed list spreads.
// The scopes it was in get new topic keys.
func (h *Hub) Revoke(ctx context.Context, who string) (chain.PeerID, error) {
	return ask(ctx, h, func() (chain.PeerID, error) {
		d := h.fleet.Find(who)
		switch {
		case d == nil:
			return "", wrong("no device, or more than one, is called %q: give its peer ID", chain.Clip(who))
		case d.Revoked != 0:
			return d.Peer, nil
		}
		return d.Peer, h.revoke(d, "revoked by the owner")
	})
}

func (h *Hub) revoke(have *fleet.Device, why string) error {
	now := time.Now()
	list, err := h.revoked.Add(have.Peer, now)
	if err != nil {
		return wrong("%w", err)
	}
	list.Mesh = h.cfg.Mesh
	list.Seq = max(list.Seq, uint64(max(now.UnixMilli(), 1))) // above what an older copy of our data forgot
	signed, err := member.Revoke(h.cfg.Key, list)
	if err != nil {
		return err
	}
	if err := h.cfg.Storage.Files.WriteChecked(revocationsFile, signed); err != nil {
		return fmt.Errorf("keep the revocation list: %w", err)
	}
	h.revoked, h.revokedBytes = &list, signed
	d := *have
	d.Revoked, d.Earlier = chain.InstantOf(now), nil
	if err := h.keepDevice(&d); err != nil {
		return err
	}
	h.book.Forget(d.Peer)
	h.sizes.Forget(d.Peer)
	h.changed()
	if err := h.rotateTopics(d.Scopes, now); err != nil {
		return err
	}
	h.outbox.revoked(signed, d.Peer)
	h.note(Operation{Direction: "out", Kind: "revocation", Peer: d.Peer, Bytes: len(signed), Detail: why}, nil)
	h.log.Warn("membership revoked", "device", d.Name, "peer", string(d.Peer), "why", why)
	return h.resolveScopes(d.Scopes)
}

// Approve lets the peer that came second with a device ID have it: the one that
// held it is revoked, and the other may join.
func (h *Hub) Approve(ctx context.Context, peer chain.PeerID) error {
	_, err := ask(ctx, h, func() (struct{}, error) {
		var none struct{}
		c, ok := h.fleet.Conflict(peer)
		if !ok {
			return none, wrong("peer %q waits for no approval", chain.Clip(peer))
		}
		if d := h.fleet.Device(c.Holder); d != nil && d.Revoked == 0 {
			if err := h.revoke(d, "its device ID went to "+string(peer)); err != nil {
				return none, err
			}
		}
		h.fleet.Settle(peer)
		return none, h.cfg.Storage.Bucket(bucketConflicts).Delete(string(peer))
	})
	return err
}
