// Package quota owns what is left of a ceiling and who may spend it: a ceiling on
// money or calls is handed out to devices in blocks, which count as spent until
// their device says otherwise. It is pure: time comes in, and writing an account
// down before a block leaves is the hub's business. It knows neither the catalogue
// nor the wire: ceilings, devices and numbers come in. docs/quotas.md has the
// rules and their reasons.
package quota

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Ceiling is a limit as the catalogue declares it.
type Ceiling struct {
	Account string
	Calls   bool  // a number of calls each UTC day; otherwise micro-dollars each UTC month
	Limit   int64 // in that unit
}

// Book is all accounts. It is not safe for concurrent use.
type Book struct{ accounts map[string]*Account }

// New gives an empty book.
func New() *Book { return &Book{accounts: map[string]*Account{}} }

// Bounds.
const (
	maxPerClaim = 4  // blocks in force that one device holds of one account for one slot
	maxPlaces   = 16 // with those that are over and of which it says nothing
	maxOver     = 16 // times its amount that a block's use is believed to exceed it
)

// Period gives the beginning and the end of the UTC period that now lies in.
func (c *Ceiling) Period(now time.Time) (from, to time.Time) {
	y, m, d := now.UTC().Date()
	if c.Calls {
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC), time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC), time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
}

// at gives the account of c in the period of now, new where a period began. A
// clock that was set back brings no period back; but where the account's period has
// not even come after the next, the clock was wrong: what is spent and given out
// counts for this period then. The multiplier passes on.
func (b *Book) at(c *Ceiling, now time.Time) *Account {
	from, end := c.Period(now)
	a := b.accounts[c.Account]
	if a == nil {
		a = &Account{}
		b.accounts[c.Account] = a
	}
	a.ready()
	switch begin := chain.InstantOf(from); {
	case begin > a.Period:
		a.begin(begin)
	case a.Period > chain.InstantOf(end):
		a.Period = begin
	}
	return a
}

// Ask is a device's wish for a block.
type Ask struct {
	Device chain.PeerID
	Slot   chain.Slot
	Least  int64           // what one request may take
	Holds  map[string]bool // ids of the blocks that the device knows of
	Known  int64           // what one request of this kind usually takes: bounds Least
}

// Grant is the answer: a block, or none and when to ask again.
type Grant struct {
	ID     string
	Amount int64
	Until  time.Time
	Fresh  bool // it was made now, and is to be kept
}

// Terms are what holds for all blocks of a ceiling.
type Terms struct {
	Interval time.Duration               // between two reports of a device
	Shares   map[chain.Primitive]float64 // of primitives; one that is missing counts 1
}

// Grant gives a block of c. What [Book.Kept] gives of it must be kept before the
// block is handed out; if that fails, [Book.Undo] takes it back.
func (b *Book) Grant(c *Ceiling, q Ask, t Terms, now time.Time) Grant {
	a := b.at(c, now)
	mine := claim{q.Device, q.Slot}
	a.look(t, now)
	a.asked[mine], a.since.devices[q.Device], a.since.wants[q.Slot.Primitive] = now, true, true
	_, end := c.Period(a.Period.Time())
	until := now.Add(2 * t.Interval)
	if until.After(end) {
		until = end
	}
	no := Grant{Until: now.Add(t.Interval)}
	held, places := 0, map[int]bool{}
	for _, id := range a.claims[mine] {
		have := a.blocks[id]
		places[have.Place] = true
		if have.Until <= chain.InstantOf(now) {
			continue
		}
		if !q.Holds[id] { // it never arrived
			return Grant{ID: id, Amount: have.Amount, Until: have.Until.Time()}
		}
		held++
	}
	left := min(c.Limit-a.out, a.entitled(c, q.Slot.Primitive, t, now))
	part := left / (4 * int64(len(a.since.devices)))
	least := min(max(q.Least, 1), max(part, 8*q.Known, 1))
	if held >= maxPerClaim || len(places) >= maxPlaces || left < least || !now.Before(end) {
		return no
	}
	place := 0
	for places[place] {
		place++
	}
	a.Serial++
	id := strconv.FormatInt(int64(chain.InstantOf(now)), 36) + "-" + strconv.FormatUint(a.Serial, 36) // new also where the account was lost
	g := Grant{ID: id, Amount: max(least, part), Until: until, Fresh: true}
	a.put(Block{ID: g.ID, Account: c.Account, Device: q.Device, Slot: q.Slot, Place: place, Amount: g.Amount, Until: chain.InstantOf(until)})
	return g
}

// Settle takes in what a device says of a block, and reports whether that is news.
// What it did not get, or what is of an earlier period, changes nothing.
func (b *Book) Settle(c *Ceiling, device chain.PeerID, id string, used int64, done bool, now time.Time) bool {
	a := b.at(c, now)
	have, ok := a.blocks[id]
	if !ok || have.Device != device {
		return false
	}
	before := have.Used
	have.Used = max(have.Used, min(max(used, 0), maxOver*have.Amount))
	if done {
		a.drop(id)
		a.spend(have.Slot.Primitive, have.Used)
		return true
	}
	a.put(have)
	return have.Used != before
}

