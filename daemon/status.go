package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/bind"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/sharing"
)

// Status gives the device as it is now. The fields that only the wiring knows
// (listeners, data directory) are left to it.
func (d *Daemon) Status() control.Status {
	now := time.Now()
	d.mu.Lock()
	joined, isJoined, node, visit, twins := d.joined, d.isJoined, d.node, d.visit, d.twins
	d.mu.Unlock()
	s := control.Status{
		Kind: "device", Version: d.cfg.Version, Name: d.cfg.Name, DeviceID: d.cfg.DeviceID, PeerID: d.cfg.Key.PeerID(), Started: d.started.UTC(),
		Addresses: node.Addrs(), Capabilities: d.capabilities(), Resting: d.resting(now),
		Hub: control.HubStatus{Joined: isJoined, Reachable: node.HubReachable(), LastError: visit.failure, ReportsWaiting: d.reports.Waiting()},
		Requests: control.Requests{Total: d.counts.total.Load(), Failed: d.counts.failed.Load(), Protests: d.counts.protests.Load(),
			Extended: d.counts.extended.Load(), Probes: d.counts.probes.Load(), InFlight: d.counts.inFlight.Load(), Attempts: d.counts.attempts.Load(), Dropped: d.reports.Dropped(), Unproven: d.counts.unproven.Load()},
	}
	s.Pipeline = d.pipelineStatus()
	s.Providers = d.providersStatus()
	s.Foreign, s.Receipts, s.Gating = d.foreign.status(now), d.receipts.status(), d.gatingStatus(now)
	if isJoined {
		expires := joined.Expires.Time()
		s.Hub.Mesh, s.Hub.PeerID, s.Hub.Addresses, s.Hub.Scopes = joined.Trust.Mesh, joined.Trust.Orchestrator, joined.Addresses, joined.Scopes
		s.Hub.MembershipExpires = &expires
		s.Hub.LastVisit, s.Hub.NextVisit = moment(visit.last), moment(visit.next)
	}
	for protocol, n := range node.Stats().Traffic {
		s.Traffic = append(s.Traffic, control.Traffic{Protocol: protocol, In: n.In, Out: n.Out})
	}
	slices.SortFunc(s.Traffic, func(a, b control.Traffic) int { return cmp.Compare(a.Protocol, b.Protocol) })
	for _, p := range d.peers.Peers(now) {
		s.Peers.Known++
		if p.State == "live" {
			s.Peers.Live++
		}
	}
	for _, c := range d.cfg.Chains.All() {
		h := c.Head()
		s.Chains = append(s.Chains, control.ChainSummary{Scope: h.Scope, Primitive: h.Primitive, Seq: h.Seq, Body: h.Body,
			Options: len(c.Options()), Expires: h.Expires.Time(), Stale: c.Stale(now), Expired: c.Expired(now)})
	}
	if err := d.Ready(); err != nil {
		s.Problems = append(s.Problems, err.Error())
	} else {
		s.Ready = true
	}
	if isJoined && !s.Hub.Reachable {
		s.Problems = append(s.Problems, "the hub is out of reach; cached chains stay in force until they expire: chordwheel netcheck says where it was looked for")
	}
	s.Problems = append(s.Problems, troubles(&s, now)...)
	if held := d.cfg.Chains.Get(chain.Slot{Scope: d.scope(), Primitive: chain.LLMChat}); held != nil && visit.whyNone != "" {
		s.Problems = append(s.Problems, "the hub offers no chain for chat any more; the last one stays in force until it expires: "+visit.whyNone)
	}
	if joined.Revoked {
		s.Problems = append(s.Problems, "the membership was revoked")
	}
	s.Problems = append(s.Problems, twins...)
	if d.witness != nil {
		if p := d.witness.Problem(); p != "" {
			s.Problems = append(s.Problems, p)
		}
	}
	return s
}

// troubles names what keeps the device from its whole work, and is seen in the
// rest of s.
func troubles(s *control.Status, now time.Time) (list []string) {
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for _, c := range s.Chains {
		switch {
		case c.Expired:
			say("the chain of %s %s has expired and is not used any more: it is fetched with the next visit to the hub", c.Scope, c.Primitive)
		case c.Stale:
			say("the chain of %s %s is older than it should be; it stays in force until %s", c.Scope, c.Primitive, c.Expires.UTC().Format(time.DateTime+"Z"))
		}
	}
	switch off := notSharing(s.Foreign.Sharing); {
	case strings.HasPrefix(off, sharing.Paused):
		say("no work is done for other devices: %s; go on with: chordwheel resume", off)
	case off == sharing.IsOff:
		say("no work is done for other devices: %s in this device's config.yaml", off)
	}
	for _, scope := range s.Foreign.Sharing {
		if scope.On && s.Foreign.Running >= scope.Jobs {
			say("all %d places for work of other devices are taken; more is refused: sharing.jobs in config.yaml", scope.Jobs)
			break
		}
	}
	if n := s.Requests.Dropped; n > 0 {
		say("%d measurements did not fit into the reports to the hub", n)
	}
	if n := s.Requests.Unproven; n > 0 {
		say("%d answers of peers did not match what those peers signed: the log names them", n)
	}
	return list
}

