// Package walk owns the failover: the one loop that retries. It tries the
// options of a chain in order until one succeeds, the budget is spent or the
// caller is gone, and learns from each attempt which options and keys to leave
// alone for a while. It is a state machine over a [Runner] that it declares: it
// knows no transport, and its machine has no clock and no goroutine. The rules
// stand in docs/walk.md.
package walk

import (
	"context"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Attempt is one upstream call that the walk wants made.
type Attempt struct {
	Number int           // of this request, from 1
	Option chain.Option  // what to run
	Key    string        // name of the key to use; "" where the option needs none
	Limits chain.Limits  // the option's, with every default filled in
	Budget time.Duration // what is left of the request's
	Lent   int           // upstream calls that the runner may spend, this one included; above 1 only for peers
}

// Chunk is a piece of an answer on its way to the caller: one event's data of
// a stream, or a whole plain answer. Meaningful is false for what does not count
// as output: role-only and empty deltas. The walk holds such chunks back until
// the first meaningful one.
type Chunk struct {
	Data       []byte
	Meaningful bool
}

// Outcome is how an attempt ended.
type Outcome struct {
	Class      chain.Class
	Status     int           // of the upstream's answer, 0 if there was none
	RetryAfter time.Duration // the upstream's wish; see HasRetryAfter
	Used       int           // upstream calls spent; 0 counts as 1, but for classes without an attempt
	Peer       chain.PeerID  // who ran it, for peer slots
	Input      int64         // tokens, as the upstream counted them; 0 unknown
	Output     int64
	Answer     *Answer // for CallerError: the upstream's answer, to be passed through

	HasRetryAfter bool // RetryAfter was given and could be read
}

// Answer is an upstream's refusal that the caller gets as it is.
type Answer struct {
	Status      int
	ContentType string
	Body        []byte
}

// Runner makes one attempt. It calls emit for each chunk; emit returns after
// the walk took the chunk and fails when the attempt was given up. Run ends soon
// after ctx does. It never retries, and classifies what happened by the table of
// docs/walk.md, but for timeouts, cuts, cancellation and being offline, which
// the walk sees itself.
type Runner interface {
	Run(ctx context.Context, a Attempt, emit func(Chunk) error) Outcome
}
