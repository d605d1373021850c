// Package purse owns what this device may spend: blocks of ceilings that the hub
// leased to it, reservations before an attempt and settlements after. It knows
// neither hub nor options: accounts and amounts come in. It is pure but for its
// lock: time is an argument, and keeping its blocks on disk is the daemon's
// business. docs/quotas.md has the rules and their reasons.
package purse

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Block is a part of a ceiling that this device may use for one slot. Its CBOR
// form is what is kept.
type Block struct {
	ID      string        `cbor:"id"`
	Account string        `cbor:"account"`
	Slot    chain.Slot    `cbor:"slot"`
	Amount  int64         `cbor:"amount"`
	Used    int64         `cbor:"used,omitempty"`
	Until   chain.Instant `cbor:"until"`

	reserved int64
}

// over reports whether the life of b has ended. A block that would live for longer
// than any does is over, too: it was granted while this device's clock was ahead.
func (b *Block) over(now time.Time) bool {
	return chain.InstantOf(now) >= b.Until || b.Until > chain.InstantOf(now.Add(maxLife))
}

func (b *Block) free(now time.Time) int64 {
	if b.over(now) {
		return 0
	}
	return max(b.Amount-b.Used-b.reserved, 0)
}

// Done reports whether nothing more can be taken from b.
func (b *Block) done(now time.Time) bool {
	return b.reserved == 0 && (b.over(now) || b.Used >= b.Amount)
}

// Charge is an amount on one account, in its unit.
type Charge struct {
	Account string
	Amount  int64
}

// Usage is the state of one block, for the hub.
type Usage struct {
	ID      string
	Account string
	Used    int64
	Done    bool
}

// Bounds.
const (
	MaxBlocks = 1024
	maxNo     = 1024
	maxLife   = 31 * 24 * time.Hour // of a block, and of a refusal: the longest period
)

// Purse is all blocks of a device. It is safe for concurrent use.
type Purse struct {
	mu     sync.Mutex
	blocks []*Block // by the end of their life
	no     map[need]chain.Instant
	used   map[string]float64 // share of each ceiling that is spent, as the hub said last
}

type need struct {
	account string
	slot    chain.Slot
}

// New gives an empty purse.
func New() *Purse { return &Purse{no: map[need]chain.Instant{}, used: map[string]float64{}} }

// Reservation is money or calls set aside for one attempt.
type Reservation struct {
	purse *Purse
	parts []part
}

type part struct {
	charge int // which of the charges
	block  *Block
	amount int64
}

// Reserve sets all charges aside, or none: false if what is left of a block will
// not do.
func (p *Purse) Reserve(slot chain.Slot, charges []Charge, now time.Time) (*Reservation, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &Reservation{purse: p}
	for i, c := range charges {
		wanted := max(c.Amount, 0)
		for _, b := range p.blocks {
			if b.Account != c.Account || b.Slot != slot {
				continue
			}
			free := b.free(now)
			if free == 0 {
				continue
			}
			n := min(wanted, free)
			b.reserved += n
			r.parts = append(r.parts, part{i, b, n})
			if wanted -= n; wanted == 0 {
				break
			}
		}
		if wanted > 0 || !r.has(i) {
			r.release()
			return nil, false
		}
	}
	return r, true
}

func (r *Reservation) has(charge int) bool {
	return slices.ContainsFunc(r.parts, func(p part) bool { return p.charge == charge })
}

func (r *Reservation) release() {
	for _, p := range r.parts {
		p.block.reserved -= p.amount
	}
}

// Settle takes what an attempt really cost, one amount for each charge, from what
// was set aside. What it cost more is held against the last block: it is spent
// either way. It is called once.
func (r *Reservation) Settle(actual []int64) {
	r.purse.mu.Lock()
	defer r.purse.mu.Unlock()
	r.release()
	for i, cost := range actual {
		var last *Block
		for _, p := range r.parts {
			if p.charge != i {
				continue
			}
			n := min(max(cost, 0), p.amount)
			p.block.Used += n
			cost -= n
			last = p.block
		}
		if cost > 0 && last != nil {
			last.Used += cost
		}
	}
}

