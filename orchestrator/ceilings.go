package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/orchestrator/quota"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// ceiling is one limit of the catalogue and what counts against it.
type ceiling struct {
	quota.Ceiling
	scope   chain.ScopeID // "": every scope
	key     string        // attempts with this key; "": with any
	options string        // pattern
}

// covers reports whether use of o in scope counts against l.
func (l *ceiling) covers(scope chain.ScopeID, o *chain.Option) bool {
	return (l.scope == "" || l.scope == scope.Base()) && resolve.Match(l.options, o.ID) && (l.key == "" || slices.Contains(o.Keys, l.key))
}

// limits are the ceilings of a catalogue, found once for it: each chain asks for
// its own, and there may be a million.
type limits struct {
	all     []*ceiling
	fleet   []*ceiling
	scopes  map[chain.ScopeID][]*ceiling
	account map[string]*ceiling
}

// ceilings gives the limits of the catalogue in force.
func (h *Hub) ceilings() *limits {
	if h.declared != nil {
		return h.declared
	}
	m := &limits{scopes: map[chain.ScopeID][]*ceiling{}, account: map[string]*ceiling{}}
	h.declared = m
	for i := range h.catalogue.Ceilings {
		m.fleet = append(m.fleet, m.add("", &h.catalogue.Ceilings[i])...)
	}
	for i := range h.catalogue.Workspaces {
		w := &h.catalogue.Workspaces[i]
		scope := chain.ScopeID("workspace:" + w.ID)
		for j := range w.Ceilings {
			m.scopes[scope] = append(m.scopes[scope], m.add(scope, &w.Ceilings[j])...)
		}
	}
	return m
}

// of gives the ceilings that options of a scope may count against.
func (m *limits) of(scope chain.ScopeID) []*ceiling {
	return slices.Concat(m.fleet, m.scopes[scope.Base()])
}

// add takes in what a line of the catalogue declares: one ceiling or two.
func (m *limits) add(scope chain.ScopeID, c *catalog.Ceiling) (added []*ceiling) {
	l := ceiling{scope: scope, key: c.Key, options: c.Options}
	what := c.Options
	if c.Key != "" {
		l.options, what = "*", "key "+c.Key
	}
	if scope != "" {
		what = string(scope) + " " + what
	}
	put := func(q quota.Ceiling) {
		if m.account[q.Account] != nil {
			return // the same thing twice: the first holds
		}
		l := l
		l.Ceiling = q
		m.account[q.Account] = &l
		m.all, added = append(m.all, &l), append(added, &l)
	}
	if c.HasUSD {
		put(quota.Ceiling{Account: account(what + " usd_per_month"), Limit: int64(c.USDPerMonth)})
	}
	if c.HasCalls {
		put(quota.Ceiling{Account: account(what + " calls_per_day"), Limit: c.CallsPerDay, Calls: true})
	}
	return added
}

