package escalate

import (
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

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
