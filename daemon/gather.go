package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// gatherPeers is how many peers are asked for what an invalidation named.
const gatherPeers = 3

// gatherEvery is the least pause between two rounds of questions to one peer.
const gatherEvery = time.Minute

// gatherFrom asks a peer for newer chains while the hub is out of reach: in the
// background, one peer at a time, each at most once a minute. A peer that
// returned may know what it did not know before.
func (d *Daemon) gatherFrom(p chain.PeerID, returned bool) {
	node := d.nodeNow()
	if node.HubReachable() {
		return
	}
	now := time.Now()
	d.mu.Lock()
	joined := d.isJoined && !d.joined.Revoked
	asked, ever := d.gathered[p]
	due := !ever || returned || now.Sub(asked) >= gatherEvery
	if joined && due {
		if len(d.gathered) >= maxGathered {
			clear(d.gathered) // the worst that comes of it is a question too many
		}
		d.gathered[p] = now
	}
	d.mu.Unlock()
	if !joined || !due {
		return
	}
	d.background(func(ctx context.Context) {
		select {
		case d.gathering <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-d.gathering }()
		ctx, cancel := context.WithTimeout(ctx, gatherTime)
		defer cancel()
		if err := d.gather(ctx, node, p); err != nil && ctx.Err() == nil {
			d.cfg.Log.Debug("asking a peer for chains", "peer", p, "error", err)
		}
	})
}

// gatherTime bounds what one peer is asked for: it may promise thousands of chains
// and take its time with each, while others wait for their turn.
const gatherTime = 30 * time.Second

// maxGathered bounds the memory of who was asked when.
const maxGathered = 1024

// gatherFromAny asks a few peers in contact, because one of them may have what the
// hub announced before it went out of reach.
func (d *Daemon) gatherFromAny() {
	asked := 0
	for _, p := range d.peers.Peers(time.Now()) {
		if p.State == "live" && asked < gatherPeers {
			asked++
			d.gatherFrom(p.Peer, true)
		}
	}
}

// gather asks p which chains it caches for the device's scopes, and takes over
// what is newer. A chain counts for the hub's signature, whoever brings it.
func (d *Daemon) gather(ctx context.Context, node Node, p chain.PeerID) error {
	d.mu.Lock()
	scopes := d.joined.Scopes
	d.mu.Unlock()
	var failed []error
	for _, scope := range scopes {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		held, err := node.Heads(call, p, scope)
		cancel()
		if err != nil {
			return fmt.Errorf("ask for the heads of %s: %w", scope, err)
		}
		for _, h := range held {
			if ctx.Err() != nil {
				return errors.Join(append(failed, ctx.Err())...)
			}
			if h.Slot.Scope.Base() == scope && d.newer(h) {
				failed = append(failed, d.fetchFrom(ctx, node, p, h.Slot))
			}
		}
	}
	return errors.Join(failed...)
}

// newer reports whether h, which a peer claims to hold, is worth fetching: a
// later chain, or the same one with a later term.
func (d *Daemon) newer(h wire.Held) bool {
	mark, held := d.cfg.Marks.All()[h.Slot], d.cfg.Chains.Get(h.Slot)
	switch {
	case held == nil && h.Slot.Scope != h.Slot.Scope.Base(): // lost, or withdrawn by the hub: that stands
		return h.Mark.Seq > mark.Seq
	case held == nil:
		return h.Mark.Seq >= mark.Seq
	}
	return h.Mark.Seq > mark.Seq || h.Mark.Seq == mark.Seq && h.Mark.Body == mark.Body && h.Mark.Issued > mark.Issued
}

func (d *Daemon) fetchFrom(ctx context.Context, node Node, p chain.PeerID, slot chain.Slot) error {
	return d.fetchWith(ctx, slot, "peer "+string(p), func(ctx context.Context, f wire.Fetch) (wire.FetchReply, error) { return node.FetchFrom(ctx, p, f) })
}

// cached is what the device gives to members of its scopes: what it accepted
// itself and what has not expired.
type cached struct{ *Daemon }

// Heads implements [exchange.Chains].
func (c cached) Heads(scope chain.ScopeID) []wire.Held {
	var held []wire.Held
	now := time.Now()
	for _, ch := range c.cfg.Chains.All() {
		if ch.Slot().Scope.Base() == scope.Base() && !ch.Expired(now) {
			held = append(held, wire.Held{Slot: ch.Slot(), Mark: ch.Mark()})
		}
	}
	return held[:min(len(held), wire.MaxOffers)]
}

// Chain implements [exchange.Chains].
func (c cached) Chain(slot chain.Slot) (head, body []byte) {
	ch := c.cfg.Chains.Get(slot)
	if ch == nil || ch.Expired(time.Now()) {
		return nil, nil
	}
	return ch.Bytes()
}

// Body implements [exchange.Chains].
func (c cached) Body(scope chain.ScopeID, cid chain.CID) []byte {
	all := c.cfg.Chains.All()
	i := slices.IndexFunc(all, func(ch *chain.Chain) bool { return ch.Slot().Scope.Base() == scope.Base() && ch.Head().Body == cid })
	if i < 0 || all[i].Expired(time.Now()) {
		return nil
	}
	_, body := all[i].Bytes()
	return body
}
