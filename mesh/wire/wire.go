// Package wire owns what nodes say to each other: the messages of the spoke
// and of gossip, their frames and their limits. It has no I/O beyond an
// io.Reader and io.Writer, and decides nothing: whether a message is believed is
// the business of those who read it.
//
// # Frames
//
// A frame is an unsigned varint length and that many bytes of deterministic
// CBOR (package chain). Control frames are at most [MaxControl] bytes. The length is
// checked before a buffer is made.
package wire

import "github.com/chordwheel/chordwheel/chain"

// Hello opens every session of a device with the hub. Either Membership or
// Invitation is set.
type Hello struct {
	Version      string             `cbor:"version"` // of the program, for people
	DeviceID     chain.DeviceID     `cbor:"device_id"`
	Name         string             `cbor:"name"`
	Membership   []byte             `cbor:"membership,omitempty"` // signed envelope
	Invitation   *Redeem            `cbor:"invitation,omitempty"`
	Capabilities []chain.Capability `cbor:"capabilities,omitempty"`
	Locals       []LocalOption      `cbor:"locals,omitempty"`
	Holds        []Held             `cbor:"holds,omitempty"` // highest accepted, per slot
	BootID       string             `cbor:"boot_id"`
	Metered      bool               `cbor:"metered,omitempty"`
	Addresses    []string           `cbor:"addresses,omitempty"` // where other devices may dial it
	DID          string             `cbor:"did,omitempty"`       // what it signs receipts as, if that is not its did:key; a claim
}

// Redeem is the part of an invitation that proves the right to enrol.
type Redeem struct {
	Secret []byte        `cbor:"secret"`
	Scope  chain.ScopeID `cbor:"scope"`
}

// LocalOption is a service of the device's own, declared for primitives.
type LocalOption struct {
	Primitives []chain.Primitive `cbor:"primitives"`
	Option     chain.Option      `cbor:"option"`
}

// Held is the mark of a slot as a device has it. Head is sent along when the hub
// seems to be behind: a claim above the hub's own counts only with the head that
// its own key signed.
type Held struct {
	Slot chain.Slot `cbor:"slot"`
	Mark chain.Mark `cbor:"mark"`
	Head []byte     `cbor:"head,omitempty"`
}

// Welcome answers a Hello that was accepted.
type Welcome struct {
	Membership  []byte          `cbor:"membership,omitempty"`  // new or renewed; absent: keep yours
	Revocations []byte          `cbor:"revocations,omitempty"` // the latest signed list
	Topics      []TopicKey      `cbor:"topics,omitempty"`      // of the member's scopes
	Chains      []Available     `cbor:"chains,omitempty"`      // what there is to fetch
	Behind      []chain.Slot    `cbor:"behind,omitempty"`      // slots whose head the hub wants to see
	Now         chain.Instant   `cbor:"now"`
	ComeBack    chain.Millis    `cbor:"come_back,omitempty"` // next visit; 0: as the rules say
	Stay        bool            `cbor:"stay,omitempty"`      // keep the connection
	Twin        bool            `cbor:"twin,omitempty"`      // another program says hello with this identity
	Authority   string          `cbor:"authority,omitempty"` // URL of the authority services
	Certificate []byte          `cbor:"certificate,omitempty"`
	Peers       []PeerAddress   `cbor:"peers,omitempty"`
	MeshName    string          `cbor:"mesh_name,omitempty"`
	Scopes      []chain.ScopeID `cbor:"scopes,omitempty"`
}

// TopicKey keys the gossip topics of one scope.
type TopicKey struct {
	Scope chain.ScopeID `cbor:"scope"`
	Key   []byte        `cbor:"key"`
	Until chain.Instant `cbor:"until,omitempty"` // 0: current
}

// PeerAddress introduces another device.
type PeerAddress struct {
	Peer      chain.PeerID `cbor:"peer"`
	Addresses []string     `cbor:"addresses"`
}

// Available says which chain the hub has for a slot.
type Available struct {
	Slot chain.Slot `cbor:"slot"`
	Seq  uint64     `cbor:"seq"`
	Body chain.CID  `cbor:"body"`
}

