package executor

import (
	"crypto/rand"
	"time"

	"github.com/chordwheel/chordwheel/mesh/wire"
)

// maxDrift is how far the clock may move against the monotonic one, either way, before
// what is remembered by it counts for nothing: a little more than a clock that is set
// right bit by bit ever has to.
const maxDrift = 30 * time.Second

// epoch is the stretch of time whose nonces are remembered: since the start, or since the
// clock jumped. Every nonce begins with the ID of its epoch, and no other is taken: what
// was admitted in an earlier one cannot come again, though nothing of it is known any more.
// So nothing is written, and nothing is lost with the process.
type epoch struct {
	id    string
	began time.Time // zero: with the first request
	// steady measures by the monotonic clock; tests have their own.
	steady func(now, began time.Time) time.Duration
}

func newEpoch(boot string) epoch { return epoch{id: boot, steady: time.Time.Sub} }

// over reports whether the clock jumped since the epoch began, and begins another one if
// so. A machine that slept looks the same: its monotonic clock stood still.
func (e *epoch) over(now time.Time) bool {
	if e.began.IsZero() {
		e.began = now
		return false
	}
	drift := now.Round(0).Sub(e.began.Round(0)) - e.steady(now, e.began)
	if drift.Abs() <= maxDrift {
		return false
	}
	e.id, e.began = rand.Text(), now
	return true
}

// boot gives the ID of the epoch that now is in. With a new one all nonces are forgotten.
func (e *Executor) boot(now time.Time) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.epoch.over(now) {
		e.nonces = newWindow(maxNonces)
	}
	return e.epoch.id
}

// stale asks for another nonce.
func stale(boot string) *wire.ExecRefusal {
	refusal := wire.RefuseExec(wire.ExecStaleNonce, "the nonce is not of this boot")
	refusal.Boot = boot
	return refusal
}
