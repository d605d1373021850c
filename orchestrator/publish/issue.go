package publish

import (
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// issue is what slots have in common that were published together. A million slots
// may share one: it is replaced and never changed, but for Issued, which only grows.
type issue struct {
	Seq       uint64
	Body      chain.CID
	Previous  chain.CID
	Input     string
	At        chain.Instant
	Reason    Reason
	Issued    chain.Instant
	estimated chain.Instant
}

// issueKey is what slots must have in common to share an issue.
type issueKey struct {
	body, previous chain.CID
	input          string
	reason         Reason
	estimated      chain.Instant
}

// together is for how long slots that are published alike share a number.
const together = 10 * time.Second

// maxRecent bounds what is looked through for an issue to share.
const maxRecent = 1 << 14

// noted gives an issue under another input that led to the same body.
func (p *Press) noted(e *issue, input string) *issue {
	key := issueKey{e.Body, e.Previous, input, e.Reason, e.estimated}
	if have := p.recent[key]; have != nil && have.Seq == e.Seq {
		return have
	}
	c := *e
	c.Input = input
	p.remember(key, &c)
	return &c
}

func (p *Press) remember(key issueKey, e *issue) {
	if len(p.recent) >= maxRecent {
		clear(p.recent)
	}
	p.recent[key] = e
}

// follows reports whether a slot may share an issue: its number must be higher than
// any that the slot had.
func (p *Press) follows(e, old *issue, at chain.Instant) bool {
	if at < e.At || at-e.At > chain.Instant(together/time.Millisecond) || e.Issued > at+chain.Instant(chain.Leeway/2/time.Millisecond) {
		return false
	}
	return old == nil && e.Seq > p.ended || old != nil && e.Seq > old.Seq
}
