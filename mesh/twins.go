package mesh

import (
	"slices"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
)

// Clone says that something which must be unique was seen twice: a data
// directory was copied, or a device ID is used by two keys. The node tells and
// goes on; a copy is stopped by its owner, or by a revocation.
type Clone struct {
	Kind  CloneKind
	Peer  chain.PeerID // who was seen with it
	Other chain.PeerID // for SameDeviceID: who has it, too
	ID    chain.DeviceID
	Name  string // of Peer
}

// CloneKind says what was seen twice.
type CloneKind string

// Kinds of clones.
const (
	SameIdentity CloneKind = "same_identity"  // two running programs with the key of Peer
	SameDeviceID CloneKind = "same_device_id" // two members with one device ID
)

// twins remembers what it takes to see a clone.
type twins struct {
	boots   map[chain.PeerID][]string // the last runs of a peer, newest last
	holders map[chain.DeviceID]chain.PeerID
	told    map[Clone]bool
}

const maxRuns = 4

// twin looks whether a member of whom something was heard is one of two. A
// device that starts again has a new boot ID; one that comes back to an old one
// runs twice.
func (p *peers) twin(m member.Membership, boot string) {
	own, ok := p.own()
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.twins
	if t.boots == nil {
		t.boots, t.holders, t.told = map[chain.PeerID][]string{}, map[chain.DeviceID]chain.PeerID{}, map[Clone]bool{}
	}
	if ok {
		t.holders[own.DeviceID] = own.Peer
	}
	runs := t.boots[m.Peer]
	if i := slices.Index(runs, boot); i < 0 {
		makeRoom(t.boots)
		t.boots[m.Peer] = append(slices.Clone(runs[max(0, len(runs)-maxRuns+1):]), boot)
	} else if i < len(runs)-1 {
		t.boots[m.Peer] = append(slices.Delete(slices.Clone(runs), i, i+1), boot)
		p.clone(Clone{Kind: SameIdentity, Peer: m.Peer, ID: m.DeviceID, Name: m.Name})
	}
	holder, known := t.holders[m.DeviceID]
	switch {
	case !known:
		makeRoom(t.holders)
		t.holders[m.DeviceID] = m.Peer
	case holder != m.Peer:
		p.clone(Clone{Kind: SameDeviceID, Peer: m.Peer, Other: holder, ID: m.DeviceID, Name: m.Name})
	}
}

// clone tells of c, once. mu is held.
func (p *peers) clone(c Clone) {
	if p.twins.told[c] || len(p.twins.told) >= maxContacts {
		return
	}
	p.twins.told[c] = true
	if f := p.d.cfg.OnClone; f != nil {
		p.d.teller.tell(func() { f(c) })
	}
}
