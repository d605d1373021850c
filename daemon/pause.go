package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/sharing"
)

// pauseFile is the name under which a device keeps that its owner paused sharing.
const pauseFile = "paused.cbor"

// pause is its content. The zero value says that nothing is paused.
type pause struct {
	On    bool          `cbor:"on,omitempty"`
	Until chain.Instant `cbor:"until,omitempty"` // 0: until resumed
}

// loadPause goes on with a pause that was in force before a restart.
func (d *Daemon) loadPause(now time.Time) {
	b, err := d.cfg.State.ReadChecked(pauseFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var p pause
	if err == nil {
		err = chain.Unmarshal(b, &p)
	}
	switch {
	case err != nil: // rather share nothing than what its owner may have forbidden
		d.cfg.Log.Warn("it cannot be read whether sharing was paused; it is, until: chordwheel resume", "error", err)
		d.foreign.sharing.Pause(time.Time{})
	case p.On && p.Until == 0:
		d.foreign.sharing.Pause(time.Time{})
	case p.On && chain.InstantOf(now) < p.Until:
		d.foreign.sharing.Pause(p.Until.Time())
	}
}

// Pause stops work for others until a moment, or until Resume for the zero time,
// also across restarts. What runs is finished.
func (d *Daemon) Pause(until time.Time) error {
	now := time.Now()
	if !until.IsZero() && (!until.After(now) || until.After(now.Add(sharing.MaxPause))) {
		return fmt.Errorf("%w: a pause ends within the next %d days, or not by itself", control.ErrRefused, sharing.MaxPause/(24*time.Hour))
	}
	p := pause{On: true}
	if !until.IsZero() {
		p.Until = chain.InstantOf(until)
	}
	return d.keepPause(p, func() { d.foreign.sharing.Pause(until) })
}

// Resume ends a pause.
func (d *Daemon) Resume() error { return d.keepPause(pause{}, d.foreign.sharing.Resume) }

// keepPause makes a change take effect and keeps it: in that order, so that an
// owner who says stop is obeyed also by a device whose disk is full.
func (d *Daemon) keepPause(p pause, change func()) error {
	change()
	b, err := chain.Marshal(p)
	if err == nil {
		err = d.cfg.State.WriteChecked(pauseFile, b)
	}
	if err != nil {
		return fmt.Errorf("it holds until the next start, and could not be kept: %w", err)
	}
	return nil
}
