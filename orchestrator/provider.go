package orchestrator

import (
	"context"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// maxAdmitted is how many answers about providers are remembered for a device whose
// session broke before it had its own.
const maxAdmitted = 256

// admitted are the last answers, the oldest first. Every field is for whoever has
// the hub's turn.
type admitted struct {
	keys    []string
	answers map[string]wire.ProviderReply
}

func (a *admitted) keep(key string, reply wire.ProviderReply) {
	if a.answers == nil {
		a.answers = map[string]wire.ProviderReply{}
	}
	if len(a.keys) >= maxAdmitted {
		delete(a.answers, a.keys[0])
		a.keys = a.keys[1:]
	}
	a.keys, a.answers[key] = append(a.keys, key), reply
}

// Provider admits a provider that works for a device over HTTP: it spends one use of
// the invitation that the provider brought and says what that grants. The provider
// becomes no device: the one that asks vouches for it and has to be a member of the
// invitation's scope itself.
func (h *Hub) Provider(ctx context.Context, from chain.PeerID, q wire.Provider) (wire.ProviderReply, error) {
	return ask(ctx, h, func() (wire.ProviderReply, error) {
		reply, err := h.provider(from, &q)
		op := Operation{Kind: "provider", Peer: from, Request: q.Nonce, Bytes: size(&reply)}
		if err == nil {
			op.Detail = q.Class + " in " + string(reply.Scope)
		}
		h.note(op, err)
		return reply, err
	})
}

func (h *Hub) provider(from chain.PeerID, q *wire.Provider) (reply wire.ProviderReply, err error) {
	now := time.Now()
	if err := q.Validate(); err != nil {
		return reply, spoke.Refuse(spoke.CodeProtocol, "%v", err)
	}
	if _, err := h.memberOf(from, q.Invitation.Scope, now); err != nil {
		return reply, err
	}
	hash := member.HashSecret(q.Invitation.Secret)
	key := string(from) + " " + q.Nonce + " " + hash
	if was, ok := h.admitted.answers[key]; ok {
		return was, nil // the answer to its first try was lost
	}
	i, err := h.valid(hash, q.Invitation.Scope, now)
	if err != nil {
		return reply, err
	}
	if err := h.spend(hash, i); err != nil {
		return reply, err
	}
	reply = wire.ProviderReply{Scope: i.Scope}
	for _, p := range slices.Sorted(slices.Values(i.Grant)) {
		reply.Granted = append(reply.Granted, string(p))
	}
	h.admitted.keep(key, reply)
	h.log.Info("provider admitted", "peer", string(from), "class", q.Class, "scope", string(i.Scope))
	return reply, nil
}
