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

// Account is what became of one ceiling in the current period. Its CBOR form is
// what is kept.
type Account struct {
	Period   chain.Instant             `cbor:"period"` // its beginning
	Spent    map[chain.Primitive]int64 `cbor:"spent,omitempty"`
	Blocks   map[string]Block          `cbor:"blocks,omitempty"` // given out and not yet settled, by id
	Serial   uint64                    `cbor:"serial"`           // of the last block
	MuPPM    int64                     `cbor:"mu,omitempty"`     // the multiplier μ, in millionths
	Adjusted chain.Instant             `cbor:"adjusted,omitempty"`

	asked map[claimant]time.Time // who asked lately; not kept
}

// claimant is a device and what it asked for.
type claimant struct {
	device    chain.PeerID
	primitive chain.Primitive
}

// Block is a part of a ceiling that one device may use for one slot.
type Block struct {
	Device chain.PeerID  `cbor:"device"`
	Slot   chain.Slot    `cbor:"slot"`
	Amount int64         `cbor:"amount"`
	Used   int64         `cbor:"used,omitempty"` // as its device said last
	Until  chain.Instant `cbor:"until"`
}

// committed is what b counts for.
func (b Block) committed() int64 { return max(b.Amount, b.Used) }

// Book is all accounts. It is not safe for concurrent use.
type Book struct{ accounts map[string]*Account }

// New gives an empty book.
func New() *Book { return &Book{accounts: map[string]*Account{}} }

