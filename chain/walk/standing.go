package walk

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Standing is what a device learned from its attempts about whom to leave
// alone: cool-downs of options and peers, rests of keys, and whether the device
// itself is offline. All requests of a device share one. It has no clock: time
// comes in. Its size is bounded. It may be used from many goroutines.
type Standing struct {
	mu      sync.Mutex
	rand    *rand.Rand
	options table
	peers   table
	keys    table
	offline time.Time // since when; zero: not
}

// NewStanding makes an empty standing. Jitter is drawn from src, which the
// standing owns from now on.
func NewStanding(src rand.Source) *Standing {
	return &Standing{rand: rand.New(src), options: table{}, peers: table{}, keys: table{}}
}

// maxRests bounds each table. Beyond it the rest that ends first is given up.
const maxRests = 4096

type table map[string]*rest

// rest is why something is left alone, and until when.
type rest struct {
	failures int         // in a row, one for each step of the backoff
	own      time.Time   // end of our own backoff
	asked    time.Time   // end of what a Retry-After asked for
	noted    time.Time   // when failures was last raised
	class    chain.Class // of the last failure
	tag      uint64      // of a key its generation, of an option its fingerprint
}

// memory is how long after its end a rest still counts failures: what fails
// again sooner goes on from where the backoff was, later it starts anew.
const memory = 6 * time.Hour

func (k *rest) until() time.Time {
	if k.asked.After(k.own) {
		return k.asked
	}
	return k.own
}

// at gives the rest of name for writing; one with another tag starts anew.
func (t table) at(name string, tag uint64) *rest {
	k := t[name]
	if k == nil {
		if len(t) >= maxRests {
			t.evict()
		}
		k = &rest{}
		t[name] = k
	} else if k.tag != tag {
		*k = rest{}
	}
	k.tag = tag
	return k
}

func (t table) evict() {
	var first string
	var least *rest
	for name, k := range t {
		if least == nil || k.until().Before(least.until()) {
			first, least = name, k
		}
	}
	delete(t, first)
}

// raise counts one failure of an attempt that began at started. Attempts that
// were under way together when something broke are one failure, not many.
// It reports whether the failure counted.
func (k *rest) raise(class chain.Class, started, now time.Time) bool {
	k.class = class
	if k.failures > 0 && started.Before(k.noted) {
		return false
	}
	if k.failures > 0 && now.Sub(k.until()) > memory {
		k.failures = 0
	}
	if k.failures < 32 {
		k.failures++
	}
	k.noted = now
	return true
}

// step is base doubled with each failure after the first, at most limit.
func (k *rest) step(base, limit time.Duration) time.Duration {
	d := base
	for i := 1; i < k.failures && d < limit; i++ {
		d *= 2
	}
	return min(d, limit)
}

// failure is what a rest is made from.
type failure struct {
	class   chain.Class
	retry   time.Duration
	asked   bool // retry was given
	started time.Time
}

// cool leaves name alone: for as long as the upstream asked, or by our own
// backoff. The later deadline wins.
func (s *Standing) cool(k *rest, f failure, base, limit, longest time.Duration, now time.Time) {
	if f.asked {
		k.class = f.class
		if until := now.Add(min(max(f.retry, 0), longest)); until.After(k.asked) {
			k.asked = until
		}
		return
	}
	if !k.raise(f.class, f.started, now) {
		return
	}
	d := k.step(base, limit)
	low, high := max(base, d-d/4), min(limit, d+d/4)
	wait := low
	if high > low {
		wait += time.Duration(s.rand.Int64N(int64(high-low) + 1))
	}
	if until := now.Add(wait); until.After(k.own) {
		k.own = until
	}
}

func (s *Standing) coolOption(o *chain.Option, f failure, c *chain.CoolDown, now time.Time) (until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.options.at(string(o.ID), fingerprint(o))
	s.cool(k, f, c.Base.Duration(), c.Max.Duration(), c.RetryAfter.Duration(), now)
	return k.until()
}

