package orchestrator

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/chord"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/orchestrator/fleet"
	"github.com/chordwheel/chordwheel/orchestrator/quota"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// The values below are what the dashboard and the command show. Their JSON names
// are a contract: docs/orchestrator.md lists them.

// Overview is the work that a hub has, in numbers.
type Overview struct {
	Devices, Editions, Bodies int
	Sweeping                  int    // scopes still to be looked over
	Orders                    uint64 // worked out since the start
}

// Overview tells what Status tells without a word for each device and chain.
func (h *Hub) Overview(ctx context.Context) (Overview, error) {
	return ask(ctx, h, func() (Overview, error) {
		editions, bodies := h.press.Counts()
		return Overview{h.fleet.Count(), editions, bodies, len(h.sweep), h.orders}, nil
	})
}

// Status is the hub at a glance.
type Status struct {
	Kind        string            `json:"kind"` // "hub"
	Version     string            `json:"version"`
	Name        string            `json:"name,omitempty"`
	Mesh        chain.MeshID      `json:"mesh"`
	PeerID      chain.PeerID      `json:"peer_id"`
	Addresses   []string          `json:"addresses"`
	Started     time.Time         `json:"started"`
	Catalogue   CatalogueView     `json:"catalogue"`
	Devices     []DeviceView      `json:"devices"`
	Conflicts   []ConflictView    `json:"conflicts"`
	Chords      []ChordView       `json:"chords"` // between devices; both ends claim them
	Chains      []ChainSummary    `json:"chains"`
	MoreDevices int               `json:"more_devices,omitempty"` // that are not listed
	MoreChains  int               `json:"more_chains,omitempty"`  // that are not listed
	Bodies      int               `json:"bodies"`                 // shared by the chains
	Invitations int               `json:"invitations"`            // open
	Learned     int               `json:"learned"`                // options with estimates
	Orders      uint64            `json:"orders"`                 // worked out since the start
	Sweeping    int               `json:"sweeping"`               // scopes still to be looked over
	Refused     map[string]uint64 `json:"refused"`                // by code, since the start
	Alarms      []Alarm           `json:"alarms"`
	Ceilings    []quota.State     `json:"ceilings"`              // spend against them
	DialsAsked  *uint64           `json:"dials_asked,omitempty"` // must be 0: the hub never probes
	Ledger      *LedgerView       `json:"ledger,omitempty"`      // filled in by who keeps it beside the hub
}

// LedgerView is how the audit ledger fares.
type LedgerView struct {
	Receipts   int64  `json:"receipts"`              // that it has
	Fault      string `json:"fault,omitempty"`       // why it takes none
	DoubleUses uint64 `json:"double_uses,omitempty"` // receipts since the start by which a token was used by two
}

// CatalogueView counts what is declared.
type CatalogueView struct {
	Loaded     time.Time `json:"loaded"`
	Refused    string    `json:"refused,omitempty"` // faults of a later one, which is not in force
	Providers  int       `json:"providers"`
	Models     int       `json:"models"`
	Primitives int       `json:"primitives"`
	Workspaces int       `json:"workspaces"`
}

// DeviceView is one device.
type DeviceView struct {
	PeerID       chain.PeerID       `json:"peer_id"`
	DeviceID     chain.DeviceID     `json:"device_id"`
	Name         string             `json:"name"`
	Scopes       []chain.ScopeID    `json:"scopes"`
	Granted      []member.Pattern   `json:"granted"`
	Capabilities []chain.Capability `json:"capabilities"` // declared and granted
	Locals       []chain.OptionID   `json:"locals"`
	State        string             `json:"state"` // online, offline, expired or revoked
	Seen         time.Time          `json:"seen"`
	Enrolled     time.Time          `json:"enrolled"`
	Expires      time.Time          `json:"membership_expires"`
	Version      string             `json:"version"`
	Metered      bool               `json:"metered"`
	Addresses    []string           `json:"addresses"` // where other devices may dial it
	Network      string             `json:"network"`   // the /24 or /48 that it was last heard from; "" not known
}

// ChordView is one contact between two devices, as both tell it.
type ChordView struct {
	A     chain.PeerID `json:"a"`
	B     chain.PeerID `json:"b"`
	NameA string       `json:"name_a"`
	NameB string       `json:"name_b"`
	RTT   float64      `json:"rtt_ms"`               // 0: not measured
	At    time.Time    `json:"at"`                   // when the one that was silent longer last said so
	By    chain.PeerID `json:"claimed_by,omitempty"` // the one end that claims it; absent: both do, and only such a chord counts
}

// ConflictView is a device ID under a second peer ID, waiting for the owner.
type ConflictView struct {
	DeviceID chain.DeviceID `json:"device_id"`
	PeerID   chain.PeerID   `json:"peer_id"`
	Holder   chain.PeerID   `json:"holder"`
	Name     string         `json:"name"`
	At       time.Time      `json:"at"`
}

