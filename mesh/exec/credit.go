package exec

import (
	"context"
	"errors"
	"sync"
	"time"
)

var (
	errGrant   = errors.New("a grant for bytes that were not sent")
	errStalled = errors.New("the submitter takes nothing")
)

// credit is the executor's account of what it may send.
type credit struct {
	mu      sync.Mutex
	ahead   int64         // sent and not granted
	changed chan struct{} // room for one
}

func newCredit() *credit { return &credit{changed: make(chan struct{}, 1)} }

// try takes n if they are to be had now.
func (c *credit) try(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead+n > Window {
		return false
	}
	c.ahead += n
	return true
}

// take waits until n are to be had.
func (c *credit) take(ctx context.Context, n int64) error {
	timer := time.NewTimer(stallTimeout)
	defer timer.Stop()
	for !c.try(n) {
		select {
		case <-c.changed:
			timer.Reset(stallTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return errStalled
		}
	}
	return nil
}

// grant gives n back. More than was sent, or nothing, is refused: an honest
// submitter grants what it took.
func (c *credit) grant(n uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n == 0 || n > uint64(c.ahead) {
		return errGrant
	}
	c.ahead -= int64(n)
	select {
	case c.changed <- struct{}{}:
	default:
	}
	return nil
}
