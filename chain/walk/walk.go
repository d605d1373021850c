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
	Budget time.Duration // what is left of the request's, and may be used by this attempt
	Lent   int           // upstream calls that the runner may spend, this one included; above 1 only for peers
	Peer   chain.PeerID  // who runs it, for peer slots: one attempt, one peer
	Ended  bool          // for Deliver: the runner is done, the walk ends or goes on right after this delivery
}

// Chunk is a piece of an answer on its way to the caller: one event's data of
// a stream, or a whole plain answer. Meaningful is false for what does not count
// as output: role-only and empty deltas. The walk holds the first few of them
// back until the first meaningful one, and drops the rest. Data belongs to the
// walk once emitted: it must not be changed afterwards.
//
// More says that the runner has more at hand, so that the walk may put several
// chunks into one write. After it the runner must not wait for its upstream
// without an emit of the zero Chunk, which writes what is held and is no output.
type Chunk struct {
	Data       []byte
	Meaningful bool
	More       bool
}

// Outcome is how an attempt ended.
type Outcome struct {
	Class      chain.Class
	Status     int           // of the upstream's answer, 0 if there was none
	RetryAfter time.Duration // the upstream's wish; see HasRetryAfter
	Used       int           // upstream calls spent; 0 counts as 1, for a peer that vanished as all it was lent, for classes without an attempt as none
	Peer       chain.PeerID  // who ran it, for peer slots; "" is Attempt.Peer
	Input      int64         // tokens, as the upstream counted them; 0 unknown
	Output     int64
	Answer     *Answer // for CallerError: the upstream's answer, to be passed through

	HasRetryAfter bool // RetryAfter was given and could be read

	Why string // more than the class says, for the caller: who the peer was, and what it said. No content
}

// Answer is an upstream's refusal that the caller gets as it is.
type Answer struct {
	Status      int
	ContentType string
	Body        []byte
}

// Runner makes one attempt. It calls emit for each chunk, from one goroutine at a
// time; emit returns when the chunk was written to the caller, so that nothing of
// an answer is ever ahead of them, and fails when the attempt was given up. Run
// ends soon after ctx does. It never retries, and classifies what happened by the
// table of docs/walk.md, but for timeouts, cuts, cancellation and being offline,
// which the walk sees itself.
type Runner interface {
	Run(ctx context.Context, a Attempt, emit func(Chunk) error) Outcome
}

// Deliver hands data to the caller and returns when it was written. a is the
// attempt the data comes from. An error means that the caller is gone. It must
// not keep the outer slice, bounds its own waiting, and ends soon after the
// caller's context does.
type Deliver func(a Attempt, data [][]byte) error

// End is how a whole request ended.
type End string

// Ends. All but Answered and Refused are an error of the product's
// own wording; docs/walk.md maps them to what the caller sees.
const (
	Answered       End = "answered"        // one option answered
	Refused        End = "refused"         // the caller's error: Result.Answer is passed through
	Broken         End = "broken"          // cut after output reached the caller
	Left           End = "left"            // the caller is gone
	AllTimedOut    End = "all_timed_out"   // every attempt ended in a timeout, or the budget did
	AllCredentials End = "all_credentials" // every option failed on its keys
	AllCooling     End = "all_cooling"     // every option cools down: it did before, or its upstream asked for it now
	OverBudget     End = "over_budget"     // no option was tried, and one would have been but for the caller's own budget of money
	NothingToTry   End = "nothing_to_try"  // no option could be tried at all
	AllFailed      End = "all_failed"      // any other mixture
	Escalating     End = "escalating"      // an asynchronous protest is under way: come back
)

// Result is what is known of a request when its walk is over.
type Result struct {
	End        End
	Option     chain.OptionID  // that answered, broke or refused; else the last tried
	Attempts   int             // upstream calls spent
	Failures   []chain.Failure // options that failed or were passed over, in order
	RetryAfter time.Duration   // for AllCooling: until the first option is free; for OverBudget: until there may be more, as far as the rules let a caller wait; for Escalating: when to come back
	Why        string          // for OverBudget: whose budget, and until when
	Answer     *Answer         // for Refused; nil if the runner brought none
	Delivered  bool            // something reached the caller
	Extended   bool            // an extension was walked
	Skipped    int             // options of a kind that this version does not know
	Peers      []chain.PeerID  // that ran an attempt or were asked in vain, in order
	Input      int64           // tokens of the answer, also of one that broke; 0 unknown
	Output     int64
}

// Measurement is one finished attempt, for the device's reports.
type Measurement struct {
	Option      chain.OptionID
	Peer        chain.PeerID
	Class       chain.Class
	At          time.Time     // when it ended
	FirstOutput time.Duration // to the first meaningful output; 0 if there was none
	Total       time.Duration
	Bytes       int64
	Input       int64
	Output      int64
	Neutral     bool // says nothing about the option: caller gone, offline, busy, declined, the caller's own error, too short a budget
}
