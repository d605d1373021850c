// Package witness holds a mesh's ledger to what it has signed: it keeps the newest
// checkpoint that was seen, compares what others saw with it, and remembers two that do
// not fit as evidence. It owns which checkpoint counts as seen and when the ledger is
// asked. It must not know how checkpoints travel between devices, or what a ledger
// holds.
//
// In the state that it is given:
//
//	ledger-witness  the newest checkpoint, signed (package chain/merkle)
//	ledger-split    {"what","older","newer","at"}: two signed checkpoints that cannot both
//	                be true, or of which the ledger could not prove that they are
package witness

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/daemon/audit"
)

// Names in the state.
const (
	SeenFile  = "ledger-witness"
	SplitFile = "ledger-split"
)

// When the ledger is asked, and for how much.
const (
	lookEvery = time.Hour
	lookSoon  = time.Minute // after a peer showed what needs a proof, and after a failure
	maxHeard  = 8           // that wait for a proof
)

// State keeps what was seen. Errors of ReadChecked wrap fs.ErrNotExist where nothing
// was.
type State interface {
	ReadChecked(name string) ([]byte, error)
	WriteChecked(name string, b []byte) error
}

// Ledger is asked for its newest checkpoint, and for proofs that it grew. An
// [audit.Client] is one.
type Ledger interface {
	Checkpoint(ctx context.Context) ([]byte, error)
	Consistency(ctx context.Context, from, to int64) (merkle.Consistency, error)
}

var _ Ledger = (*audit.Client)(nil)

// seen is a checkpoint whose signature holds.
type seen struct {
	merkle.Checkpoint
	signed []byte // nil: none
}

// Split is evidence: two signed checkpoints of one ledger that do not fit.
type Split struct {
	What  string    `json:"what"`
	Older string    `json:"older"`
	Newer string    `json:"newer"`
	At    time.Time `json:"at"`
}

// Witness watches one ledger. Its methods may be called at once from several
// goroutines; those that do not take a context return at once, but for a write to the state.
type Witness struct {
	ledger Ledger
	state  State
	log    *slog.Logger
	poke   chan struct{} // room for one

	mu     sync.Mutex
	origin string
	key    ed25519.PublicKey // nil: no ledger is known
	newest seen
	heard  []seen // from others, larger or smaller than newest; not compared yet
	split  *Split
}

// New makes a witness that knows no ledger yet.
func New(ledger Ledger, state State, log *slog.Logger) *Witness {
	w := &Witness{ledger: ledger, state: state, log: log, poke: make(chan struct{}, 1)}
	var s Split
	if b, err := state.ReadChecked(SplitFile); err == nil && json.Unmarshal(b, &s) == nil && s.What != "" {
		w.split = &s
	}
	return w
}

// Watch says which ledger it is. What was kept of another one is forgotten.
func (w *Witness) Watch(origin string, key ed25519.PublicKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.origin, w.key, w.newest, w.heard = origin, key, seen{}, nil
	b, err := w.state.ReadChecked(SeenFile)
	if err == nil {
		var s seen
		if s, err = w.open(b); err == nil {
			w.newest = s
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.log.Warn("the checkpoint of the ledger that was seen last is not used", "error", err)
	}
}

// open checks who signed a checkpoint.
func (w *Witness) open(signed []byte) (seen, error) {
	if w.key == nil {
		return seen{}, errors.New("no ledger is known")
	}
	c, err := merkle.OpenCheckpoint(signed, w.origin, w.key)
	return seen{c, signed}, err
}

// Newest gives the newest checkpoint that was seen, for others; nil before the first.
func (w *Witness) Newest() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest.signed
}

// Problem says what is wrong with the ledger, in one line; "" if nothing is known.
func (w *Witness) Problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.split == nil {
		return ""
	}
	return "the ledger shows different people different pasts: " + w.split.What + "; the two signed checkpoints are in " + SplitFile + " in the data directory: docs/ledger.md"
}

