package trust

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// CountFile is where it is kept which of a hub's keys signs tokens. It holds a number
// and a time; the keys themselves follow from the identity (see [DeriveKey]) and are
// written nowhere.
const CountFile = "trust-key"

// RotateAfter is how long a key signs before the next takes its place.
const RotateAfter = 90 * 24 * time.Hour

// Files keeps the count. Package store/datadir has one.
type Files interface {
	ReadChecked(name string) ([]byte, error)
	WriteChecked(name string, b []byte) error
}

// Rotation is the ring of a hub, whose keys change and stay known over restarts. Its
// methods may be called at once from several goroutines.
type Rotation struct {
	files    Files
	identity chain.Key
	ring     *Ring

	mu    sync.Mutex
	count count
}

// count says which key signs, and since when.
type count struct {
	Key   uint32    `json:"key"` // from 1
	Since time.Time `json:"since"`
}

// OpenRotation reads which key signs; the first call begins with the first one. The
// key before it is published as long as tokens of it may be in use.
func OpenRotation(files Files, identity chain.Key, now time.Time) (*Rotation, error) {
	r := &Rotation{files: files, identity: identity}
	b, err := files.ReadChecked(CountFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.count = count{Key: 1, Since: now.UTC()}
		if err := r.keep(r.count); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("read which key signs tokens: %w", err)
	default:
		if err := json.Unmarshal(b, &r.count); err != nil || r.count.Key == 0 {
			return nil, fmt.Errorf("read which key signs tokens: %s holds no count from 1: remove it, and it begins anew", CountFile)
		}
	}
	first := max(r.count.Key-1, 1)
	key, err := DeriveKey(identity, first)
	if err != nil {
		return nil, err
	}
	r.ring = NewRing(key)
	if key, err = DeriveKey(identity, r.count.Key); err != nil {
		return nil, err
	}
	r.ring.Rotate(key, r.count.Since)
	return r, nil
}

// Ring gives the keys, for a [Server].
func (r *Rotation) Ring() *Ring { return r.ring }

// Due reports whether the key has signed for long enough.
func (r *Rotation) Due(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Sub(r.count.Since) >= RotateAfter
}

// Rotate makes the next key the one that signs. It is counted on disk first, so that
// no key that was replaced ever signs again.
func (r *Rotation) Rotate(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := count{Key: r.count.Key + 1, Since: now.UTC()}
	key, err := DeriveKey(r.identity, next.Key)
	if err != nil {
		return err
	}
	if err := r.keep(next); err != nil {
		return err
	}
	r.count = next
	r.ring.Rotate(key, now)
	return nil
}

func (r *Rotation) keep(c count) error {
	b, err := json.Marshal(c)
	if err == nil {
		err = r.files.WriteChecked(CountFile, b)
	}
	if err != nil {
		return fmt.Errorf("keep which key signs tokens: %w", err)
	}
	return nil
}
