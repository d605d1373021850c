package mesh

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/mesh/spoke"
)

// watch follows the connection and the machine's addresses.
func (d *Device) watch(run context.Context, events event.Subscription) {
	defer d.group.Done()
	defer events.Close()
	for {
		select {
		case <-run.Done():
			return
		case e, ok := <-events.Out():
			if !ok {
				return
			}
			switch e := e.(type) {
			case event.EvtPeerConnectednessChanged:
				switch {
				case e.Connectedness != network.NotConnected:
				case e.Peer == d.hub:
					d.disconnected()
				default:
					d.peers.parted(e.Peer)
				}
			case event.EvtLocalAddressesUpdated:
				d.moved()
			}
		}
	}
}

// disconnected is the end of the last connection to the hub. A visitor meant
// it; one that should stay comes back after a random moment.
func (d *Device) disconnected() {
	if d.host.Network().Connectedness(d.hub) == network.Connected {
		return // another one has come meanwhile
	}
	d.mu.Lock()
	stay := d.link.stay
	if stay {
		d.link.redialAt = time.Now().Add(rand.N(lossPause))
	}
	d.mu.Unlock()
	d.endSession()
	if stay {
		d.setUp(false)
		d.poke()
	}
}

// moved is a change of the machine's own addresses: what failed before may
// work now.
func (d *Device) moved() {
	d.mu.Lock()
	d.link.failures, d.link.notBefore, d.link.redialAt = 0, time.Time{}, time.Time{}
	d.link.announceAt = time.Now().Add(settle) // with the new addresses
	lan := d.lan
	d.mu.Unlock()
	if lan != nil {
		lan.moved()
	}
	d.clearBackoff()
	d.poke()
	d.peers.moved()
	if d.cfg.OnMoved != nil {
		d.teller.tell(d.cfg.OnMoved)
	}
}

// keep is the one loop that acts without being asked: it brings the hello
// through, keeps the connection where the hub wants that, ends idle visits and
// repeats announcements.
func (d *Device) keep(run context.Context) {
	defer d.group.Done()
	for {
		timer := time.NewTimer(d.next(time.Now()))
		select {
		case <-run.Done():
			timer.Stop()
			return
		case <-d.wake:
		case <-timer.C:
		}
		timer.Stop()
		d.tend(run, time.Now())
	}
}

// wanted reports whether the keeper should have a session. d.mu is held.
func (l *link) wanted() bool { return l.hello != nil && (l.stay || !l.greeted) }

// next is how long the keeper may sleep.
func (d *Device) next(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := now.Add(time.Hour)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if d.link.session == nil && d.link.wanted() {
		sooner(d.link.redialAt)
	}
	if d.link.session != nil && !d.link.wanted() {
		sooner(d.link.used.Add(idleAfter))
	}
	if d.announce != nil && (d.link.session != nil || d.peers.any()) {
		sooner(d.link.announceAt)
	}
	return max(next.Sub(now), time.Millisecond)
}

// tend does what is due.
func (d *Device) tend(run context.Context, now time.Time) {
	d.mu.Lock()
	l := d.link
	announce := d.announce != nil && (l.session != nil || d.peers.any()) && !now.Before(l.announceAt)
	if announce {
		d.link.announceAt = now.Add(d.cfg.AnnounceEvery)
	}
	d.mu.Unlock()
	switch {
	case l.session == nil && l.wanted() && !now.Before(l.redialAt):
		d.comeBack(run)
	case l.session != nil && !l.wanted() && now.Sub(l.used) >= idleAfter:
		d.Leave()
	}
	if announce {
		d.publishAnnounce(run)
	}
}

// comeBack opens a session by the node's own will.
func (d *Device) comeBack(run context.Context) {
	ctx, cancel := context.WithTimeout(run, 2*dialTimeout)
	defer cancel()
	_, _, err := d.session(ctx)
	if err == nil || run.Err() != nil {
		return
	}
	d.mu.Lock()
	if !d.link.redialAt.After(time.Now()) { // a failure that set no time of its own
		d.link.redialAt = time.Now().Add(pause(d.link.failures))
		d.link.failures++
	}
	d.mu.Unlock()
	var refused *spoke.Refusal
	if errors.As(err, &refused) && d.cfg.OnRefused != nil {
		d.teller.tell(func() { d.cfg.OnRefused(refused) })
	}
	d.cfg.Log.Debug("no session with the hub", "error", err)
}
