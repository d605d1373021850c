package mesh

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/chord"
	"github.com/chordwheel/chordwheel/mesh/exchange"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/reach"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Times and sizes of the contact with other devices.
const (
	keepPeers    = 32
	dialsAtOnce  = 8
	meetTimeout  = 20 * time.Second // a dial, two greetings, two echoes
	refreshEvery = 10 * time.Minute // a contact without traffic
	refreshBusy  = time.Minute      // one whose work is under way
	restFor      = 30 * time.Minute // how long a contact without a link counts
	spreadWithin = 30 * time.Second // a new revocation list goes to those who lack it
	chordsDelay  = 5 * time.Second  // after a change, to gather others
	maxContacts  = 256
)

// Contact is a peer that this device has met: over a connection that proved
// its key it showed a membership that was in force, was not revoked and shares a
// scope.
type Contact struct {
	Peer         chain.PeerID
	Membership   member.Membership
	Capabilities []chain.Capability // declared and granted
	BootID       string
	RTT          time.Duration // 0: not measured yet
	Load         wire.Load
	Addresses    []string // where it says that it can be dialled
	Checkpoint   []byte   // of the hub's ledger, as it saw it last; not verified
	At           time.Time
}

// contact is what the node keeps beside it.
type contact struct {
	Contact
	brief      bool   // one of the two closes idle links
	list       uint64 // the revocation list it had
	refreshAt  time.Time
	used       time.Time // when its link last carried more than gossip
	resting    bool      // its link was closed for being idle
	refreshing bool
}

// peers is a device's part in meeting others. Device.mu may be held when its
// methods are called, but is never taken while mu is.
type peers struct {
	d      *Device
	self   peer.ID
	local  bool // the mesh lives on this machine, or this device does
	within bool // it listens on this machine only
	server *exchange.Server
	wake   chan struct{} // room for one: the loop looks again
	slots  chan struct{} // room for each meeting under way
	group  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	book     *reach.Book
	grants   map[peer.ID]*grant // dials under way
	contacts map[peer.ID]*contact
	chords   map[chain.ScopeID]*chord.Table
	chordsAt time.Time // when to tell the scopes of our contacts; zero: nothing to tell
	twins    twins
	onLAN    map[peer.ID]time.Time // who spoke by multicast, and when
}

// grant lets one dial out.
type grant struct {
	named     bool
	addresses map[string]bool
	done      chan struct{} // closed when the dial is over
}

func newPeers(d *Device) (*peers, error) {
	self, err := peerID(d.PeerID())
	if err != nil {
		return nil, err
	}
	if d.cfg.Keep == 0 {
		d.cfg.Keep = keepPeers
	}
	listen, err := parse(d.cfg.Listen)
	if err != nil {
		return nil, err
	}
	p := &peers{d: d, self: self, local: onlyLoopback(d.addrs) || onlyLoopback(listen), within: onlyLoopback(listen), wake: make(chan struct{}, 1), slots: make(chan struct{}, dialsAtOnce),
		grants: map[peer.ID]*grant{}, contacts: map[peer.ID]*contact{}, chords: map[chain.ScopeID]*chord.Table{}, onLAN: map[peer.ID]time.Time{}}
	p.book = reach.NewBook(reach.Config{Self: self, Loopback: p.local, Keep: d.cfg.Keep, Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))})
	p.server = exchange.NewServer(p, d.cfg.Log)
	owners, err := byPeer(d.cfg.Peers)
	if err != nil {
		return nil, err
	}
	for id, list := range owners {
		if id != d.hub {
			p.book.Note(id, list, reach.Owner, time.Now())
		}
	}
	return p, nil
}

// CheckPeers says what is wrong with addresses of other devices, nil if nothing
// is.
func CheckPeers(addresses []string) error {
	_, err := byPeer(addresses)
	return err
}

// byPeer reads addresses that end in the peer ID of who is there.
func byPeer(addresses []string) (map[peer.ID][]multiaddr.Multiaddr, error) {
	parsed, err := parse(addresses)
	if err != nil {
		return nil, err
	}
	all := map[peer.ID][]multiaddr.Multiaddr{}
	for _, a := range parsed {
		at, id := peer.SplitAddr(a)
		if at == nil || id == "" {
			return nil, fmt.Errorf("peer address %s: want an address and a peer ID, such as /ip4/192.0.2.7/tcp/7411/p2p/12D3Koo…", chain.ClipTo(a.String(), 96))
		}
		all[id] = append(all[id], at)
	}
	return all, nil
}

// onlyLoopback reports whether there are addresses and all are this machine's
// own.
func onlyLoopback(addresses []multiaddr.Multiaddr) bool {
	return len(addresses) > 0 && !slices.ContainsFunc(addresses, func(a multiaddr.Multiaddr) bool { return !manet.IsIPLoopback(a) })
}

