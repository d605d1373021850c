package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exchange"
	"github.com/chordwheel/chordwheel/mesh/reach"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// brief reports whether this device closes links that carry no work: its
// network is metered, or the mesh so large that the hub takes visits only.
func (d *Device) brief() bool {
	if d.cfg.Metered {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.link.greeted && !d.link.stay
}

// loop looks for peers, renews contacts, closes idle links and tells the
// scopes of the contacts.
func (p *peers) loop(run context.Context) {
	defer p.d.group.Done()
	for {
		next := p.tend(run, time.Now())
		timer := time.NewTimer(max(time.Until(next), 10*time.Millisecond))
		select {
		case <-run.Done():
			timer.Stop()
			return
		case <-p.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// close ends the meetings under way and waits for them.
func (p *peers) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.server.Close()
	p.group.Wait()
}

// tend does what is due and says when to look again.
func (p *peers) tend(run context.Context, now time.Time) time.Time {
	if _, ok := p.own(); !ok {
		return now.Add(time.Hour) // nothing to show to anybody; Announce wakes
	}
	p.mu.Lock()
	dials, next := p.book.Due(now, dialsAtOnce-len(p.slots))
	if next.Before(now.Add(time.Second)) {
		next = now.Add(time.Second)
	}
	for _, dial := range dials {
		p.start(func() { p.look(run, dial) })
	}
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	var idle []peer.ID
	for id, c := range p.contacts {
		switch {
		case c.resting && now.Sub(c.At) >= restFor:
			p.drop(id, c)
			p.book.Parted(id, now)
			sooner(now.Add(time.Second))
		case c.resting:
			sooner(c.At.Add(restFor))
		case p.idle(id, c, now):
			idle = append(idle, id)
		case c.refreshing:
		case !now.Before(c.refreshAt):
			c.refreshing = true
			p.start(func() { p.refresh(run, id) })
		default:
			sooner(c.refreshAt)
			if c.brief {
				sooner(now.Add(idleAfter / 4))
			}
		}
	}
	tell := !p.chordsAt.IsZero() && !now.Before(p.chordsAt)
	if tell {
		p.chordsAt = now.Add(p.d.cfg.AnnounceEvery)
	}
	if !p.chordsAt.IsZero() {
		sooner(p.chordsAt)
	}
	p.mu.Unlock()
	for _, id := range idle {
		_ = p.d.host.Network().ClosePeer(id)
	}
	if tell {
		p.tellChords(run, now)
	}
	return next
}

// start runs f on a goroutine that close waits for. mu is held.
func (p *peers) start(f func()) {
	if p.closed {
		return
	}
	p.group.Go(func() {
		p.slots <- struct{}{}
		defer func() { <-p.slots; p.poke() }()
		f()
	})
}

// quiet are the protocols that keep no link open.
var quiet = []protocol.ID{"", exchange.Protocol, spoke.Protocol, "/meshsub/1.0.0", "/meshsub/1.1.0", "/meshsub/1.2.0", "/meshsub/1.3.0", "/ipfs/id/1.0.0", "/ipfs/id/push/1.0.0"}

// idle reports whether the link of a contact has carried no work for so long
// that it is to be closed; it also notes work under way. mu is held.
func (p *peers) idle(id peer.ID, c *contact, now time.Time) bool {
	for _, conn := range p.d.host.Network().ConnsToPeer(id) {
		if slices.ContainsFunc(conn.GetStreams(), func(s network.Stream) bool { return !slices.Contains(quiet, s.Protocol()) }) {
			c.used = now
			if at := c.At.Add(refreshBusy); at.Before(c.refreshAt) {
				c.refreshAt = at
			}
		}
	}
	return c.brief && now.Sub(c.used) >= idleAfter
}

// look dials one peer whose time has come, and greets it.
func (p *peers) look(run context.Context, dial reach.Dial) {
	ctx, cancel := context.WithTimeout(run, meetTimeout)
	defer cancel()
	err := p.connect(ctx, dial)
	if err == nil {
		err = p.greet(ctx, dial.Peer, nil)
	}
	p.settle(dial.Peer, err)
}

// settle notes what came of meeting id.
func (p *peers) settle(id peer.ID, err error) {
	now := time.Now()
	var refused *exchange.Refusal
	p.mu.Lock()
	c := p.contacts[id]
	switch {
	case err == nil:
		if c == nil { // it went again, or there is no room for it
			p.book.Failed(id, now)
		}
	case errors.As(err, &refused) && refused.Code != exchange.CodeNotReady && refused.Code != exchange.CodeBusy:
		p.book.Refused(id, now)
		if c != nil {
			p.drop(id, c)
		}
	case c == nil || c.resting:
		p.book.Failed(id, now)
		if c != nil {
			p.drop(id, c)
		}
	default: // met from the other side meanwhile
	}
	met := p.contacts[id] != nil
	p.mu.Unlock()
	if err != nil {
		p.d.cfg.Log.Debug("a peer was not met", "peer", id.String(), "error", flat(err))
		if !met {
			_ = p.d.host.Network().ClosePeer(id)
		}
	}
}

// connect makes the connection that dial describes, unless one stands. Dials to
// one peer come one after the other.
func (p *peers) connect(ctx context.Context, dial reach.Dial) error {
	g := &grant{named: dial.Named, addresses: map[string]bool{}, done: make(chan struct{})}
	for _, a := range dial.Addresses {
		g.addresses[string(a.Bytes())] = true
	}
	for {
		if p.d.host.Network().Connectedness(dial.Peer) == network.Connected {
			return nil
		}
		p.mu.Lock()
		other := p.grants[dial.Peer]
		if other == nil {
			p.grants[dial.Peer] = g
		}
		p.mu.Unlock()
		if other == nil {
			break
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() {
		p.mu.Lock()
		delete(p.grants, dial.Peer)
		p.mu.Unlock()
		close(g.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	// The pauses are the book's, and so is the choice of addresses: not what
	// identify heard from the peer, too.
	p.d.host.Peerstore().ClearAddrs(dial.Peer)
	if s, ok := p.d.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(dial.Peer)
	}
	if err := p.d.host.Connect(ctx, peer.AddrInfo{ID: dial.Peer, Addrs: dial.Addresses}); err != nil {
		return fmt.Errorf("dial: %s", flat(err))
	}
	return nil
}

// errUnknownPlace is why a peer cannot be dialled.
var errUnknownPlace = errors.New("no address of that peer is known, or it was dialled too often in this minute")

// arrive makes sure that there is a connection to id, for work that waits. A
// link that was closed for being idle is made again.
func (p *peers) arrive(ctx context.Context, id peer.ID) error {
	if p.d.host.Network().Connectedness(id) == network.Connected {
		return nil
	}
	p.mu.Lock()
	dial, ok := p.book.Take(id, time.Now())
	under := p.grants[id]
	p.mu.Unlock()
	switch {
	case ok:
		err := p.connect(ctx, dial)
		if err == nil {
			err = p.greet(ctx, id, nil)
		}
		p.settle(id, err)
		return err
	case under != nil: // somebody is dialling it already
		return p.connect(ctx, reach.Dial{Peer: id})
	}
	return errUnknownPlace
}

// greet opens an exchange over the standing connection, measures the way, and
// lets ask ask for more.
func (p *peers) greet(ctx context.Context, id peer.ID, ask func(*exchange.Session) error) error {
	stream, err := p.d.host.NewStream(network.WithNoDial(ctx, "exchange"), id, exchange.Protocol)
	if err != nil {
		return fmt.Errorf("greet: %s", flat(err))
	}
	s, err := exchange.Open(ctx, stream, p)
	if err != nil {
		return err
	}
	defer s.Close()
	rtt, err := s.Measure(ctx)
	if err != nil {
		return err
	}
	from := chain.PeerID(id.String())
	list, seq := p.d.gossip.judge.held()
	if seq != s.Greeting.Revocations {
		newer, err := s.Swap(ctx, list)
		if err != nil {
			return err
		}
		if len(newer) > 0 {
			p.takeList(newer)
		}
		s.Greeting.Revocations = max(s.Greeting.Revocations, seq)
		if p.d.gossip.judge.ended(&s.Membership) {
			return exchange.Refuse(exchange.CodeRevoked, "the membership was revoked")
		}
	}
	p.Met(from, s.Membership, &s.Greeting, rtt)
	if ask != nil {
		return ask(s)
	}
	return nil
}

// refresh measures a contact again. One that does not answer over a connection
// that seems to stand is hung up on.
func (p *peers) refresh(run context.Context, id peer.ID) {
	ctx, cancel := context.WithTimeout(run, meetTimeout)
	defer cancel()
	p.mu.Lock()
	var used time.Time
	if c := p.contacts[id]; c != nil {
		used = c.used
	}
	p.mu.Unlock()
	err := p.greet(ctx, id, nil)
	p.mu.Lock()
	c := p.contacts[id]
	if c != nil {
		c.refreshing = false
		c.used = used // our own question is no work
		if err != nil {
			c.refreshAt = time.Now().Add(refreshBusy)
		}
	}
	p.mu.Unlock()
	var refused *exchange.Refusal
	switch {
	case err == nil || run.Err() != nil:
	case errors.As(err, &refused) && (refused.Code == exchange.CodeBusy || refused.Code == exchange.CodeNotReady):
	default:
		p.mu.Lock()
		if c := p.contacts[id]; c != nil {
			p.drop(id, c)
			if refused != nil {
				p.book.Refused(id, time.Now())
			} else {
				p.book.Parted(id, time.Now())
			}
		}
		p.mu.Unlock()
		_ = p.d.host.Network().ClosePeer(id)
	}
}

// tellChords tells each scope which of its members this device is in contact
// with.
func (p *peers) tellChords(ctx context.Context, now time.Time) {
	for _, k := range p.d.gossip.joinedScopes() {
		list := p.ours(k.scope)
		p.mu.Lock()
		p.table(k.scope).Claim(p.d.PeerID(), list, now)
		p.mu.Unlock()
		p.d.mu.Lock()
		if p.d.announce == nil {
			p.d.mu.Unlock()
			return
		}
		p.d.number++
		m := wire.Chords{Membership: p.d.announce.Membership, BootID: p.d.announce.BootID, Seq: p.d.number, Chords: list}
		p.d.mu.Unlock()
		data, err := wire.Encode(&m)
		if err == nil {
			err = p.d.gossip.publish(ctx, chordsTopic(p.d.cfg.Trust.Mesh, []byte(k.hash)), data)
		}
		if err != nil {
			p.d.cfg.Log.Debug("chords not told", "error", err)
		}
	}
}

// ours gives the contacts that are members of scope.
func (p *peers) ours(scope chain.ScopeID) []wire.Chord {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []wire.Chord
	for _, c := range p.contacts {
		if slices.Contains(c.Membership.Scopes, scope) {
			list = append(list, wire.Chord{Peer: c.Peer, RTT: min(c.RTT, time.Minute).Microseconds()})
		}
	}
	return list
}
