package wire

import "github.com/chordwheel/chordwheel/chain"

// Lease asks for blocks of ceilings, and says what became of earlier ones. A
// device names every block it knows of: one that was granted to it and is not
// among them never arrived, and is given again instead of another.
type Lease struct {
	Asks  []LeaseAsk   `cbor:"asks,omitempty"`
	Usage []LeaseUsage `cbor:"usage,omitempty"`
}

// LeaseAsk is for one block.
type LeaseAsk struct {
	Account string     `cbor:"account"`         // a ceiling that options of the slot's chain name
	Slot    chain.Slot `cbor:"slot"`            // what it is for
	Least   int64      `cbor:"least,omitempty"` // what one request may take, in the account's unit: micro-dollars or calls
}

// LeaseUsage is the state of one block. It is a running total: the highest heard
// counts, in whatever order they arrive.
type LeaseUsage struct {
	ID      string `cbor:"id"`
	Account string `cbor:"account"`
	Used    int64  `cbor:"used,omitempty"` // may exceed the block by what the last requests cost more than expected
	Done    bool   `cbor:"done,omitempty"` // no more of it will be used: what is left returns
}

// LeaseReply answers each ask.
type LeaseReply struct {
	Grants []Grant       `cbor:"grants,omitempty"`
	Now    chain.Instant `cbor:"now"` // the hub's clock: a block's life is what lies between this and its end
}

// Grant is a block, or a no: then Amount is 0, and Until says when to ask again.
type Grant struct {
	ID      string        `cbor:"id,omitempty"`
	Account string        `cbor:"account"`
	Slot    chain.Slot    `cbor:"slot"`
	Amount  int64         `cbor:"amount,omitempty"` // in the account's unit
	Until   chain.Instant `cbor:"until"`            // the block is void from then on
	Used    chain.PPM     `cbor:"used,omitempty"`   // share of the whole ceiling that is spent or given out
}

// Validate implements [Message].
func (l *Lease) Validate() error {
	var c check
	c.size("asks", len(l.Asks), 0, maxAsks)
	for i := 0; i < len(l.Asks) && c.err == nil; i++ {
		c.is(chain.ParseAccount(l.Asks[i].Account))
		c.slot(l.Asks[i].Slot)
		c.count("least", l.Asks[i].Least)
	}
	c.usage(l.Usage)
	return c.err
}

func (c *check) usage(list []LeaseUsage) {
	c.size("blocks in use", len(list), 0, maxBlocks)
	for i := 0; i < len(list) && c.err == nil; i++ {
		c.word("a block's id", list[i].ID, 64)
		c.is(chain.ParseAccount(list[i].Account))
		c.count("used", list[i].Used)
	}
}

// Validate implements [Message].
func (l *LeaseReply) Validate() error {
	var c check
	c.instant("now", l.Now)
	c.size("grants", len(l.Grants), 0, maxAsks)
	for i := 0; i < len(l.Grants) && c.err == nil; i++ {
		g := &l.Grants[i]
		c.line("a block's id", g.ID, 64)
		c.that((g.ID != "") == (g.Amount > 0), "a block has an id and an amount")
		c.is(chain.ParseAccount(g.Account))
		c.slot(g.Slot)
		c.count("amount", g.Amount)
		c.instant("until", g.Until)
		c.that(g.Used >= 0 && g.Used <= 1e6, "used is outside 0 to 1,000,000")
	}
	return c.err
}
