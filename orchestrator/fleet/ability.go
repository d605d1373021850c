package fleet

import (
	"crypto/sha256"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// ability is what a device was granted and declared. Thousands of devices are set up
// alike: they share one.
type ability struct {
	id       [16]byte
	uses     int
	granted  []member.Pattern
	declared []chain.Capability
	locals   []wire.LocalOption
	version  string
}

// share lets d speak of what others can do too by the same memory. What a device
// holds must be replaced and never changed in place.
func (f *Fleet) share(d *Device) {
	bytes, err := chain.Marshal(struct {
		Granted  []member.Pattern   `cbor:"granted"`
		Declared []chain.Capability `cbor:"declared"`
		Locals   []wire.LocalOption `cbor:"locals"`
		Version  string             `cbor:"version"`
	}{d.Granted, d.Declared, d.Locals, d.Version})
	var id [16]byte
	if sum := sha256.Sum256(bytes); err == nil {
		copy(id[:], sum[:])
	} else {
		sum := sha256.Sum256([]byte(d.Peer)) // cannot be: it came over the wire. Then it shares with nobody
		copy(id[:], sum[:])
	}
	a := f.abilities[id]
	if a == nil {
		a = &ability{id: id, granted: d.Granted, declared: d.Declared, locals: d.Locals, version: d.Version}
		f.abilities[id] = a
	}
	a.uses++
	d.Granted, d.Declared, d.Locals, d.Version = a.granted, a.declared, a.locals, a.version
	if old := f.devices[d.Peer]; old != nil && old.ability != nil {
		if old.ability.uses--; old.ability.uses == 0 {
			delete(f.abilities, old.ability.id)
		}
	}
	d.ability = a
}