// State is a ceiling as it stands.
type State struct {
	Account  string                    `json:"account"`
	Calls    bool                      `json:"calls"`
	Limit    int64                     `json:"limit"` // micro-dollars or calls
	Spent    int64                     `json:"spent"`
	Leased   int64                     `json:"leased"`       // given out beside that
	By       map[chain.Primitive]int64 `json:"by_primitive"` // what was settled
	From     time.Time                 `json:"from"`
	To       time.Time                 `json:"to"`
	Elapsed  float64                   `json:"elapsed"` // share of the period
	Mu       float64                   `json:"multiplier"`
	Breached bool                      `json:"breached"` // no request fits any more
}

// Used is the share of the limit that is spent, which may be above 1; of a limit of 0
// it is 1.
func (s *State) Used() float64 {
	if s.Limit <= 0 {
		return 1
	}
	return float64(s.Spent) / float64(s.Limit)
}

// State gives c as it stands. least is what one request takes.
func (b *Book) State(c *Ceiling, least int64, now time.Time) State {
	a := b.at(c, now)
	a.look(Terms{}, now)
	from, to := c.Period(a.Period.Time())
	spent := a.since.spent
	s := State{Account: c.Account, Calls: c.Calls, Limit: c.Limit, Spent: spent, Leased: a.out - spent, By: map[chain.Primitive]int64{}, From: from, To: to,
		Elapsed: min(max(float64(now.Sub(from))/float64(to.Sub(from)), 0), 1), Mu: float64(a.MuPPM) / 1e6, Breached: c.Limit-spent < max(least, 1)}
	maps.Copy(s.By, a.Spent)
	return s
}

// adjustEvery is how often a multiplier moves.
const adjustEvery = time.Hour

// Adjust moves the multiplier of c once an hour, to what next makes of it, what
// is used, the limit and the elapsed share, and reports whether it changed.
func (b *Book) Adjust(c *Ceiling, next func(mu, used, limit, elapsed float64) float64, now time.Time) bool {
	if b.accounts[c.Account] == nil {
		return false // nobody asked for any of it yet
	}
	a := b.at(c, now)
	if at := a.Adjusted.Time(); a.Adjusted != 0 && now.Sub(at) < adjustEvery && !at.After(now) {
		return false
	}
	s := b.State(c, 1, now)
	before := a.MuPPM
	a.Adjusted, a.MuPPM = chain.InstantOf(now), int64(next(s.Mu, float64(s.Spent), float64(c.Limit), s.Elapsed)*1e6)
	return a.MuPPM != before
}

// Mark is an account, or one block of it, as it was: what [Book.Undo] needs.
type Mark struct {
	account string
	kept    *Account // its kept part; nil: there was none
	block   *Block   // nil: there was none
	id      string
}

// Mark notes how an account and one of its blocks are now. id may be "".
func (b *Book) Mark(account, id string) Mark {
	m := Mark{account: account, id: id}
	if a := b.accounts[account]; a != nil {
		m.kept = a.kept()
		if have, ok := a.blocks[id]; ok {
			m.block = &have
		}
	}
	return m
}

// Made is m for a block that was made since.
func (m Mark) Made(id string) Mark {
	m.id, m.block = id, nil
	return m
}

// Undo puts back what m noted; several are undone last first.
func (b *Book) Undo(m Mark) {
	a := b.accounts[m.account]
	if a == nil || m.kept == nil || a.Period != m.kept.Period {
		return // a new period has nothing to undo
	}
	a.drop(m.id)
	for p, n := range a.Spent {
		if a.spend(p, m.kept.Spent[p]-n); a.Spent[p] == 0 {
			delete(a.Spent, p)
		}
	}
	if m.block != nil {
		a.put(*m.block)
	}
}

// kept is the part of a that is kept under its own name.
func (a *Account) kept() *Account {
	return &Account{Period: a.Period, Spent: maps.Clone(a.Spent), Serial: a.Serial, MuPPM: a.MuPPM, Adjusted: a.Adjusted}
}

// Kept gives what must be written down of an account after a change: its record
// under its own name, and for each of ids the block, or its place if it is settled.
func (b *Book) Kept(account string, blocks ...Block) map[string]any {
	a := b.accounts[account]
	records := map[string]any{account: a.kept()}
	for _, x := range blocks {
		if have, ok := a.blocks[x.ID]; ok {
			records[x.Key()] = have
		} else {
			x.ID, x.Amount, x.Used = "", 0, 0
			records[x.Key()] = x
		}
	}
	return records
}

// Block gives a block that is not settled.
func (b *Book) Block(account, id string) (Block, bool) {
	if a := b.accounts[account]; a != nil {
		x, ok := a.blocks[id]
		return x, ok
	}
	return Block{}, false
}

// Blocks gives the blocks of an account that are not settled, by id.
func (b *Book) Blocks(account string) (list []Block) {
	if a := b.accounts[account]; a != nil {
		for _, id := range slices.Sorted(maps.Keys(a.blocks)) {
			list = append(list, a.blocks[id])
		}
	}
	return list
}

// Restore puts back the record of an account.
func (b *Book) Restore(account string, a Account) {
	restored := a.kept()
	if restored.Spent == nil {
		restored.Spent = map[chain.Primitive]int64{}
	}
	restored.ready()
	b.accounts[account] = restored
}

// RestoreBlock puts back a block, once its account is there. One of an earlier
// period, or a free place, is passed over.
func (b *Book) RestoreBlock(x Block) {
	if a := b.accounts[x.Account]; a != nil && x.ID != "" && x.Until > a.Period {
		a.put(x)
	}
}
