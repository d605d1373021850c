package wire

import (
	"crypto/sha256"
	"sync"
)

// Verified remembers what signed envelopes turned out to hold, by the hash of
// their bytes: the signature of a membership or a head is checked once and not with
// every request. Only the signature is remembered: whoever uses a value still
// compares its times with the clock, and its peer with the one that talks. It keeps
// between half of its size and all of it, the recently used ones. Methods may be
// called from many goroutines.
type Verified[V any] struct {
	half int

	mu         sync.Mutex
	young, old map[[sha256.Size]byte]V // the young move to old when they are half
}

// NewVerified makes a memory of at most size envelopes.
func NewVerified[V any](size int) *Verified[V] {
	return &Verified[V]{half: max(size/2, 1), young: map[[sha256.Size]byte]V{}}
}

// Get gives what the envelope with this hash held, if it was verified here.
func (c *Verified[V]) Get(hash []byte) (v V, ok bool) {
	if len(hash) != sha256.Size {
		return v, false
	}
	key := [sha256.Size]byte(hash)
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok = c.young[key]; ok {
		return v, true
	}
	if v, ok = c.old[key]; ok {
		c.add(key, v)
	}
	return v, ok
}

// Add notes what an envelope holds, once it was verified.
func (c *Verified[V]) Add(envelope []byte, v V) {
	key := sha256.Sum256(envelope)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(key, v)
}

// add puts v among the young. c.mu is held.
func (c *Verified[V]) add(key [sha256.Size]byte, v V) {
	if _, ok := c.young[key]; !ok && len(c.young) >= c.half {
		c.old, c.young = c.young, make(map[[sha256.Size]byte]V, c.half)
	}
	c.young[key] = v
}

// Forget drops everything, as after a change of what is trusted.
func (c *Verified[V]) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.young, c.old = map[[sha256.Size]byte]V{}, nil
}
