// Package fleet owns what devices told the hub, and when: who they are, what
// they can do, what they measured. It is always late and never goes and looks.
// It is pure: time comes in, and keeping it on disk is the hub's business.
// Whether a device may say something is decided here (an impossible report, a
// device ID that is taken); what follows for policy is decided elsewhere.
package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/chord"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Device is what the hub knows of one device. Its CBOR form is what is kept.
type Device struct {
	Peer     chain.PeerID     `cbor:"peer"`
	ID       chain.DeviceID   `cbor:"id"`
	Name     string           `cbor:"name"`
	Scopes   []chain.ScopeID  `cbor:"scopes"`
	Granted  []member.Pattern `cbor:"granted"`
	Serial   uint64           `cbor:"serial"`  // of the newest membership
	Issued   chain.Instant    `cbor:"issued"`  // of the newest membership
	Expires  chain.Instant    `cbor:"expires"` // of the newest membership
	Enrolled chain.Instant    `cbor:"enrolled"`
	Invited  string           `cbor:"invited,omitempty"` // hash of the invitation it enrolled with
	Revoked  chain.Instant    `cbor:"revoked,omitempty"` // 0: it is not

	Version   string             `cbor:"version,omitempty"` // of its program
	Declared  []chain.Capability `cbor:"declared,omitempty"`
	Locals    []wire.LocalOption `cbor:"locals,omitempty"`
	Metered   bool               `cbor:"metered,omitempty"`
	Addresses []string           `cbor:"addresses,omitempty"` // where other devices may dial it
	Network   string             `cbor:"network,omitempty"`   // the /24 or /48 that it was last heard from
	Seen      chain.Instant      `cbor:"seen"`                // its last word
	Boots     []Boot             `cbor:"boots,omitempty"`
	DID       string             `cbor:"did,omitempty"`     // what it says that it signs receipts as, beside its did:key
	Earlier   []string           `cbor:"earlier,omitempty"` // what it said so before, the last one last; see GoBy

	ability *ability // set by Put
}

// Boot says which batches of one run of a device were counted.
type Boot struct {
	ID      string `cbor:"id"`
	Highest uint64 `cbor:"highest"`
	Window  uint64 `cbor:"window"` // bit i: Highest−i was counted
}

const maxBoots = 4 // runs of a device whose late batches are still told apart

// Take reports whether a batch is new, and marks it as counted. A batch too old
// to tell counts as seen.
func (d *Device) Take(boot string, seq uint64) bool {
	i := slices.IndexFunc(d.Boots, func(b Boot) bool { return b.ID == boot })
	if i < 0 {
		d.Boots = append(slices.Clone(d.Boots), Boot{ID: boot, Highest: seq, Window: 1})
		if len(d.Boots) > maxBoots {
			d.Boots = d.Boots[len(d.Boots)-maxBoots:]
		}
		return true
	}
	d.Boots = slices.Clone(d.Boots)
	b := &d.Boots[i]
	switch {
	case seq > b.Highest:
		b.Window = b.Window<<min(seq-b.Highest, 64) | 1
		b.Highest = seq
		return true
	case b.Highest-seq >= 64 || b.Window>>(b.Highest-seq)&1 == 1:
		return false
	}
	b.Window |= 1 << (b.Highest - seq)
	return true
}

// Allows reports whether the device may count capability c as its own.
func (d *Device) Allows(c chain.Capability) bool {
	return slices.ContainsFunc(d.Granted, func(p member.Pattern) bool { return p.Matches(c) })
}

// Has reports whether the device declared every one of all and was granted it.
func (d *Device) Has(all ...chain.Capability) bool {
	for _, c := range all {
		if !slices.Contains(d.Declared, c) && c != chain.DeviceCapability(d.ID) || !d.Allows(c) {
			return false
		}
	}
	return true
}

// Tag gives what the device was granted to declare after a prefix such as "geo:": the
// first by the alphabet, or "".
func (d *Device) Tag(prefix string) string {
	best := ""
	for _, c := range d.Declared {
		if value, ok := strings.CutPrefix(string(c), prefix); ok && value != "" && (best == "" || value < best) && d.Allows(c) {
			best = value
		}
	}
	return best
}

// Active reports whether the device counts as a member at now.
func (d *Device) Active(now chain.Instant) bool { return d.Revoked == 0 && now < d.Expires }

// Conflict is a device ID that came under a second peer ID. It waits for the owner.
type Conflict struct {
	ID     chain.DeviceID `cbor:"id"`
	Peer   chain.PeerID   `cbor:"peer"`   // who came second
	Holder chain.PeerID   `cbor:"holder"` // who has it
	Name   string         `cbor:"name"`
	At     chain.Instant  `cbor:"at"`
}

// Refusals of a fleet.
var (
	ErrTaken      = errors.New("the device ID belongs to another peer ID: the owner must approve the change")
	ErrImpossible = errors.New("the report holds a value that cannot be")
)

// Fleet is all devices. It is not safe for concurrent use: the hub's loop owns it.
type Fleet struct {
	devices   map[chain.PeerID]*Device
	holders   map[chain.DeviceID]*Device
	names     map[string]chain.PeerID     // by DID: who said first that it is his
	earlier   map[string][]chain.PeerID   // by DID: who went by it before
	members   map[chain.ScopeID][]*Device // of a scope, by peer ID; revoked and expired ones too
	abilities map[[16]byte]*ability       // what devices can do, once for all that can do the same
	conflicts map[chain.PeerID]Conflict
	chords    chord.Table
	runs      map[chain.PeerID][2]uint64 // hashes of the last two boot IDs said in a hello, newest first
	twins     map[chain.PeerID]time.Time // when an older run of the device was last back
}

