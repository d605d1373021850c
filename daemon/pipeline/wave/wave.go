package wave

import (
	"context"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// Offer is one place where a sub-job can run: an option of the chain in force, and
// for a slot one of the peers that could fill it now.
type Offer struct {
	Option   chain.OptionID
	Peer     chain.PeerID  // of a slot; "" for this device's own options
	Provider string        // who is asked in the end: options with the same one share its fate and its queue
	Device   string        // where it runs: a peer's ID, "" for this device
	Model    string        // "" where only the peer knows
	Quality  float64       // declared, 0 to 1; 0 where nobody said
	Latency  time.Duration // expected to the end of an answer; 0 unknown
	Resting  bool          // cools down or is out of keys: last choice
}

// Task is one sub-job, however many copies of it run.
type Task struct {
	Name      string          // s1, s2, … of a subtask; else the role. Unique in its request
	Role      job.Role        // what it is for
	Primitive chain.Primitive // llm.t1, llm.t2, llm.t3, or llm.chat for a direct walk
	Tier      int             // 1 to 3; 0 for a direct walk
	Kind      string          // of a subtask: its type, for the affinity of model families; ours, never shown
	Wave      int             // from 1; 0 outside of waves
	After     []string        // names of the subtasks that it builds on
	Iteration int             // of a score or rewrite, from 1
	Final     bool            // its output may be the answer: hedged at rung 1 only, ranked by quality alone
	Body      []byte          // a chat completion request without model and stream; nobody changes it
	Budget    time.Duration   // 0: what is left of the request's

	// Deliver, where set, has the output passed on as it is made: the text of each
	// piece, from one goroutine at a time. The first copy that delivers owns the
	// stream: the others are superseded at once, and the task gets no further one.
	Deliver func(text string) error

	// Ended, where set, is called once the outcome of a task that began stands, before
	// Do returns and from any goroutine.
	Ended func(Outcome)
}

// Copy is one run of a task.
type Copy struct {
	Task   *Task            // as this copy runs it: its tier and primitive are a lower rung's, its Deliver is the copy's own
	First  string           // the job of the task's first copy; "" for that one
	Offer  *Offer           // to be tried first; nil: the chain's order decides
	Avoid  []chain.OptionID // where its other copies run: passed over while anything else is left
	Rung   int              // of the hedge ladder, 1 to 3; 0 for a first copy or a race
	Racing bool             // one of several that began together
}

// Outcome is how a copy ended.
type Outcome struct {
	Class    chain.Class // OK, or why there is no answer
	Text     string      // the answer; on a failure what there is of it is not used
	Short    bool        // the model stopped at a limit of length
	Option   chain.OptionID
	Peer     chain.PeerID
	Provider string
	Model    string
	Input    int64 // tokens; 0 unknown
	Output   int64
	Cost     chain.MicroUSD
	AtLeast  bool          // a part of the cost is unknown
	Took     time.Duration // from the acceptance to the end
	Attempts int           // upstream calls
}

// Runner runs copies as jobs of one request: each [Waves] has its own. Its methods
// are called from many goroutines at once.
type Runner interface {
	// Offers gives who could run work of p now, in the chain's order; none if there
	// is no chain for it or nobody is left.
	Offers(p chain.Primitive) []Offer

	// Run runs c as a job of its own to its end, and soon after ctx ends. It calls
	// begun once with the job's ID before anything else, and accepted each time that
	// somebody takes the job. Where c.Task has a Deliver, it gives the text there as
	// it comes; an error from it ends the run.
	Run(ctx context.Context, c Copy, begun func(id string), accepted func(option chain.OptionID, peer chain.PeerID)) Outcome

	// Settle says what became of a job among its copies: the winner, a loser that was
	// superseded, or nothing of that for one that ran alone. It is called once for
	// each job that has begun, after its Run; of one that has not ended a second after
	// it was cancelled, before: what its Run then says counts for its cost alone.
	Settle(id string, state job.State, hedge job.Hedge)
}
