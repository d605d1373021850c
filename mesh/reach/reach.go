// Package reach owns the decision whom a device dials, where and when. It keeps
// what was said about where peers are and how dialling them went, and gives
// back what is due. It is pure: it opens nothing, and the time comes in. Saying
// where a peer is proves nothing about it: only the node, having met a peer, can
// call it met.
//
// A stranger's word could send a device to anybody's door. So addresses are
// judged by who named them, dials are counted by the minute, and one target is
// tried a few times a minute whoever is said to live there. docs/mesh.md has the
// table.
package reach

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
)

// Bounds and times.
const (
	maxPeers     = 512
	maxAddresses = 16 // of one peer from one source
	perDial      = 8  // addresses tried at once
	backoffBase  = 2 * time.Second
	backoffMax   = 2 * time.Minute
	backoffNear  = 20 * time.Second // for a peer that was in contact within missedFor: it may just have started again
	missedFor    = 10 * time.Minute
	atOnce       = 500 * time.Millisecond  // the smaller peer ID dials within it
	second       = 1500 * time.Millisecond // the other waits that long, and up to as much again
	pester       = 10 * time.Second        // between two dials that the LAN's word, or a new address, brings forward
	perMinute    = 120                     // dials
	perTarget    = 4                       // dials a minute to one IP and port
	perHost      = 64                      // dials a minute to one IP: twenty devices may share it
	maxTargets   = 4096
)

// Config says who decides.
type Config struct {
	Self     peer.ID
	Loopback bool // the mesh lives on this machine: loopback addresses mean something
	Keep     int  // how many peers to be in contact with by own dialling
	Random   *rand.Rand
}

// Dial is one thing to do: meet Peer at one of Addresses. An owner's name
// that must be resolved makes it Named: then any address is right that it
// resolves to.
type Dial struct {
	Peer      peer.ID
	Addresses []multiaddr.Multiaddr
	Named     bool
}

// Book keeps the peers. It is not safe for concurrent use.
type Book struct {
	cfg     Config
	peers   map[peer.ID]*entry
	dials   window
	targets map[string]*window
}

type entry struct {
	addresses map[Source][]multiaddr.Multiaddr
	state     state
	failures  int
	notBefore time.Time
	pestered  time.Time
	moved     time.Time // when a new address last ended its pause
	rank      rank
	parted    time.Time // when its last contact ended
	heard     time.Time // when somebody last said something about it
}

type state int

const (
	known   state = iota // not met, or parted
	dialled              // being dialled
	met
	resting // met, and its idle link was closed in agreement
)

// NewBook makes an empty book.
func NewBook(cfg Config) *Book {
	return &Book{cfg: cfg, peers: map[peer.ID]*entry{}, targets: map[string]*window{}}
}

// Note takes what source says about where p is in place of what it said
// before. It reports whether anything changed. Addresses that may not be dialled
// on source's word are dropped, and so is p where none is left.
func (b *Book) Note(p peer.ID, addresses []multiaddr.Multiaddr, source Source, now time.Time) bool {
	if p == b.cfg.Self {
		return false
	}
	good := b.usable(p, addresses, source)
	e := b.peers[p]
	if e == nil {
		if len(good) == 0 || !b.room(source) {
			return false
		}
		e = &entry{addresses: map[Source][]multiaddr.Multiaddr{}}
		e.notBefore = now.Add(b.turn(p))
		b.peers[p] = e
	}
	e.heard = now
	changed := !slices.EqualFunc(e.addresses[source], good, func(x, y multiaddr.Multiaddr) bool { return x.Equal(y) })
	if changed && b.anyNew(e, good) { // it moved: what failed says nothing about the new place
		if rested := e.moved.Add(pester); now.Before(rested) { // one that moves without end is not dialled without end
			e.notBefore = earlier(e.notBefore, rested)
		} else {
			e.moved, e.failures, e.notBefore = now, min(e.failures, 2), earlier(e.notBefore, now.Add(b.turn(p)))
		}
	}
	e.addresses[source] = good
	e.rank = e.ranked()
	if source == LAN && now.Sub(e.pestered) >= pester { // it is there this very moment
		e.pestered, e.notBefore = now, earlier(e.notBefore, now.Add(b.turn(p)))
	}
	return changed
}

func (b *Book) anyNew(e *entry, addresses []multiaddr.Multiaddr) bool {
	return slices.ContainsFunc(addresses, func(a multiaddr.Multiaddr) bool {
		for _, list := range e.addresses {
			if slices.ContainsFunc(list, a.Equal) {
				return false
			}
		}
		return true
	})
}

// turn is how long to wait before the first dial: the smaller peer ID begins,
// so that two devices that hear of each other do not both dial.
func (b *Book) turn(p peer.ID) time.Duration {
	if b.cfg.Self < p {
		return b.random(atOnce)
	}
	return second + b.random(second)
}