// account keeps a ceiling's name within its bounds.
func account(name string) string {
	if chain.ParseAccount(name) == nil {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "ceiling " + hex.EncodeToString(sum[:16])
}

// limit tells a candidate which ceilings its use counts against, and how these
// stand. A key whose ceiling is used up is not offered while another is left.
func (h *Hub) limit(c *resolve.Candidate, all []*ceiling, slot chain.Slot, p resolve.Profile, now time.Time) {
	least := int64(typical(&c.Option.Cost, p))
	var spent []string
	for _, l := range all {
		if !l.covers(slot.Scope, &c.Option) {
			continue
		}
		one := least
		if l.Calls {
			one = 1
		}
		s := h.quota.State(&l.Ceiling, one, now)
		if s.Breached && l.key != "" && len(c.Option.Keys) > 1 {
			c.Option.Keys = slices.DeleteFunc(slices.Clone(c.Option.Keys), func(k string) bool { return k == l.key })
			spent = append(spent, l.key)
			continue
		}
		c.Option.Accounts = append(c.Option.Accounts, chain.Account{Name: l.Account, Key: l.key, Calls: l.Calls})
		c.Ceilings = append(c.Ceilings, resolve.Ceiling{Name: l.Account, Calls: l.Calls, Multiplier: s.Mu, Breached: s.Breached, Used: s.Used()})
	}
	c.Option.Accounts = slices.DeleteFunc(c.Option.Accounts, func(a chain.Account) bool { return a.Key != "" && slices.Contains(spent, a.Key) })
}

// reopens gives when the first of the ceilings that are used up begins anew; zero
// if none is.
func (h *Hub) reopens(in resolve.Input, now time.Time) (at time.Time) {
	for i := range in.Candidates {
		for _, c := range in.Candidates[i].Ceilings {
			if l := h.ceilings().account[c.Name]; c.Breached && l != nil {
				_, end := l.Period(now)
				at = sooner(at, end)
			}
		}
	}
	return at
}

// sooner gives the earlier of two times, of which zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// typical is what a request of the profile's size costs, in micro-dollars.
func typical(c *chain.Cost, p resolve.Profile) float64 {
	return math.Ceil((float64(c.InputPerMtok)*p.InputTokens+float64(c.OutputPerMtok)*p.OutputTokens)/1e6) + float64(c.PerCall)
}

// usual is what one request of a slot takes of a ceiling at most, as far as the
// catalogue knows.
func (h *Hub) usual(l *ceiling, slot chain.Slot) int64 {
	if l.Calls {
		return 1
	}
	p, _ := h.catalogue.Primitive(slot.Primitive)
	most := 1.0
	for _, provider := range h.catalogue.Providers {
		for _, m := range provider.Models {
			o := chain.Option{ID: chain.OptionID(provider.Name + "/" + m.Name), Keys: provider.Keys}
			o.Cost = chain.Cost{InputPerMtok: m.Price.InputPerMtok, OutputPerMtok: m.Price.OutputPerMtok, PerCall: m.Price.PerCall}
			if l.covers(slot.Scope, &o) && slices.Contains(m.Primitives, slot.Primitive) {
				most = max(most, typical(&o.Cost, p.Profile))
			}
		}
	}
	return int64(most)
}

// Lease hands out blocks of ceilings, durable before they leave.
func (h *Hub) Lease(ctx context.Context, from chain.PeerID, l wire.Lease) (wire.LeaseReply, error) {
	return ask(ctx, h, func() (wire.LeaseReply, error) {
		reply, err := h.lease(from, &l)
		h.note(Operation{Kind: "lease", Peer: from, Bytes: size(&reply), Detail: fmt.Sprintf("%d asked", len(l.Asks))}, err)
		return reply, err
	})
}

func (h *Hub) lease(from chain.PeerID, q *wire.Lease) (reply wire.LeaseReply, err error) {
	now := time.Now()
	if err := q.Validate(); err != nil {
		return reply, spoke.Refuse(spoke.CodeProtocol, "%v", err)
	}
	if _, err := h.member(from, now); err != nil {
		return reply, err
	}
	all := h.ceilings()
	reply.Now = chain.InstantOf(now)
	change := h.changeQuota()
	change.settle(from, all, q.Usage, now)
	holds := map[string]bool{}
	for i := range q.Usage {
		holds[q.Usage[i].ID] = true
	}
	for i := range q.Asks {
		a := &q.Asks[i]
		g := wire.Grant{Account: a.Account, Slot: a.Slot, Until: chain.InstantOf(now.Add(chain.DefaultRules().ReportInterval.Duration()))}
		if l := all.account[a.Account]; l != nil && h.mayLease(from, l, a.Slot, now) {
			change.grant(&g, l, quota.Ask{Device: from, Slot: a.Slot, Least: a.Least, Holds: holds, Known: h.usual(l, a.Slot)}, now)
		}
		reply.Grants = append(reply.Grants, g)
	}
	if err := change.keep(); err != nil {
		return wire.LeaseReply{}, err
	}
	h.afterQuota(change, now)
	return reply, nil
}

// mayLease reports whether a device may use a ceiling for a slot.
func (h *Hub) mayLease(from chain.PeerID, l *ceiling, slot chain.Slot, now time.Time) bool {
	if _, err := h.memberOf(from, slot.Scope, now); err != nil || l.scope != "" && l.scope != slot.Scope.Base() {
		return false
	}
	w, _ := h.catalogue.Workspace(slot.Scope)
	return h.catalogue.Prepares(slot) && (l.key == "" || w.Allows(l.key))
}

// quotaChange is one exchange's worth of changes to accounts: kept together, or
// undone together.
type quotaChange struct {
	h      *Hub
	marks  []quota.Mark             // what was before, for undoing
	blocks map[string][]quota.Block // that changed, by account
	before map[string]bool          // accounts that were touched, and whether they were used up
}

func (h *Hub) changeQuota() *quotaChange {
	return &quotaChange{h: h, blocks: map[string][]quota.Block{}, before: map[string]bool{}}
}

func (c *quotaChange) touch(l *ceiling, now time.Time) {
	if _, known := c.before[l.Account]; !known {
		c.before[l.Account] = c.h.quota.State(&l.Ceiling, 1, now).Breached
	}
}

// settle takes in what a device says of its blocks.
func (c *quotaChange) settle(from chain.PeerID, all *limits, usage []wire.LeaseUsage, now time.Time) {
	for _, u := range usage {
		l := all.account[u.Account]
		if l == nil {
			continue // the catalogue has no such ceiling any more
		}
		c.touch(l, now)
		mark := c.h.quota.Mark(u.Account, u.ID)
		if have, ok := c.h.quota.Block(u.Account, u.ID); ok && c.h.quota.Settle(&l.Ceiling, from, u.ID, u.Used, u.Done, now) {
			c.marks, c.blocks[u.Account] = append(c.marks, mark), append(c.blocks[u.Account], have)
		}
	}
}

func (c *quotaChange) grant(g *wire.Grant, l *ceiling, q quota.Ask, now time.Time) {
	c.touch(l, now)
	p, _ := c.h.catalogue.Primitive(q.Slot.Primitive)
	t := quota.Terms{Interval: p.Rules.WithDefaults().ReportInterval.Duration(), Shares: map[chain.Primitive]float64{}}
	for _, p := range c.h.catalogue.Primitives {
		t.Shares[p.Name] = p.Share
	}
	mark := c.h.quota.Mark(l.Account, "")
	got := c.h.quota.Grant(&l.Ceiling, q, t, now)
	g.ID, g.Amount, g.Until = got.ID, got.Amount, chain.InstantOf(got.Until)
	s := c.h.quota.State(&l.Ceiling, 1, now)
	g.Used = chain.PPMOf(min(s.Used(), 1))
	if made, ok := c.h.quota.Block(l.Account, got.ID); ok && got.Fresh {
		c.marks, c.blocks[l.Account] = append(c.marks, mark.Made(got.ID)), append(c.blocks[l.Account], made)
	}
}

// keep writes what changed, or undoes it.
func (c *quotaChange) keep() error {
	records := map[string]any{}
	for account, blocks := range c.blocks {
		maps.Copy(records, c.h.quota.Kept(account, blocks...))
	}
	if len(records) == 0 {
		return nil
	}
	err := c.h.cfg.Storage.Bucket(bucketQuota).PutAll(records)
	if err == nil {
		return nil
	}
	for _, m := range slices.Backward(c.marks) {
		c.h.quota.Undo(m)
	}
	return fmt.Errorf("keep what was leased: %w", err)
}

// afterQuota looks the orders over if a ceiling came to its end, or is no longer
// at it.
func (h *Hub) afterQuota(c *quotaChange, now time.Time) {
	var scopes []chain.ScopeID
	for name, was := range c.before {
		l := h.ceilings().account[name]
		if was == h.quota.State(&l.Ceiling, 1, now).Breached {
			continue
		}
		h.log.Warn("a ceiling turned", "account", name, "breached", !was)
		if l.scope == "" { // of the whole fleet
			scopes = h.scopes()
			break
		}
		scopes = append(scopes, l.scope)
	}
	if len(scopes) == 0 {
		return
	}
	h.changed()
	slices.Sort(scopes)
	if err := h.resolveScopes(slices.Compact(scopes)); err != nil {
		h.log.Error("publishing failed", "error", err)
	}
}

// adjustCeilings moves the multipliers, once an hour each.
func (h *Hub) adjustCeilings(now time.Time) error {
	records := map[string]any{}
	for _, l := range h.ceilings().all {
		if h.quota.Adjust(&l.Ceiling, resolve.NextMultiplier, now) {
			maps.Copy(records, h.quota.Kept(l.Account))
		}
	}
	if len(records) == 0 {
		return nil
	}
	h.changed()
	return h.cfg.Storage.Bucket(bucketQuota).PutAll(records)
}

// maxShown bounds what a status lists of ceilings, fleet-wide ones first.
const maxShown = 1000

// quotaStates gives the ceilings as they stand, for whoever looks.
func (h *Hub) quotaStates(now time.Time) []quota.State {
	list := []quota.State{}
	all := h.ceilings().all
	for _, l := range all[:min(len(all), maxShown)] {
		list = append(list, h.quota.State(&l.Ceiling, 1, now))
	}
	return list
}

// loadQuota puts back what was spent of ceilings, and then the blocks given out.
func (h *Hub) loadQuota() error {
	var blocks []quota.Block
	err := h.cfg.Storage.Bucket(bucketQuota).Each(func(key string, decode func(any) error) error {
		var a quota.Account
		var x quota.Block
		into := any(&a)
		if strings.HasPrefix(key, "#") {
			into = &x
		}
		switch err := decode(into); {
		case err != nil:
			h.log.Warn("a record of a ceiling cannot be read and is passed over", "key", chain.Clip(key), "error", err)
		case into == any(&a):
			h.quota.Restore(key, a)
		default:
			blocks = append(blocks, x)
		}
		return nil
	})
	for _, x := range blocks {
		h.quota.RestoreBlock(x)
	}
	return err
}
