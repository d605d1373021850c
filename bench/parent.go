package main

import (
	"context"
	"errors"
	"os"
	"time"
)

var errAbandoned = errors.New("whoever started this is gone")

// withParent gives a context that ends when the parent process does. `go run`
// that is killed takes nothing with it: without this the run would go on, unseen,
// and slow down whatever is measured next.
func withParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	look := time.NewTicker(time.Second)
	go func() {
		defer look.Stop()
		if orphaned(ctx, os.Getppid, look.C) {
			cancel(errAbandoned)
		}
	}()
	return ctx, func() { cancel(nil) }
}

// orphaned returns true when the parent has changed, false when ctx ended first.
func orphaned(ctx context.Context, parent func() int, look <-chan time.Time) bool {
	was := parent()
	for {
		select {
		case <-look:
			if parent() != was {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}