// reachable gives where other devices may dial this one, loopback only where
// that means something to them.
func (d *Device) reachable() []string {
	var all []string
	parsed, _ := parse(listening(d.host)) // they came from addresses
	for _, a := range parsed {
		if len(all) < wire.MaxAddresses && (d.peers.local || !manet.IsIPLoopback(a)) {
			all = append(all, a.String())
		}
	}
	return all
}

func (p *peers) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// granted is the gater's question.
func (p *peers) granted(id peer.ID, at multiaddr.Multiaddr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.grants[id]
	if g == nil || at == nil || g.named {
		return g != nil
	}
	at, _ = peer.SplitAddr(at)
	return at != nil && g.addresses[string(at.Bytes())]
}

// any reports whether there is a peer that gossip could reach.
func (p *peers) any() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.contacts {
		if !c.resting {
			return true
		}
	}
	return false
}

// rests reports whether id is a contact whose idle link was closed.
func (p *peers) rests(id peer.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.contacts[id]
	return c != nil && c.resting
}

// introduce notes where peers may be. What is no address is left out: the
// rest may be good.
func (p *peers) introduce(source reach.Source, list ...wire.PeerAddress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range list {
		if id, err := peerID(a.Peer); err == nil && id != p.d.hub {
			p.note(id, a.Addresses, source)
		}
	}
	p.poke()
}

// note is introduce for one peer. mu is held.
func (p *peers) note(id peer.ID, addresses []string, source reach.Source) {
	var parsed []multiaddr.Multiaddr
	for _, s := range addresses[:min(len(addresses), wire.MaxAddresses)] {
		if a, err := multiaddr.NewMultiaddr(s); err == nil {
			parsed = append(parsed, a)
		}
	}
	p.book.Note(id, parsed, source, time.Now())
}

// announced takes the hint of an announcement. It revives nobody.
func (p *peers) announced(v Presence) {
	p.twin(v.Membership, v.BootID)
	p.introduce(reach.Gossip, wire.PeerAddress{Peer: v.Membership.Peer, Addresses: v.Addresses})
}

// adjacent takes what a member says of its contacts.
func (p *peers) adjacent(v Adjacency) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.table(v.Scope).Claim(v.Peer, v.Chords, time.Now())
}

// table gives the chords of a scope. mu is held.
func (p *peers) table(scope chain.ScopeID) *chord.Table {
	t := p.chords[scope]
	if t == nil {
		t = new(chord.Table)
		p.chords[scope] = t
	}
	return t
}

// moved looks for everybody again: this device's addresses changed.
func (p *peers) moved() {
	p.mu.Lock()
	p.book.Moved(time.Now())
	p.mu.Unlock()
	p.poke()
}

// parted is the end of the last connection with id.
func (p *peers) parted(id peer.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.d.host.Network().Connectedness(id) == network.Connected {
		return // another one has come meanwhile
	}
	c := p.contacts[id]
	switch {
	case c == nil:
		p.book.Parted(id, time.Now())
	case c.brief:
		c.resting = true
		p.book.Rest(id)
	default:
		p.drop(id, c)
		p.book.Parted(id, time.Now())
	}
	p.poke()
}

// drop ends a contact. mu is held.
func (p *peers) drop(id peer.ID, c *contact) {
	delete(p.contacts, id)
	p.changedChords()
	if f := p.d.cfg.OnParted; f != nil {
		p.d.teller.tell(func() { f(c.Peer) })
	}
}

func (p *peers) changedChords() {
	if at := time.Now().Add(chordsDelay); p.chordsAt.IsZero() || at.Before(p.chordsAt) {
		p.chordsAt = at
	}
}

// endRevoked ends the contacts that the revocation list names, and spreads the
// list to those who did not have it.
func (p *peers) endRevoked() {
	list, seq := p.d.gossip.judge.held()
	if list == nil {
		return
	}
	var gone []peer.ID
	p.mu.Lock()
	now := time.Now()
	for id, c := range p.contacts {
		if p.d.gossip.judge.ended(&c.Membership) {
			p.drop(id, c)
			p.book.Refused(id, now)
			for _, t := range p.chords {
				t.Forget(c.Peer)
			}
			gone = append(gone, id)
		} else if c.list < seq && !c.resting {
			if at := now.Add(rand.N(spreadWithin)); at.Before(c.refreshAt) {
				c.refreshAt = at
			}
		}
	}
	for _, id := range p.d.host.Network().Peers() { // also whom this device never met: it may send work
		if p.contacts[id] == nil && id != p.d.hub && p.d.gossip.judge.ended(&member.Membership{Peer: chain.PeerID(id.String())}) {
			gone = append(gone, id)
		}
	}
	p.mu.Unlock()
	for _, id := range gone {
		_ = p.d.host.Network().ClosePeer(id)
	}
	p.poke()
}

// The node is the exchange's party.

var _ exchange.Party = (*peers)(nil)