// Bounds.
const (
	maxPerClaim = 4  // blocks that one device holds of one account for one slot
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
// clock that was set back brings no period back. The multiplier passes on.
func (b *Book) at(c *Ceiling, now time.Time) *Account {
	from, _ := c.Period(now)
	a := b.accounts[c.Account]
	if a == nil {
		a = &Account{}
		b.accounts[c.Account] = a
	}
	if begin := chain.InstantOf(from); begin > a.Period {
		a.Period, a.Spent, a.Blocks = begin, map[chain.Primitive]int64{}, map[string]Block{}
	}
	if a.asked == nil {
		a.asked = map[claimant]time.Time{}
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
}

// Terms are what holds for all blocks of a ceiling.
type Terms struct {
	Interval time.Duration               // between two reports of a device
	Shares   map[chain.Primitive]float64 // of primitives; one that is missing counts 1
}

// Grant gives a block of c. The account must be kept before the block is handed
// out; if that fails, [Book.Set] puts the one before it back.
func (b *Book) Grant(c *Ceiling, q Ask, t Terms, now time.Time) Grant {
	a := b.at(c, now)
	a.asked[claimant{q.Device, q.Slot.Primitive}] = now
	_, end := c.Period(a.Period.Time())
	until := now.Add(2 * t.Interval)
	if until.After(end) {
		until = end
	}
	no := Grant{Until: now.Add(t.Interval)}
	held := 0
	for id, have := range a.Blocks {
		if have.Device != q.Device || have.Slot != q.Slot || have.Until <= chain.InstantOf(now) {
			continue
		}
		if !q.Holds[id] { // it never arrived
			return Grant{id, have.Amount, have.Until.Time()}
		}
		held++
	}
	left := min(c.Limit-a.committed(), a.entitled(c, q.Slot.Primitive, t, now))
	devices := int64(a.active(t, now))
	most := max(left/(4*devices), 1)
	least := min(max(q.Least, 1), max(most, 8*q.Known))
	if held >= maxPerClaim || left < least || !now.Before(end) {
		return no
	}
	a.Serial++
	g := Grant{ID: strconv.FormatInt(int64(a.Period), 36) + "-" + strconv.FormatUint(a.Serial, 36), Amount: max(least, left/(4*devices)), Until: until}
	a.Blocks[g.ID] = Block{Device: q.Device, Slot: q.Slot, Amount: g.Amount, Until: chain.InstantOf(until)}
	return g
}

// Settle takes in what a device says of a block, and reports whether that is news.
// What it did not get, or what is of an earlier period, changes nothing.
func (b *Book) Settle(c *Ceiling, device chain.PeerID, id string, used int64, done bool, now time.Time) bool {
	a := b.at(c, now)
	have, ok := a.Blocks[id]
	if !ok || have.Device != device {
		return false
	}
	before := have.Used
	have.Used = max(have.Used, min(max(used, 0), maxOver*have.Amount))
	if done {
		a.Spent[have.Slot.Primitive] += have.Used
		delete(a.Blocks, id)
		return true
	}
	a.Blocks[id] = have
	return have.Used != before
}

// committed is what was spent and what is given out.
func (a *Account) committed() int64 {
	total := int64(0)
	for _, n := range a.Spent {
		total += n
	}
	for _, b := range a.Blocks {
		total += b.committed()
	}
	return total
}

// spent is what can no longer be saved: settled, said to be used, or in a block
// that is over and whose device says nothing.
func (a *Account) spent(now time.Time) int64 {
	total := int64(0)
	for _, n := range a.Spent {
		total += n
	}
	for _, b := range a.Blocks {
		if b.Until <= chain.InstantOf(now) {
			total += b.committed()
		} else {
			total += b.Used
		}
	}
	return total
}

// active counts the devices that asked within two intervals.
func (a *Account) active(t Terms, now time.Time) int {
	devices := map[chain.PeerID]bool{}
	for c, at := range a.asked {
		if now.Sub(at) > 2*t.Interval {
			delete(a.asked, c)
			continue
		}
		devices[c.device] = true
	}
	for _, b := range a.Blocks {
		if b.Until > chain.InstantOf(now) {
			devices[b.Device] = true
		}
	}
	return max(len(devices), 1)
}

// State is a ceiling as it stands.
type State struct {
	Account  string                    `json:"account"`
	Calls    bool                      `json:"calls"`
	Limit    int64                     `json:"limit"` // micro-dollars or calls
	Spent    int64                     `json:"spent"`
	Leased   int64                     `json:"leased"` // given out beside that
	By       map[chain.Primitive]int64 `json:"by_primitive"`
	From     time.Time                 `json:"from"`
	To       time.Time                 `json:"to"`
	Elapsed  float64                   `json:"elapsed"` // share of the period
	Mu       float64                   `json:"multiplier"`
	Breached bool                      `json:"breached"` // no request fits any more
}

// State gives c as it stands. least is what one request takes.
func (b *Book) State(c *Ceiling, least int64, now time.Time) State {
	a := b.at(c, now)
	from, to := c.Period(a.Period.Time())
	spent := a.spent(now)
	s := State{Account: c.Account, Calls: c.Calls, Limit: c.Limit, Spent: spent, Leased: a.committed() - spent, By: map[chain.Primitive]int64{}, From: from, To: to,
		Elapsed: min(max(float64(now.Sub(from))/float64(to.Sub(from)), 0), 1), Mu: float64(a.MuPPM) / 1e6, Breached: c.Limit-spent < max(least, 1)}
	maps.Copy(s.By, a.Spent)
	for _, x := range a.Blocks {
		s.By[x.Slot.Primitive] += x.Used
	}
	return s
}

// adjustEvery is how often a multiplier moves.
const adjustEvery = time.Hour

// Adjust moves the multiplier of c once an hour, to what next makes of it, what
// is used, the limit and the elapsed share, and reports whether it changed.
func (b *Book) Adjust(c *Ceiling, next func(mu, used, limit, elapsed float64) float64, now time.Time) bool {
	a := b.at(c, now)
	if at := a.Adjusted.Time(); a.Adjusted != 0 && now.Sub(at) < adjustEvery && !at.After(now) {
		return false
	}
	s := b.State(c, 1, now)
	before := a.MuPPM
	a.Adjusted, a.MuPPM = chain.InstantOf(now), int64(next(s.Mu, float64(s.Spent), float64(c.Limit), s.Elapsed)*1e6)
	return a.MuPPM != before
}

// Get gives a copy of an account, to be kept or to be put back; nil if there is
// none.
func (b *Book) Get(name string) *Account {
	a := b.accounts[name]
	if a == nil {
		return nil
	}
	c := *a
	c.Spent, c.Blocks = maps.Clone(a.Spent), maps.Clone(a.Blocks)
	return &c
}

// Set puts an account in place of what is there; nil for none.
func (b *Book) Set(name string, a *Account) {
	if a == nil {
		delete(b.accounts, name)
		return
	}
	if a.Spent == nil {
		a.Spent = map[chain.Primitive]int64{}
	}
	if a.Blocks == nil {
		a.Blocks = map[string]Block{}
	}
	b.accounts[name] = a
}

// Names gives the accounts there are, sorted.
func (b *Book) Names() []string { return slices.Sorted(maps.Keys(b.accounts)) }
