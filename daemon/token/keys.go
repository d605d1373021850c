package token

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/gate"
)

type key = ed25519.PublicKey

const (
	keysFresh    = 5 * time.Minute  // after that they are asked for again, if somebody needs them
	keysMaxAge   = gate.MaxLifetime // after that they are not used: one token's life beyond the server
	keysInterval = 10 * time.Second // between two requests, however many tokens name keys unknown
	keysTimeout  = 5 * time.Second
)

// keys holds the trust server's JWKS. A token may make it ask that server again,
// once in a while, and nobody else.
type keys struct {
	server Server
	spawn  func(func(context.Context)) bool

	mu      sync.Mutex
	set     gate.KeySet
	fetched time.Time // when set was; zero: never
	asked   time.Time // when the last request began
	err     error     // of the last request
	flight  chan struct{}
}

func newKeys(server Server, spawn func(func(context.Context)) bool) *keys {
	return &keys{server: server, spawn: spawn}
}

// Keys gives the keys named kid, as [gate.Keys] has it. It waits for a request only
// if it has no answer without one.
func (k *keys) Keys(ctx context.Context, kid string) ([]key, error) {
	found, fresh, err := k.look(kid)
	if len(found) > 0 && fresh {
		return found, nil
	}
	flight := k.fetch()
	if len(found) > 0 || flight == nil {
		return found, err
	}
	select {
	case <-flight:
		found, _, err = k.look(kid)
		return found, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// look answers from memory. The error says that the keys are not known.
func (k *keys) look(kid string) (found []key, fresh bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	age := time.Since(k.fetched)
	if k.fetched.IsZero() || age >= keysMaxAge {
		if err = k.err; err == nil {
			err = errors.New("the trust server's keys were not fetched yet")
		}
		return nil, false, err
	}
	found, _ = k.set.Keys(context.Background(), kid) // it never fails
	return found, age < keysFresh, nil
}

// fetch begins a request, or joins one; nil if the last one was just now.
func (k *keys) fetch() chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flight != nil {
		return k.flight
	}
	if !k.asked.IsZero() && time.Since(k.asked) < keysInterval {
		return nil
	}
	flight := make(chan struct{})
	if !k.spawn(func(ctx context.Context) { k.run(ctx, flight) }) {
		return nil
	}
	k.flight, k.asked = flight, time.Now()
	return flight
}

func (k *keys) run(ctx context.Context, flight chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	set, err := k.get(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil {
		k.set, k.fetched = set, time.Now()
	}
	k.flight = nil
	close(flight)
}

func (k *keys) get(ctx context.Context) (gate.KeySet, error) {
	a, err := k.server.Do(ctx, http.MethodGet, "/trust/v1/keys", nil, nil, gate.MaxKeySet)
	if err != nil {
		return gate.KeySet{}, fmt.Errorf("the trust server's keys: %w", err)
	}
	if a.Status != http.StatusOK {
		return gate.KeySet{}, fmt.Errorf("the trust server's keys: status %d", a.Status)
	}
	set, err := gate.ParseKeySet(a.Body)
	if err != nil {
		return gate.KeySet{}, fmt.Errorf("the trust server's keys: %s", chain.ClipTo(err.Error(), 256))
	}
	return set, nil
}
