package datadir

import (
	"context"
	"fmt"
	"os"
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
