package datadir

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// patience is how long one command waits for another.
const patience = 10 * time.Second

// Alone calls f while no other process is in a call of Alone with the same path, a
// file that is made for that and stays. It is for what is read, changed and written
// beside a node that may be running. It gives f's error, or one of its own after 10
// seconds in which the others did not end.
func Alone(path string, f func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lock := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR|noFollow), flock.SetPermissions(0o600))
	if ok, err := lock.TryLockContext(ctx, 20*time.Millisecond); !ok {
		return fmt.Errorf("another command is at work here, or %s cannot be locked: try again (%w)", path, err)
	}
	defer lock.Close()
	return f()
}

// Sweep removes what writes of path that a crash cut off have left beside it, which may
// hold secrets. Nobody may be writing path meanwhile.
func Sweep(path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	for _, e := range entries {
		if digits, ok := strings.CutPrefix(e.Name(), "."+filepath.Base(path)); ok && strings.Trim(digits, "0123456789") == "" {
			_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}