// notSharing gives the reason why nothing is shared in any scope, if there is
// one for all.
func notSharing(all []control.Sharing) string {
	why := ""
	for _, s := range all {
		if s.On || why != "" && why != s.Why {
			return ""
		}
		why = s.Why
	}
	return why
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Chain gives a held chain and what this device can do with each option now.
func (d *Daemon) Chain(slot chain.Slot) (control.ChainView, error) {
	c := d.cfg.Chains.Get(slot)
	if c == nil {
		return control.ChainView{}, fmt.Errorf("%w: %s; %s", control.ErrNotFound, slot, d.whichChains())
	}
	now := time.Now()
	head, body := c.Bytes()
	view := control.ChainView{Source: "device", Head: c.Head(), Rules: c.Rules(), Signed: chain.Signed{Head: head, Body: body}, Stale: c.Stale(now), Expired: c.Expired(now)}
	resting := map[chain.OptionID]control.Resting{}
	for _, r := range d.resting(now) {
		if r.Option != "" {
			resting[r.Option] = r
		}
	}
	view.Own = d.explained(c)
	for _, o := range d.ordered(c, delta.Conversation{}) {
		view.Options = append(view.Options, d.optionView(o, slot, resting))
	}
	return view, nil
}

// namesSaid is how many names an error spells out.
const namesSaid = 4

// whichChains says what to ask for instead of a chain that is not held.
func (d *Daemon) whichChains() string {
	d.mu.Lock()
	isJoined := d.isJoined
	d.mu.Unlock()
	all := d.cfg.Chains.All()
	switch {
	case !isJoined:
		return ErrNotJoined.Error()
	case len(all) == 0:
		return "it holds none yet: chordwheel status says why"
	}
	var names []string
	for _, c := range all[:min(len(all), namesSaid)] {
		names = append(names, c.Slot().String())
	}
	if more := len(all) - len(names); more > 0 {
		return fmt.Sprintf("it holds %s and %d more: chordwheel status lists them", strings.Join(names, ", "), more)
	}
	return "it holds " + strings.Join(names, ", ")
}

// candidates gives a verdict on every known peer for the slot o.
func (d *Daemon) candidates(slot chain.Slot, o *chain.Option, now time.Time) []control.Candidate {
	cooling := func(p chain.PeerID) bool { return d.standing.PeerCooling(p, now) }
	m, _, ok := d.own()
	may := ok && m.Allows(chain.Submit)
	var all []control.Candidate
	for _, v := range d.peers.Explain(bind.Ask{Scope: slot.Scope, Primitive: slot.Primitive, Slot: o}, cooling, now) {
		c := control.Candidate{PeerID: v.Peer, Name: v.Name, Verdict: control.Verdict{Eligible: v.Why == bind.Eligible, Why: string(v.Why), Detail: v.Detail, Expected: millis(v.Completion)}}
		if c.Eligible && !may {
			c.Eligible, c.Why, c.Detail = false, "may_not_submit", "this device was not granted submit, or its membership is not in force"
		}
		all = append(all, c)
	}
	return all
}

// slotView says who could fill a slot now.
func (d *Daemon) slotView(v control.OptionView, slot chain.Slot) control.OptionView {
	v.Why = chain.NoPeer
	v.Peers = d.candidates(slot, &v.Option, time.Now())
	for _, c := range v.Peers {
		switch {
		case c.Eligible:
			v.Usable, v.Why = true, ""
			return v
		case c.Why == string(bind.CoolingDown):
			v.Why = chain.Cooling
		}
	}
	return v
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (d *Daemon) optionView(o chain.Option, slot chain.Slot, resting map[chain.OptionID]control.Resting) control.OptionView {
	v := control.OptionView{Option: o}
	if !d.runs(&o) || !o.Known() {
		v.Why = chain.Absent
		return v
	}
	if o.Kind == chain.Peer {
		return d.slotView(v, slot)
	}
	if !d.active(&o, slot.Primitive) {
		v.Why = chain.Denied
		return v
	}
	if len(o.Keys) > 0 && !slices.ContainsFunc(o.Keys, func(k string) bool { return d.cfg.Keys.Generation(k) > 0 }) {
		v.Why = chain.KeyMissing
		return v
	}
	if r, ok := resting[o.ID]; ok {
		v.Why, v.Until = chain.Cooling, &r.Until
		return v
	}
	if slices.ContainsFunc(o.Accounts, func(a chain.Account) bool { return a.Key == "" && d.purse.Free(a.Name, slot, time.Now()) <= 0 }) {
		v.Why = chain.Ceiling
		return v
	}
	if d.throttle.Full(o.ID, o.Limits.Concurrency) {
		v.Why = chain.Busy
		return v
	}
	v.Usable = true
	return v
}

// resting lists what is left alone at now.
func (d *Daemon) resting(now time.Time) []control.Resting {
	var out []control.Resting
	snapshot := d.standing.Snapshot(now)
	add := func(rests []walk.Rest, name func(*control.Resting, string)) {
		for _, r := range rests {
			if r.Cooling(now) {
				v := control.Resting{Until: max(r.Until, r.Asked).Time(), Why: r.Class}
				name(&v, r.Name)
				out = append(out, v)
			}
		}
	}
	add(snapshot.Options, func(r *control.Resting, name string) { r.Option = chain.OptionID(name) })
	add(snapshot.Keys, func(r *control.Resting, name string) { r.Key = name })
	add(snapshot.Peers, func(r *control.Resting, name string) { r.Peer = chain.PeerID(name) })
	return out
}
