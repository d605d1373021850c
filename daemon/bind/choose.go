package bind

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
)

// Near-equals are not told apart by what was measured: within a quarter of the
// best, and a little more so that the quickest of work spreads as well.
const (
	nearFactor = 1.25
	nearSlack  = 5 * time.Millisecond
)

// Ask is a slot to be filled.
type Ask struct {
	Scope     chain.ScopeID
	Primitive chain.Primitive
	Slot      *chain.Option
}

func (a *Ask) work() Work { return Work{a.Primitive, a.Slot.ID} }

// Reason says why a peer cannot fill a slot; "" is that it can.
type Reason string

// Reasons, in the order in which they are looked for.
const (
	Eligible    Reason = ""
	OnlyHeardOf Reason = "only_heard_of" // introduced by others, never met: no proof of life
	Parted      Reason = "parted"        // no connection stands
	Silent      Reason = "silent"        // the last attempt came to nothing, and it was not heard since
	Relayed     Reason = "relayed"       // only over a relay, which carries no work
	Expired     Reason = "expired"       // its membership is not current
	Revoked     Reason = "revoked"       // its membership was ended
	OtherScope  Reason = "other_scope"   // its membership does not cover the scope
	LocalOnly   Reason = "local_only"    // the work's data may not leave this device
	Lacks       Reason = "lacks"         // a capability that the slot requires; Detail names it
	Declines    Reason = "declines"      // it said that it takes no work for now
	CoolingDown Reason = "cooling"       // it failed lately
)

// Verdict is what the table thinks of one peer for one slot.
type Verdict struct {
	Peer       chain.PeerID
	Name       string
	Why        Reason
	Detail     string
	Since      time.Time     // when the peer came to be as it is: met, parted, silent
	RTT        time.Duration // 0 unknown
	Ahead      float64       // jobs before a new one, for each that it runs at once
	Completion time.Duration // when an answer is expected

	Capabilities []chain.Capability // declared and granted; nobody changes them
}

// Bind gives the best live peer for which except is false: one of those whose
// answer is expected soonest. Among near-equals two are drawn and the one
// with less ahead of it is taken, so that many devices with the same view do
// not all go to the same peer.
func (t *Table) Bind(a Ask, except func(chain.PeerID) bool, now time.Time) (chain.PeerID, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	type candidate struct {
		known *known
		by    time.Duration
	}
	var all []candidate
	best := time.Duration(math.MaxInt64)
	w, declared, execute := a.work(), a.Slot.Cost.Latency.Duration(), chain.ExecuteCapability(a.Primitive)
	for _, k := range t.order {
		if k.state != live {
			continue
		}
		if why, _ := t.judge(k, &a, execute, now); why != Eligible || except != nil && except(k.peer) {
			continue
		}
		c := candidate{k, t.completion(k, w, declared, now)}
		all, best = append(all, c), min(best, c.by)
	}
	if len(all) == 0 {
		return "", false
	}
	limit := time.Duration(float64(best)*nearFactor) + nearSlack
	all = slices.DeleteFunc(all, func(c candidate) bool { return c.by > limit })
	one := t.random.IntN(len(all))
	if len(all) == 1 {
		return all[one].known.peer, true
	}
	two := t.random.IntN(len(all) - 1)
	if two >= one {
		two++
	}
	if all[two].known.ahead(now) < all[one].known.ahead(now) {
		one = two
	}
	return all[one].known.peer, true
}

// Peer is what the table knows of one peer whatever the slot.
type Peer struct {
	Peer         chain.PeerID
	Membership   member.Membership
	Capabilities []chain.Capability // declared and granted
	State        string             // live, silent, parted or heard_of
	Since        time.Time          // of State
	RTT          time.Duration      // 0 unknown
	Ahead        float64            // jobs before a new one, for each that it runs at once
}

// Peers gives every known peer, sorted by name.
func (t *Table) Peers(now time.Time) []Peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Peer, 0, len(t.peers))
	for p, k := range t.peers {
		all = append(all, Peer{Peer: p, Membership: k.membership, Capabilities: k.capabilities, State: k.state.String(), Since: k.since, RTT: k.rtt, Ahead: k.ahead(now)})
	}
	slices.SortFunc(all, func(x, y Peer) int {
		return cmp.Or(cmp.Compare(x.Membership.Name, y.Membership.Name), cmp.Compare(x.Peer, y.Peer))
	})
	return all
}

// Explain gives a verdict on every known peer: those that can first, by expected
// completion, then by name. cooling may be nil.
func (t *Table) Explain(a Ask, cooling func(chain.PeerID) bool, now time.Time) []Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Verdict, 0, len(t.peers))
	execute := chain.ExecuteCapability(a.Primitive)
	for _, k := range t.order {
		v := Verdict{Peer: k.peer, Name: k.membership.Name, Since: k.since, RTT: k.rtt, Ahead: k.ahead(now), Capabilities: k.capabilities,
			Completion: t.completion(k, a.work(), a.Slot.Cost.Latency.Duration(), now)}
		v.Why, v.Detail = t.judge(k, &a, execute, now)
		if v.Why == Eligible && cooling != nil && cooling(k.peer) {
			v.Why, v.Detail = CoolingDown, "an attempt failed lately"
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(x, y Verdict) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Peer, y.Peer))
	})
	return all
}

func rank(v Verdict) time.Duration {
	if v.Why == Eligible {
		return v.Completion
	}
	return math.MaxInt64
}

// judge says whether k may fill the slot at all, and what a person would want
// to know of why not. execute is the capability that the primitive takes.
func (t *Table) judge(k *known, a *Ask, execute chain.Capability, now time.Time) (Reason, string) {
	switch k.state {
	case introduced:
		return OnlyHeardOf, "others tell of it; this device has not reached it"
	case parted:
		return Parted, "no connection stands"
	case silent:
		return Silent, "it did not answer the last time, and was not heard since"
	}
	if k.relayed {
		return Relayed, "reached only over a relay that carries no work"
	}
	if a.Slot.Data == chain.LocalOnly {
		return LocalOnly, "the data of this work stays on this device"
	}
	if err := k.membership.Current(now); err != nil {
		return Expired, err.Error()
	}
	if !slices.Contains(k.membership.Scopes, a.Scope.Base()) {
		return OtherScope, fmt.Sprintf("it is not a member of %s", a.Scope)
	}
	if t.revoked.Ends(&k.membership) {
		return Revoked, "its membership was revoked"
	}
	if missing := k.misses(a, execute); missing != "" {
		return Lacks, string(missing)
	}
	if r := k.works[a.work()]; now.Before(k.declines) || r != nil && now.Before(r.declines) {
		return Declines, "it takes no such work for now"
	}
	return Eligible, ""
}

// misses gives the first required capability that k does not have. Who a device
// is stands in its signed membership: what it declares of that counts for nothing.
func (k *known) misses(a *Ask, execute chain.Capability) chain.Capability {
	if !slices.Contains(k.capabilities, execute) {
		return execute
	}
	for _, c := range a.Slot.Requires {
		if id, ok := c.Device(); ok {
			if k.membership.DeviceID != id {
				return c
			}
		} else if !slices.Contains(k.capabilities, c) {
			return c
		}
	}
	return ""
}

// fade is what is left of something after age, half of it after each half-life.
func fade(age, halfLife time.Duration) float64 { return math.Exp2(-float64(age) / float64(halfLife)) }
