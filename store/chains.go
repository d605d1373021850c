package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// ErrNotStored is returned with a chain that was accepted and is in force, but
// may not be there after a restart.
var ErrNotStored = errors.New("accepted, but not on disk")

// ChainCache holds a device's chains in memory and on disk. Nothing comes out
// of it that was not verified in this process. Its methods may be called at
// once from several goroutines.
type ChainCache struct {
	s     *Store
	marks *datadir.Marks

	mu     sync.RWMutex
	chains map[chain.Slot]*chain.Chain
	stored map[chain.Slot]chain.CID // the body of each record on disk, also of refused ones
	epoch  int64                    // of the file that stored is about
	unsure map[chain.Slot]bool      // accepted, but chain or mark are not on disk
}

// chainRecord is a stored chain; the body stands once for all that share it.
type chainRecord struct {
	Head []byte    `cbor:"head"`
	Body chain.CID `cbor:"body"`
}

// NewChainCache makes a cache over s and the marks of the same directory. It
// is empty until Load.
func NewChainCache(s *Store, marks *datadir.Marks) *ChainCache {
	return &ChainCache{s: s, marks: marks, chains: make(map[chain.Slot]*chain.Chain), stored: make(map[chain.Slot]chain.CID),
		unsure: make(map[chain.Slot]bool), epoch: s.epoch.Load()}
}

// Accept verifies a chain that was fetched for slot against the trust and the
// slot's mark, stores it, raises the mark, and puts it in force. A refusal is
// one of [chain.Trust.Verify]'s; nothing has changed then, neither in memory
// nor on disk.
//
// If the disk fails, the chain is in force all the same (a full disk is no
// reason to go on with a policy that was replaced): it is returned beside an
// error that wraps ErrNotStored, and is stored by the next Accept that can.
func (c *ChainCache) Accept(trust chain.Trust, slot chain.Slot, head, body []byte, now time.Time) (*chain.Chain, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, mark := c.chains[slot], c.marks.Get(slot)
	if old != nil && c.unsure[slot] {
		mark = old.Mark() // in force, though its mark may not be on disk
	}
	got, err := trust.Verify(slot, bytes.Clone(head), bytes.Clone(body), mark, now)
	if err != nil {
		return nil, err
	}
	if !c.marks.Room(slot) || old == nil && len(c.chains) >= datadir.MaxMarks {
		return nil, fmt.Errorf("chain of %s: %w: %d slots", slot, datadir.ErrFull, datadir.MaxMarks)
	}
	c.chains[slot] = got
	if old != nil && old.Mark() == got.Mark() && !c.unsure[slot] && c.epoch == c.s.epoch.Load() {
		return got, nil
	}
	// The record goes first: a crash between the two leaves a chain above its
	// mark, which Load verifies and takes. The other way round, and also if the
	// mark were raised for a record that could not be written, it would leave a
	// mark above every chain, and a device without any until the hub is back.
	c.unsure[slot] = true
	if err := c.save(); err != nil {
		return got, fmt.Errorf("chain of %s: %w: %w", slot, ErrNotStored, err)
	}
	return got, nil
}

// save writes every chain that is not on disk, then its mark.
func (c *ChainCache) save() error {
	var stored map[chain.Slot]chain.CID
	var epoch int64
	err := c.s.update(func(tx *bbolt.Tx) error {
		todo := c.unsure
		stored, epoch = make(map[chain.Slot]chain.CID), c.s.epoch.Load()
		if epoch == c.epoch {
			for slot, body := range c.stored {
				stored[slot] = body
			}
		} else { // another file: all that is in memory goes there
			todo = make(map[chain.Slot]bool)
			for slot := range c.chains {
				todo[slot] = true
			}
		}
		for slot := range todo {
			if err := putChain(tx, stored, slot, c.chains[slot]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.stored, c.epoch = stored, epoch
	for slot := range c.unsure {
		if err := c.marks.Raise(slot, c.chains[slot].Mark()); err != nil {
			return err
		}
		delete(c.unsure, slot)
	}
	return nil
}

// putChain writes one chain, and drops the body it replaces if no other chain
// has it. It keeps stored up to date.
func putChain(tx *bbolt.Tx, stored map[chain.Slot]chain.CID, slot chain.Slot, ch *chain.Chain) error {
	head, body := ch.Bytes()
	cid := ch.Head().Body
	payload, err := chain.Marshal(chainRecord{head, cid})
	if err != nil {
		return err
	}
	if err := put(tx, chainsBucket, slotKey(slot), payload); err != nil {
		return err
	}
	if _, _, whole := get(tx, bodiesBucket, string(cid)); !whole {
		if err := put(tx, bodiesBucket, string(cid), body); err != nil {
			return err
		}
	}
	before := stored[slot]
	stored[slot] = cid
	if before == "" || before == cid {
		return nil
	}
	for _, other := range stored {
		if other == before {
			return nil
		}
	}
	return tx.Bucket([]byte(bodiesBucket)).Delete([]byte(before))
}

// Get gives the chain in force for slot, or nil. Whether it has expired is for
// the caller to ask.
func (c *ChainCache) Get(slot chain.Slot) *chain.Chain {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.chains[slot]
}

// All gives every chain in force, sorted by slot.
func (c *ChainCache) All() []*chain.Chain {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*chain.Chain, 0, len(c.chains))
	for _, ch := range c.chains {
		all = append(all, ch)
	}
	slices.SortFunc(all, func(a, b *chain.Chain) int { return strings.Compare(slotKey(a.Slot()), slotKey(b.Slot())) })
	return all
}

// Drop forgets the chain of a slot that this device has no more part in. The
// mark stays.
func (c *ChainCache) Drop(slot chain.Slot) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.chains[slot]; ch != nil && c.unsure[slot] {
		if err := c.marks.Raise(slot, ch.Mark()); err != nil {
			return fmt.Errorf("drop the chain of %s: %w", slot, err)
		}
	}
	delete(c.chains, slot)
	delete(c.unsure, slot)
	delete(c.stored, slot)
	err := c.s.update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(chainsBucket)).Delete([]byte(slotKey(slot)))
	})
	if err != nil {
		return fmt.Errorf("drop the chain of %s: %w", slot, err)
	}
	return nil
}