// Add takes in a block that the hub granted. It must be on disk before: see
// [Purse.Kept].
func (p *Purse) Add(b Block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.blocks) >= MaxBlocks || slices.ContainsFunc(p.blocks, func(have *Block) bool { return have.ID == b.ID && have.Account == b.Account }) {
		return
	}
	b.reserved = 0
	p.blocks = append(p.blocks, &b)
	slices.SortFunc(p.blocks, func(a, b *Block) int {
		if a.Until != b.Until {
			return int(max(min(a.Until-b.Until, 1), -1))
		}
		return strings.Compare(a.ID, b.ID)
	})
	delete(p.no, need{b.Account, b.Slot})
}

// Refused notes that there is no block, and when to ask again.
func (p *Purse) Refused(account string, slot chain.Slot, until chain.Instant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.no) >= maxNo {
		clear(p.no)
	}
	p.no[need{account, slot}] = until
}

// SetUsed notes what share of a whole ceiling is spent.
func (p *Purse) SetUsed(account string, share float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.used) >= maxNo {
		clear(p.used)
	}
	p.used[account] = share
}

// Used gives what SetUsed was told, 0 if nothing.
func (p *Purse) Used(account string) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used[account]
}

// Low reports whether another block should be asked for: what will still be free
// at a time ahead is less than two requests, or a quarter of the largest block.
// Where the hub said no it is not asked before it said.
func (p *Purse) Low(account string, slot chain.Slot, least int64, ahead, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if no := p.no[need{account, slot}]; chain.InstantOf(now) < no && no <= chain.InstantOf(now.Add(maxLife)) {
		return false
	}
	free, largest := int64(0), int64(0)
	for _, b := range p.blocks {
		if b.Account == account && b.Slot == slot {
			free += b.free(ahead)
			largest = max(largest, b.Amount)
		}
	}
	return free < max(2*least, largest/4)
}

// Free gives what is left now for an account and slot.
func (p *Purse) Free(account string, slot chain.Slot, now time.Time) (free int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.blocks {
		if b.Account == account && b.Slot == slot {
			free += b.free(now)
		}
	}
	return free
}

// Usage gives the state of every block.
func (p *Purse) Usage(now time.Time) []Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Usage, 0, len(p.blocks))
	for _, b := range p.blocks {
		list = append(list, Usage{b.ID, b.Account, b.Used, b.done(now)})
	}
	return list
}

// Acknowledged says that the hub has kept this usage: blocks that were done are
// forgotten.
func (p *Purse) Acknowledged(usage []Usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks = slices.DeleteFunc(p.blocks, func(b *Block) bool {
		return slices.ContainsFunc(usage, func(u Usage) bool { return u.Done && u.ID == b.ID && u.Account == b.Account })
	})
}

// Kept is a purse as it is on disk. Clean says that the device stopped in order:
// then Used is right. After a crash nobody knows what was used since.
type Kept struct {
	Clean  bool    `cbor:"clean"`
	Blocks []Block `cbor:"blocks,omitempty"`
}

// Kept gives what is to be written down, with more blocks that are about to be
// added. What is set aside counts as used: its attempts outlive an orderly stop.
func (p *Purse) Kept(clean bool, more ...Block) Kept {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := Kept{Clean: clean}
	for _, b := range p.blocks {
		c := *b
		c.Used += c.reserved
		k.Blocks = append(k.Blocks, c)
	}
	k.Blocks = append(k.Blocks, more...)
	return k
}

// Restore takes in what was written down. After a crash every block counts as
// used to its end.
func (p *Purse) Restore(k Kept) {
	for _, b := range k.Blocks {
		if !k.Clean {
			b.Used = max(b.Used, b.Amount)
		}
		p.Add(b)
	}
}
