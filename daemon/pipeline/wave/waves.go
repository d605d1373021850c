package wave

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// patience is how long a cancelled copy is waited for. Then it is given up: its task
// and the place that it holds are free, what it says later is dropped, and only the
// pool still waits for its goroutine.
const patience = 900 * time.Millisecond

// Waves runs the tasks of one request. Its methods may be called at once from many
// goroutines, Close only after the last Do.
type Waves struct {
	settings Settings
	runner   Runner
	pool     *Pool
	open     sync.WaitGroup // copies that are not settled

	mu      sync.Mutex
	anchors map[string]string // of each domain, the provider that did well
}

// New makes the waves of one request; settings have been checked, r runs copies as
// jobs of that request.
func New(settings Settings, r Runner, p *Pool) *Waves {
	return &Waves{settings: settings, runner: r, pool: p, anchors: map[string]string{}}
}

// Do runs tasks, which do not depend on each other, at most Parallel at once, and
// gives how each ended, in their order. Each goes to a provider of its own as far as
// there are such. Do returns within a second after ctx ended; what has not begun by
// then is Canceled. Losers may still be ending when it returns: see Close.
func (w *Waves) Do(ctx context.Context, tasks []Task) []Outcome {
	outcomes := make([]Outcome, len(tasks))
	for i := range outcomes {
		outcomes[i].Class = chain.Canceled
	}
	room := make(chan struct{}, max(1, w.settings.Parallel))
	var all sync.WaitGroup
	for i := range tasks {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		r := w.begin(ctx, &tasks[i]) // here, so that the next task sees where this one went
		all.Go(func() {
			defer func() { <-room }()
			outcomes[i] = r.follow()
			if tasks[i].Ended != nil {
				tasks[i].Ended(outcomes[i])
			}
		})
	}
	all.Wait()
	return outcomes
}

// Close waits until each job of the request is settled: at most a second after the
// last Do, also where a copy ignores that it was cancelled.
func (w *Waves) Close() { w.open.Wait() }

// assign gives who is asked first for each copy of a task: one offer, or in a race
// one for each replica, no two at the same place and none of one provider while there
// is another. None where nobody offers, and for a direct walk: the chain's order decides.
func (w *Waves) assign(task *Task, offers []Offer) []*Offer {
	if task.Tier == 0 || len(offers) == 0 {
		return []*Offer{nil}
	}
	replicas := 1
	if w.settings.Race && slices.Contains(w.settings.RaceTiers, task.Tier) {
		replicas = max(1, w.settings.Replicas)
	}
	w.mu.Lock()
	anchored := w.anchors[grouped(task.Kind)]
	w.mu.Unlock()

	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	ranks := rank(&w.settings, task, offers, w.pool.seen(offers, w.settings.Window, time.Now()), anchored)
	var chosen []*Offer
	taken := func(o *Offer, same func(a, b *Offer) bool) bool {
		return slices.ContainsFunc(chosen, func(c *Offer) bool { return same(c, o) })
	}
	for len(chosen) < replicas {
		at := best(offers, ranks, func(o *Offer) bool {
			return !taken(o, func(a, b *Offer) bool { return asked(a) == asked(b) })
		})
		if at < 0 {
			at = best(offers, ranks, func(o *Offer) bool {
				return !taken(o, func(a, b *Offer) bool { return a.place() == b.place() })
			})
		}
		if at < 0 || len(chosen) > 0 && offers[at].Resting {
			break // a race is not worth waking those who rest
		}
		chosen = append(chosen, &offers[at])
	}
	return chosen
}

// anchor keeps a domain with the provider of its first good answer, until that one
// fails or is overtaken.
func (w *Waves) anchor(kind string, l *leg, hedge result, good bool) {
	domain, at := grouped(kind), l.askedAt()
	if domain == "" || at == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch held, anchored := w.anchors[domain]; {
	case good && !anchored:
		w.anchors[domain] = at
	case (!good || hedge == lost) && held == at:
		delete(w.anchors, domain)
	}
}
