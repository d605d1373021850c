package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/mesh/exchange"
)

// shortest is how much of an identifier names a device.
const shortest = 4

// find gives the peer that a person means: by name, device ID, peer ID, or the
// beginning or the end of one of the two that no other has.
func (d *Daemon) find(who string) (chain.PeerID, string, error) {
	var exact, part []control.Peer
	var names []string
	for _, p := range d.known(time.Now()) {
		names = append(names, chain.ClipTo(p.Name, 32))
		id, device := string(p.PeerID), string(p.DeviceID)
		switch {
		case who == p.Name || who == id || who == device:
			exact = append(exact, p)
		case len(who) >= shortest && (strings.HasPrefix(id, who) || strings.HasSuffix(id, who) || strings.HasPrefix(device, who)):
			part = append(part, p)
		}
	}
	found := exact
	if len(found) == 0 {
		found = part
	}
	who = chain.Clip(who)
	switch {
	case len(found) == 1:
		return found[0].PeerID, found[0].Name, nil
	case len(found) > 1:
		return "", "", control.Asked(fmt.Sprintf("%q may be any of %d devices; name its peer ID: see chordwheel peers", who, len(found)))
	case who == string(d.cfg.Key.PeerID()) || who == d.cfg.Name || who == string(d.cfg.DeviceID):
		return "", "", control.Asked(fmt.Sprintf("%q is this device itself", who))
	case who == "hub" || d.isHub(who):
		return "", "", control.Asked("the hub answers no pings; chordwheel netcheck says whether it is reached")
	case len(names) == 0:
		return "", "", control.Asked(fmt.Sprintf("this device knows no other yet, so not %q; chordwheel netcheck says why", who))
	}
	return "", "", control.Asked(fmt.Sprintf("no device %q is known here; there are: %s", who, strings.Join(names[:min(len(names), 16)], ", ")))
}

func (d *Daemon) isHub(who string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isJoined && who == string(d.joined.Trust.Orchestrator)
}

// Ping greets the device that who names, and measures the way.
func (d *Daemon) Ping(ctx context.Context, who string) (control.Pong, error) {
	p, name, err := d.find(who)
	if err != nil {
		return control.Pong{}, err
	}
	pong, err := d.nodeNow().Ping(ctx, p)
	var no *exchange.Refusal
	switch {
	case errors.As(err, &no):
		d.peers.Heard(p, 0, time.Now())
		return control.Pong{}, fmt.Errorf("%s answers, and refuses: %s", chain.ClipTo(name, 64), chain.Clip(no.Error()))
	case err != nil:
		return control.Pong{}, fmt.Errorf("%s is not reached: %w; chordwheel netcheck on both devices says more", chain.ClipTo(name, 64), err)
	}
	d.peers.Heard(p, pong.RTT, time.Now())
	return control.Pong{PeerID: p, Name: name, RTT: millis(pong.RTT), Way: control.Way(pong.Way)}, nil
}

// Chords gives the adjacencies that this device heard of.
func (d *Daemon) Chords() []control.Chord {
	names := map[chain.PeerID]string{d.cfg.Key.PeerID(): d.cfg.Name}
	for _, p := range d.peers.Peers(time.Now()) {
		names[p.Peer] = p.Membership.Name
	}
	var all []control.Chord
	for _, k := range d.nodeNow().Chords() {
		all = append(all, control.Chord{Scope: k.Scope, A: k.A, B: k.B, NameA: names[k.A], NameB: names[k.B], RTT: millis(k.RTT), At: k.At.UTC(), By: k.By})
	}
	return all
}

// Network looks at the device's networks and its ways to the hub.
func (d *Daemon) Network(ctx context.Context) control.Network {
	d.mu.Lock()
	isJoined, node, clock := d.isJoined, d.node, d.visit.clock
	d.mu.Unlock()
	seen := node.Net(ctx)
	n := control.Network{Listen: seen.Listen, Told: seen.Told, Transports: seen.Transports, Hub: []control.HubAddress{}, Reachable: node.HubReachable(),
		Multicast: control.Multicast{On: seen.Multicast == "", Why: seen.Multicast, Heard: []control.Heard{}}, Joined: isJoined, Within: seen.Within}
	if clock != nil {
		ahead := clock.Seconds()
		n.Clock = &ahead
	}
	for _, a := range seen.Hub {
		n.Hub = append(n.Hub, control.HubAddress(a))
	}
	for _, h := range seen.Heard {
		n.Multicast.Heard = append(n.Multicast.Heard, control.Heard{PeerID: h.Peer, Name: d.peers.Name(h.Peer), At: h.At.UTC()})
	}
	return n
}

// known gives the peers without their slots.
func (d *Daemon) known(now time.Time) []control.Peer {
	cooling := map[chain.PeerID]control.Resting{}
	for _, r := range d.resting(now) {
		if r.Peer != "" {
			cooling[r.Peer] = r
		}
	}
	node := d.nodeNow()
	var all []control.Peer
	for _, p := range d.peers.Peers(now) {
		v := control.Peer{PeerID: p.Peer, Name: p.Membership.Name, DeviceID: p.Membership.DeviceID, State: p.State, Since: p.Since.UTC(), Heard: moment(d.peers.LastHeard(p.Peer)),
			RTT: millis(p.RTT), Ahead: p.Ahead, Capabilities: p.Capabilities, Scopes: p.Membership.Scopes}
		if w, ok := node.Way(p.Peer); ok {
			way := control.Way(w)
			v.Way = &way
		}
		if r, ok := cooling[p.Peer]; ok {
			v.Cooling, v.CoolingFor = &r.Until, r.Why
		}
		all = append(all, v)
	}
	return all
}

// Peers gives the devices that this one knows, and which slots of its chains each
// can fill.
func (d *Daemon) Peers() []control.Peer {
	now := time.Now()
	all := d.known(now)
	for _, c := range d.cfg.Chains.All() {
		for _, o := range c.Options() {
			if o.Kind != chain.Peer {
				continue
			}
			for _, v := range d.candidates(c.Slot(), &o, now) {
				if i := slices.IndexFunc(all, func(p control.Peer) bool { return p.PeerID == v.PeerID }); i >= 0 {
					all[i].Slots = append(all[i].Slots, control.PeerSlot{Scope: c.Slot().Scope, Primitive: c.Slot().Primitive, Option: o.ID, Verdict: v.Verdict})
				}
			}
		}
	}
	return all
}
