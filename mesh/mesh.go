// Package mesh owns the live nodes: how a hub and its devices reach each other.
// It makes hosts, keeps connections, runs the spoke and the gossip topics, and
// is the only place that opens a connection to a peer. Hosts, streams and
// addresses stop here: above it there are only peer IDs as text, messages of
// package wire and signed bytes. It decides nothing about policy: what a chain,
// a report or a membership is worth is its callers' business, but for the one
// rule that gossip of strangers is not passed on.
//
// A [Hub] waits. It never dials, and counts how often something in the process
// asked it to. A [Device] dials its pinned hub, keeps the connection where the hub
// wants that, and comes back with growing, random pauses when it was lost.
//
// docs/mesh.md says why things are as they are here; docs/wire.md has the bytes.
package mesh

import "github.com/chordwheel/chordwheel/chain"

// Stats is what a node can say about its links.
type Stats struct {
	Peers    []chain.PeerID     `json:"peers"`   // connected now
	Traffic  map[string]Traffic `json:"traffic"` // by protocol
	Gossip   GossipStats        `json:"gossip"`
	Sessions int                `json:"sessions"` // of the spoke, open now
	Foreign  int                `json:"foreign"`  // streams with work of other devices, open now
	Refused  uint64             `json:"refused"`  // sessions, or such streams, refused for want of room
}

// GossipStats counts messages since the start. Rejected is by reason.
type GossipStats struct {
	Delivered uint64            `json:"delivered"`
	LostSent  uint64            `json:"lost_sent"`   // packets dropped before a slow neighbour
	LostRead  uint64            `json:"lost_unread"` // messages dropped before a slow reader
	Rejected  map[string]uint64 `json:"rejected"`
}

func (g *gossip) stats() GossipStats {
	return GossipStats{Delivered: g.drops.delivered.Load(), LostSent: g.drops.sent.Load(), LostRead: g.drops.unread.Load(), Rejected: g.drops.reasons()}
}
