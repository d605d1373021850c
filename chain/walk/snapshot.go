package walk

import (
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Snapshot is a standing as it is shown, each list sorted by name.
// It holds names, times and counts, and nothing of any request.
type Snapshot struct {
	At      chain.Instant
	Options []Rest
	Peers   []Rest
	Keys    []Rest // by the key's name
	Offline chain.Instant
}

// Rest is why something is left alone, and until when.
type Rest struct {
	Name     string
	Class    chain.Class   // of the last failure
	Failures int           // in a row
	Until    chain.Instant // end of our own backoff or of a key's rest
	Asked    chain.Instant // end of what a Retry-After asked for
}

// Cooling reports whether r is left alone at now.
func (r Rest) Cooling(now time.Time) bool {
	at := chain.InstantOf(now)
	return at < r.Until || at < r.Asked
}

// Snapshot gives what s knows at now, and forgets what ended long ago.
func (s *Standing) Snapshot(now time.Time) Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Snapshot{At: chain.InstantOf(now), Options: s.options.rests(now), Peers: s.peers.rests(now), Keys: s.keys.rests(now), Offline: instant(s.offline)}
}

func (t table) rests(now time.Time) []Rest {
	all := make([]Rest, 0, len(t))
	for name, k := range t {
		if k.until().Add(memory).Before(now) {
			delete(t, name)
			continue
		}
		all = append(all, Rest{Name: name, Class: k.class, Failures: k.failures, Until: instant(k.own), Asked: instant(k.asked)})
	}
	slices.SortFunc(all, func(a, b Rest) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func instant(t time.Time) chain.Instant {
	if t.IsZero() {
		return 0
	}
	return chain.InstantOf(t)
}
