package mesh

import (
	"context"
	"sync"
)

// teller runs callbacks one at a time on a goroutine of their own, so that a
// callback may call the node, whose doings may cause another callback.
type teller struct {
	mu     sync.Mutex
	queue  []func()
	signal chan struct{} // room for one: the queue is not empty
}

// maxHints bounds what waits behind a slow callback. Hints beyond it are
// dropped, as gossip may be; the few other events are kept.
const maxHints = 1024

func (t *teller) init() { t.signal = make(chan struct{}, 1) }

// tell queues f.
func (t *teller) tell(f func()) {
	t.mu.Lock()
	t.queue = append(t.queue, f)
	t.mu.Unlock()
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// hint queues f unless much is waiting already.
func (t *teller) hint(f func()) {
	t.mu.Lock()
	full := len(t.queue) >= maxHints
	t.mu.Unlock()
	if !full {
		t.tell(f)
	}
}

func (t *teller) loop(run context.Context) {
	for {
		select {
		case <-run.Done():
			return
		case <-t.signal:
		}
		t.mu.Lock()
		queue := t.queue
		t.queue = nil
		t.mu.Unlock()
		for _, f := range queue {
			if run.Err() != nil {
				return
			}
			f()
		}
	}
}
