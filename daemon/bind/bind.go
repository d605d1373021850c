// Package bind owns who fills a peer slot: the table of peers that this device
// knows, what it learned of each by itself, and the choice among those that may
// run a piece of work now. It is pure: contacts, outcomes, time and randomness come
// in, and it opens nothing. It must not know streams, addresses or cool-downs:
// the walk says which peers it does not want. docs/binding.md has the rules and
// the reasons.
package bind

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
)

// Bounds of the table. Beyond them what is least likely to be of use goes first.
const (
	maxPeers = 1024 // known, live or not
	maxWorks = 16   // kinds of work remembered for one peer
	maxPools = 256  // kinds of work remembered over all peers
)

// Contact is what a peer said and showed over a connection of its own, just now.
// The membership was verified by whoever made the contact.
type Contact struct {
	Peer         chain.PeerID
	Membership   member.Membership
	Capabilities []chain.Capability // as declared; what was not granted does not count
	BootID       string             // another one than before: the peer was restarted
	RTT          time.Duration      // 0 unknown
	Load         Load
	Relayed      bool // over a relay that carries no work
}

// Load is how much foreign and own work a peer has, as it says itself.
type Load struct {
	Jobs     int // running and waiting
	Parallel int // it runs at once; below 1 counts as 1
}

// Introduction is what others say of a peer. It makes a peer known, never
// live.
type Introduction struct {
	Peer         chain.PeerID
	Membership   member.Membership
	Capabilities []chain.Capability
}

// Work is one kind of work by which peers are compared: an option of a primitive.
type Work struct {
	Primitive chain.Primitive
	Option    chain.OptionID
}

// Table is what the device knows of its peers. It is safe for concurrent use.
type Table struct {
	own chain.PeerID

	mu      sync.Mutex
	random  *rand.Rand
	peers   map[chain.PeerID]*known
	order   []*known         // the same, by peer ID: the same draw gives the same peer
	pools   map[Work]*record // over all peers: what is expected of one that was never tried
	revoked *member.Revocations
}

// known is one peer.
type known struct {
	peer         chain.PeerID
	membership   member.Membership
	capabilities []chain.Capability // declared and granted
	bootID       string
	boot         string // that nonces of requests begin with: bootID, until it names another
	rtt          time.Duration
	state        state
	since        time.Time // of state
	relayed      bool
	declines     time.Time // until when it takes no work of any kind
	heard        time.Time // when it last spoke to this device

	load    Load
	loadAt  time.Time
	loadOwn int // of load.Jobs, what came from this device
	running int // begun here and not ended

	works map[Work]*record
}

// state is how the device stands with a peer.
type state uint8

const (
	introduced state = iota // heard of, never met
	live                    // a connection stands, and the last thing tried on it worked
	silent                  // a connection stood, but an attempt over it came to nothing
	parted                  // no connection
)

func (s state) String() string { return [...]string{"heard_of", "live", "silent", "parted"}[s] }

// New makes an empty table for the device own, which never binds to itself.
// random belongs to the table from now on.
func New(own chain.PeerID, random *rand.Rand) *Table {
	return &Table{own: own, random: random, peers: map[chain.PeerID]*known{}, pools: map[Work]*record{}}
}

