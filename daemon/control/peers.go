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
	State        string             `json:"state"` // live, silent, parted or heard_of
	Since        time.Time          `json:"since"` // of the state
	RTT          float64            `json:"rtt_ms,omitempty"`
	Ahead        float64            `json:"jobs_ahead"` // for each that it runs at once
	Capabilities []chain.Capability `json:"capabilities,omitempty"`
	Scopes       []chain.ScopeID    `json:"scopes,omitempty"`
	Slots        []PeerSlot         `json:"slots,omitempty"` // of the chains in force
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
