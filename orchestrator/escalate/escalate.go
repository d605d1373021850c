// Package escalate owns the answers to protests: which withheld option is
// revealed next to a device whose chain is exhausted, or why none is. It is pure:
// time comes in, and signing is the hub's business. An answer is a look-up in
// what was resolved before; nothing is computed while a device waits.
package escalate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Plan is the answers for one chain.
type Plan struct {
	body     chain.CID
	withheld []chain.Option // in the order to reveal them
	domains  map[chain.OptionID]string
	answers  map[string]int // by failed options: index into withheld, −1 none
}

// maxAnswers bounds what a plan remembers; beyond it every look-up is a fresh one.
const maxAnswers = 256

// NewPlan makes the plan of a chain: its options, and what is withheld from it, best first.
func NewPlan(body chain.CID, open, withheld []chain.Option) *Plan {
	p := &Plan{body: body, withheld: withheld, domains: map[chain.OptionID]string{}, answers: map[string]int{}}
	for _, list := range [][]chain.Option{open, withheld} {
		for i := range list {
			p.domains[list[i].ID] = list[i].Domain
		}
	}
	return p
}

// Answer is what a protest gets.
type Answer struct {
	Option    chain.Option // valid if Reveal
	Reveal    bool
	Reason    string // why there is nothing to reveal
	Coalesced bool   // an equal protest was answered before
}

// Next gives the answer to a protest. Of the withheld options that did not fail
// yet it takes the first; one whose failure domain was just seen down, or whose
// domain refused the device's keys, comes after the others.
func (p *Plan) Next(failed []chain.Failure) Answer {
	key := keyOf(failed)
	at, known := p.answers[key]
	if !known {
		at = p.choose(failed)
		if len(p.answers) < maxAnswers {
			p.answers[key] = at
		}
	}
	switch {
	case at >= 0:
		return Answer{Option: p.withheld[at], Reveal: true, Coalesced: known}
	case len(p.withheld) == 0:
		return Answer{Reason: "nothing is withheld from this chain", Coalesced: known}
	}
	return Answer{Reason: "every withheld option has failed too", Coalesced: known}
}

func (p *Plan) choose(failed []chain.Failure) int {
	tried, down := map[chain.OptionID]bool{}, map[string]bool{}
	for _, f := range failed {
		tried[f.Option] = true
		switch f.Class {
		case chain.Unreachable, chain.Credentials, chain.KeyMissing, chain.RateLimited, chain.Timeout:
			if d := p.domains[f.Option]; d != "" {
				down[d] = true
			}
		}
	}
	second := -1
	for i := range p.withheld {
		switch o := &p.withheld[i]; {
		case tried[o.ID]:
		case !down[o.Domain]:
			return i
		case second < 0:
			second = i
		}
	}
	return second
}

// keyOf is the same for the same failures in any order.
func keyOf(failed []chain.Failure) string {
	list := slices.Clone(failed)
	slices.SortFunc(list, func(a, b chain.Failure) int {
		return cmp.Or(cmp.Compare(a.Option, b.Option), cmp.Compare(a.Class, b.Class))
	})
	var b strings.Builder
	for _, f := range slices.Compact(list) {
		b.WriteString(string(f.Option))
		b.WriteByte(0)
		b.WriteString(string(f.Class))
		b.WriteByte(0)
	}
	return b.String()
}

// Desk remembers the protests of the last minutes: a repeated one gets the same
// bytes, and a device that protests without end is told to wait. It is not safe
// for concurrent use.
type Desk struct {
	replies map[asked]reply
	rates   map[asker]*rate
}

type asker struct {
	device chain.PeerID
	slot   chain.Slot
}

type asked struct {
	asker
	nonce string
}

type reply struct {
	extension []byte
	reason    string
	until     time.Time
}

type rate struct {
	start time.Time
	count int
}

// Bounds of a desk.
const (
	maxReplies = 4096
	maxAskers  = 65536
	perMinute  = 60 // protests of one device for one slot
)

// NewDesk gives a desk that remembers nothing.
func NewDesk() *Desk { return &Desk{map[asked]reply{}, map[asker]*rate{}} }

// Admit counts a protest and reports whether it may be answered; if not, wait
// says how long the device should.
func (d *Desk) Admit(device chain.PeerID, slot chain.Slot, now time.Time) (ok bool, wait time.Duration) {
	who := asker{device, slot}
	r := d.rates[who]
	if r == nil || now.Sub(r.start) >= time.Minute || now.Before(r.start) {
		if r == nil && len(d.rates) >= maxAskers {
			clear(d.rates) // forgetting is kinder than refusing: it only resets counts
		}
		d.rates[who] = &rate{now, 1}
		return true, 0
	}
	if r.count >= perMinute {
		return false, r.start.Add(time.Minute).Sub(now)
	}
	r.count++
	return true, 0
}

// Repeat gives what the same protest got before, while that still holds.
func (d *Desk) Repeat(device chain.PeerID, slot chain.Slot, nonce string, now time.Time) (extension []byte, reason string, ok bool) {
	r, ok := d.replies[asked{asker{device, slot}, nonce}]
	if !ok || !now.Before(r.until) {
		return nil, "", false
	}
	return r.extension, r.reason, true
}

// Remember keeps an answer until a moment.
func (d *Desk) Remember(device chain.PeerID, slot chain.Slot, nonce string, extension []byte, reason string, until, now time.Time) {
	if len(d.replies) >= maxReplies {
		for k, r := range d.replies {
			if !now.Before(r.until) {
				delete(d.replies, k)
			}
		}
		if len(d.replies) >= maxReplies {
			clear(d.replies)
		}
	}
	d.replies[asked{asker{device, slot}, nonce}] = reply{extension, reason, until}
}

// Fits reports whether p still answers for this chain and these withheld options.
func (p *Plan) Fits(body chain.CID, withheld []chain.Option) bool {
	return p.body == body && slices.EqualFunc(p.withheld, withheld, func(a, b chain.Option) bool { return a.ID == b.ID && a.Cost == b.Cost })
}

// Len gives the number of withheld options.
func (p *Plan) Len() int { return len(p.withheld) }
