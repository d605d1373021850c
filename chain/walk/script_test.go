package walk

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// epoch is where time begins in tests without a time bubble.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// turn is how one attempt goes in a script. Each chunk takes gap.
type turn struct {
	chunks []Chunk
	gap    time.Duration
	end    Outcome
	hang   bool // never ends by itself
}

func text(s string) Chunk { return Chunk{Data: []byte(s), Meaningful: true} }
func role() Chunk         { return Chunk{Data: []byte("role")} }

func answer(s ...string) turn {
	t := turn{end: Outcome{Class: chain.OK, Status: 200, Input: 7, Output: 3}, gap: 10 * time.Millisecond}
	for _, x := range s {
		t.chunks = append(t.chunks, text(x))
	}
	return t
}

func fails(c chain.Class) turn {
	return turn{end: Outcome{Class: c}, gap: 10 * time.Millisecond}
}

func wants(t turn, retry time.Duration) turn {
	t.end.RetryAfter, t.end.HasRetryAfter = retry, true
	return t
}

// script says how attempts go: by option, "option#key" or "option@peer".
type script map[string]turn

func (s script) of(a Attempt) turn {
	for _, name := range []string{string(a.Option.ID) + "@" + string(a.Peer), string(a.Option.ID) + "#" + a.Key, string(a.Option.ID)} {
		if t, ok := s[name]; ok {
			return t
		}
	}
	return fails(chain.Internal)
}

// Run makes script a Runner.
func (s script) Run(ctx context.Context, a Attempt, emit func(Chunk) error) Outcome {
	t := s.of(a)
	for _, c := range t.chunks {
		if !pause(ctx, t.gap) || emit(c) != nil {
			return Outcome{Class: chain.Canceled}
		}
	}
	if t.hang {
		<-ctx.Done()
		return Outcome{Class: chain.Canceled}
	}
	if !pause(ctx, t.gap) {
		return Outcome{Class: chain.Canceled}
	}
	return t.end
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// log is what a walk did.
type log struct {
	attempts  []Attempt
	tried     []string // option, "option#key" or "option@peer"
	delivered string
	from      map[int]bool // attempts that something was delivered from
	measured  []Measurement
	notices   []string
	protests  [][]chain.Failure
	result    Result
}

func (l *log) classes() string {
	var all []string
	for _, f := range l.result.Failures {
		all = append(all, string(f.Option)+":"+string(f.Class))
	}
	return strings.Join(all, " ")
}

func (l *log) note(a Attempt) {
	name := string(a.Option.ID)
	if a.Key != "" {
		name += "#" + a.Key
	}
	if a.Peer != "" {
		name += "@" + string(a.Peer)
	}
	l.attempts, l.tried = append(l.attempts, a), append(l.tried, name)
}

func (l *log) take(a Attempt, data [][]byte) {
	if l.from == nil {
		l.from = map[int]bool{}
	}
	l.from[len(l.attempts)] = true
	for _, d := range data {
		l.delivered += string(d)
	}
}

func (l *log) watch(p *Plan) {
	p.Hooks.Measure = func(m Measurement) { l.measured = append(l.measured, m) }
	p.Hooks.Notice = func(f chain.Failure, key string) {
		l.notices = append(l.notices, string(f.Option)+"#"+key+":"+string(f.Class))
	}
}

var errNoHub = errors.New("the hub cannot be reached")

// drive walks p with a machine alone: no goroutine, and a clock that is a
// variable. extension answers a protest; nil means that the hub is away.
func drive(p Plan, s *Standing, sc script, now *time.Time, extension func() ([]chain.Option, error)) *log {
	l := &log{}
	l.watch(&p)
	if extension != nil {
		p.Hooks.Protest = func(context.Context, []chain.Failure, time.Duration) ([]chain.Option, error) { return extension() }
	}
	m := New(p, s, *now)
	for {
		step := m.Next(*now)
		switch {
		case step.Attempt != nil:
			l.note(*step.Attempt)
			l.attempt(m, *step.Attempt, sc.of(*step.Attempt), now)
		case step.Protest:
			l.protests = append(l.protests, step.Failed)
			options, err := extension()
			m.Protested(options, err == nil, *now)
		default:
			l.result = m.Result()
			return l
		}
	}
}

func (l *log) attempt(m *Machine, a Attempt, t turn, now *time.Time) {
	hand := func(data [][]byte) {
		if len(data) > 0 {
			l.take(a, data)
			m.Delivered(*now)
		}
	}
	expired := func(wait time.Duration) bool {
		at := now.Add(wait)
		if by := m.Deadline(); !at.Before(by) {
			*now = by
			return m.Expire(by)
		}
		*now = at
		return false
	}
	for _, c := range t.chunks {
		if expired(t.gap) {
			return
		}
		hand(m.Feed(c, *now))
	}
	if t.hang {
		expired(1000 * time.Hour)
		return
	}
	if !expired(t.gap) {
		hand(m.End(t.end, *now))
	}
}

// standing is one with a fixed seed.
func standing() *Standing { return NewStanding(rand.NewPCG(1, 2)) }

// options makes providers of the given names; "slot…" are peer slots with two
// tries, "local…" are local.
func options(names ...string) []chain.Option {
	var all []chain.Option
	for _, n := range names {
		o := chain.Option{ID: chain.OptionID(n), Kind: chain.Provider, Adapter: "openai", Model: n}
		switch {
		case strings.HasPrefix(n, "slot"):
			o.Kind, o.Tries = chain.Peer, 2
		case strings.HasPrefix(n, "local"):
			o.Kind = chain.Local
		}
		all = append(all, o)
	}
	return all
}

// binder binds peers in order.
func binder(peers ...chain.PeerID) func(*chain.Option, func(chain.PeerID) bool) (chain.PeerID, bool) {
	return func(_ *chain.Option, except func(chain.PeerID) bool) (chain.PeerID, bool) {
		for _, p := range peers {
			if !except(p) {
				return p, true
			}
		}
		return "", false
	}
}

func offline() bool { return false } // for Hooks.Hub: the hub is away
