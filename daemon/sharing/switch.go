package sharing

import (
	"fmt"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// MaxPause is the longest pause with an end.
const MaxPause = 366 * 24 * time.Hour

// Sensors tell what the policy asks about the device. Each answers at once.
type Sensors interface {
	Quiet() Reading   // no program keeps the machine busy
	OnMains() Reading // it is on mains power
	Metered() Reading // its network costs money
}

// Switch is a policy in force: with what the owner switched by hand, what the
// sensors say, and whether the owner uses the device. Its methods may be called
// from many goroutines.
type Switch struct {
	policy  Policy
	sensors Sensors

	mu     sync.Mutex
	paused bool
	until  time.Time // of the pause; zero: until resumed
	own    int       // requests of the owner's in work
	last   time.Time // when the last of them ended
	jobs   int       // of others, in work
	quiet  Reading   // as it was before they came
}

// New puts a valid policy in force. Without sensors nothing is known of the device.
func New(policy Policy, sensors Sensors) *Switch {
	return &Switch{policy: policy, sensors: sensors}
}

// Pause stops sharing until a moment, or until Resume for the zero time.
func (s *Switch) Pause(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused, s.until = true, until
}

// Resume ends a pause.
func (s *Switch) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused, s.until = false, time.Time{}
}

func (s *Switch) pausedAt(now time.Time) bool {
	return s.paused && (s.until.IsZero() || now.Before(s.until))
}

// Owns notes that a request of the owner's begins. Call ended when it is over.
func (s *Switch) Owns() (ended func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own++
	return func(now time.Time) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.own--
		s.last = now
	}
}

// Job notes that work of others begins or ends. Their own load must not end what
// makes it possible: while there is some, the machine counts as quiet as it was.
func (s *Switch) Job(begins bool) {
	quiet := Unknown
	if begins && s.sensors != nil {
		quiet = s.sensors.Quiet()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !begins {
		s.jobs--
		return
	}
	if s.jobs == 0 {
		s.quiet = quiet
	}
	s.jobs++
}

// May decides whether the device works for others in scope at now.
func (s *Switch) May(scope chain.ScopeID, now time.Time) Decision {
	rules := s.policy.For(scope)
	is := s.readings(rules, now)
	s.mu.Lock()
	paused, until := s.pausedAt(now), s.until
	s.mu.Unlock()
	if rules.Mode != Off && paused {
		d := Decision{Why: Paused, Back: until}
		if !until.IsZero() {
			d.Why = fmt.Sprintf("sharing is paused until %s", until.Format(time.RFC3339))
		}
		return d
	}
	return rules.Decide(is, now)
}

// Jobs gives how many jobs of others may run at once: on the device, and of scope.
func (s *Switch) Jobs(scope chain.ScopeID) (device, ofScope int) {
	everywhere, here := s.policy.Rules.Jobs, s.policy.For(scope).Jobs
	if everywhere == 0 {
		everywhere = DefaultJobs
	}
	return everywhere, min(everywhere, here)
}

// readings asks the sensors that the rules need.
func (s *Switch) readings(r Rules, now time.Time) Readings {
	var is Readings
	if s.sensors != nil {
		if r.Mains {
			is.Mains = s.sensors.OnMains()
		}
		if !r.Metered {
			is.Metered = s.sensors.Metered()
		}
	}
	quiet := Unknown
	if r.Mode == Idle && s.sensors != nil {
		quiet = s.sensors.Quiet()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if is.Quiet = quiet; s.jobs > 0 {
		is.Quiet = s.quiet
	}
	is.Own = s.own > 0 || !s.last.IsZero()
	if s.own == 0 {
		is.Since = now.Sub(s.last)
	}
	return is
}