// Heard takes what another device has seen. What the ledger's key did not sign is
// nothing.
func (w *Witness) Heard(signed []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if string(signed) == string(w.newest.signed) {
		return
	}
	s, err := w.open(signed)
	if err != nil {
		w.log.Debug("a peer's checkpoint of the ledger is not taken", "error", err)
		return
	}
	if w.newest.signed == nil || s.Size == w.newest.Size {
		w.judge(s, merkle.Consistency{})
		return
	}
	for _, h := range w.heard {
		if h.Checkpoint == s.Checkpoint {
			return
		}
	}
	if len(w.heard) == maxHeard {
		return // the ledger is asked about others already
	}
	w.heard = append(w.heard, s)
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// judge compares a checkpoint with the newest, and takes it for that if it is newer and
// fits. It holds mu.
func (w *Witness) judge(s seen, proof merkle.Consistency) {
	older, newer := w.newest, s
	if older.signed == nil {
		w.take(s)
		return
	}
	if older.Size > newer.Size {
		older, newer = newer, older
	}
	switch err := merkle.VerifyConsistency(older.Checkpoint, newer.Checkpoint, proof); {
	case err != nil:
		w.alarm(err.Error(), older, newer)
	case s.Size > w.newest.Size:
		w.take(s)
	}
}

func (w *Witness) take(s seen) {
	w.newest = s
	if err := w.state.WriteChecked(SeenFile, s.signed); err != nil {
		w.log.Warn("the newest checkpoint of the ledger is not kept", "error", err)
	}
}

// alarm keeps evidence. The first pair stays: it is as good as any.
func (w *Witness) alarm(what string, older, newer seen) {
	if w.split != nil {
		return
	}
	w.split = &Split{What: what, Older: string(older.signed), Newer: string(newer.signed), At: time.Now().UTC()}
	w.log.Error("the ledger signed two checkpoints that do not fit", "what", what, "older", older.Size, "newer", newer.Size)
	b, err := json.Marshal(w.split)
	if err == nil {
		err = w.state.WriteChecked(SplitFile, b)
	}
	if err != nil {
		w.log.Error("the evidence against the ledger is not kept", "error", err)
	}
}

// Run asks the ledger once in a while, and soon after a peer showed something new,
// until ctx ends.
func (w *Witness) Run(ctx context.Context) {
	timer := time.NewTimer(lookSoon)
	defer timer.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.poke:
			timer.Reset(max(0, lookSoon-time.Since(last)))
			continue
		case <-timer.C:
		}
		last = time.Now()
		next := lookEvery
		if err := w.Look(ctx); err != nil {
			w.log.Debug("the ledger was not looked at", "error", err)
			w.mu.Lock()
			if len(w.heard) > 0 {
				next = lookSoon
			}
			w.mu.Unlock()
		}
		timer.Reset(next)
	}
}

// Look asks the ledger for its newest checkpoint, and for proofs that all that was heard
// fits. An error means that nobody could be asked; what does not fit is a [Witness.Problem].
func (w *Witness) Look(ctx context.Context) error {
	w.mu.Lock()
	known := w.key != nil
	w.mu.Unlock()
	if !known {
		return nil
	}
	signed, err := w.ledger.Checkpoint(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	s, err := w.open(signed)
	todo := append([]seen{s}, w.heard...)
	w.mu.Unlock()
	if err != nil {
		return fmt.Errorf("the ledger's newest checkpoint: %w", err)
	}
	for _, s := range todo {
		if err := w.compare(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// compare asks for the proof that a checkpoint needs, and judges it.
func (w *Witness) compare(ctx context.Context, s seen) error {
	w.mu.Lock()
	have := w.newest
	w.mu.Unlock()
	from, to := min(have.Size, s.Size), max(have.Size, s.Size)
	var proof merkle.Consistency
	if have.signed != nil && from > 0 && from < to {
		var err error
		switch proof, err = w.ledger.Consistency(ctx, from, to); {
		case errors.Is(err, audit.ErrNotFound):
			// It does not know a size that it signed: it shows others more than us.
			w.mu.Lock()
			older, newer := have, s
			if older.Size > newer.Size {
				older, newer = newer, older
			}
			w.alarm(fmt.Sprintf("%v: it signed %d lines and does not know them", merkle.ErrShortened, to), older, newer)
			w.settle(s)
			w.mu.Unlock()
			return nil
		case err != nil:
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if have.signed != nil && w.newest.Checkpoint != have.Checkpoint {
		return nil // heard meanwhile: the next look is about that
	}
	w.judge(s, proof)
	w.settle(s)
	return nil
}

// settle forgets what was compared. It holds mu.
func (w *Witness) settle(s seen) {
	for i := range w.heard {
		if w.heard[i].Checkpoint == s.Checkpoint {
			w.heard = append(w.heard[:i:i], w.heard[i+1:]...)
			return
		}
	}
}
