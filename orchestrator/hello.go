package orchestrator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator/fleet"
)

var _ spoke.Handler = (*Hub)(nil)

// smallMesh is the number of devices up to which unmetered ones keep their
// connections: each costs the hub 46 to 95 KiB.
const smallMesh = 1500

// maxHeads is how many heads of one hello are verified: each takes the loop a
// tenth of a millisecond, and a device that shows false ones pays nothing.
const maxHeads = 64

// How many peers a welcome introduces. A hundred and fifty bytes each are
// nothing where connections stand, and a visit's worth in a large mesh.
const (
	maxIntroduced = 48
	fewIntroduced = 8
)

// Hello admits a device: with an invitation for the first time, with its
// membership later. Refusals are *spoke.Refusal.
func (h *Hub) Hello(ctx context.Context, from chain.PeerID, q wire.Hello) (wire.Welcome, error) {
	return ask(ctx, h, func() (wire.Welcome, error) {
		kind := "hello"
		if q.Invitation != nil {
			kind = "enrol"
		}
		w, err := h.hello(from, &q)
		op := Operation{Kind: kind, Peer: from, Device: q.Name}
		if err == nil {
			if w.Twin = h.fleet.Twice(from, q.BootID, time.Now()); w.Twin {
				op.Detail = "an older run is back: two programs run with this identity, its data directory was copied"
				h.alarm(time.Now(), "two programs run with the identity of one device: its data directory was copied; stop one, and join it anew; until then their measurements do not count", h.fleet.Device(from), "")
			}
		}
		op.Bytes = size(&w)
		h.note(op, err)
		return w, err
	})
}

func (h *Hub) hello(from chain.PeerID, q *wire.Hello) (wire.Welcome, error) {
	if err := q.Validate(); err != nil {
		return wire.Welcome{}, spoke.Refuse(spoke.CodeProtocol, "%v", err)
	}
	now := time.Now()
	if err := h.pace(from, false, now); err != nil {
		return wire.Welcome{}, err
	}
	d, renew, err := h.admit(from, q, now)
	if err != nil {
		return wire.Welcome{}, err
	}
	var w wire.Welcome
	if renew {
		if w.Membership, err = h.issue(d, now); err != nil {
			return wire.Welcome{}, err
		}
	}
	changed := h.describe(d, q.Capabilities, q.Locals) || h.fleet.Device(from) == nil
	h.locate(d)
	d.Version, d.Metered, d.Addresses, d.Seen = q.Version, q.Metered, q.Addresses, chain.InstantOf(now)
	d.GoBy(q.DID)
	if err := h.keepDevice(d); err != nil {
		return wire.Welcome{}, err
	}
	w.Behind = h.learnHeld(d, q.Holds, now)
	// Before a chain is published for a scope its topics must exist.
	if w.Topics, err = h.topicKeys(d.Scopes, now); err != nil {
		return wire.Welcome{}, err
	}
	if changed || renew {
		if err := h.resolveScopes(d.Scopes); err != nil {
			h.log.Error("publishing after a visit failed", "device", d.Name, "error", err)
		}
	}
	w.Revocations, w.Now, w.Scopes, w.MeshName = h.revokedBytes, chain.InstantOf(now), d.Scopes, h.cfg.Name
	if h.cfg.Authority != nil {
		w.Authority, w.Certificate = h.cfg.Authority()
	}
	w.Stay = h.stays(d)
	w.Chains = h.available(d.Scopes)
	introductions := maxIntroduced
	if h.fleet.Count() > smallMesh {
		introductions = fewIntroduced
	}
	w.Peers = h.fleet.Introductions(d, introductions, chain.InstantOf(now))
	return w, nil
}

// admit gives the device that a hello comes from, as a copy that is not in
// force yet, and whether it needs a new membership.
func (h *Hub) admit(from chain.PeerID, q *wire.Hello, now time.Time) (d *fleet.Device, renew bool, err error) {
	var known *fleet.Device
	if have := h.fleet.Device(from); have != nil {
		c := *have
		known = &c
	}
	if q.Invitation != nil {
		return h.enrol(from, q, known, now)
	}
	return h.recognise(from, q, known, now)
}

