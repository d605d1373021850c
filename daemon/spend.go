package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/purse"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// purseFile is the name under which a device keeps the blocks that were leased to it.
const purseFile = "purse.cbor"

// Sizes that an estimate assumes of a request of which nothing better is known.
const (
	bytesPerToken = 2 // fewer than any text has: the estimate of what goes in is no less than what is billed
	longAnswer    = 4 // times the profile, where the caller sets no bound
	leaseEvery    = 5 * time.Second
)

// loadPurse takes over what was leased before the restart.
func (d *Daemon) loadPurse() error {
	b, err := d.cfg.State.ReadChecked(purseFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var k purse.Kept
	if err == nil {
		err = chain.Unmarshal(b, &k)
	}
	if err != nil { // the hub counts what was leased as spent
		d.cfg.Log.Warn("what was leased of ceilings before cannot be read, and counts as spent", "error", err)
		return nil
	}
	d.purse.Restore(k)
	if len(k.Blocks) == 0 {
		return nil
	}
	return d.keepPurse(false) // from now on it is not known what is used
}

func (d *Daemon) keepPurse(clean bool, more ...purse.Block) error {
	b, err := chain.Marshal(d.purse.Kept(clean, more...))
	if err != nil {
		return err
	}
	if err := d.cfg.State.WriteChecked(purseFile, b); err != nil {
		return fmt.Errorf("keep what is leased of ceilings: %w", err)
	}
	return nil
}

// keepAll writes what an orderly stop leaves behind.
func (d *Daemon) keepAll() error {
	err := errors.Join(d.keepDeltas(), d.keepApps(), d.keepSpeeds())
	if len(d.purse.Usage(time.Now())) > 0 {
		err = errors.Join(err, d.keepPurse(true))
	}
	return err
}

// spending estimates and settles what the attempts of one request cost.
type spending struct {
	daemon *Daemon
	slot   chain.Slot
	input  int64 // tokens, at most
	output int64 // tokens, as far as is known
}

// spends gives the hook that reserves for work with this payload. Any walk of this
// device uses it, also for foreign work: the option that bills is this device's.
func (d *Daemon) spends(slot chain.Slot, payload []byte, profile chain.Profile) func(*chain.Option, string) (func(walk.Measurement), *walk.Short) {
	s := &spending{daemon: d, slot: slot}
	return func(o *chain.Option, key string) (func(walk.Measurement), *walk.Short) {
		if len(o.Accounts) == 0 {
			return nil, nil
		}
		if s.input == 0 {
			s.input, s.output = int64(len(payload)/bytesPerToken)+1, bound(payload, longAnswer*profile.Output)
		}
		return s.reserve(o, key)
	}
}

// bound is the most output that a request allows, else fallback.
func bound(payload []byte, fallback int64) int64 {
	if !bytes.Contains(payload, []byte(`"max_`)) && !bytes.Contains(payload, []byte(`"n"`)) {
		return fallback // most say neither, and may be long
	}
	var q struct {
		Most      *float64 `json:"max_tokens"`
		Completed *float64 `json:"max_completion_tokens"`
		N         float64  `json:"n"`
	}
	if json.Unmarshal(payload, &q) != nil {
		return fallback
	}
	n := min(max(q.N, 1), 128)
	for _, most := range []*float64{q.Completed, q.Most} {
		if most != nil && *most > 0 && *most < 1e9 {
			return int64(math.Ceil(*most * n))
		}
	}
	return fallback * int64(math.Ceil(n))
}

// bill is what tokens cost on an option, rounded up.
func bill(c *chain.Cost, input, output int64) int64 {
	micro := (float64(c.InputPerMtok)*float64(input) + float64(c.OutputPerMtok)*float64(output)) / 1e6
	return int64(math.Ceil(min(micro, 1<<52))) + int64(c.PerCall)
}

func (s *spending) reserve(o *chain.Option, key string) (func(walk.Measurement), *walk.Short) {
	var charges []purse.Charge
	var calls []bool
	for _, a := range o.Accounts {
		if a.Key != "" && a.Key != key {
			continue
		}
		amount := int64(1)
		if !a.Calls {
			amount = bill(&o.Cost, s.input, s.output)
		}
		charges, calls = append(charges, purse.Charge{Account: a.Name, Amount: amount}), append(calls, a.Calls)
	}
	if len(charges) == 0 {
		return nil, nil
	}
	d := s.daemon
	r, ok := d.purse.Reserve(s.slot, charges, time.Now())
	if !ok {
		d.wantBlocks(s.slot, charges)
		return nil, new(walk.Short)
	}
	cost := o.Cost
	return func(m walk.Measurement) {
		actual := make([]int64, len(charges))
		for i := range charges {
			switch {
			case !reached(m.Class):
			case calls[i]:
				actual[i] = 1
			default:
				actual[i] = spent(m, &cost, charges[i].Amount)
			}
		}
		r.Settle(actual)
		d.lookAtBlocks(s.slot, charges)
	}, nil
}

// reached reports whether an attempt that ended in c got to whoever counts calls.
func reached(c chain.Class) bool {
	switch c {
	case chain.Unreachable, chain.Offline, chain.KeyMissing, chain.Absent:
		return false
	}
	return true
}

// spent is what an attempt is billed. An answer whose tokens nobody counted, and
// one that was given up while it was made, may have cost what was expected.
func spent(m walk.Measurement, c *chain.Cost, expected int64) int64 {
	switch m.Class {
	case chain.OK, chain.Cut, chain.Timeout, chain.Canceled:
		if m.Input+m.Output == 0 {
			return expected
		}
	default:
		if m.Input+m.Output == 0 {
			return int64(c.FailureBill)
		}
	}
	return bill(c, m.Input, m.Output)
}

// wantBlocks notes that a request found too little, and how much it wanted, so
// that the next block is large enough.
func (d *Daemon) wantBlocks(slot chain.Slot, charges []purse.Charge) {
	d.mu.Lock()
	for _, c := range charges {
		k := leaseNeed{slot, c.Account}
		if have := d.leases.needs[k]; len(d.leases.needs) < maxNeeds || have.least > 0 {
			d.leases.needs[k] = need{max(have.least, c.Amount), time.Now()}
		}
	}
	d.leases.due = true
	d.mu.Unlock()
	d.kick()
}

// lookAtBlocks wakes the visitor when a block is nearly used up.
func (d *Daemon) lookAtBlocks(slot chain.Slot, charges []purse.Charge) {
	now := time.Now()
	for _, c := range charges {
		if d.purse.Low(c.Account, slot, c.Amount, now, now) {
			d.wantBlocks(slot, charges)
			return
		}
	}
}

// leaseState is what the visitor knows of leasing. It is guarded by Daemon.mu.
type leaseState struct {
	needs map[leaseNeed]need
	due   bool      // ask soon
	next  time.Time // not before
}

type leaseNeed struct {
	slot    chain.Slot
	account string
}

// need is what the largest request took, and when one last found too little.
type need struct {
	least int64
	at    time.Time
}

const (
	maxNeeds = 4096
	needed   = time.Hour // for so long a block is asked for on behalf of an option that no chain names: one that a protest revealed
)

// lease asks for the blocks that run low, and tells what became of the others.
func (d *Daemon) lease(ctx context.Context) error {
	now := time.Now()
	usage := d.purse.Usage(now)
	question := wire.Lease{Asks: d.asks(now), Usage: usageOnWire(usage)}
	d.mu.Lock()
	d.leases.due, d.leases.next = false, now.Add(leaseEvery)
	d.mu.Unlock()
	if len(question.Asks) == 0 && !slices.ContainsFunc(usage, func(u purse.Usage) bool { return u.Done }) {
		return nil
	}
	reply, err := within(ctx, d.nodeNow().Lease, question)
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	d.purse.Acknowledged(usage)
	var blocks []purse.Block
	for _, g := range reply.Grants {
		// By this device's clock, from before it asked: it may be wrong by hours.
		g.Until = chain.InstantOf(now) + max(g.Until-reply.Now, 0)
		d.purse.SetUsed(g.Account, g.Used.Share())
		if g.Amount == 0 {
			d.purse.Refused(g.Account, g.Slot, g.Until)
			continue
		}
		blocks = append(blocks, purse.Block{ID: g.ID, Account: g.Account, Slot: g.Slot, Amount: g.Amount, Until: g.Until})
	}
	if err := d.keepPurse(false, blocks...); err != nil {
		d.cfg.Log.Warn("blocks of ceilings are not used, for they could not be kept", "error", err)
		return nil // they are granted again
	}
	for _, b := range blocks {
		d.purse.Add(b)
	}
	return nil
}

// asks gives what is needed: a block for each account that options of the held
// chains count against, before the last one ends.
func (d *Daemon) asks(now time.Time) (list []wire.LeaseAsk) {
	ahead := now.Add(d.interval() * 3 / 2) // the next visit is that far away at most
	for _, c := range d.cfg.Chains.All() {
		slot, profile := c.Slot(), c.Rules().Profile
		asked := map[string]bool{}
		if c.Expired(now) {
			continue
		}
		for _, o := range d.effective(c.Options()) {
			for _, a := range o.Accounts {
				if asked[a.Name] || !d.canSpend(&o) || a.Key != "" && d.cfg.Keys.Generation(a.Key) == 0 || len(list) >= maxAsks {
					continue
				}
				least := int64(1)
				if !a.Calls {
					least = bill(&o.Cost, profile.Input, longAnswer*profile.Output)
				}
				d.mu.Lock()
				least = max(least, d.leases.needs[leaseNeed{slot, a.Name}].least)
				d.mu.Unlock()
				if d.purse.Low(a.Name, slot, least, ahead, now) {
					asked[a.Name] = true
					list = append(list, wire.LeaseAsk{Account: a.Name, Slot: slot, Least: least})
				}
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, n := range d.leases.needs {
		asked := slices.ContainsFunc(list, func(a wire.LeaseAsk) bool { return a.Account == k.account && a.Slot == k.slot })
		if !asked && now.Sub(n.at) < needed && len(list) < maxAsks && d.purse.Low(k.account, k.slot, n.least, now, now) {
			list = append(list, wire.LeaseAsk{Account: k.account, Slot: k.slot, Least: n.least})
		}
	}
	return list
}

// canSpend reports whether this device could run o at all: others leave its
// ceilings alone.
func (d *Daemon) canSpend(o *chain.Option) bool { return o.Known() && d.runs(o) && d.hasKey(o) }

func (d *Daemon) hasKey(o *chain.Option) bool {
	return len(o.Keys) == 0 || slices.ContainsFunc(o.Keys, func(k string) bool { return d.cfg.Keys.Generation(k) > 0 })
}

// maxAsks is how many blocks one exchange asks for at most.
const maxAsks = 256

func usageOnWire(usage []purse.Usage) (list []wire.LeaseUsage) {
	for _, u := range usage {
		list = append(list, wire.LeaseUsage{ID: u.ID, Account: u.Account, Used: u.Used, Done: u.Done})
	}
	return list
}
