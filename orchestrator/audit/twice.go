package audit

import (
	"crypto/ed25519"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/orchestrator/ledger"
)

// Bounds of what is remembered and said of tokens.
const (
	maxUses  = 1 << 15     // tokens and nonces, and up to twice as many: 7 MB at most
	sayTwice = time.Minute // between two lines in the log
)

// twice notices tokens that were used by two, as their receipts come.
type twice struct {
	log   *slog.Logger
	count atomic.Uint64

	mu    sync.Mutex
	uses  *receipt.Uses
	said  time.Time
	since uint64 // found since then and not said
}

// DoubleUses is how often since the start a receipt came by which a token was used by two:
// see [receipt.Uses]. Tokens of before the start, and those that were not met for long, are
// not remembered: it is a sign, and a report over the whole ledger is the proof.
func (s *Service) DoubleUses() uint64 { return s.twice.count.Load() }

func newTwice(log *slog.Logger) *twice { return &twice{log: log, uses: receipt.NewUses(maxUses)} }

// look takes in a genuine receipt, and what became of it: one that the ledger did not take,
// because it has another one of the same piece of work, counts as well.
func (t *twice) look(l *ledger.Log, got *receipt.Signed, place ledger.Place, err error, keys []ed25519.PublicKey) {
	if got.TokenID == "" || place.Known || err != nil && !errors.Is(err, ledger.ErrConflict) {
		return
	}
	now := time.Now()
	t.mu.Lock()
	found := t.uses.Add(got, place.Index, keys...)
	t.since += uint64(len(found))
	n, say := t.since, len(found) > 0 && now.Sub(t.said) >= sayTwice
	if say {
		t.said, t.since = now, 0
	}
	t.mu.Unlock()
	t.count.Add(uint64(len(found)))
	if !say {
		return
	}
	first := "" // what the ledger has, unless that was the one that it did not take
	if line, err := l.Line(found[0].First); err == nil {
		if r, err := receipt.Parse(line); err == nil && r.TokenID == got.TokenID {
			first = r.ID()
		}
	}
	t.log.Warn("alarm: a token was used by two", "kind", found[0].Kind, "token_id", chain.Clip(got.TokenID), "receipt", chain.Clip(got.ID()), "signer", chain.Clip(got.Signer()),
		"first", chain.Clip(first), "since_last", n, "advice", "chordwheel receipts report --ledger says whose receipts name it")
}