// enrol takes a device in on the strength of an invitation.
func (h *Hub) enrol(from chain.PeerID, q *wire.Hello, d *fleet.Device, now time.Time) (*fleet.Device, bool, error) {
	hash := member.HashSecret(q.Invitation.Secret)
	if d != nil && d.Revoked == 0 && d.Invited == hash && d.ID == q.DeviceID {
		h.rename(d, q)
		return d, true, nil // the answer to its first try was lost
	}
	i, err := h.valid(hash, q.Invitation.Scope, now)
	if err != nil {
		return nil, false, err
	}
	if err := h.claim(from, q, now); err != nil {
		return nil, false, err
	}
	// The use is spent first: a crash between the two costs an invitation, not a door left open.
	if err := h.spend(hash, i); err != nil {
		return nil, false, err
	}
	if d == nil || d.Revoked != 0 {
		d = &fleet.Device{Peer: from, Enrolled: chain.InstantOf(now)}
	}
	d.ID, d.Invited = q.DeviceID, hash
	d.Scopes = union(d.Scopes, []chain.ScopeID{i.Scope})
	d.Granted = union(d.Granted, i.Grant)
	h.rename(d, q)
	h.log.Info("device enrolled", "device", d.Name, "peer", string(from), "scope", string(i.Scope))
	return d, true, nil
}

// claim refuses a device ID that belongs to another peer, and keeps the case for
// the owner.
func (h *Hub) claim(from chain.PeerID, q *wire.Hello, now time.Time) error {
	c, err := h.fleet.Claim(q.DeviceID, from, q.Name, chain.InstantOf(now))
	if err == nil {
		return nil
	}
	if waits, ok := h.fleet.Conflict(from); ok && waits == c { // whoever holds an invitation could make up peers without end
		if kept := put(h.cfg.Storage.Bucket(bucketConflicts), string(from), c); kept != nil {
			h.log.Error("keeping a conflict for the owner failed", "error", kept)
		}
	}
	h.log.Warn("a device ID came under a second peer ID", "device_id", string(q.DeviceID), "peer", string(from), "holder", string(c.Holder))
	return spoke.Refuse(spoke.CodeConflict, "device ID %s is known under another peer ID: the owner must approve %s; a second device on one machine needs an ID of its own, in a file that CHORDWHEEL_DEVICE_ID_FILE names", q.DeviceID, from)
}

// recognise lets a member in, and decides whether its membership is renewed.
func (h *Hub) recognise(from chain.PeerID, q *wire.Hello, d *fleet.Device, now time.Time) (*fleet.Device, bool, error) {
	m, err := member.Verify(h.trust, q.Membership, now)
	over := errors.Is(err, chain.ErrExpired)
	switch {
	case d != nil && d.Revoked != 0:
		return nil, false, spoke.Refuse(spoke.CodeRevoked, "the membership was revoked: ask the owner")
	case over && d != nil:
		// Known, not revoked, and the transport proved who it is: it was only away for long.
		m = member.Membership{Peer: from, DeviceID: d.ID, Issued: d.Issued}
	case over:
		return nil, false, spoke.Refuse(spoke.CodeNotMember, "the membership has expired: join again")
	case err != nil:
		return nil, false, spoke.Refuse(spoke.CodeNotMember, "%v: join again", err)
	}
	switch {
	case m.Peer != from:
		return nil, false, spoke.Refuse(spoke.CodeNotMember, "%v", member.ErrPeer)
	case h.revoked.Ends(&m):
		return nil, false, spoke.Refuse(spoke.CodeRevoked, "the membership was revoked: ask the owner")
	case m.DeviceID != q.DeviceID:
		return nil, false, spoke.Refuse(spoke.CodeNotMember, "the membership is of another device ID: join again")
	}
	if d == nil { // an older copy of our data does not know it, our signature does
		if err := h.claim(from, q, now); err != nil {
			return nil, false, err
		}
		d = &fleet.Device{Peer: from, ID: m.DeviceID, Name: m.Name, Scopes: m.Scopes, Granted: m.Granted, Serial: m.Serial, Issued: m.Issued, Expires: m.Expires, Enrolled: m.Issued}
		h.serial = max(h.serial, m.Serial)
	}
	old := d.Name
	h.rename(d, q)
	renew := over || d.Name != old || m.Serial < d.Serial || now.Sub(m.Issued.Time()) >= member.RenewAfter
	return d, renew, nil
}

// rename takes the name that a device goes by; one without gets the start of its ID.
func (h *Hub) rename(d *fleet.Device, q *wire.Hello) {
	switch {
	case q.Name != "":
		d.Name = q.Name
	case d.Name == "":
		d.Name = "device-" + string(q.DeviceID)[:min(8, len(q.DeviceID))]
	}
}

