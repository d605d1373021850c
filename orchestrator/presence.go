package orchestrator

import (
	"context"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/orchestrator/fleet"
)

// How often one device may say something in a minute: far more than any does that works,
// also one that brings along what it measured in days without the hub.
const (
	hellosAMinute  = 60
	reportsAMinute = 600
	maxCallers     = 1 << 16
)

// caller counts what one device said since a moment.
type caller struct {
	since           time.Time
	hellos, reports int
}

// pace refuses a device that speaks too often: each of its messages costs a write to disk, and
// there is one loop for all.
func (h *Hub) pace(from chain.PeerID, report bool, now time.Time) error {
	c := h.callers[from]
	if c == nil || now.Sub(c.since) >= time.Minute || now.Before(c.since) {
		if c == nil && len(h.callers) >= maxCallers {
			clear(h.callers) // forgetting is kinder than refusing: it only resets counts
		}
		c = &caller{since: now}
		h.callers[from] = c
	}
	count, most, what := &c.hellos, hellosAMinute, "visits"
	if report {
		count, most, what = &c.reports, reportsAMinute, "reports"
	}
	if *count >= most {
		return &spoke.Refusal{Code: spoke.CodeTooMany, Message: "too many " + what + ": come back later", ComeBack: c.since.Add(time.Minute).Sub(now)}
	}
	*count++
	return nil
}

// Gone notes that a device has no connection any more: one that was asked to stay is not
// online then, whatever it last said. It is called when the last connection has ended.
func (h *Hub) Gone(peer chain.PeerID) {
	// Nobody waits for it, and a hub that stops needs it no more.
	_, _ = ask(context.Background(), h, func() (struct{}, error) {
		if d := h.fleet.Device(peer); d != nil && h.stays(d) {
			h.gone[peer] = chain.InstantOf(time.Now())
		}
		return struct{}{}, nil
	})
}

// stays reports whether a device is asked to keep its connection.
func (h *Hub) stays(d *fleet.Device) bool { return !d.Metered && h.fleet.Count() <= smallMesh }

// online reports whether a device is there: it said something within two intervals and has
// not gone since.
func (h *Hub) online(d *fleet.Device, now time.Time) bool {
	if silent := now.Sub(d.Seen.Time()); silent > onlineFor || silent < -onlineFor { // or seen when our clock was ahead
		return false
	}
	left, gone := h.gone[d.Peer]
	return !gone || d.Seen > left
}
