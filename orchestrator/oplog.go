package orchestrator

import (
	"errors"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/spoke"
)

// Operation is one thing that passed between a device and the hub. It never
// holds content: names, sizes and outcomes only.
type Operation struct {
	ID        uint64        `json:"id"` // rises by one; gaps mean that the ring was overrun
	At        chain.Instant `json:"at_ms"`
	Direction string        `json:"direction"` // "in" from a device, "out" to devices
	Peer      chain.PeerID  `json:"peer_id,omitempty"`
	Device    string        `json:"device,omitempty"`
	Kind      string        `json:"kind"`           // hello, enrol, report, fetch, protest, invalidation, revocation, invitation, provider
	Slot      string        `json:"slot,omitempty"` // "scope/primitive"
	Bytes     int           `json:"bytes"`          // of the answer or message, before framing
	Outcome   string        `json:"outcome"`        // ok, or the code of a refusal
	Detail    string        `json:"detail,omitempty"`
	Request   string        `json:"request,omitempty"` // nonce of a protest, sequence of a report
}

// ringSize bounds the log: about 4 MB, some twenty minutes at 200 visits a second.
const ringSize = 16384

// oplog is a ring in memory. It is safe for concurrent use.
type oplog struct {
	mu   sync.Mutex
	ring []Operation
	next uint64 // ID of the next one
}

func newOplog() *oplog { return &oplog{next: 1} }

func (l *oplog) add(op Operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	op.ID = l.next
	l.next++
	if len(l.ring) < ringSize {
		l.ring = append(l.ring, op)
		return
	}
	l.ring[(op.ID-1)%ringSize] = op
}

// after gives up to limit operations with an ID above after, oldest first. With
// after 0 it gives the newest ones.
func (l *oplog) after(after uint64, limit int) []Operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit = min(max(limit, 0), ringSize)
	if after >= l.next {
		return []Operation{}
	}
	first := after + 1
	if held := uint64(len(l.ring)); l.next-first > held {
		first = l.next - held
	}
	if after == 0 && l.next-first > uint64(limit) {
		first = l.next - uint64(limit)
	}
	list := []Operation{}
	for id := first; id < l.next && len(list) < limit; id++ {
		list = append(list, l.ring[(id-1)%ringSize])
	}
	return list
}

// Operations gives up to limit operations with an ID above after, oldest
// first; with after 0 the newest ones. It does not wait for the loop.
func (h *Hub) Operations(after uint64, limit int) []Operation { return h.oplog.after(after, limit) }

// size is what a message takes on the wire, without its frame.
func size(v any) int {
	b, err := chain.Marshal(v)
	if err != nil {
		return 0
	}
	return len(b)
}

// note writes an operation down, with what came of it.
func (h *Hub) note(op Operation, err error) {
	op.At = chain.InstantOf(time.Now())
	if op.Direction == "" {
		op.Direction = "in"
	}
	if d := h.fleet.Device(op.Peer); d != nil {
		op.Device = d.Name
	}
	if op.Outcome == "" {
		op.Outcome = "ok"
	}
	var r *spoke.Refusal
	if errors.As(err, &r) {
		op.Outcome, op.Detail, op.Bytes = r.Code, r.Message, 0
		h.refused[r.Code]++
	} else if err != nil {
		op.Outcome, op.Bytes = spoke.CodeInternal, 0
	}
	h.oplog.add(op)
}