func (s *Standing) coolPeer(p chain.PeerID, f failure, c *chain.CoolDown, now time.Time) (until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.peers.at(string(p), 0)
	longest := min(c.RetryAfter, c.PeerMax).Duration()
	s.cool(k, f, c.PeerBase.Duration(), c.PeerMax.Duration(), longest, now)
	return k.until()
}

// restKey leaves a key alone and reports whether this is news.
func (s *Standing) restKey(name string, generation uint64, f failure, c *chain.CoolDown, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys.at(name, generation)
	if now.Before(k.own) || !k.raise(f.class, f.started, now) {
		return false
	}
	k.own = now.Add(k.step(c.KeyBase.Duration(), c.KeyMax.Duration()))
	return true
}

// optionRest says until when o is left alone by our own backoff and by its
// upstream's wish; a zero time is not at all.
func (s *Standing) optionRest(o *chain.Option, now time.Time) (own, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.options[string(o.ID)]
	if k == nil || k.tag != fingerprint(o) {
		return time.Time{}, time.Time{}
	}
	return ahead(k.own, now), ahead(k.asked, now)
}

func (s *Standing) peerRest(p chain.PeerID, now time.Time) (own, asked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.peers[string(p)]; k != nil {
		return now.Before(k.own), now.Before(k.asked)
	}
	return false, false
}

func (s *Standing) keyRest(name string, generation uint64, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.keys[name]; k != nil && k.tag == generation {
		return ahead(k.own, now)
	}
	return time.Time{}
}

func ahead(t, now time.Time) time.Time {
	if now.Before(t) {
		return t
	}
	return time.Time{}
}

// succeeded clears what our own backoff says of a's option, peer and key. What
// an upstream asked for stays.
func (s *Standing) succeeded(a *Attempt, peer chain.PeerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Option.Kind == chain.Peer {
		s.peers.clear(string(peer))
	} else {
		s.options.clear(string(a.Option.ID))
	}
	if a.Key != "" {
		delete(s.keys, a.Key)
	}
	if a.Option.Remote() {
		s.offline = time.Time{}
	}
}

func (t table) clear(name string) {
	k := t[name]
	if k == nil {
		return
	}
	if k.asked.IsZero() {
		delete(t, name)
		return
	}
	*k = rest{asked: k.asked, class: k.class, tag: k.tag}
}

// PeerReturned is called when a peer that was gone, or was restarted, is in
// direct contact again: what was held against it is of the past, and it may be
// bound to at once.
func (s *Standing) PeerReturned(p chain.PeerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, string(p))
}

// PeerCooling reports whether p is left alone at now.
func (s *Standing) PeerCooling(p chain.PeerID, now time.Time) bool {
	own, asked := s.peerRest(p, now)
	return own || asked
}

// AddressChanged is called when the device got another network address: it is
// no longer offline, and what could not be reached from the old address gets
// a new chance.
func (s *Standing) AddressChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offline = time.Time{}
	for _, t := range []table{s.options, s.peers} {
		for name, k := range t {
			if k.class == chain.Unreachable {
				t.clear(name)
			}
		}
	}
}

// Offline reports whether the last attempts showed that this device has no
// network, and since when. Options are tried all the same; their failure to
// connect is held against nobody until the network is back.
func (s *Standing) Offline() (since time.Time, offline bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offline, !s.offline.IsZero()
}

func (s *Standing) setOffline(offline bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !offline:
		s.offline = time.Time{}
	case s.offline.IsZero():
		s.offline = now
	}
}

// fingerprint changes when an option of the same name becomes another service:
// its cool-down was the old one's.
func fingerprint(o *chain.Option) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, s := range [...]string{o.Adapter, o.Endpoint, o.Model} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h *= 1099511628211 // a zero byte between the parts
	}
	return h
}
