package wave

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// serving is how one copy goes at whoever it was offered to.
type serving struct {
	accept time.Duration // until somebody takes it
	takes  time.Duration // from there to its end
	class  chain.Class   // "" is OK
	deaf   time.Duration // for so long it goes on after it was cancelled
	text   string
	pieces []piece // delivered on the way
	moves  *move   // the walk goes on elsewhere, as when a peer dies
}

type piece struct {
	after time.Duration // since the acceptance
	text  string
}

type move struct {
	after  time.Duration // since the acceptance
	option chain.OptionID
}

// begun is what the runner below was asked, and what became of it.
type begun struct {
	id      string
	copy    Copy
	at      time.Duration // since the fixture began
	ended   time.Duration
	cut     bool // its context ended before it did
	settled int
	state   job.State
	hedge   job.Hedge
}

// theatre is a runner whose copies go as a script says.
type theatre struct {
	start  time.Time
	offers map[chain.Primitive][]Offer
	script func(c Copy) serving

	mu   sync.Mutex
	jobs []*begun
}

func play(offers map[chain.Primitive][]Offer, script func(c Copy) serving) *theatre {
	return &theatre{start: time.Now(), offers: offers, script: script}
}

// by gives a script by option.
func by(of map[chain.OptionID]serving) func(Copy) serving {
	return func(c Copy) serving { return of[c.Offer.Option] }
}

func (t *theatre) Offers(p chain.Primitive) []Offer { return slices.Clone(t.offers[p]) }

func (t *theatre) Run(ctx context.Context, c Copy, begin func(string), accepted func(chain.OptionID, chain.PeerID)) Outcome {
	if c.Offer == nil {
		c.Offer = &Offer{Option: "chain"}
	}
	t.mu.Lock()
	j := &begun{id: fmt.Sprintf("j%d", len(t.jobs)+1), copy: c, at: time.Since(t.start)}
	t.jobs = append(t.jobs, j)
	t.mu.Unlock()
	s := t.script(c)
	begin(j.id)
	out := s.perform(ctx, c, accepted)
	t.mu.Lock()
	defer t.mu.Unlock()
	j.ended, j.cut = time.Since(t.start), ctx.Err() != nil
	return out
}

func (s serving) perform(ctx context.Context, c Copy, accepted func(chain.OptionID, chain.PeerID)) Outcome {
	end := func(class chain.Class, took time.Duration) Outcome {
		return Outcome{Class: class, Option: c.Offer.Option, Peer: c.Offer.Peer, Provider: c.Offer.Provider, Model: c.Offer.Model,
			Text: s.text, Took: took, Output: 300}
	}
	if !s.wait(ctx, s.accept) {
		return end(chain.Canceled, 0)
	}
	began := time.Now()
	accepted(c.Offer.Option, c.Offer.Peer)
	for _, p := range s.pieces {
		if !s.wait(ctx, p.after-time.Since(began)) || c.Task.Deliver(p.text) != nil {
			return end(chain.Canceled, time.Since(began))
		}
	}
	if m := s.moves; m != nil {
		if !s.wait(ctx, m.after-time.Since(began)) {
			return end(chain.Canceled, time.Since(began))
		}
		accepted(m.option, "")
		c.Offer = &Offer{Option: m.option, Provider: string(m.option)}
		began = time.Now()
	}
	if !s.wait(ctx, s.takes-time.Since(began)) {
		return end(chain.Canceled, time.Since(began))
	}
	if s.class == "" {
		s.class = chain.OK
	}
	return end(s.class, time.Since(began))
}

// wait waits for d, and reports false if ctx ended before and it listens.
func (s *serving) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	}
	if s.deaf == 0 {
		return false
	}
	deaf := time.NewTimer(s.deaf)
	defer deaf.Stop()
	select {
	case <-timer.C:
		return true
	case <-deaf.C:
		return false
	}
}

func (t *theatre) Settle(id string, state job.State, hedge job.Hedge) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range t.jobs {
		if j.id == id {
			j.settled++
			j.state, j.hedge = state, hedge
			return
		}
	}
	panic("settled a job that never began: " + id)
}

// told gives each job as "option rung state hedge", in the order of their beginning.
func (t *theatre) told() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for _, j := range t.jobs {
		lines = append(lines, fmt.Sprintf("%s %d %s %s", j.copy.Offer.Option, j.copy.Rung, j.state, j.hedge))
	}
	return lines
}

// once fails the test for each job that was not settled exactly once.
func (t *theatre) once(tb testing.TB) {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range t.jobs {
		if j.settled != 1 {
			tb.Errorf("job %s of %s was settled %d times", j.id, j.copy.Task.Name, j.settled)
		}
	}
}

// settings are those that a test has in mind, with a budget that never says no.
func settings() Settings {
	s := Default()
	s.HedgeBudget = 1
	return s
}

// at gives an offer of a provider and model: "groq/llama".
func at(provider, model string) Offer {
	return Offer{Option: chain.OptionID(provider + "/" + model), Provider: provider, Device: provider, Model: model, Latency: 10 * time.Second}
}

func worker(name string) Task {
	return Task{Name: name, Role: job.Subtask, Primitive: "llm.t2", Tier: 2, Wave: 1}
}

func same[T any](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		tb.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

// held tells what is held in the queues of providers and devices.
func (p *Pool) held() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.providers, p.devices)
}
