package fleet

import (
	"slices"

	"github.com/chordwheel/chordwheel/chain"
)

// maxEarlier is how many names that a device went by before are remembered.
const maxEarlier = 8

// GoBy notes the DID that the device says that it signs receipts as, "" for its did:key alone.
// The one of before becomes an earlier one: receipts that were signed as it may be on their
// way yet. Of more than 8 the oldest is forgotten.
func (d *Device) GoBy(did string) {
	if did == d.DID {
		return
	}
	earlier := slices.DeleteFunc(slices.Clone(d.Earlier), func(name string) bool { return name == did || name == d.DID })
	if d.DID != "" {
		earlier = append(earlier, d.DID)
	}
	d.Earlier, d.DID = earlier[max(0, len(earlier)-maxEarlier):], did
}

// called notes the DIDs that a device goes by and went by. It is a claim, which signatures bear
// out or not: of two who say the same the first is believed, until he says otherwise or is revoked.
func (f *Fleet) called(old, d *Device) {
	if old != nil && old.DID != d.DID && f.names[old.DID] == d.Peer {
		delete(f.names, old.DID)
	}
	f.calledBefore(old, d)
	if d.DID == "" {
		return
	}
	first := f.devices[f.names[d.DID]]
	if first == nil || first.Revoked != 0 || first.DID != d.DID {
		f.names[d.DID] = d.Peer
	}
}

// calledBefore is called for the names of before, which several may have had.
func (f *Fleet) calledBefore(old, d *Device) {
	if old != nil {
		for _, did := range old.Earlier {
			if rest := slices.DeleteFunc(f.earlier[did], func(p chain.PeerID) bool { return p == d.Peer }); len(rest) > 0 {
				f.earlier[did] = rest
			} else {
				delete(f.earlier, did)
			}
		}
	}
	if d.Revoked != 0 {
		return
	}
	for _, did := range d.Earlier {
		f.earlier[did] = append(f.earlier[did], d.Peer)
	}
}

// Named gives the device that says that it signs as a DID, or nil.
func (f *Fleet) Named(did string) *Device { return f.devices[f.names[did]] }

// Formerly gives the devices that went by a DID before, and were not revoked since. The list is
// the caller's. Nothing but receipts of that time should be taken for it, and of those none that
// another key signed than the device's: a name that somebody goes by has its [Fleet.Named].
func (f *Fleet) Formerly(did string) []chain.PeerID { return slices.Clone(f.earlier[did]) }
