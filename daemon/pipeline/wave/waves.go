package wave

import (
	"context"
	"sync"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// Pool is what the requests of a device share: how fast whom was, what runs now,
// the budget of hedges, and the goroutines of the copies. Its methods may be called
// at once from many goroutines.
type Pool struct {
	running sync.WaitGroup
}

// NewPool makes the pool of a device.
func NewPool() *Pool { return &Pool{} }

// Close waits until every copy has ended, or ctx.
func (p *Pool) Close(context.Context) error {
	p.running.Wait()
	return nil
}

// Waves runs the tasks of one request. Its methods may be called at once from many
// goroutines.
type Waves struct {
	settings Settings
	runner   Runner
	pool     *Pool
}

// New makes the waves of one request; settings have been checked, r runs copies as
// jobs of that request.
func New(settings Settings, r Runner, p *Pool) *Waves {
	return &Waves{settings: settings, runner: r, pool: p}
}

// Do runs tasks, which do not depend on each other, at most Parallel at once, and
// gives how each ended, in their order. It returns within a second after ctx ended;
// what has not begun by then is Canceled.
func (w *Waves) Do(ctx context.Context, tasks []Task) []Outcome {
	outcomes := make([]Outcome, len(tasks))
	room := make(chan struct{}, w.settings.Parallel)
	var all sync.WaitGroup
	for i := range tasks {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			outcomes[i] = w.one(ctx, &tasks[i])
		})
	}
	all.Wait()
	return outcomes
}

// Close waits until each of the request's jobs is settled: within a second after
// the last Do.
func (w *Waves) Close() {}

func (w *Waves) one(ctx context.Context, task *Task) Outcome {
	if ctx.Err() != nil {
		return Outcome{Class: chain.Canceled}
	}
	var id string
	out := w.runner.Run(ctx, Copy{Task: task}, func(i string) { id = i }, func(chain.OptionID, chain.PeerID) {})
	if id != "" {
		w.runner.Settle(id, state(out.Class), "")
	}
	return out
}

func state(c chain.Class) job.State {
	switch c {
	case chain.OK:
		return job.Done
	case chain.Canceled:
		return job.Cancelled
	}
	return job.Failed
}
