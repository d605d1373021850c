package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// amend changes what joining gave and keeps it, one change at a time: a visit, a
// list that came by gossip and a new invitation would else undo each other. A
// change that cannot be written is in force until the next start.
func (d *Daemon) amend(change func(*Joined) error) (changed bool, err error) {
	d.keeping.Lock()
	defer d.keeping.Unlock()
	d.mu.Lock()
	before := d.joined
	d.mu.Unlock()
	joined := before
	if err := change(&joined); err != nil {
		return false, err
	}
	if sameJoined(before, joined) {
		return false, nil
	}
	d.mu.Lock()
	if d.joined.Authority != joined.Authority {
		d.moved.from, d.moved.at = d.joined.Authority, time.Now()
	}
	d.joined = joined
	d.readOwn(&joined)
	d.mu.Unlock()
	d.revokedPeers(&joined)
	if err := joined.Save(d.cfg.State); err != nil {
		d.cfg.Log.Warn("what the hub gave is in force but could not be kept", "error", err)
	}
	return true, nil
}

// admit takes over what a welcome brought.
func (d *Daemon) admit(j *Joined, w wire.Welcome) error {
	if len(w.Membership) > 0 {
		m, err := d.membership(j.Trust, w.Membership)
		if err != nil {
			return fmt.Errorf("the membership that the hub sent: %w", err)
		}
		if own, err := d.membership(j.Trust, j.Membership); err != nil || own.Serial <= m.Serial { // an answer may be overtaken by a newer one
			j.Membership, j.Scopes, j.Expires = w.Membership, m.Scopes, m.Expires
		}
	}
	if len(w.Topics) > 0 {
		j.Topics = w.Topics
	}
	if w.Authority != "" {
		j.Authority, j.Certificate = w.Authority, w.Certificate
	}
	keepPeers(j, w.Peers)
	if len(w.Revocations) > 0 {
		d.admitRevocations(j, w.Revocations)
	}
	return nil
}

// Authority gives where the hub's authority services are and the SHA-256 of their
// certificate; "" while the hub has not said.
func (d *Daemon) Authority() (url string, certificate []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.joined.Authority, d.joined.Certificate
}

// Issues reports whether the hub's tokens may say iss: where its services are, and for a token's
// life after they moved also where they were. While the hub has not said, they may say anything.
func (d *Daemon) Issues(iss string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.joined.Authority
	return now == "" || iss == now || iss == d.moved.from && time.Since(d.moved.at) < gate.MaxLifetime
}

// membership checks a membership that the hub sent for this device.
func (d *Daemon) membership(trust chain.Trust, envelope []byte) (member.Membership, error) {
	m, err := member.Verify(trust, envelope, time.Now())
	if err != nil {
		return m, err
	}
	if m.Peer != d.cfg.Key.PeerID() {
		return m, member.ErrPeer
	}
	return m, nil
}

// admitRevocations verifies a list and keeps it unless an equal or newer one is
// held. A device that stands on it stops obeying chains.
func (d *Daemon) admitRevocations(j *Joined, list []byte) {
	if bytes.Equal(list, j.Revocations) {
		return
	}
	r, err := member.VerifyRevocations(j.Trust, list, j.RevocationSeq, time.Now())
	if err != nil {
		if !errors.Is(err, chain.ErrRollback) {
			d.cfg.Log.Error("a revocation list was refused", "error", err)
		}
		return
	}
	j.Revocations, j.RevocationSeq = list, r.Seq
	if !j.Revoked && j.ended(time.Now()) {
		j.Revoked = true
		d.sayRevoked()
	}
}

// hearRevocations takes a list that came by gossip.
func (d *Daemon) hearRevocations(list []byte) {
	_, _ = d.amend(func(j *Joined) error { // the change itself cannot fail
		d.admitRevocations(j, list)
		return nil
	})
}

// refusedByHub hears a refusal outside of a visit. One that says the device was
// revoked makes a visit due, which finds out.
func (d *Daemon) refusedByHub(err error) {
	if !errors.Is(err, &spoke.Refusal{Code: spoke.CodeRevoked}) {
		return
	}
	d.mu.Lock()
	known := d.joined.Revoked
	d.mu.Unlock()
	if !known {
		d.visitSoon()
	}
}

// stopIfRevoked looks for the one refusal of a hello that ends more than a
// visit. The hub cuts off whom it revokes, so its signed list may never arrive here;
// its own no, over a connection that proved its pinned key, stops the device as
// well. It can only take away: a later welcome, or a new invitation, gives back.
// A refusal of a membership that was replaced meanwhile means nothing.
func (d *Daemon) stopIfRevoked(shown []byte, err error) {
	if !errors.Is(err, &spoke.Refusal{Code: spoke.CodeRevoked}) {
		return
	}
	_, _ = d.amend(func(j *Joined) error { // the change itself cannot fail
		if !j.Revoked && bytes.Equal(j.Membership, shown) {
			j.Revoked = true
			d.sayRevoked()
		}
		return nil
	})
}

func (d *Daemon) sayRevoked() {
	d.cfg.Log.Error("this device's membership was revoked; ask for a new invitation")
}

func sameJoined(a, b Joined) bool {
	topics := slices.EqualFunc(a.Topics, b.Topics, func(x, y wire.TopicKey) bool {
		return x.Scope == y.Scope && x.Until == y.Until && bytes.Equal(x.Key, y.Key)
	})
	peers := slices.EqualFunc(a.Peers, b.Peers, func(x, y wire.PeerAddress) bool {
		return x.Peer == y.Peer && slices.Equal(x.Addresses, y.Addresses)
	})
	authority := a.Authority == b.Authority && bytes.Equal(a.Certificate, b.Certificate)
	return topics && peers && authority && a.Revoked == b.Revoked && bytes.Equal(a.Membership, b.Membership) && bytes.Equal(a.Revocations, b.Revocations)
}
