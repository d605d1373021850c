package walk

import (
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Snapshot is a standing as it is stored and shown, each list sorted by name.
// It holds names, times and counts, and nothing of any request.
type Snapshot struct {
	At      chain.Instant `cbor:"at" json:"at"`
	Options []Rest        `cbor:"options,omitempty" json:"options"`
	Peers   []Rest        `cbor:"peers,omitempty" json:"peers"`
	Keys    []Rest        `cbor:"keys,omitempty" json:"keys"` // by the key's name
	Offline chain.Instant `cbor:"offline,omitempty" json:"offline,omitempty"`
}

// Rest is why something is left alone, and until when.
type Rest struct {
	Name     string        `cbor:"name" json:"name"`
	Class    chain.Class   `cbor:"class" json:"class"`                     // of the last failure
	Failures int           `cbor:"failures,omitempty" json:"failures"`     // in a row
	Until    chain.Instant `cbor:"until,omitempty" json:"until,omitempty"` // end of our own backoff or of a key's rest
	Asked    chain.Instant `cbor:"asked,omitempty" json:"asked,omitempty"` // end of what a Retry-After asked for
	Tag      uint64        `cbor:"tag,omitempty" json:"-"`                 // of a key its generation, of an option which service it was
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

// Restore replaces what s knows by x, which an earlier Snapshot gave. Nothing
// is left alone longer than it had to go at that time, even where the clock was
// set back since. Generations of keys must mean the same as then; where they
// do not outlive the process, the caller empties x.Keys. Being offline is not
// restored: it is found out anew.
func (s *Standing) Restore(x Snapshot, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offline = time.Time{}
	s.options, s.peers, s.keys = restored(x.Options, x.At, now), restored(x.Peers, x.At, now), restored(x.Keys, x.At, now)
}

func (t table) rests(now time.Time) []Rest {
	all := make([]Rest, 0, len(t))
	for name, k := range t {
		if k.until().Add(memory).Before(now) {
			delete(t, name)
			continue
		}
		all = append(all, Rest{Name: name, Class: k.class, Failures: k.failures, Until: instant(k.own), Asked: instant(k.asked), Tag: k.tag})
	}
	slices.SortFunc(all, func(a, b Rest) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func restored(all []Rest, at chain.Instant, now time.Time) table {
	t := table{}
	for _, r := range all[:min(len(all), maxRests)] {
		if r.Name == "" || len(r.Name) > chain.MaxNameBytes {
			continue
		}
		k := &rest{failures: min(max(r.Failures, 0), 32), own: moment(r.Until, at, now), asked: moment(r.Asked, at, now), class: r.Class, tag: r.Tag}
		if k.failures > 0 {
			k.noted = now
		}
		t[r.Name] = k
	}
	return t
}

func instant(t time.Time) chain.Instant {
	if t.IsZero() {
		return 0
	}
	return chain.InstantOf(t)
}

// moment turns until, as stored at at, into a time of this clock.
func moment(until, at chain.Instant, now time.Time) time.Time {
	if until == 0 {
		return time.Time{}
	}
	t := until.Time()
	if longest := now.Add(max(0, until.Time().Sub(at.Time()))); t.After(longest) {
		return longest
	}
	return t
}