func (b *Book) random(most time.Duration) time.Duration {
	return time.Duration(b.cfg.Random.Int64N(int64(most)) + 1)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// room makes place for one more peer: of those that are not in contact the least
// vouched for goes, among equals whoever was heard of longest ago. Nobody makes
// room for one that is vouched for less. What the owner names always finds room.
func (b *Book) room(source Source) bool {
	if len(b.peers) < maxPeers {
		return true
	}
	var oldest peer.ID
	var least *entry
	for p, e := range b.peers {
		if e.state != known || e.rank == named || e.rank < rankOf(source) {
			continue
		}
		if least == nil || e.rank > least.rank || e.rank == least.rank && e.heard.Before(least.heard) {
			oldest, least = p, e
		}
	}
	delete(b.peers, oldest)
	return oldest != "" || source == Owner
}

// rank orders peers by who vouches for them: whom the owner named, who was met,
// whom a member or the hub named, and who is only heard of. Whoever can send
// multicast can make up devices without end: they must not use up what the others
// are dialled with.
type rank int

const (
	named rank = iota
	wasMet
	vouched
	heardOf
)

func rankOf(s Source) rank {
	switch s {
	case Owner:
		return named
	case Gossip, Peer, Hub:
		return vouched
	}
	return heardOf
}

func (e *entry) ranked() rank {
	lowest := heardOf
	for s, list := range e.addresses {
		if len(list) > 0 {
			lowest = min(lowest, rankOf(s))
		}
	}
	if !e.parted.IsZero() {
		lowest = min(lowest, wasMet)
	}
	return lowest
}

// budget is how much of a minute's dials are there for peers of a rank.
func (r rank) budget() int {
	switch r {
	case named, wasMet:
		return perMinute
	case vouched:
		return perMinute * 3 / 4
	}
	return perMinute / 2
}

// Due gives the dials whose time has come, at most most of them, and when to
// ask again. A peer that is given counts as dialled until [Book.Failed],
// [Book.Met] or [Book.Parted].
func (b *Book) Due(now time.Time, most int) ([]Dial, time.Time) {
	var due []peer.ID
	next := now.Add(time.Hour)
	busy := 0
	for p, e := range b.peers {
		if e.state == met || e.state == resting || e.state == dialled {
			busy++
		}
		if e.state != known {
			continue
		}
		if e.notBefore.After(now) {
			next = earlier(next, e.notBefore)
			continue
		}
		due = append(due, p)
	}
	slices.SortFunc(due, func(x, y peer.ID) int {
		if c := cmp.Compare(b.peers[x].rank, b.peers[y].rank); c != 0 {
			return c
		}
		if c := b.peers[x].notBefore.Compare(b.peers[y].notBefore); c != 0 {
			return c
		}
		return slices.Compare([]byte(x), []byte(y))
	})
	var dials []Dial
	for _, p := range due {
		if busy >= b.cfg.Keep {
			break // one of those in contact must go first; Parted asks again
		}
		if len(dials) >= most {
			next = earlier(next, now.Add(time.Second))
			break
		}
		d, ok := b.Take(p, now)
		if !ok {
			e := b.peers[p]
			e.notBefore = now.Add(10*time.Second + b.random(20*time.Second))
			next = earlier(next, e.notBefore)
			continue
		}
		busy++
		dials = append(dials, d)
	}
	return dials, next
}

// Take gives a dial to p whether or not its time has come, for work that waits
// for it. False: nothing is known about where p is, or the minute's dials are
// used up.
func (b *Book) Take(p peer.ID, now time.Time) (Dial, bool) {
	e := b.peers[p]
	if e == nil || e.state == dialled {
		return Dial{}, false
	}
	d := b.choose(p, e, now)
	if len(d.Addresses) == 0 || !b.dials.take(now, e.rank.budget()) {
		return Dial{}, false
	}
	if e.state == known {
		e.state = dialled
	}
	return d, true
}

// Failed notes that a dial to p came to nothing: the next one waits a random
// time, up to twice as long as the last.
func (b *Book) Failed(p peer.ID, now time.Time) {
	e := b.peers[p]
	if e == nil {
		return
	}
	limit := backoffMax
	if e.failures < 7 {
		limit = min(backoffBase<<e.failures, backoffMax)
	}
	if now.Sub(e.parted) < missedFor {
		limit = min(limit, backoffNear)
	}
	e.failures++
	e.state, e.notBefore = known, now.Add(b.random(limit))
}

// Refused notes that p answered and there is nothing to talk about: it is tried
// again, at the slowest pace.
func (b *Book) Refused(p peer.ID, now time.Time) {
	if e := b.peers[p]; e != nil {
		e.state, e.failures, e.notBefore = known, 8, now.Add(backoffMax+b.random(backoffMax))
	}
}

// Met notes direct contact with p.
func (b *Book) Met(p peer.ID, now time.Time) {
	e := b.peers[p]
	if e == nil {
		if !b.room(Owner) { // one that is there is worth more than any hint
			return
		}
		e = &entry{addresses: map[Source][]multiaddr.Multiaddr{}, rank: wasMet}
		b.peers[p] = e
	}
	e.state, e.failures, e.heard = met, 0, now
}

// Parted notes the end of the last connection with p: it is looked for again
// at once, by the smaller peer ID first.
func (b *Book) Parted(p peer.ID, now time.Time) {
	if e := b.peers[p]; e != nil && e.state != dialled {
		if e.state == met {
			e.parted, e.rank = now, min(e.rank, wasMet)
		}
		e.state, e.notBefore = known, now.Add(b.turn(p))
	}
}

// Rest notes that the link to p was closed because it was idle: p is not looked
// for until Parted says that it was not heard of for too long.
func (b *Book) Rest(p peer.ID) {
	if e := b.peers[p]; e != nil {
		e.state = resting
	}
}

// Moved notes that this device's own addresses changed: what failed before may
// work now.
func (b *Book) Moved(now time.Time) {
	for p, e := range b.peers {
		e.failures = 0
		e.notBefore = earlier(e.notBefore, now.Add(b.turn(p)))
	}
}

// Known gives what the book would dial p at, best first.
func (b *Book) Known(p peer.ID) []multiaddr.Multiaddr {
	if e := b.peers[p]; e != nil {
		return e.all()
	}
	return nil
}
