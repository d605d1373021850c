package spool

import (
	"crypto/sha256"
	"time"
)

// key is an ID, cut to what tells IDs apart.
type key [16]byte

func keyOf(id string) key {
	sum := sha256.Sum256([]byte(id))
	return key(sum[:16])
}

// recent knows the IDs of the last 24 h, and of 48 h at most. It has two halves;
// when the younger one is full of time or of IDs, the older one is forgotten.
type recent struct {
	young, old map[key]struct{}
	since      time.Time
}

func newRecent(now time.Time) *recent {
	return &recent{young: make(map[key]struct{}), since: now}
}

func (r *recent) has(k key) bool {
	if _, ok := r.young[k]; ok {
		return true
	}
	_, ok := r.old[k]
	return ok
}

func (r *recent) add(k key, now time.Time) {
	if len(r.young) >= maxIDs || now.Sub(r.since) >= keepIDs {
		r.old, r.young, r.since = r.young, make(map[key]struct{}), now
	}
	r.young[k] = struct{}{}
}
