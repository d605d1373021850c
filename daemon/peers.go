package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/bind"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/exchange"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// met hears of a direct contact. A peer that was gone starts without a past.
func (d *Daemon) met(c mesh.Contact) {
	load := bind.Load{Jobs: int(c.Load.Running + c.Load.Queued), Parallel: int(c.Load.Slots)}
	returned := d.peers.Contact(bind.Contact{Peer: c.Peer, Membership: c.Membership, Capabilities: c.Capabilities, BootID: c.BootID, RTT: c.RTT, Load: load}, time.Now())
	if returned {
		d.standing.PeerReturned(c.Peer)
		d.cfg.Log.Info("a peer is in contact", "peer", c.Peer, "name", c.Membership.Name)
	}
	d.gatherFrom(c.Peer, returned)
	if d.witness != nil && len(c.Checkpoint) > 0 {
		d.witness.Heard(c.Checkpoint)
	}
}

// parted hears that the last connection to a peer is gone.
func (d *Daemon) parted(p chain.PeerID) {
	d.peers.Parted(p, time.Now())
	d.cfg.Log.Info("a peer is out of contact", "peer", p, "name", d.peers.Name(p))
}

// announced hears of a peer by gossip: that makes it known, and no more.
func (d *Daemon) announced(p mesh.Presence) {
	d.peers.Introduce(bind.Introduction{Peer: p.Membership.Peer, Membership: p.Membership, Capabilities: p.Capabilities}, time.Now())
}

// introduce tells the node where peers may be, as the hub said it last.
func introduce(node Node, j Joined) {
	if len(j.Peers) > 0 {
		node.Introduce(j.Peers...)
	}
}

// maxKeptPeers bounds how many peers of the hub's are kept for a start without it.
const maxKeptPeers = 64

// keepPeers takes over where the hub says that peers are.
func keepPeers(j *Joined, list []wire.PeerAddress) {
	if len(list) > 0 {
		j.Peers = list[:min(len(list), maxKeptPeers)]
	}
}

// revokedPeers lets those who judge peers know of the list that j holds.
func (d *Daemon) revokedPeers(j *Joined) {
	list, err := member.VerifyRevocations(j.Trust, j.Revocations, 0, time.Now())
	if err == nil {
		d.foreign.revoked.Store(&list)
		d.peers.Revoke(&list)
	}
}

// background runs f until it ends, and makes Close wait for it. It reports
// false, and does nothing, once the daemon closes.
func (d *Daemon) background(f func(ctx context.Context)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing || d.run == nil {
		return false
	}
	d.group.Go(func() { f(d.run) })
	return true
}

// Patience with a peer that is silent, and the pauses between two pings of one
// that came to be in doubt.
const (
	pingTimeout = 3 * time.Second  // after it the peer is bound to no more
	lastPing    = 10 * time.Second // after it what runs there is given up
	firstPing   = time.Second
	slowestPing = time.Minute
)

// doubt leaves a peer out of binding because an attempt at it came to nothing,
// and listens whether it is still there: it may have been the attempt alone.
func (d *Daemon) doubt(p chain.PeerID) {
	if !d.peers.Silent(p, time.Now()) {
		return // it parted meanwhile, or somebody listens already
	}
	d.background(func(ctx context.Context) {
		for pause := firstPing; ; pause = min(2*pause, slowestPing) {
			patient, cancel := context.WithTimeout(ctx, lastPing)
			_ = d.ping(patient, p) // what comes of it is in the table
			cancel()
			if !d.peers.IsSilent(p) || !wait(ctx, pause) {
				return
			}
		}
	})
}

// ping asks a peer whether it is there, as long as ctx lasts, and notes its answer.
func (d *Daemon) ping(ctx context.Context, p chain.PeerID) error {
	pong, err := d.nodeNow().Ping(ctx, p)
	var no *exchange.Refusal
	if err != nil && !errors.As(err, &no) { // whatever a refusal says, it speaks
		return err
	}
	d.peers.Heard(p, pong.RTT, time.Now())
	return nil
}

// wait waits for a while and reports whether ctx goes on.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// own gives this device's membership, as it was verified. ok is false without one
// that is in force.
func (d *Daemon) own() (m member.Membership, envelope []byte, ok bool) {
	d.mu.Lock()
	j, m := d.joined, d.self
	d.mu.Unlock()
	return m, j.Membership, !j.Revoked && m.Peer != "" && m.Current(time.Now()) == nil
}

// readOwn keeps the membership of j in the form in which it is asked for. The
// caller holds mu.
func (d *Daemon) readOwn(j *Joined) {
	d.self, _ = d.membership(j.Trust, j.Membership) // one that is not in force is none
}
