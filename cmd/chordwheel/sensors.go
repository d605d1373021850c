package main

import (
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/daemon/sharing"
)

// sensorsHold is how long a reading holds: a peer's request must not wait for
// files, and power and load change slowly.
const sensorsHold = 5 * time.Second

// sensors tell the sharing policy about this machine. Whether its network is
// metered is the owner's word: no system says it reliably.
type sensors struct {
	metered bool
	mains   reading
	quiet   reading
}

func newSensors(metered bool) *sensors {
	return &sensors{metered: metered, mains: reading{read: readMains}, quiet: reading{read: readQuiet}}
}

func (s *sensors) OnMains() sharing.Reading { return s.mains.now() }
func (s *sensors) Quiet() sharing.Reading   { return s.quiet.now() }

func (s *sensors) Metered() sharing.Reading {
	if s.metered {
		return sharing.Yes
	}
	return sharing.No
}

// reading is a sensor that is asked now and then.
type reading struct {
	read func() sharing.Reading

	mu   sync.Mutex
	at   time.Time
	last sharing.Reading
}

func (r *reading) now() sharing.Reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.at.IsZero() || now.Sub(r.at) >= sensorsHold {
		r.at, r.last = now, r.read()
	}
	return r.last
}
