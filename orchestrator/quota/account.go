package quota

import (
	"fmt"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Account is what became of one ceiling in the current period. Its CBOR form is
// what is kept of it, beside its blocks: see [Book.Kept].
type Account struct {
	Period   chain.Instant             `cbor:"period"` // its beginning
	Spent    map[chain.Primitive]int64 `cbor:"spent,omitempty"`
	Serial   uint64                    `cbor:"serial"`       // of the last block
	MuPPM    int64                     `cbor:"mu,omitempty"` // the multiplier μ, in millionths
	Adjusted chain.Instant             `cbor:"adjusted,omitempty"`

	blocks map[string]Block          // given out and not yet settled, by id
	claims map[claim][]string        // their ids, by who holds them
	asked  map[claim]time.Time       // who asked lately
	had    map[chain.Primitive]int64 // spent and given out
	out    int64                     // all of had
	since  look                      // what is too dear to count each time
}

// claim is a device and what it wants a part for.
type claim struct {
	device chain.PeerID
	slot   chain.Slot
}

// look is what an account came to when it was gone through last. Between two looks
// it follows each change; what time changes is seen with the next.
type look struct {
	at      time.Time
	spent   int64 // what can no longer be saved
	devices map[chain.PeerID]bool
	wants   map[chain.Primitive]bool // of which somebody asked for a block lately
}

// lookEvery is the time between two looks: there may be a block for each of 50,000
// devices.
const lookEvery = 10 * time.Second

// Block is a part of a ceiling that one device may use for one slot. Its CBOR form
// is what is kept of it.
type Block struct {
	ID      string        `cbor:"id"` // "" in a place that is free again
	Account string        `cbor:"account"`
	Device  chain.PeerID  `cbor:"device"`
	Slot    chain.Slot    `cbor:"slot"`
	Place   int           `cbor:"place"` // among the device's for this slot
	Amount  int64         `cbor:"amount"`
	Used    int64         `cbor:"used,omitempty"` // as its device said last
	Until   chain.Instant `cbor:"until"`
}

// Key is what a block is kept under. A device has a few places in each account,
// which are used again: what is on disk grows with the fleet and not with time.
func (b Block) Key() string {
	return fmt.Sprintf("#%d %s %s %s", b.Place, b.Device, b.Slot, b.Account)
}

// committed is what b counts for.
func (b Block) committed() int64 { return max(b.Amount, b.Used) }

// gone is what of b can no longer be saved: all of it once it is over, for its
// device says nothing.
func (b Block) gone(now time.Time) int64 {
	if b.Until <= chain.InstantOf(now) {
		return b.committed()
	}
	return b.Used
}

// begin empties the account for a new period.
func (a *Account) begin(period chain.Instant) {
	a.Period, a.Spent = period, map[chain.Primitive]int64{}
	a.blocks, a.claims, a.had, a.out, a.since = map[string]Block{}, map[claim][]string{}, map[chain.Primitive]int64{}, 0, look{}
}

// ready makes what is not kept.
func (a *Account) ready() {
	if a.blocks == nil {
		spent := a.Spent
		a.begin(a.Period)
		for p, n := range spent {
			a.spend(p, n)
		}
	}
	if a.asked == nil {
		a.asked = map[claim]time.Time{}
	}
}

// spend counts what is settled.
func (a *Account) spend(p chain.Primitive, n int64) {
	a.Spent[p] += n
	a.had[p] += n
	a.out += n
	a.since.spent += n
}

// put adds a block or replaces it.
func (a *Account) put(b Block) {
	a.drop(b.ID)
	a.blocks[b.ID] = b
	c := claim{b.Device, b.Slot}
	a.claims[c] = append(a.claims[c], b.ID)
	a.had[b.Slot.Primitive] += b.committed()
	a.out += b.committed()
	a.since.spent += b.gone(a.since.at)
	if a.since.devices != nil {
		a.since.devices[b.Device] = true
	}
}

func (a *Account) drop(id string) {
	b, ok := a.blocks[id]
	if !ok {
		return
	}
	delete(a.blocks, id)
	c := claim{b.Device, b.Slot}
	a.claims[c] = slices.DeleteFunc(a.claims[c], func(x string) bool { return x == id })
	if len(a.claims[c]) == 0 {
		delete(a.claims, c)
	}
	a.had[b.Slot.Primitive] -= b.committed()
	a.out -= b.committed()
	a.since.spent -= b.gone(a.since.at)
}

// look goes through the account, if that was not done lately.
func (a *Account) look(t Terms, now time.Time) {
	if age := now.Sub(a.since.at); a.since.devices != nil && age >= 0 && age < lookEvery {
		return
	}
	a.since = look{at: now, devices: map[chain.PeerID]bool{}, wants: map[chain.Primitive]bool{}}
	for _, n := range a.Spent {
		a.since.spent += n
	}
	for _, b := range a.blocks {
		a.since.spent += b.gone(now)
		if b.Until > chain.InstantOf(now) {
			a.since.devices[b.Device] = true
		}
	}
	for c, at := range a.asked {
		if now.Sub(at) > 2*max(t.Interval, defaultInterval) || at.After(now.Add(chain.Leeway)) {
			delete(a.asked, c)
		} else {
			a.since.devices[c.device], a.since.wants[c.slot.Primitive] = true, true
		}
	}
}

// defaultInterval is how long a device that asked counts at least.
const defaultInterval = 15 * time.Minute