// New gives an empty fleet.
func New() *Fleet {
	return &Fleet{devices: map[chain.PeerID]*Device{}, holders: map[chain.DeviceID]*Device{}, names: map[string]chain.PeerID{}, earlier: map[string][]chain.PeerID{}, members: map[chain.ScopeID][]*Device{},
		abilities: map[[16]byte]*ability{}, conflicts: map[chain.PeerID]Conflict{}, runs: map[chain.PeerID][2]uint64{}, twins: map[chain.PeerID]time.Time{}}
}

// Device gives the device under a peer ID, or nil. Changes are the caller's to keep.
func (f *Fleet) Device(peer chain.PeerID) *Device { return f.devices[peer] }

// Devices gives all devices by name, then by peer ID.
func (f *Fleet) Devices() []*Device {
	list := make([]*Device, 0, len(f.devices))
	for _, d := range f.devices {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b *Device) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Peer, b.Peer))
	})
	return list
}

// All gives all devices in no order.
func (f *Fleet) All() iter.Seq[*Device] { return maps.Values(f.devices) }

// Count gives the number of devices.
func (f *Fleet) Count() int { return len(f.devices) }

// maxConflicts bounds what strangers with an invitation can leave behind.
const maxConflicts = 256

// Claim checks that peer may use a device ID. ErrTaken comes with the conflict,
// which is remembered until the owner decides.
func (f *Fleet) Claim(id chain.DeviceID, peer chain.PeerID, name string, now chain.Instant) (Conflict, error) {
	d := f.holders[id]
	if d == nil || d.Peer == peer || d.Revoked != 0 {
		return Conflict{}, nil
	}
	c := Conflict{ID: id, Peer: peer, Holder: d.Peer, Name: name, At: now}
	if old, known := f.conflicts[peer]; known && old.ID == id || len(f.conflicts) < maxConflicts {
		f.conflicts[peer] = c
	}
	return c, fmt.Errorf("device ID %s: %w", id, ErrTaken)
}

// Conflicts gives what waits for the owner, oldest first.
func (f *Fleet) Conflicts() []Conflict {
	list := make([]Conflict, 0, len(f.conflicts))
	for _, c := range f.conflicts {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Conflict) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Peer, b.Peer)) })
	return list
}

// Conflict gives what waits for the owner under a peer ID.
func (f *Fleet) Conflict(peer chain.PeerID) (Conflict, bool) {
	c, ok := f.conflicts[peer]
	return c, ok
}

// AddConflict puts one back that was kept.
func (f *Fleet) AddConflict(c Conflict) { f.conflicts[c.Peer] = c }

// Settle forgets a conflict.
func (f *Fleet) Settle(peer chain.PeerID) { delete(f.conflicts, peer) }

// Put adds a device or replaces it.
func (f *Fleet) Put(d *Device) {
	f.share(d)
	old := f.devices[d.Peer]
	if old != nil && old.ID != d.ID && f.holders[old.ID] == old {
		delete(f.holders, old.ID)
	}
	f.devices[d.Peer] = d
	if d.Revoked != 0 {
		f.chords.Forget(d.Peer)
	}
	if holder := f.holders[d.ID]; d.Revoked == 0 || holder == nil || holder.Peer == d.Peer {
		f.holders[d.ID] = d
	}
	if old != nil {
		f.leave(old, d.Scopes)
	}
	f.called(old, d)
	// A list of its own: the one that came in may stand in a welcome that is on its way.
	scopes := make([]chain.ScopeID, len(d.Scopes))
	for i, scope := range d.Scopes {
		scopes[i] = f.enter(d, scope)
	}
	d.Scopes = scopes
}

// leave takes a device out of the scopes that it is no member of any more.
func (f *Fleet) leave(old *Device, now []chain.ScopeID) {
	for _, scope := range old.Scopes {
		if slices.Contains(now, scope) {
			continue
		}
		if rest := slices.DeleteFunc(f.members[scope], func(m *Device) bool { return m.Peer == old.Peer }); len(rest) > 0 {
			f.members[scope] = rest
		} else {
			delete(f.members, scope)
		}
	}
}

// enter puts a device among the members of a scope, in the place of what was known
// of it before. It gives the name of the scope as all members have it.
func (f *Fleet) enter(d *Device, scope chain.ScopeID) chain.ScopeID {
	scope = f.Name(scope)
	list := f.members[scope]
	i, found := slices.BinarySearchFunc(list, d.Peer, func(m *Device, p chain.PeerID) int { return cmp.Compare(m.Peer, p) })
	if found {
		list[i] = d
	} else {
		list = slices.Insert(list, i, d)
	}
	f.members[scope] = list
	return scope
}

// Find gives the device with a peer ID, a device ID or a name; a name that
// several devices have finds none.
func (f *Fleet) Find(who string) *Device {
	if d := f.devices[chain.PeerID(who)]; d != nil {
		return d
	}
	if d := f.holders[chain.DeviceID(who)]; d != nil {
		return d
	}
	var found *Device
	for _, d := range f.devices {
		if d.Name == who && d.Revoked == 0 {
			if found != nil {
				return nil
			}
			found = d
		}
	}
	return found
}