// Greeting implements [exchange.Party].
func (p *peers) Greeting() (wire.Greeting, error) {
	p.d.mu.Lock()
	a := p.d.announce
	p.d.mu.Unlock()
	if a == nil {
		return wire.Greeting{}, exchange.Refuse(exchange.CodeNotReady, "this device has no membership yet")
	}
	g := wire.Greeting{Membership: a.Membership, Capabilities: a.Capabilities, BootID: a.BootID, Addresses: p.d.reachable(), Brief: p.d.brief()}
	_, g.Revocations = p.d.gossip.judge.held()
	if f := p.d.cfg.Load; f != nil {
		g.Load = f()
	}
	if f := p.d.cfg.Checkpoint; f != nil {
		g.Checkpoint = f()
	}
	return g, nil
}

// own gives this device's membership.
func (p *peers) own() (member.Membership, bool) {
	p.d.mu.Lock()
	a := p.d.announce
	p.d.mu.Unlock()
	if a == nil {
		return member.Membership{}, false
	}
	j := p.d.gossip.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	m, err := j.membership(a.Membership, time.Now())
	return m, err == nil && m.Peer == p.d.PeerID()
}

// Verify implements [exchange.Party].
func (p *peers) Verify(from chain.PeerID, g *wire.Greeting) (member.Membership, error) {
	own, ok := p.own()
	if !ok {
		return own, exchange.Refuse(exchange.CodeNotReady, "this device has no membership in force")
	}
	m, err := p.d.gossip.judge.verify(g.Membership, from, own.Scopes, time.Now())
	code := exchange.CodeNotHere
	switch {
	case err == nil:
		return m, nil
	case errors.Is(err, chain.ErrExpired), errors.Is(err, chain.ErrFuture):
		code = exchange.CodeExpired
	case errors.Is(err, member.ErrRevoked):
		code = exchange.CodeRevoked
	case errors.Is(err, member.ErrScope):
		code = exchange.CodeScope
	}
	return member.Membership{}, exchange.Refuse(code, "%s", flat(err))
}

// Member implements [exchange.Party].
func (p *peers) Member(m *member.Membership, scope chain.ScopeID) bool {
	own, ok := p.own()
	scope = scope.Base()
	return ok && slices.Contains(own.Scopes, scope) && slices.Contains(m.Scopes, scope) && m.Current(time.Now()) == nil && !p.d.gossip.judge.ended(m)
}

// Swap implements [exchange.Party].
func (p *peers) Swap(list []byte) []byte {
	if len(list) > 0 {
		p.takeList(list)
	}
	held, seq := p.d.gossip.judge.held()
	if held == nil || len(list) > 0 && !p.older(list, seq) {
		return nil
	}
	return held
}

// older reports whether a list is good and older than seq.
func (p *peers) older(list []byte, seq uint64) bool {
	r, err := member.VerifyRevocations(p.d.cfg.Trust, list, 0, time.Now())
	return err != nil || r.Seq < seq
}

// takeList takes a list over if it is newer than the one held.
func (p *peers) takeList(list []byte) {
	fresh, err := p.d.gossip.judge.revoke(list, time.Now())
	if err != nil && !errors.Is(err, chain.ErrRollback) {
		p.d.cfg.Log.Debug("a peer's revocation list was refused", "error", err)
	}
	if !fresh {
		return
	}
	p.endRevoked()
	if f := p.d.cfg.OnRevoked; f != nil {
		p.d.teller.tell(func() { f(list) })
	}
}

// Chains implements [exchange.Party].
func (p *peers) Chains() exchange.Chains { return p.d.cfg.Chains }

// Met implements [exchange.Party].
func (p *peers) Met(from chain.PeerID, m member.Membership, g *wire.Greeting, rtt time.Duration) {
	id, err := peerID(from)
	if err != nil {
		return // it stands on a connection, so it has a form
	}
	p.twin(m, g.BootID)
	now, brief := time.Now(), g.Brief || p.d.brief()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.d.host.Network().Connectedness(id) != network.Connected {
		return
	}
	c := p.contacts[id]
	fresh := c == nil
	if fresh {
		if len(p.contacts) >= maxContacts {
			return
		}
		c = new(contact)
		p.contacts[id] = c
		p.d.host.ConnManager().TagPeer(id, "contact", 50)
		p.changedChords()
	}
	if rtt == 0 {
		rtt = c.RTT
	}
	c.Contact = Contact{Peer: from, Membership: m, Capabilities: m.Counts(g.Capabilities), BootID: g.BootID, RTT: rtt, Load: g.Load, Addresses: g.Addresses, Checkpoint: g.Checkpoint, At: now}
	c.brief, c.list, c.resting = brief, g.Revocations, false
	c.refreshAt = now.Add(refreshEvery + rand.N(refreshEvery/5))
	c.used = now
	p.book.Met(id, now)
	p.note(id, g.Addresses, reach.Peer)
	if f := p.d.cfg.OnContact; f != nil {
		told := c.Contact
		if fresh {
			p.d.teller.tell(func() { f(told) })
		} else {
			p.d.teller.hint(func() { f(told) })
		}
	}
	p.poke()
	p.d.poke() // there is somebody to announce to
}