// Contact takes in a direct contact: the only way for a peer to become live. It
// reports whether the peer returned, that is, was not live before or was
// restarted: what was held against it then is of the past.
func (t *Table) Contact(c Contact, now time.Time) (returned bool) {
	if c.Peer == t.own || c.Peer == "" {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.at(c.Peer)
	returned = k.state == parted || k.state == introduced || k.bootID != c.BootID
	if k.state != live || returned {
		k.state, k.since = live, now
	}
	k.membership, k.capabilities = c.Membership, c.Membership.Counts(c.Capabilities)
	if k.bootID != c.BootID {
		k.boot = c.BootID
	}
	k.bootID, k.relayed, k.heard = c.BootID, c.Relayed, now
	if returned {
		k.declines = time.Time{}
		for _, r := range k.works {
			r.declines = time.Time{}
		}
	}
	if c.RTT > 0 {
		k.rtt = c.RTT
	}
	k.load, k.loadAt, k.loadOwn = c.Load, now, k.running
	return returned
}

// Parted says that the last connection to a peer is gone.
func (t *Table) Parted(p chain.PeerID, now time.Time) { t.move(p, parted, now) }

// Silent says that an attempt over a standing connection came to nothing: no
// answer, no refusal. The peer is not bound to again before it was heard. It
// reports whether that is news.
func (t *Table) Silent(p chain.PeerID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.peers[p]
	if k == nil || k.state != live {
		return false
	}
	k.state, k.since = silent, now
	return true
}

// Heard says that a peer spoke, with an answer that took rtt (0 unknown): a silent
// one is live again. One that parted has to be met again.
func (t *Table) Heard(p chain.PeerID, rtt time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.peers[p]
	if k == nil {
		return
	}
	k.heard = now
	if rtt > 0 {
		k.rtt = rtt
	}
	if k.state == silent {
		k.state, k.since = live, now
	}
}

// Declined says that a peer takes none of this work until then, or none at all
// for the zero Work: its owner shares nothing, it has nothing to run it with now,
// or it named a time to come back. That is no failure.
func (t *Table) Declined(p chain.PeerID, w Work, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch k := t.peers[p]; {
	case k == nil:
	case w == Work{}:
		k.declines = until
	default:
		k.record(w).declines = until
	}
}

// Boot gives what the nonce of a request to p has to begin with, "" if nobody knows.
func (t *Table) Boot(p chain.PeerID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.peers[p]; k != nil {
		return k.boot
	}
	return ""
}

// Booted says what p itself wants the nonce to begin with.
func (t *Table) Booted(p chain.PeerID, boot string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.peers[p]; k != nil {
		k.boot = boot
	}
}

// LastHeard gives when p last spoke to this device, zero if it never did.
func (t *Table) LastHeard(p chain.PeerID) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.peers[p]; k != nil {
		return k.heard
	}
	return time.Time{}
}

// IsSilent reports whether p waits to be heard again.
func (t *Table) IsSilent(p chain.PeerID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.peers[p]
	return k != nil && k.state == silent
}

// Name gives what people call a peer, "" for one that is not known.
func (t *Table) Name(p chain.PeerID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.peers[p]; k != nil {
		return k.membership.Name
	}
	return ""
}

func (t *Table) move(p chain.PeerID, to state, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.peers[p]; k != nil && k.state != introduced && k.state != to {
		k.state, k.since = to, now
	}
}

// PartedAll says that every connection is gone: the device left its mesh, or
// joined it anew.
func (t *Table) PartedAll(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.peers {
		if k.state != introduced && k.state != parted {
			k.state, k.since = parted, now
		}
	}
}

// Introduce makes a peer known. What a contact said stands above it.
func (t *Table) Introduce(i Introduction, now time.Time) {
	if i.Peer == t.own || i.Peer == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.peers[i.Peer]; k != nil && k.state != introduced {
		return
	}
	k := t.at(i.Peer)
	k.membership, k.capabilities, k.since = i.Membership, i.Membership.Counts(i.Capabilities), now
}

// Revoke takes over the newest revocation list.
func (t *Table) Revoke(list *member.Revocations) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revoked = list
}

// at gives the entry of p for writing, making room for a new one.
func (t *Table) at(p chain.PeerID) *known {
	k := t.peers[p]
	if k == nil {
		if len(t.peers) >= maxPeers {
			t.evict()
		}
		k = &known{peer: p, works: map[Work]*record{}}
		t.peers[p] = k
		i, _ := slices.BinarySearchFunc(t.order, p, byPeer)
		t.order = slices.Insert(t.order, i, k)
	}
	return k
}

// evict gives up one peer: one only heard of before one that left, that before
// one that is silent, that before a live one; among equals the one that has
// been so for longest.
func (t *Table) evict() {
	order := map[state]int{introduced: 0, parted: 1, silent: 2, live: 3}
	var first chain.PeerID
	var least *known
	for p, k := range t.peers {
		switch {
		case least == nil, order[k.state] < order[least.state],
			k.state == least.state && (k.since.Before(least.since) || k.since.Equal(least.since) && p < first):
			first, least = p, k
		}
	}
	delete(t.peers, first)
	if i, ok := slices.BinarySearchFunc(t.order, first, byPeer); ok {
		t.order = slices.Delete(t.order, i, i+1)
	}
}

func byPeer(k *known, p chain.PeerID) int { return strings.Compare(string(k.peer), string(p)) }