// Alarm is something that the owner should look at.
type Alarm struct {
	At     time.Time    `json:"at"` // the last time
	What   string       `json:"what"`
	Times  int          `json:"times"`
	PeerID chain.PeerID `json:"peer_id,omitempty"`
	Device string       `json:"device,omitempty"`
	Detail string       `json:"detail,omitempty"`

	logged time.Time // when the log had it last
}

// ChainSummary is one published chain in a line.
type ChainSummary struct {
	Scope     chain.ScopeID    `json:"scope"`
	Primitive chain.Primitive  `json:"primitive"`
	Seq       uint64           `json:"seq"`
	Body      chain.CID        `json:"body"`
	Published time.Time        `json:"published"`
	Reason    string           `json:"reason"` // first, input, order, estimate, trend, evidence or clock
	Options   []chain.OptionID `json:"options"`
	Withheld  int              `json:"withheld"`
	Protests  ProtestsView     `json:"protests"`
}

// ProtestsView counts the protests of a slot since the start.
type ProtestsView struct {
	Answered  uint64    `json:"answered"`
	Refused   uint64    `json:"refused"`
	Coalesced uint64    `json:"coalesced"`
	Queued    uint64    `json:"queued"`
	Target    chain.PPM `json:"target_ppm"` // wanted share of requests that protest
	Rate      chain.PPM `json:"rate_ppm"`   // share that did, as of the last days
	Requests  float64   `json:"requests"`   // requests behind the rate, fading
	Above     bool      `json:"above"`      // the rate is above the target, with at least 20 requests behind it
}

// Percent is the rate for people, 0 to 100.
func (v ProtestsView) Percent() float64 { return v.Rate.Share() * 100 }

// TargetPercent is the target for people, 0 to 100.
func (v ProtestsView) TargetPercent() float64 { return v.Target.Share() * 100 }

// rateRequests is how many requests a rate needs behind it to be called too high.
const rateRequests = 20

// ChainView is one chain as a device would fetch it now.
type ChainView struct {
	Source  string         `json:"source"` // "hub"
	Head    chain.Head     `json:"head"`
	Options []chain.Option `json:"options"`
	Rules   chain.Rules    `json:"rules"`
	Signed  chain.Signed   `json:"signed"`
}

// Explanation says why a chain is as it is.
type Explanation struct {
	resolve.Resolution
	Source     string        `json:"source"`                // "hub"
	Members    int           `json:"members"`               // devices of the scope
	Published  *ChainSummary `json:"published,omitempty"`   // absent: nothing is published
	NoChain    string        `json:"no_chain,omitempty"`    // why nothing is
	OfferAgain *time.Time    `json:"offer_again,omitempty"` // when the order is looked over again without news

	Escalation EscalationView `json:"escalation"` // what protests are answered with

	Suspects []chain.OptionID `json:"suspects,omitempty"` // options that fail for most of the devices that try them now
}

// onlineFor is how long a device counts as online after its last word: a report
// interval and its full jitter.
const onlineFor = 2 * 15 * time.Minute

// maxChordViews bounds the chords of a status: those of sixty-four devices that
// all know each other.
const maxChordViews = 2048

// maxAlarms bounds what is remembered of alarms: the newest.
const maxAlarms = 100

// alarmPause is how long the same alarm about the same device stays out of the log.
const alarmPause = time.Hour

// alarm shows the owner what a device did. One that does the same again and again
// counts up one alarm: it must neither fill the log nor push others' alarms out.
func (h *Hub) alarm(now time.Time, what string, d *fleet.Device, detail string) {
	a := Alarm{What: what, PeerID: d.Peer}
	if i := slices.IndexFunc(h.alarms, func(o Alarm) bool { return o.What == what && o.PeerID == d.Peer }); i >= 0 {
		a = h.alarms[i]
		h.alarms = slices.Delete(h.alarms, i, i+1)
	}
	a.At, a.Device, a.Detail, a.Times = now.UTC(), d.Name, detail, a.Times+1
	quiet := now.Sub(a.logged) < alarmPause && !a.logged.IsZero()
	if !quiet {
		a.logged = now
	}
	h.alarms = append(h.alarms, a)
	if len(h.alarms) > maxAlarms {
		h.alarms = slices.Delete(h.alarms, 0, len(h.alarms)-maxAlarms)
	}
	if !quiet {
		h.log.Warn(what, "device", d.Name, "peer", string(d.Peer), "detail", detail, "times", a.Times)
	}
}