// Report carries what a device measured since the last one. Counters are exact;
// measurements are a sample. (BootID, Seq) names it: one seen before counts
// once.
type Report struct {
	BootID       string             `cbor:"boot_id"`
	Seq          uint64             `cbor:"seq"`
	From         chain.Instant      `cbor:"from"`
	To           chain.Instant      `cbor:"to"`
	Counters     []Counter          `cbor:"counters,omitempty"`
	Measurements []Measurement      `cbor:"measurements,omitempty"`
	Capabilities []chain.Capability `cbor:"capabilities,omitempty"`
	Locals       []LocalOption      `cbor:"locals,omitempty"`
	Dropped      uint64             `cbor:"dropped,omitempty"` // measurements lost to a full queue
	Protests     []Protest          `cbor:"protests,omitempty"`
	Chords       []Chord            `cbor:"chords,omitempty"` // its contacts now; they replace those told before
	Quota        []LeaseUsage       `cbor:"quota,omitempty"`  // what became of leased blocks
}

// Counter is exact: attempts on one option, by outcome.
type Counter struct {
	Slot     chain.Slot             `cbor:"slot"`
	Option   chain.OptionID         `cbor:"option"`
	Peer     chain.PeerID           `cbor:"peer,omitempty"`
	Attempts uint64                 `cbor:"attempts"`
	Outcomes map[chain.Class]uint64 `cbor:"outcomes"`
	LastOK   bool                   `cbor:"last_ok,omitempty"` // how the newest attempt ended
}

// Measurement is one attempt in detail.
type Measurement struct {
	Slot        chain.Slot     `cbor:"slot"`
	Option      chain.OptionID `cbor:"option"`
	Peer        chain.PeerID   `cbor:"peer,omitempty"`
	Class       chain.Class    `cbor:"class"`
	At          chain.Instant  `cbor:"at"`
	FirstOutput chain.Millis   `cbor:"first_output,omitempty"`
	Total       chain.Millis   `cbor:"total"`
	Bytes       int64          `cbor:"bytes,omitempty"`
	Input       int64          `cbor:"input,omitempty"`  // tokens
	Output      int64          `cbor:"output,omitempty"` // tokens
	Cost        chain.MicroUSD `cbor:"cost,omitempty"`
}

// ReportReply acknowledges a report.
type ReportReply struct {
	Accepted bool         `cbor:"accepted"`
	Reason   string       `cbor:"reason,omitempty"` // why it was refused
	ComeBack chain.Millis `cbor:"come_back,omitempty"`
}

// Fetch asks for the chain of a slot.
type Fetch struct {
	Slot chain.Slot `cbor:"slot"`
	Body chain.CID  `cbor:"body,omitempty"` // the body the device has
	Seq  uint64     `cbor:"seq,omitempty"`
}

// FetchReply carries a signed head, and the body unless the device has it: a
// reply without a body renews.
type FetchReply struct {
	Head []byte `cbor:"head"`
	Body []byte `cbor:"body,omitempty"`
}

// Protest says that a device cannot fulfil a request with its chain.
type Protest struct {
	Slot   chain.Slot      `cbor:"slot"`
	Body   chain.CID       `cbor:"body"`
	Nonce  string          `cbor:"nonce"`
	Failed []chain.Failure `cbor:"failed"`
	Budget chain.Millis    `cbor:"budget"`
}

// ProtestReply is an extension, or a final no with a reason.
type ProtestReply struct {
	Extension []byte `cbor:"extension,omitempty"`
	Reason    string `cbor:"reason,omitempty"`
}

// Invalidation says, in a few bytes of gossip, that a slot has a newer chain.
type Invalidation struct {
	Scope     []byte          `cbor:"scope"` // keyed hash of the scope
	Primitive chain.Primitive `cbor:"primitive"`
	Seq       uint64          `cbor:"seq"`
	Prefix    []byte          `cbor:"prefix"` // of the body's CID
}

// Announce presents a device to the members of its scope.
type Announce struct {
	Membership   []byte             `cbor:"membership"`
	Capabilities []chain.Capability `cbor:"capabilities"`
	Seq          uint64             `cbor:"seq"` // rises with each announcement of a boot
	BootID       string             `cbor:"boot_id"`
	Addresses    []string           `cbor:"addresses,omitempty"` // where members may dial it; a hint
}
