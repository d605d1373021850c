package delta

import (
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Row is one option beside what the hub says of it, in the device's order.
type Row struct {
	Option  chain.OptionID `json:"option"`
	Place   int            `json:"place"`     // in the device's order, from 1
	HubAt   int            `json:"hub_place"` // in the hub's order, from 1
	Hub     Values         `json:"hub"`
	Own     Values         `json:"own"`               // what this device counts with
	Samples uint64         `json:"samples"`           // own attempts ever
	Usable  bool           `json:"usable"`            // this device can run it
	Suspect bool           `json:"suspect,omitempty"` // the hub marks it
	Why     string         `json:"why,omitempty"`     // in words, where the device has its own view
}

// Values are an option's numbers as hub or device see them.
type Values struct {
	Reliability float64 `json:"reliability"`
	Latency     float64 `json:"latency_s"`
	Index       float64 `json:"index_micro_usd"`
	Error       float64 `json:"standard_error"` // of the index
}

// Explain says in which order this device tries v's options, and why. It
// evaluates nothing.
func (b *Book) Explain(v *View, now time.Time) []Row {
	s := b.look(v, now)
	rows := make([]Row, 0, len(s.order))
	for i, at := range s.order {
		o, own := &v.Options[at], &s.priced[at]
		theirs := price(o, hub(&o.Cost), v.Rules.Weights)
		r := b.known(v, o.ID)
		rows = append(rows, Row{Option: o.ID, Place: i + 1, HubAt: at + 1, Hub: theirs.values(), Own: own.values(),
			Samples: r.Reliability.Samples, Usable: own.usable, Suspect: o.Cost.Suspect(), Why: s.why(v, r, i, at)})
	}
	return rows
}

func (x *priced) values() Values {
	return Values{Reliability: x.value.p, Latency: x.latency, Index: x.index, Error: x.spread}
}

func (s *state) why(v *View, r *Record, i, at int) string {
	x := &s.priced[at]
	switch {
	case v.Rules.Fixed:
		return "the order is fixed"
	case !x.usable:
		return "this device cannot run it"
	case x.ignored:
		return "suspect, but this device's own last attempt succeeded"
	case v.Options[at].Cost.Suspect():
		return "suspect: much of the fleet failed with it a moment ago"
	case x.own && i < at:
		return "moved forward: cheaper here than the hub knows"
	case x.own && i > at:
		return "moved back: others are cheaper here than the hub knows"
	case i != at:
		return "another option moved past it"
	case x.own:
		return "own values; no gain over what stands in front was large enough for long enough"
	case r.Reliability.Samples > 0:
		return "the hub's values: too few own samples"
	}
	return ""
}