// Status gives the hub at a glance.
func (h *Hub) Status(ctx context.Context) (Status, error) {
	addrs := h.cfg.Addrs()
	s, err := ask(ctx, h, func() (Status, error) { return h.status(addrs), nil })
	if d, ok := h.outbox.publisher.(interface{ DialsAsked() uint64 }); ok && err == nil {
		n := d.DialsAsked()
		s.DialsAsked = &n
	}
	return s, err
}

func (h *Hub) status(addrs []string) Status {
	learned, _ := h.book.Len()
	s := Status{
		Kind: "hub", Version: h.cfg.Version, Name: h.cfg.Name, Mesh: h.cfg.Mesh, PeerID: h.PeerID(), Addresses: addrs, Started: h.started.UTC(),
		Catalogue: CatalogueView{Loaded: h.reloaded.UTC(), Refused: h.unread, Providers: len(h.catalogue.Providers), Primitives: len(h.catalogue.Primitives),
			Workspaces: len(h.catalogue.Workspaces) + h.catalogue.Enlisted()},
		Devices: []DeviceView{}, Conflicts: []ConflictView{}, Chords: []ChordView{}, Chains: h.summaries(maxListed), Invitations: len(h.invitations),
		Learned: learned, Orders: h.orders, Sweeping: len(h.sweep), Refused: map[string]uint64{}, Alarms: append([]Alarm{}, h.alarms...),
		Ceilings: h.quotaStates(time.Now()),
	}
	for _, p := range h.catalogue.Providers {
		s.Catalogue.Models += len(p.Models)
	}
	now := time.Now()
	devices, editions := h.fleet.Devices(), 0
	for _, d := range devices[:min(len(devices), maxListed)] {
		s.Devices = append(s.Devices, h.viewOf(d, now))
	}
	editions, s.Bodies = h.press.Counts()
	s.MoreDevices, s.MoreChains = len(devices)-len(s.Devices), editions-len(s.Chains)
	s.Chords = h.chordViews(h.fleet.Chords(now))
	for _, c := range h.fleet.Conflicts() {
		s.Conflicts = append(s.Conflicts, ConflictView{c.ID, c.Peer, c.Holder, c.Name, c.At.Time()})
	}
	for code, n := range h.refused {
		s.Refused[code] = n
	}
	return s
}

// chordViews gives names to chords of devices that are known.
func (h *Hub) chordViews(list []chord.Chord) []ChordView {
	views := []ChordView{}
	for _, k := range list {
		a, b := h.fleet.Device(k.A), h.fleet.Device(k.B)
		if a == nil || b == nil || len(views) == maxChordViews {
			continue
		}
		views = append(views, ChordView{A: k.A, B: k.B, NameA: a.Name, NameB: b.Name, RTT: float64(k.RTT.Microseconds()) / 1000, At: k.At.UTC(), By: k.By})
	}
	return views
}

// Chords gives the adjacencies that devices told the hub of: those of Status, and
// those that one end claims only.
func (h *Hub) Chords(ctx context.Context) ([]ChordView, error) {
	return ask(ctx, h, func() ([]ChordView, error) { return h.chordViews(h.fleet.Claimed(time.Now())), nil })
}

func (h *Hub) viewOf(d *fleet.Device, now time.Time) DeviceView {
	v := DeviceView{PeerID: d.Peer, DeviceID: d.ID, Name: d.Name, Scopes: d.Scopes, Granted: d.Granted, Capabilities: []chain.Capability{},
		Locals: []chain.OptionID{}, Seen: d.Seen.Time(), Enrolled: d.Enrolled.Time(), Expires: d.Expires.Time(), Version: d.Version, Metered: d.Metered, Addresses: append([]string{}, d.Addresses...), Network: d.Network}
	for _, c := range d.Declared {
		if d.Allows(c) {
			v.Capabilities = append(v.Capabilities, c)
		}
	}
	for _, l := range d.Locals {
		v.Locals = append(v.Locals, l.Option.ID)
	}
	switch {
	case d.Revoked != 0:
		v.State = "revoked"
	case !d.Active(chain.InstantOf(now)):
		v.State = "expired"
	case h.online(d, now):
		v.State = "online"
	default:
		v.State = "offline"
	}
	return v
}

// Chains gives what is published, by scope and primitive.
func (h *Hub) Chains(ctx context.Context) ([]ChainSummary, error) {
	return ask(ctx, h, func() ([]ChainSummary, error) { return h.summaries(math.MaxInt), nil })
}