// issue signs a membership for d.
func (h *Hub) issue(d *fleet.Device, now time.Time) ([]byte, error) {
	issued := chain.InstantOf(now)
	if h.revoked != nil {
		for _, e := range h.revoked.Ended {
			if e.Peer == d.Peer {
				issued = max(issued, e.At+1) // it was let in again
			}
		}
	}
	h.serial = max(h.serial+1, uint64(max(now.UnixMilli(), 1)))
	m := member.Membership{Mesh: h.cfg.Mesh, DeviceID: d.ID, Peer: d.Peer, Name: d.Name, Scopes: d.Scopes, Granted: d.Granted, Issued: issued,
		Expires: issued + chain.Instant(member.Lifetime/time.Millisecond), Serial: h.serial}
	envelope, err := member.Issue(h.cfg.Key, m)
	if err != nil {
		return nil, err
	}
	d.Serial, d.Issued, d.Expires = m.Serial, m.Issued, m.Expires
	return envelope, nil
}

// describe takes in what a device says it can do, and reports whether that is news.
func (h *Hub) describe(d *fleet.Device, capabilities []chain.Capability, locals []wire.LocalOption) bool {
	capabilities = slices.Clone(capabilities)
	slices.Sort(capabilities)
	capabilities = slices.Compact(capabilities)
	if slices.Equal(d.Declared, capabilities) && sameLocals(d.Locals, locals) {
		return false
	}
	d.Declared, d.Locals = capabilities, locals
	return true
}

func sameLocals(a, b []wire.LocalOption) bool {
	if len(a) != len(b) {
		return false
	}
	x, errX := chain.Marshal(a)
	y, errY := chain.Marshal(b)
	return errX == nil && errY == nil && (len(a) == 0 || string(x) == string(y))
}

// learnHeld goes through the marks that a device shows. It returns the slots in
// which the hub seems to be behind and wants to see the head that proves it.
func (h *Hub) learnHeld(d *fleet.Device, holds []wire.Held, now time.Time) (behind []chain.Slot) {
	heads := 0
	for i := range holds {
		held := &holds[i]
		if !slices.Contains(d.Scopes, held.Slot.Scope.Base()) || !h.press.Behind(held.Slot, held.Mark) {
			continue
		}
		if len(held.Head) == 0 {
			behind = append(behind, held.Slot)
			continue
		}
		if heads++; heads > maxHeads {
			break // the rest comes with its next visit
		}
		before, _ := h.press.Edition(held.Slot)
		changed, err := h.press.Learn(held.Slot, held.Mark, held.Head, now)
		if err != nil {
			h.alarm(now, "a device claims a sequence number without proof", d, held.Slot.String()+": "+err.Error())
			continue
		}
		if before.Seq == held.Mark.Seq {
			h.alarm(now, "two bodies under one sequence number", d, held.Slot.String())
		} else {
			h.alarm(now, "a device holds a newer chain than the hub: an older copy of the hub's data is in use, sequences go on above it", d, held.Slot.String())
		}
		if changed {
			h.published(held.Slot, "evidence")
		}
	}
	return behind
}

// maxOffered is what one welcome may list. What is left out falls back to wider chains.
const maxOffered = 4096

// available lists what there is to fetch for the members of scopes.
func (h *Hub) available(scopes []chain.ScopeID) []wire.Available {
	var list []wire.Available
	for _, scope := range scopes {
		for _, p := range h.catalogue.Primitives {
			for _, slot := range h.slotsOf(scope, p.Name) {
				if e, ok := h.press.Edition(slot); ok && len(list) < maxOffered {
					list = append(list, wire.Available{Slot: slot, Seq: e.Seq, Body: e.Body})
				}
			}
		}
	}
	return list
}

// locate notes which network a device speaks from.
func (h *Hub) locate(d *fleet.Device) {
	if p, ok := h.outbox.publisher.(interface{ Network(chain.PeerID) string }); ok {
		if name := p.Network(d.Peer); name != "" {
			d.Network = name
		}
	}
}

// keepDevice writes d and puts it in force.
func (h *Hub) keepDevice(d *fleet.Device) error {
	if err := put(h.cfg.Storage.Bucket(bucketDevices), string(d.Peer), *d); err != nil {
		return err
	}
	if old := h.fleet.Device(d.Peer); old == nil || !sameAgents(old, d, time.Now()) {
		h.relist()
	}
	h.fleet.Put(d)
	return nil
}
