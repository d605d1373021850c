package executor

import (
	"crypto/sha256"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// window remembers the nonces of one epoch's requests until they expire.
type window struct {
	most   int
	nonces map[[16]byte]held
	peers  map[chain.PeerID]int
	prune  int       // at how many to look for expired ones
	looked time.Time // when that was done last
}

type held struct {
	peer    chain.PeerID
	expires int64 // Unix milliseconds
}

func newWindow(most int) window {
	return window{most: most, nonces: map[[16]byte]held{}, peers: map[chain.PeerID]int{}, prune: 1024}
}

func nonceKey(peer chain.PeerID, nonce string) [16]byte {
	sum := sha256.Sum256([]byte(string(peer) + "\n" + nonce))
	return [16]byte(sum[:16])
}

// has reports whether peer used the nonce in a request that has not expired.
func (w *window) has(peer chain.PeerID, nonce string, now time.Time) bool {
	h, ok := w.nonces[nonceKey(peer, nonce)]
	return ok && h.expires > now.UnixMilli()
}

// add remembers a nonce, and reports false where there is no room to: forgetting
// one that still holds would let it be used again.
func (w *window) add(peer chain.PeerID, nonce string, expires, now time.Time) bool {
	full := w.full(peer)
	if len(w.nonces) >= w.prune || full && now.Sub(w.looked) >= time.Second {
		w.forget(now)
	}
	if w.full(peer) {
		return false
	}
	key := nonceKey(peer, nonce)
	if before, ok := w.nonces[key]; ok { // it has expired
		less(w.peers, before.peer)
	}
	w.nonces[key] = held{peer, expires.UnixMilli()}
	w.peers[peer]++
	return true
}

// full reports whether peer has had its part: as much as is left for all others.
// One alone gets a half, two a third each: however many fill what they can, the
// next one still finds room.
func (w *window) full(peer chain.PeerID) bool { return w.peers[peer] >= w.most-len(w.nonces) }

// forget drops what has expired. The next look is when there are twice as many as
// are left, so that the looking costs a constant per request.
func (w *window) forget(now time.Time) {
	for key, h := range w.nonces {
		if h.expires <= now.UnixMilli() {
			delete(w.nonces, key)
			less(w.peers, h.peer)
		}
	}
	w.prune, w.looked = max(1024, 2*len(w.nonces)), now
}