// ChainsAfter gives up to most of what is published, by the scope's own name, then scope
// and primitive, after a slot; the zero slot begins. more says that there is more after the last.
func (h *Hub) ChainsAfter(ctx context.Context, after chain.Slot, most int) (list []ChainSummary, more bool, err error) {
	_, err = ask(ctx, h, func() (struct{}, error) {
		list = []ChainSummary{}
		scopes, base := h.scopes(), after.Scope.Base()
		from, _ := slices.BinarySearch(scopes, base)
		for _, scope := range scopes[from:] {
			slots := h.slotsIn(scope)
			slices.SortFunc(slots, bySlot)
			for _, slot := range slots {
				if _, there := h.press.Edition(slot); !there || scope == base && bySlot(slot, after) <= 0 {
					continue
				}
				if len(list) >= most {
					more = true
					return struct{}{}, nil
				}
				list = append(list, h.summary(slot))
			}
		}
		return struct{}{}, nil
	})
	return list, more, err
}

// maxListed is how many devices and chains a status lists, by name.
const maxListed = 2000

// summaries gives up to most chains, the first by scope and primitive.
func (h *Hub) summaries(most int) []ChainSummary {
	list := []ChainSummary{}
	if editions, _ := h.press.Counts(); editions <= most {
		for _, slot := range h.press.Slots() {
			list = append(list, h.summary(slot))
		}
	} else {
		for _, scope := range h.scopes() {
			for _, slot := range h.slotsIn(scope) {
				if _, there := h.press.Edition(slot); there && len(list) < most {
					list = append(list, h.summary(slot))
				}
			}
			if len(list) == most {
				break
			}
		}
	}
	slices.SortFunc(list, func(a, b ChainSummary) int {
		return strings.Compare(string(a.Scope)+" "+string(a.Primitive), string(b.Scope)+" "+string(b.Primitive))
	})
	return list
}

func (h *Hub) summary(slot chain.Slot) ChainSummary {
	e, _ := h.press.Edition(slot)
	s := ChainSummary{Scope: slot.Scope, Primitive: slot.Primitive, Seq: e.Seq, Body: e.Body, Published: e.At.Time(), Reason: string(e.Reason), Options: []chain.OptionID{}}
	body, _ := h.press.Content(e.Body)
	for i := range body.Options {
		s.Options = append(s.Options, body.Options[i].ID)
	}
	if p := h.plans[slot]; p != nil { // after a restart its turn may not have come
		s.Withheld = p.Len()
	}
	s.Protests.Target = body.Rules.WithDefaults().Escalation
	if c := h.protests[slot]; c != nil {
		s.Protests.Answered, s.Protests.Refused, s.Protests.Coalesced, s.Protests.Queued = c.Answered, c.Refused, c.Coalesced, c.Queued
		s.Protests.Rate, s.Protests.Requests = c.rate.Share(time.Now())
		s.Protests.Above = s.Protests.Rate > s.Protests.Target && s.Protests.Requests >= rateRequests
	}
	return s
}

// Show gives a chain as a device would fetch it now. An error that wraps ErrAsked
// says why there is none.
func (h *Hub) Show(ctx context.Context, slot chain.Slot) (ChainView, error) {
	return ask(ctx, h, func() (ChainView, error) {
		if _, ok := h.press.Edition(slot); !ok {
			return ChainView{}, nothing(h.whyNone(slot))
		}
		head, bytes, err := h.press.Head(slot, time.Now())
		if err != nil {
			return ChainView{}, err
		}
		v := ChainView{Source: "hub", Signed: chain.Signed{Head: head, Body: bytes}}
		_, payload, err := chain.Open(chain.DomainChain, head)
		if err != nil {
			return ChainView{}, err
		}
		if err := chain.Unmarshal(payload, &v.Head); err != nil {
			return ChainView{}, err
		}
		body, _ := h.press.Content(v.Head.Body)
		v.Options, v.Rules = body.Options, body.Rules.WithDefaults()
		return v, nil
	})
}

// Explain resolves a slot anew and says why each option stands where it does, or
// why it is out. It publishes nothing. An error that wraps ErrAsked says that the
// catalogue has no such primitive.
func (h *Hub) Explain(ctx context.Context, slot chain.Slot) (Explanation, error) {
	return ask(ctx, h, func() (Explanation, error) {
		if _, err := chain.ParseScope(string(slot.Scope)); err != nil {
			return Explanation{}, wrong("%w", err)
		}
		if !h.catalogue.Prepares(slot) { // to look at a chain must not make one
			return Explanation{}, nothing(h.unprepared(slot))
		}
		now := time.Now()
		in, _, _ := h.input(slot, now)
		e := Explanation{Source: "hub", Resolution: resolve.Explain(in), Members: h.fleet.Scope(slot.Scope.Base(), chain.InstantOf(now)).Members()}
		e.Suspects, _ = h.suspects(in, now)
		e.Escalation = h.escalation(slot)
		if _, ok := h.press.Edition(slot); ok {
			s := h.summary(slot)
			e.Published = &s
		} else {
			e.NoChain = h.whyNone(slot)
		}
		if at, ok := h.again[slot]; ok {
			at = at.UTC()
			e.OfferAgain = &at
		}
		return e, nil
	})
}
