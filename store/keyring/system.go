package keyring

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zalando/go-keyring"
)

// System is the operating system's key ring. Its calls may block.
type System interface {
	Get(name string) (string, error)
	Set(name, secret string) error
	Delete(name string) error
}

// OS is the key ring of the system this runs on: Secret Service, Keychain or
// Credential Manager. Secrets stand there under the service "chordwheel".
func OS() System { return osRing{} }

const service = "chordwheel"

type osRing struct{}

func (osRing) Get(name string) (string, error) { return keyring.Get(service, name) }
func (osRing) Set(name, secret string) error   { return keyring.Set(service, name, secret) }
func (osRing) Delete(name string) error {
	if err := keyring.Delete(service, name); !errors.Is(err, keyring.ErrNotFound) {
		return err
	}
	return nil
}

// ErrSystem is returned where the system's key ring is needed and not there.
var ErrSystem = errors.New("the system's key ring does not answer")

// patience is how long a call to the system's ring is waited for.
const patience = 3 * time.Second

// bounded calls a System that may never return. Such a call cannot be ended:
// so there is at most one at a time, and while one hangs all others fail at once.
type bounded struct {
	ring System // nil: not chosen
	busy chan struct{}
	once sync.Once
}

// run calls f and waits for it, but not for long. F must not touch what the
// caller reads after an error. The text of f's error is dropped: it is
// another program's and could hold anything.
func (b *bounded) run(f func(System) error) error {
	if b.ring == nil {
		return fmt.Errorf("%w: it was not chosen for this device", ErrSystem)
	}
	b.once.Do(func() { b.busy = make(chan struct{}, 1) })
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case b.busy <- struct{}{}:
	case <-timer.C:
		return fmt.Errorf("%w: an earlier call still waits", ErrSystem)
	}
	done := make(chan error, 1) // room for the answer that nobody waits for
	go func() {
		defer func() { <-b.busy }()
		done <- f(b.ring)
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%w (%T)", ErrSystem, err)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("%w within %s", ErrSystem, patience)
	}
}
