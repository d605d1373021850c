package executor

import (
	"container/list"
	"sync"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
)

// Bounds of the cache: what a mesh of a few hundred devices shows an executor, and
// no more than a stranger with a membership may fill.
const (
	maxEntries    = 2048
	maxEntryBytes = 16 << 20
)

// entry is something that was verified: one field beside size is set.
type entry struct {
	membership *member.Membership
	chain      *chain.Chain
	body       []byte // whose address was compared, but nothing else
	size       int
}

// cache keeps what was verified under the hash of its bytes, the least recently
// used first to go. That a thing is in it says that its signature was right, and
// nothing about the time. It is of one trust: under another it is empty.
type cache struct {
	mu      sync.Mutex
	trust   chain.Trust
	entries map[string]*list.Element
	order   list.List // of kept, the most recently used first
	bytes   int
}

type kept struct {
	key string
	entry
}

func (c *cache) get(trust chain.Trust, key []byte) entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[string(key)]
	if !ok || trust != c.trust {
		return entry{}
	}
	c.order.MoveToFront(e)
	return e.Value.(kept).entry
}

func (c *cache) put(trust chain.Trust, key []byte, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if trust != c.trust || c.entries == nil {
		c.trust, c.entries, c.bytes = trust, map[string]*list.Element{}, 0
		c.order.Init()
	}
	if before, ok := c.entries[string(key)]; ok {
		c.drop(before)
	}
	c.entries[string(key)] = c.order.PushFront(kept{string(key), e})
	c.bytes += e.size
	for len(c.entries) > maxEntries || c.bytes > maxEntryBytes {
		c.drop(c.order.Back())
	}
}

func (c *cache) drop(e *list.Element) {
	k := e.Value.(kept)
	c.order.Remove(e)
	delete(c.entries, k.key)
	c.bytes -= k.size
}
