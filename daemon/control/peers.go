package control

import (
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Peer is another device as this one knows it.
type Peer struct {
	PeerID       chain.PeerID       `json:"peer_id"`
	Name         string             `json:"name"`
	DeviceID     chain.DeviceID     `json:"device_id,omitempty"`
	State        string             `json:"state"`                   // live, silent, parted or heard_of
	Since        time.Time          `json:"since"`                   // of the state
	Heard        *time.Time         `json:"last_contact,omitempty"`  // when it last spoke to this device
	Way          *Way               `json:"way,omitempty"`           // the connection; absent: none stands
	RTT          float64            `json:"rtt_ms,omitempty"`        // absent: not measured
	Ahead        float64            `json:"jobs_ahead"`              // for each that it runs at once
	Cooling      *time.Time         `json:"cooling_until,omitempty"` // it failed, and is left alone
	CoolingFor   chain.Class        `json:"cooling_for,omitempty"`   // how it failed
	Capabilities []chain.Capability `json:"capabilities,omitempty"`
	Scopes       []chain.ScopeID    `json:"scopes,omitempty"`
	Slots        []PeerSlot         `json:"slots,omitempty"` // of the chains in force
}

// Way is the connection to a peer.
type Way struct {
	Path      string `json:"path"`      // direct or relayed
	Transport string `json:"transport"` // tcp, quic-v1
	Address   string `json:"address"`   // of the other end
}

// Pong is the answer of a peer that was pinged.
type Pong struct {
	PeerID chain.PeerID `json:"peer_id"`
	Name   string       `json:"name"`
	RTT    float64      `json:"rtt_ms"`
	Way
}

// Chord is an adjacency of two devices, as this one heard of it.
type Chord struct {
	Scope chain.ScopeID `json:"scope,omitempty"` // the hub does not tell
	A     chain.PeerID  `json:"a"`
	B     chain.PeerID  `json:"b"`
	NameA string        `json:"name_a"`
	NameB string        `json:"name_b"`
	RTT   float64       `json:"rtt_ms"`               // 0: not measured
	At    time.Time     `json:"at"`                   // of the older claim
	By    chain.PeerID  `json:"claimed_by,omitempty"` // the one end that claims it; absent: both do, and only such a chord counts
}

// PeerCount is what status says of the other devices.
type PeerCount struct {
	Known int `json:"known"`
	Live  int `json:"live"`
}

// PeerSlot says whether a peer can fill one slot of a chain in force.
type PeerSlot struct {
	Scope     chain.ScopeID   `json:"scope"`
	Primitive chain.Primitive `json:"primitive"`
	Option    chain.OptionID  `json:"option"`
	Verdict
}

// Verdict is what this device thinks of a peer for a slot.
type Verdict struct {
	Eligible bool    `json:"eligible"`
	Why      string  `json:"why,omitempty"`    // why not; docs/binding.md lists the reasons
	Detail   string  `json:"detail,omitempty"` // the same for people
	Expected float64 `json:"expected_ms"`      // until an answer, by what this device measured
}

// Candidate is a verdict on a peer, in the view of one slot.
type Candidate struct {
	PeerID chain.PeerID `json:"peer_id"`
	Name   string       `json:"name"`
	Verdict
}