// Body gives the bytes of the body at cid if a chain in force or on disk has
// it, else nil. The slice is shared.
func (c *ChainCache) Body(cid chain.CID) []byte {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, ch := range c.chains {
		if ch.Head().Body == cid {
			_, body := ch.Bytes()
			return body
		}
	}
	var body []byte
	err := c.s.view(func(tx *bbolt.Tx) error {
		body, _, _ = get(tx, bodiesBucket, string(cid))
		return nil
	})
	if err != nil || body == nil || chain.CIDOf(body) != cid {
		return nil
	}
	return body
}

// Load verifies every chain on disk again and puts in force what passes. What
// does not pass is returned, one error each, and is not in force; it stays on
// disk, as it may be the clock that is wrong. A chain in force that is newer
// stays. A failing disk is returned too.
func (c *ChainCache) Load(trust chain.Trust, now time.Time) (refused []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch = c.s.epoch.Load()
	clear(c.stored)
	err := c.s.each(chainsBucket, func(key string, payload []byte) error {
		if err := c.load(trust, key, payload, now); err != nil {
			refused = append(refused, err)
		}
		return nil
	})
	if err == nil {
		err = c.collect()
	}
	if err != nil {
		refused = append(refused, err)
	}
	return refused
}

func (c *ChainCache) load(trust chain.Trust, key string, payload []byte, now time.Time) error {
	slot, err := parseSlotKey(key)
	if err != nil {
		return err
	}
	var r chainRecord
	if err := chain.Unmarshal(payload, &r); err != nil {
		return fmt.Errorf("stored chain of %s: %w: %w", slot, ErrDamaged, err)
	}
	c.stored[slot] = r.Body
	var body []byte
	var whole bool
	if err := c.s.view(func(tx *bbolt.Tx) error {
		body, _, whole = get(tx, bodiesBucket, string(r.Body))
		return nil
	}); err != nil {
		return fmt.Errorf("stored chain of %s: %w", slot, err)
	}
	if !whole {
		return fmt.Errorf("stored chain of %s: %w: its body is missing", slot, ErrDamaged)
	}
	got, err := trust.Verify(slot, r.Head, body, c.marks.Get(slot), now)
	if err != nil {
		return fmt.Errorf("stored %w", err)
	}
	c.chains[slot] = got
	if err := c.marks.Raise(slot, got.Mark()); err != nil { // a crash came before it, and now the disk fails
		c.unsure[slot] = true
		return fmt.Errorf("stored chain of %s: in force, but its mark is not on disk: %w", slot, err)
	}
	return nil
}

// collect drops bodies that no record has.
func (c *ChainCache) collect() error {
	held := make(map[chain.CID]bool, len(c.stored))
	for _, cid := range c.stored {
		held[cid] = true
	}
	var loose []string
	err := c.s.each(bodiesBucket, func(key string, _ []byte) error {
		if !held[chain.CID(key)] {
			loose = append(loose, key)
		}
		return nil
	})
	if err != nil || len(loose) == 0 {
		return err
	}
	return c.s.update(func(tx *bbolt.Tx) error {
		for _, key := range loose {
			if b := tx.Bucket([]byte(bodiesBucket)); b != nil {
				if err := b.Delete([]byte(key)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func slotKey(s chain.Slot) string { return string(s.Scope) + "\x00" + string(s.Primitive) }

func parseSlotKey(key string) (chain.Slot, error) {
	scope, primitive, _ := strings.Cut(key, "\x00")
	s, err1 := chain.ParseScope(scope)
	p, err2 := chain.ParsePrimitive(primitive)
	if err := errors.Join(err1, err2); err != nil {
		return chain.Slot{}, fmt.Errorf("stored chain: %w: its slot has no name", ErrDamaged)
	}
	return chain.Slot{Scope: s, Primitive: p}, nil
}
