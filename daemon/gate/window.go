package gate

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// How much is remembered against replays: about 60 bytes each. One peer cannot
// use up the room of all others.
const (
	maxSeen       = 1 << 16
	maxSeenOfPeer = maxSeen / 4
)

// afterwards is how long a pair is remembered beyond its token's end: a clock that is
// set back by less makes no pair new.
const afterwards = time.Minute

// window remembers the pairs of token ID and nonce that were used, until the token
// expires by itself. It survives no restart and no larger jump of the clock, and need
// not: the executor takes no nonce from before either (package executor).
type window struct {
	most, mostOfPeer int

	mu     sync.Mutex
	seen   map[[16]byte]used
	peers  map[chain.PeerID]int
	looked time.Time // when expired pairs were last looked for
}

type used struct {
	from    chain.PeerID
	expires int64 // Unix seconds
}

func newWindow(most, mostOfPeer int) *window {
	return &window{most: most, mostOfPeer: mostOfPeer, seen: map[[16]byte]used{}, peers: map[chain.PeerID]int{}}
}

// use marks a pair as used. It refuses one that was, and any when there is no room:
// forgetting one early would let it come again.
func (w *window) use(from chain.PeerID, id, nonce string, expires, now time.Time) error {
	sum := sha256.Sum256([]byte(string(from) + "\n" + id + "\n" + nonce)) // neither peer IDs nor token IDs have line breaks
	key := [16]byte(sum[:])
	w.mu.Lock()
	defer w.mu.Unlock()
	if full := len(w.seen) >= w.most || w.peers[from] >= w.mostOfPeer; now.Sub(w.looked) >= time.Minute || full && now.Sub(w.looked) >= time.Second {
		w.prune(now)
	}
	if before, ok := w.seen[key]; ok && before.expires > now.Unix() {
		return errReplayed
	}
	if len(w.seen) >= w.most || w.peers[from] >= w.mostOfPeer {
		return errReplayFull
	}
	if before, ok := w.seen[key]; ok {
		w.forget(key, before)
	}
	w.seen[key] = used{from, expires.Unix()}
	w.peers[from]++
	return nil
}

// prune forgets what has expired; at most once a second, as it looks at all.
func (w *window) prune(now time.Time) {
	for key, u := range w.seen {
		if u.expires <= now.Unix() {
			w.forget(key, u)
		}
	}
	w.looked = now
}

func (w *window) forget(key [16]byte, u used) {
	delete(w.seen, key)
	if w.peers[u.from]--; w.peers[u.from] <= 0 {
		delete(w.peers, u.from)
	}
}
